"""A matrix of blocks that do not touch: each an operator on entries of its own, which need not lie next to each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

import torch
from torch import Tensor

from nescio.errors import InputError
from nescio.linalg.operator import LARGEST, Dense, Diag, Operator


@final
@dataclass(frozen=True, eq=False)
class Blocks(Operator):
    """`places[i]`: which entries block i acts on, in its order. Together they are all entries, each once."""

    operators: tuple[Operator, ...]
    places: tuple[Tensor, ...]
    kind: ClassVar[str] = "Blocks"

    def __post_init__(self) -> None:
        sizes = [operator.size for operator in self.operators]
        flat = torch.cat(self.places)
        counted = torch.bincount(flat, minlength=len(flat))
        if sizes != [len(place) for place in self.places] or len(counted) != len(flat) or bool((counted != 1).any()):
            raise InputError("blocks must cover every entry once", f"{sizes} for {len(flat)}", "check the places")

    @property
    def size(self) -> int:
        return sum(operator.size for operator in self.operators)

    def __matmul__(self, x: Tensor) -> Tensor:
        return self.together([op @ x[place] for op, place in self.pairs()])

    def plus(self, other: Operator) -> Operator | None:
        if isinstance(other, Diag):
            return self.each(lambda op, place: op + Diag(other.values[place]))
        return joined(self, other) if isinstance(other, Blocks) else None

    def times(self, factor: Tensor | float) -> Blocks:
        return self.each(lambda op, _: op.times(factor))

    def inverse(self) -> Blocks:
        return self.each(lambda op, _: op.inverse())

    def root(self, z: Tensor) -> Tensor:
        return self.together([op.root(z[place]) for op, place in self.pairs()])

    def logdet(self) -> Tensor:
        return torch.stack([operator.logdet() for operator in self.operators]).sum()

    def diagonal(self) -> Tensor:
        return self.together([operator.diagonal() for operator in self.operators])

    def tensors(self) -> dict[str, Tensor]:
        parts = ((i, op, place) for i, (op, place) in enumerate(self.pairs()))
        return {f"{i}.{name}": x for i, op, place in parts for name, x in (*op.tensors().items(), ("place", place))}

    def pairs(self) -> list[tuple[Operator, Tensor]]:
        return list(zip(self.operators, self.places, strict=True))

    def each(self, change: Callable[[Operator, Tensor], Operator]) -> Blocks:
        return Blocks(tuple(change(op, place) for op, place in self.pairs()), self.places)

    def together(self, parts: list[Tensor]) -> Tensor:
        """The pieces of a vector, or of columns, in their places."""
        return torch.cat(parts)[self.back]

    @cached_property
    def back(self) -> Tensor:
        """For each entry, where it is among the blocks laid end to end."""
        return torch.argsort(torch.cat(self.places))


def joined(a: Blocks, b: Blocks) -> Blocks:
    """The sum: blocks that overlap are taken together, however many there are on each side."""
    owner = torch.empty(a.size, dtype=torch.long, device=a.like.device)
    for i, place in enumerate(a.places):
        owner[place] = i
    groups: list[tuple[set[int], list[int]]] = []  # blocks of a, blocks of b
    for j, place in enumerate(b.places):
        mine, theirs = set(owner[place].tolist()), [j]
        for group in [g for g in groups if g[0] & mine]:
            groups.remove(group)
            mine, theirs = mine | group[0], group[1] + theirs
        groups.append((mine, theirs))
    summed = [added([a.pairs()[i] for i in sorted(mine)], [b.pairs()[j] for j in theirs]) for mine, theirs in groups]
    return Blocks(tuple(op for op, _ in summed), tuple(place for _, place in summed))


def added(left: list[tuple[Operator, Tensor]], right: list[tuple[Operator, Tensor]]) -> tuple[Operator, Tensor]:
    """One block from blocks of the same entries."""
    for some, others in ((left, right), (right, left)):
        if len(some) == 1:
            operator, place = some[0]
            if len(others) == 1 and torch.equal(place, others[0][1]):
                return operator + others[0][0], place
            if all(isinstance(other, Diag) for other, _ in others):
                entries = torch.cat([where for _, where in others])
                values = torch.cat([other.diagonal() for other, _ in others])
                ordered = values[torch.argsort(entries)][torch.argsort(torch.argsort(place))]
                return operator + Diag(ordered), place
    place = torch.cat([where for _, where in left])
    if len(place) > LARGEST:
        got = f"{len(place)} entries"
        raise InputError(f"blocks that cross must have at most {LARGEST} entries", got, "use a diagonal structure")
    return Dense(scattered(left, place) + scattered(right, place)), place


def scattered(blocks: list[tuple[Operator, Tensor]], place: Tensor) -> Tensor:
    """The dense matrix of some blocks, in the order of `place`."""
    rank = torch.empty(int(place.max()) + 1, dtype=torch.long, device=place.device)
    rank[place] = torch.arange(len(place), device=place.device)
    matrix = torch.zeros(len(place), len(place), dtype=blocks[0][0].like.dtype, device=place.device)
    for operator, where in blocks:
        own = rank[where]
        matrix = matrix.index_put((own[:, None], own), operator.dense())
    return matrix
