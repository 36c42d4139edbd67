"""One tensor as decisions of the arithmetic coder, and back: shape, levels by grid or codebook, spreads; or numbers as they are.

Sizes are checked against the network's own before anything is read: a file cannot ask for more memory than the network has.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nescio.compression.coder import Decoder, Encoder
from nescio.compression.precision import Levels


def put_tensor(out: Encoder, tensor: Levels | Tensor, old: Tensor | None, spread: Tensor | None, spreads: bool) -> None:
    shape = tensor.level.shape if isinstance(tensor, Levels) else tensor.shape
    for axis, size in enumerate(shape):
        same = old is not None and old.shape[axis] == size
        out.bit(int(same), out.at("same size"))
        if not same:
            out.count(size, "size")
    out.bit(int(isinstance(tensor, Levels)), out.at("levels"))
    if not isinstance(tensor, Levels):
        put_raw(out, tensor)
        return
    flat = tensor.level.reshape(-1).tolist()
    out.bit(int(tensor.book is not None), out.at("book"))
    if tensor.book is None:
        put_floats(out, torch.tensor([tensor.step]))
        out.signed(flat, "levels", len(shape) > 1)
    else:
        out.count(len(tensor.book), "book size")
        put_floats(out, tensor.book[1:])
        width = max(1, (len(tensor.book) - 1).bit_length())
        for level in flat:
            put_symbol(out, level, width)
    if spreads:
        out.bit(int(spread is not None), out.at("spread"))
        if spread is not None:
            values = spread.reshape(-1)[tensor.level.reshape(-1) != 0]
            base = int(values.double().median()) if len(values) else 0
            out.signed([base], "spread base")
            out.signed((values - base).tolist(), "spread")


def take_tensor(given: Decoder, most: Tensor, new: bool, spreads: bool) -> tuple[Levels | Tensor, Tensor | None]:
    shape = []
    for size in most.shape:
        if new or not given.bit(given.at("same size")):
            if new and given.bit(given.at("same size")):
                raise ValueError("a new tensor with an old size")
            shape.append(given.count("size"))
            if not 0 < shape[-1] <= size:
                raise ValueError("a tensor larger than that of the network, or empty")
        else:
            shape.append(size)
    if not given.bit(given.at("levels")):
        return take_raw(given, most.dtype, shape), None
    n = int(np.prod(shape)) if shape else 1
    if given.bit(given.at("book")):
        size = given.count("book size")
        if not 1 < size <= 4096:
            raise ValueError("a codebook of a size that is none")
        book = torch.cat([torch.zeros(1), take_floats(given, (size - 1,))])
        width = max(1, (size - 1).bit_length())
        level = torch.tensor([take_symbol(given, width) for _ in range(n)], dtype=torch.long).view(shape)
        if n and int(level.max()) >= size:
            raise ValueError("a level that the codebook does not have")
        found = Levels(level, 0.0, book)
    else:
        step = float(take_floats(given, (1,)))
        level = torch.tensor(given.signed(n, "levels", len(shape) > 1), dtype=torch.long).view(shape)
        found = Levels(level, step, None)
        if not bool(found.value().isfinite().all()):
            raise ValueError("a weight that is not finite")
    spread = None
    if spreads and given.bit(given.at("spread")):
        some = (level.reshape(-1) != 0).nonzero()[:, 0]
        base = given.signed(1, "spread base")[0]
        spread = torch.zeros(n, dtype=torch.long)
        spread[some] = torch.tensor(given.signed(len(some), "spread"), dtype=torch.long) + base
        if n and int(spread.abs().max()) > 1000:
            raise ValueError("a standard deviation beyond all measure")
        spread = spread.view(shape)
    return found, spread


def put_symbol(out: Encoder, symbol: int, width: int) -> None:
    """One of 2^width, digit by digit, each by those before it."""
    node = 1
    for i in reversed(range(width)):
        digit = symbol >> i & 1
        out.bit(digit, out.at("symbol", width, node))
        node = node << 1 | digit


def take_symbol(given: Decoder, width: int) -> int:
    node = 1
    for _ in range(width):
        node = node << 1 | given.bit(given.at("symbol", width, node))
    return node - (1 << width)


def put_floats(out: Encoder, x: Tensor) -> None:
    for number in x.detach().cpu().float().reshape(-1).numpy().view(np.uint32).tolist():
        out.bits(number, 32)


def take_floats(given: Decoder, shape: tuple[int, ...] | list[int]) -> Tensor:
    n = int(np.prod(shape)) if len(shape) else 1
    words = np.array([given.bits(32) for _ in range(n)], dtype=np.uint32)
    found = torch.from_numpy(words.view(np.float32).copy()).view(list(shape))
    if not bool(found.isfinite().all()):
        raise ValueError("a number that is not finite")
    return found


def put_raw(out: Encoder, x: Tensor) -> None:
    if x.is_floating_point():
        put_floats(out, x)
        return
    for number in x.detach().cpu().long().reshape(-1).tolist():
        out.bits(number & 2**64 - 1, 64)


def take_raw(given: Decoder, dtype: torch.dtype, shape: list[int]) -> Tensor:
    if dtype.is_floating_point:
        return take_floats(given, shape)
    n = int(np.prod(shape)) if shape else 1
    words = np.array([given.bits(64) for _ in range(n)], dtype=np.uint64)
    return torch.from_numpy(words.view(np.int64).copy()).view(shape).to(dtype)
