"""The format of a draw log: two copies of a head, then chunks of draws.

A chunk is a frame (magic, sequence number, block of chains, first and last step, numbers of chains and draws, length, and a
CRC-32 of these), then steps, values and scalars, then a CRC-32 of those. The first checksum starts from that of the head and the
second from the first, so a chunk of another log is as bad as a damaged one. No number is used before its checksum is right.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import torch
from torch import Tensor

from nescio.errors import FileError
from nescio.store.header import decode, encode
from nescio.store.seal import CODES, as_bytes, fault

_MAGIC = b"\x89drawlog"  # no text starts so
_FRAME = struct.Struct("<8sQqqqQQQ")  # the magic and the fields of Frame
_SUM = struct.Struct("<I")
_START = _FRAME.size + _SUM.size
_WINDOW = 1 << 20  # bytes searched at a time for the next magic
_MOST_HEAD = 1 << 21
_DTYPES = {code: dtype for dtype, code in CODES.items()}


class Frame(NamedTuple):
    """What a chunk says about itself; the head has the number 0 and no draws."""

    sequence: int
    block: int
    first: int
    last: int
    chains: int
    draws: int
    length: int

    def size(self) -> int:
        """Of the whole chunk."""
        return _START + self.length + _SUM.size


class Stretch(NamedTuple):
    """Successive draws of one block of chains."""

    block: int
    steps: Tensor  # (draws,), int64, growing
    values: Tensor  # (draws, chains, width)
    scalars: dict[str, Tensor]  # (draws, chains) each

    def parts(self) -> list[Tensor]:
        return [self.steps, self.values, *self.scalars.values()]

    def part(self, rows: slice) -> Stretch:
        return Stretch(self.block, self.steps[rows], self.values[rows], {n: s[rows] for n, s in self.scalars.items()})


@dataclass(frozen=True)
class Columns:
    """What there is of a draw: for each chain a vector and named scalars."""

    width: int
    dtype: torch.dtype
    scalars: tuple[tuple[str, torch.dtype], ...]

    def bytes_per_draw(self, chains: int) -> int:
        return 8 + chains * (self.width * self.dtype.itemsize + sum(dtype.itemsize for _, dtype in self.scalars))

    def empty(self, block: int, draws: int, chains: int) -> Stretch:
        scalars = {name: torch.empty(draws, chains, dtype=dtype, device="cpu") for name, dtype in self.scalars}
        values = torch.empty(draws, chains, self.width, dtype=self.dtype, device="cpu")
        return Stretch(block, torch.empty(draws, dtype=torch.int64, device="cpu"), values, scalars)


class Head(NamedTuple):
    """What every chunk of a log shares."""

    columns: Columns
    header: dict[str, object]
    seed: int  # the checksum, from which those of the chunks start
    size: int  # of both copies: where the first chunk is


def encode_head(columns: Columns, header: dict[str, object]) -> list[memoryview]:
    scalars = [[name, CODES[dtype]] for name, dtype in columns.scalars]
    plain = {"width": columns.width, "dtype": CODES[columns.dtype], "scalars": scalars}
    text = encode({"columns": plain, "header": header}).encode()
    chunk, _ = _encode(Frame(0, 0, 0, 0, 0, 0, len(text)), [memoryview(text)], 0)
    return [*chunk, *chunk]


def encode_chunk(stretch: Stretch, sequence: int, seed: int) -> tuple[list[memoryview], Frame]:
    """The bytes of a chunk, not joined, and its frame."""
    draws, chains, _ = stretch.values.shape
    parts = [as_bytes(part) for part in stretch.parts()]
    first, last = int(stretch.steps[0]), int(stretch.steps[-1])
    return _encode(Frame(sequence, stretch.block, first, last, chains, draws, sum(map(len, parts))), parts, seed)


def _encode(frame: Frame, parts: list[memoryview], seed: int) -> tuple[list[memoryview], Frame]:
    start = _FRAME.pack(_MAGIC, *frame)
    total = first = zlib.crc32(start, seed)
    for part in parts:
        total = zlib.crc32(part, total)
    return [memoryview(start + _SUM.pack(first)), *parts, memoryview(_SUM.pack(total))], frame


def take_head(file: BinaryIO, path: str) -> Head:
    """The head, from its second copy if the first is damaged."""
    size = os.fstat(file.fileno()).st_size
    position: int | None = 0
    while position is not None and position <= _MOST_HEAD:
        try:
            frame, total = take_frame(file, position, size, 0)
            if frame.sequence or frame.length > _MOST_HEAD or position not in (0, frame.size()):
                raise ValueError("no head")
            text = bytearray(frame.length)
            seed = _fill(file, [memoryview(text)], total)
            content = decode(text.decode(), path)
            return Head(_columns(content), content["header"], seed, 2 * frame.size())  # type: ignore[arg-type]
        except (ValueError, KeyError, TypeError):
            position = find(file, position + 1)
    got = f"a damaged or foreign file at {path!r}"
    raise FileError("the file must be a draw log of nescio's", got, "check the name or restore it from a copy")


def _columns(content: dict[str, object]) -> Columns:
    plain = content["columns"]
    if not isinstance(plain, dict) or type(plain["width"]) is not int or plain["width"] < 1:
        raise ValueError("no columns")
    return Columns(plain["width"], _DTYPES[plain["dtype"]], tuple((n, _DTYPES[code]) for n, code in plain["scalars"]))


def take_frame(file: BinaryIO, position: int, size: int, seed: int) -> tuple[Frame, int]:
    """The frame at `position` and its checksum, if the chunk is all in the file; else a ValueError says why not."""
    file.seek(position)
    start = file.read(_START)
    if len(start) < _START or not start.startswith(_MAGIC):
        raise ValueError("no chunk")
    found = zlib.crc32(start[: _FRAME.size], seed)
    check_sum(found, *_SUM.unpack(start[_FRAME.size :]))
    frame = Frame(*_FRAME.unpack(start[: _FRAME.size])[1:])
    if frame.size() > size - position:
        raise ValueError("a chunk that is cut")
    return frame, found


def take_stretch(file: BinaryIO, frame: Frame, total: int, columns: Columns) -> Stretch:
    """The draws after a frame just taken."""
    if min(frame.chains, frame.draws) < 1 or frame.length != frame.draws * columns.bytes_per_draw(frame.chains):
        raise ValueError("a length that does not fit the draws")
    stretch = columns.empty(frame.block, frame.draws, frame.chains)
    _fill(file, [as_bytes(part) for part in stretch.parts()], total)
    steps = stretch.steps
    if (steps[0], steps[-1]) != (frame.first, frame.last) or (steps[1:] <= steps[:-1]).any():
        raise ValueError("steps that do not grow")
    if any(fault(part) for part in stretch.parts() if part.dtype == torch.bool):
        raise ValueError("bools that are neither 0 nor 1")
    return stretch


def _fill(file: BinaryIO, parts: list[memoryview], total: int) -> int:
    """Fill the parts from the file and return their checksum; they may be used only then."""
    for part in parts:
        if file.readinto(part) != len(part):  # type: ignore[attr-defined]
            raise ValueError("a file that was cut while it was read")
        total = zlib.crc32(part, total)
    end = file.read(_SUM.size)
    if len(end) < _SUM.size:
        raise ValueError("a file that was cut while it was read")
    check_sum(total, *_SUM.unpack(end))
    return total


def check_sum(found: int, stored: int) -> None:
    if found != stored:
        raise ValueError("content that does not match its CRC-32")


def find(file: BinaryIO, position: int) -> int | None:
    """Where the next magic is, at `position` or behind it."""
    while True:
        file.seek(position)
        window = file.read(_WINDOW)
        found = window.find(_MAGIC)
        if found >= 0:
            return position + found
        if len(window) < _WINDOW:
            return None
        position += _WINDOW - len(_MAGIC) + 1
