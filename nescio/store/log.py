"""The draw log: an append-only file to which a sampler streams its draws as it makes them.

Draws gather in memory until a chunk is full. Whatever stops a writer, the file holds whole chunks and at most one torn one
behind them, which the next to open it cuts off. When the disk fails, no draw is lost: it waits in memory for the next `flush`.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise

import torch
from torch import Tensor

from nescio.errors import FileError, InputError
from nescio.store.atomic import disk_error, file_name, replace_file, sweep
from nescio.store.chunks import Columns, Stretch, encode_chunk, encode_head
from nescio.store.reader import LogReader
from nescio.store.seal import CODES
from nescio.store.tail import End, Tail

_COPY = 1 << 22  # bytes copied at a time


class _Buffer:
    """A chunk in memory; once closed, it takes no more draws."""

    def __init__(self, sequence: int, space: Stretch) -> None:
        self.sequence, self.space = sequence, space
        self.count = 0
        self.closed = False

    @torch.no_grad()
    def put(self, steps: Sequence[int], values: Tensor, scalars: Mapping[str, Tensor]) -> int:
        """Take as many draws as there is room for, and say how many."""
        begin, taken = self.count, min(len(steps), len(self.space.steps) - self.count)
        to = slice(begin, begin + taken)
        self.space.steps[to] = torch.tensor(steps[:taken])
        self.space.values[to] = values[:taken] if taken < len(steps) else values
        for name, scalar in self.space.scalars.items():
            scalar[to] = scalars[name][:taken] if taken < len(steps) else scalars[name]
        self.count += taken
        self.closed = self.count == len(self.space.steps)
        return taken


class DrawLog:
    """The one writer of a log; it holds the lock of the folder."""

    def __init__(self, tail: Tail, chunk_bytes: int) -> None:
        """For `open`."""
        self._tail, self._chunk_bytes = tail, chunk_bytes
        self._buffers: deque[_Buffer] = deque()
        self.path, self.cut = tail.path, tail.cut  # `cut`: bytes of torn or damaged chunks that opening has cut off

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        width: int,
        dtype: torch.dtype,
        header: dict[str, object],
        scalars: Mapping[str, torch.dtype] | None = None,
        chunk_bytes: int = 1 << 20,
    ) -> DrawLog:
        """The log at `path`, created if there is none; one that is there must be of the same kind, and is gone on with."""
        columns = Columns(width, dtype, tuple((scalars or {}).items()))
        if type(width) is not int or width < 1 or type(chunk_bytes) is not int or chunk_bytes < 1:
            raise InputError("width and chunk_bytes must be positive", f"{width!r}, {chunk_bytes!r}", "pass integers")
        for name, kind in (("values", dtype), *columns.scalars):
            if kind not in CODES:
                raise InputError("a draw must be of a dtype that can be stored", f"{kind} for {name}", "convert it")
        target = os.path.realpath(file_name(path))
        head = encode_head(columns, header)
        try:
            sweep(os.path.dirname(target), re.escape(os.path.basename(target)))
        except OSError as error:
            raise disk_error("a log needs a folder to write into", error, target) from error
        if not os.path.lexists(target):
            replace_file(target, head, sum(map(len, head)), LogReader)
        tail = Tail(target)
        if (tail.head.columns, tail.head.header) != (columns, header):
            tail.close()
            got = f"a log with other columns or another header at {target!r}"
            raise FileError("a log must be gone on with as it was begun", got, "choose another name or remove it")
        return cls(tail, chunk_bytes)

    @property
    def draws(self) -> int:
        """How many draws the log has taken, those in memory included."""
        return self._tail.end.draws + sum(buffer.count for buffer in self._waiting())

    def append(self, block: int, step: int, values: Tensor, scalars: Mapping[str, Tensor] | None = None) -> None:
        """One draw of a block of chains: values (chains, width), each scalar (chains,).

        A FileError says that the disk has failed, not that the draw is lost: it waits in memory.
        """
        self.extend(block, (step,), values[None], {name: scalar[None] for name, scalar in (scalars or {}).items()})

    def extend(self, block: int, steps: Sequence[int], values: Tensor, scalars: Mapping[str, Tensor]) -> None:
        """Several draws of a block: values (draws, chains, width), each scalar (draws, chains)."""
        if not len(steps):
            return
        self._check(block, steps, values, scalars)
        columns, chains = self._tail.head.columns, values.shape[1]
        self._tail.ends[block] = chains, steps[-1]
        while True:
            last = self._buffers[-1] if self._buffers else None
            if last is None or last.closed or last.space.block != block:
                if last is not None:
                    last.closed = True
                rows = max(1, self._chunk_bytes // columns.bytes_per_draw(chains))
                sequence = self._tail.end.sequence if last is None else last.sequence + 1
                self._buffers.append(last := _Buffer(sequence, columns.empty(block, rows, chains)))
            taken = last.put(steps, values, scalars)
            if taken == len(steps):
                break
            steps, values, scalars = steps[taken:], values[taken:], {n: s[taken:] for n, s in scalars.items()}
        self._write_out()

    def flush(self) -> None:
        """All draws so far into the file, and the file onto the disk."""
        if self._buffers:
            self._buffers[-1].closed = True
        self._write_out()
        self._tail.sync()

    def truncate_to(self, draws: int) -> None:
        """Keep the first `draws` draws, in the order in which they came, and forget the rest; for resuming."""
        if type(draws) is not int or not 0 <= draws <= self.draws:
            got = f"{draws!r}, with {self.draws} draws in {self.path!r}"
            raise FileError("a log must hold the draws it is cut back to", got, "resume from an earlier checkpoint")
        self.flush()
        tail, reader = self._tail, LogReader(self.path)
        for _ in reader.stretches(draws):
            pass
        before, ends = End(reader.position, reader.sequence, reader.draws), dict(reader.ends)
        if before.draws == draws:
            tail.end, tail.ends = before, ends
            tail.trim()
            return
        # The cut goes through a chunk: its first part goes into a new file, and the old one stays until that is whole.
        chunk = next(reader.stretches(), None)
        if chunk is None:
            raise FileError("a log must stay as it was written", f"damage in {self.path!r}", "open it again")
        parts, frame = encode_chunk(chunk.part(slice(draws - before.draws)), before.sequence, tail.head.seed)
        with open(self.path, "rb") as file:
            left = range(before.position, 0, -_COPY)
            pieces = (memoryview(file.read(min(_COPY, size))) for size in left)
            replace_file(self.path, chain(pieces, parts), before.position + frame.size(), LogReader)
        tail.close()
        self._tail = Tail(self.path)

    def close(self) -> None:
        """Flush and close; the log takes no more draws."""
        try:
            if self._waiting():
                self.flush()
        finally:
            self._tail.close()

    def __enter__(self) -> DrawLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _waiting(self) -> list[_Buffer]:
        # A chunk may stand here and in the file when an interrupt came between the two.
        return [buffer for buffer in self._buffers if buffer.sequence >= self._tail.end.sequence]

    def _write_out(self) -> None:
        """Write the chunks that are closed, in order; one that fails stays in memory."""
        while self._buffers and self._buffers[0].closed:
            buffer = self._buffers[0]
            if buffer.sequence >= self._tail.end.sequence:
                self._tail.write(buffer.space.part(slice(buffer.count)))
            self._buffers.popleft()

    def _check(self, block: int, steps: Sequence[int], values: Tensor, scalars: Mapping[str, Tensor]) -> None:
        self._tail.file()
        columns, shape = self._tail.head.columns, tuple(values.shape)
        if len(shape) != 3 or shape[0] != len(steps) or shape[2] != columns.width or not shape[1]:
            want = f"values must be ({len(steps)} draws, chains, {columns.width})"
            raise InputError(want, str(shape), "give each chain one vector a draw")
        if values.dtype != columns.dtype:
            raise InputError(f"values must be {columns.dtype}", str(values.dtype), "convert them")
        for name, dtype in columns.scalars:
            scalar = scalars.get(name)
            if scalar is None or scalar.dtype != dtype or scalar.shape != shape[:2]:
                got = "none" if scalar is None else f"{scalar.dtype} {tuple(scalar.shape)}"
                raise InputError(f"{name} must be {dtype} {shape[:2]}", got, "give one number a chain and draw")
        if len(scalars) != len(columns.scalars):
            raise InputError("scalars must be those of the log", ", ".join(scalars), "name them when it is opened")
        chains, last = self._tail.ends.get(block, (shape[1], steps[0] - 1))
        if chains != shape[1]:
            raise InputError(f"block {block} must have {chains} chains", str(shape[1]), "use another block")
        if any(after <= before for before, after in pairwise((last, *steps))):
            raise InputError("the steps of a block must grow", f"{list(steps)[:3]} after {last}", "take each draw once")
