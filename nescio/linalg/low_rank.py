"""A diagonal and a few directions: D + F diag(v) Fᵀ. By Woodbury everything costs as much as there are directions.

D + F v Fᵀ = D^½ (1 + Q t Qᵀ) D^½   with Q orthonormal, so    inverse  D^-½ (1 - Q t/(1+t) Qᵀ) D^-½,   log det  Σ log D + Σ log(1+t)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

import torch
from torch import Tensor

from nescio.linalg.operator import Diag, Operator, along, expect_positive


@final
@dataclass(frozen=True, eq=False)
class LowRank(Operator):
    """`values` (size,): the diagonal. `directions` (size, rank), each weighed by one of `weights` (rank,), which may be negative."""

    values: Tensor
    directions: Tensor
    weights: Tensor
    kind: ClassVar[str] = "LowRank"

    @property
    def size(self) -> int:
        return len(self.values)

    def __matmul__(self, x: Tensor) -> Tensor:
        return along(self.values, x) + self.directions @ along(self.weights, self.directions.mT @ x)

    def plus(self, other: Operator) -> Operator | None:
        if isinstance(other, Diag):
            return LowRank(self.values + other.values, self.directions, self.weights)
        if isinstance(other, LowRank):
            directions = torch.cat([self.directions, other.directions], 1)
            return LowRank(self.values + other.values, directions, torch.cat([self.weights, other.weights]))
        return None

    def times(self, factor: Tensor | float) -> LowRank:
        return LowRank(self.values * factor, self.directions, self.weights * factor)

    @cached_property
    def canonical(self) -> tuple[Tensor, Tensor]:
        """Q (size, rank) and t (rank,)."""
        expect_positive(self.values)
        q, r = torch.linalg.qr(along(self.values.rsqrt(), self.directions))
        t, turn = torch.linalg.eigh(r * self.weights @ r.mT)
        expect_positive(1 + t)
        return q @ turn, t

    def inverse(self) -> LowRank:
        q, t = self.canonical
        return LowRank(self.values.reciprocal(), along(self.values.rsqrt(), q), -t / (1 + t))

    def root(self, z: Tensor) -> Tensor:
        q, t = self.canonical
        return along(self.values.sqrt(), z + q @ along((1 + t).sqrt() - 1, q.mT @ z))

    def logdet(self) -> Tensor:
        return self.values.log().sum() + torch.log1p(self.canonical[1]).sum()

    def diagonal(self) -> Tensor:
        return self.values + self.directions.square() @ self.weights

    def tensors(self) -> dict[str, Tensor]:
        return {"values": self.values, "directions": self.directions, "weights": self.weights}
