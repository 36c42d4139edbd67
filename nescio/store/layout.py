"""The layout of a safetensors file: eight bytes of length, a JSON object that places each tensor, then the bytes.

The safetensors library (0.8, for torch) opens a file twice by its name and maps it into memory. A reader would then mix
two files when a writer replaces one in between, and would be killed by the system when somebody cuts the file short.
Here a file is opened once and read into memory of our own. No length in the file is believed before it is checked
against the size of the file.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from typing import BinaryIO, NamedTuple

import torch
from torch import Tensor

from nescio.errors import InputError
from nescio.store.plain import encodable, parse
from nescio.store.seal import CODES

_DTYPES = {code: dtype for dtype, code in CODES.items()}
_MOST_BYTES = 1 << 24  # some hundred thousand tensors
_LEVELS = 3  # the object, the object of a tensor, its shape
MOST_DIMENSIONS = 64


class Place(NamedTuple):
    """Where a tensor lies in the file, and as what."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int


def build(tensors: Iterable[tuple[str, Tensor]], metadata: dict[str, str]) -> bytes:
    """The start of a file that holds these tensors in this order."""
    layout: dict[str, object] = {"__metadata__": metadata}
    end = 0
    for name, tensor in tensors:
        begin, end = end, end + tensor.nbytes
        layout[name] = {"dtype": CODES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(layout, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the tensors are aligned
    if len(text) > _MOST_BYTES:
        raise InputError("names and shapes must fit into 16 MiB", f"{len(layout):,} tensors", "stack some of them")
    return len(text).to_bytes(8, "little") + text


def take(file: BinaryIO) -> tuple[dict[str, str], dict[str, Place]]:
    """The metadata and the places in an open file; a ValueError says what is wrong with it."""
    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    if len(start) < 8:
        raise ValueError(f"only {len(start)} bytes")
    length = int.from_bytes(start, "little")
    if length > min(size - 8, _MOST_BYTES):
        raise ValueError("a zip archive or a pickle" if start.startswith((b"PK", b"\x80")) else "a cut or foreign file")
    text = file.read(length)
    layout = parse(text, _MOST_BYTES, _LEVELS) if text.startswith(b"{") else None
    if not isinstance(layout, dict) or not all(map(encodable, layout)):
        raise ValueError("a cut or foreign file")
    metadata = layout.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("metadata that are not text")
    spans = sorted((*_span(entry), name) for name, entry in layout.items())
    # The tensors fill the file: nothing overlaps, nothing is left out.
    ends = [0, *(end for _, end, _ in spans)]
    if any(begin != end for (begin, _, _), end in zip(spans, ends, strict=False)) or ends[-1] != size - 8 - length:
        raise ValueError("tensors that do not fill the file one after another")
    return metadata, {
        name: Place(_DTYPES[layout[name]["dtype"]], tuple(layout[name]["shape"]), 8 + length + begin)
        for begin, _, name in spans
    }


def _span(entry: object) -> tuple[int, int]:
    """The first byte of a tensor and the one after its last, when they agree with its dtype and shape."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError("a tensor without dtype, shape and data_offsets")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(code, str) or code not in _DTYPES:
        raise ValueError("an unknown dtype")
    if not _counts(shape) or len(shape) > MOST_DIMENSIONS or not _counts(offsets) or len(offsets) != 2:
        raise ValueError("a shape or an offset that is none")
    width = _DTYPES[code].itemsize
    if math.prod(max(count, 1) for count in shape) * width >= 1 << 63:
        raise ValueError("a shape beyond all memory")
    if offsets[1] - offsets[0] != math.prod(shape) * width:
        raise ValueError("a shape that does not fit its bytes")
    return offsets[0], offsets[1]


def _counts(value: object) -> bool:
    return isinstance(value, list) and all(type(count) is int and count >= 0 for count in value)
