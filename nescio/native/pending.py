"""What a pass over memory is made of: operations that wait, sums among them, and how their text names the buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from nescio.native.places import Access, Buffer, Value

FOLDS = {  # what is summed up: first value, operation, reduction of OpenMP
    "sum": ("0", "{0} += {1}", "+"),
    "any": ("0", "{0} |= {1}", "|"),
    "amax": ("-INFINITY", "{0} = LARGEST({0}, {1})", "largest"),
    "amin": ("INFINITY", "{0} = SMALLEST({0}, {1})", "smallest"),
}


class Fold(NamedTuple):
    """A reduction over some dimensions."""

    kind: str
    dims: frozenset[int]

    @property
    def first(self) -> str:
        return FOLDS[self.kind][0]

    def joined(self, total: str, number: str) -> str:
        return FOLDS[self.kind][1].format(total, number) + ";"

    @property
    def reduction(self) -> str:
        return FOLDS[self.kind][2]

    def inner(self, dims: Sequence[int]) -> int:
        """How many of the innermost loops are summed over."""
        kept = [n for n, dim in enumerate(reversed(dims)) if dim not in self.dims]
        return kept[0] if kept else len(dims)


@dataclass(eq=False)
class Pending:
    """An operation whose numbers are not computed yet. A fold's own value is that of the numbers summed up, in `dtype`."""

    text: str
    operands: dict[str, Access | Pending | float]
    shape: tuple[int, ...]  # of the loop
    dtype: torch.dtype
    computes: torch.dtype  # the type in which it computes
    invariant: bool  # whether it comes before the loop
    fold: Fold | None = None
    stored: bool = False  # whether anybody outside of the pass needs it
    value: Value | None = None

    @property
    def reads(self) -> list[Access]:
        return [x for x in self.operands.values() if isinstance(x, Access)]


class Step(NamedTuple):
    """A piece of text; buffers are named in it by their place in `buffers`, and pointed to when all are known."""

    text: str
    buffers: tuple[Buffer, ...]


class Writer:
    """Names of the buffers of one step."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []

    def name(self, buffer: Buffer) -> str:
        if buffer not in self.buffers:
            self.buffers.append(buffer)
        return f"b{self.buffers.index(buffer)}"

    def at(self, access: Access, places: Sequence[tuple[str, int]]) -> str:
        """An element, given the names of the loops and which dimension each runs over."""
        terms = [f"{name} * {access.strides[dim]}" for name, dim in places if access.strides[dim]]
        for i in access.by:
            terms.append(
                f"{'either' if i.wraps else 'place'}({self.at(i.where, places)}, {i.size}, &outside) * {i.stride}"
            )
        return f"{self.name(access.buffer)}[{' + '.join([str(access.offset), *terms])}]"
