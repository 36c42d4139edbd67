"""Where numbers lie: buffers, and views of them.

A view is a tensor without numbers (torch's "meta" device), whose strides and offset torch itself works out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nescio.native.elementwise import TYPES

LANE = 64  # bytes of a vector: rows of a buffer are whole ones
Strides = Sequence[int]


class Unsupported(Exception):
    """Something that is not written in C here: it is left to torch's compiler."""


class Buffer:
    """`argument`: what to call the pointer that the caller hands in; else it lies in the workspace. `invariant`: the same at each turn
    of a loop, and for all chains."""

    def __init__(self, dtype: torch.dtype, length: int, invariant: bool, argument: str | None = None) -> None:
        if dtype not in TYPES:
            raise Unsupported(f"numbers of type {dtype}")
        self.dtype, self.length, self.invariant, self.argument = dtype, length, invariant, argument
        self.offset = 0  # in the workspace, in bytes; known at last

    @property
    def bytes(self) -> int:
        return -(-(self.length * self.dtype.itemsize) // LANE) * LANE + LANE  # a vector may be read past the end

    @property
    def kind(self) -> str:
        return TYPES[self.dtype][0]

    @property
    def pointer(self) -> str:
        return f"(void *){self.argument}" if self.argument else f"(void *)(work + {self.offset})"


class Value(NamedTuple):
    """A tensor that lies in a buffer."""

    buffer: Buffer
    view: Tensor

    @property
    def invariant(self) -> bool:
        return self.buffer.invariant

    def like(self, view: Tensor) -> Value:
        return Value(self.buffer, view)

    @property
    def mirrored(self) -> Value:
        return self.like(self.view.mT)

    def expanded(self, shape: Sequence[int]) -> Access:
        view = self.view.expand(tuple(shape))
        return Access(self.buffer, view.stride(), int(view.storage_offset()), ())

    def owns(self, view: Tensor) -> bool:
        """Whether a tensor that torch made of this one is a view of it, and no copy."""
        return view.untyped_storage()._cdata == self.view.untyped_storage()._cdata


class Index(NamedTuple):
    """A number by which to go further in a buffer: so many strides."""

    where: Access
    stride: int
    size: int  # how many there are
    wraps: bool  # whether negative ones count from the end


class Access(NamedTuple):
    """How a loop finds its number in a buffer: strides for its own dimensions, and other numbers by which to go further."""

    buffer: Buffer
    strides: Strides
    offset: int
    by: tuple[Index, ...]

    @property
    def buffers(self) -> set[Buffer]:
        return {self.buffer}.union(*(index.where.buffers for index in self.by))


def dense(shape: Sequence[int], order: Sequence[int], dtype: torch.dtype, padded: bool) -> tuple[Tensor, int]:
    """A layout with the last dimension of `order` fastest, its rows whole vectors if `padded`; and how many numbers it takes."""
    strides, step, lane = [1] * len(shape), 1, LANE // dtype.itemsize
    for i, dim in enumerate(reversed([d for d in order if shape[d] > 1])):
        strides[dim] = step
        step *= shape[dim]
        if padded and i == 0 and shape[dim] >= lane:
            step = -(-step // lane) * lane
    return torch.empty_strided(tuple(shape), strides, dtype=dtype, device="meta"), step


def whole_vectors(value: Value, dim: int) -> bool:
    """Whether numbers of this dimension lie side by side, and reading up to a whole vector stays within the workspace's row."""
    view, lane = value.view, LANE // value.buffer.dtype.itemsize
    if value.buffer.argument or view.stride(dim) != 1 or view.storage_offset() % lane:
        return False
    return all(view.stride(d) % lane == 0 for d in range(view.dim()) if d != dim and view.shape[d] > 1)
