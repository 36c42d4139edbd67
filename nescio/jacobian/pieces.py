"""Derivatives of some outputs by some weights, example by example, in a form that need not be multiplied out.

K columns s_k at the outputs of N examples, pulled back to a block of weights: rows J_kn = s_knᵀ ∂f_n/∂w. For a linear map that each
example meets once they are outer products of what comes back (g) and what went in (a); nothing else has to be held.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Piece(ABC):
    """Rows (K, N, p) for the p weights at the places `index`, (p,), of a flat vector."""

    index: Tensor

    @abstractmethod
    def jacobian(self) -> Tensor:
        """(K, N, p)."""

    @abstractmethod
    def cost(self) -> int:
        """Bytes that it takes, with what must be multiplied out on the way."""

    def some(self) -> Plain:
        """Only the weights whose place is not negative."""
        keep = (self.index >= 0).nonzero()[:, 0]
        return Plain(self.index[keep], self.jacobian()[..., keep])

    def square(self) -> Tensor:
        """Σ over columns and examples of each entry's square, (p,)."""
        return self.jacobian().square().sum((0, 1))

    def dot(self, vectors: Tensor) -> Tensor:
        """J v: (p, v) to (K, N, v)."""
        return self.jacobian() @ vectors

    def pull(self, numbers: Tensor) -> Tensor:
        """Jᵀ c: (K, N, v) to (p, v)."""
        return self.jacobian().flatten(0, 1).mT @ numbers.flatten(0, 1)

    def weighted(self, d: Tensor) -> Tensor:
        """J diag(d) Jᵀ of each example, (N, K, K)."""
        rows = self.jacobian().transpose(0, 1)
        return (rows * d) @ rows.mT


@final
@dataclass(frozen=True, eq=False)
class Plain(Piece):
    """The rows themselves."""

    rows: Tensor

    def jacobian(self) -> Tensor:
        return self.rows

    def cost(self) -> int:
        return 2 * self.rows.nbytes


@final
@dataclass(frozen=True, eq=False)
class Outer(Piece):
    """Σ over R positions of g aᵀ: a matrix (outputs, inputs) of weights that acts as a linear map at each position."""

    seen: Tensor  # (N, R, inputs), without that of a bias
    g: Tensor  # (K, N, R, outputs)
    biased: bool = False

    @cached_property
    def a(self) -> Tensor:
        """(N, R, inputs), a one for the bias last."""
        return torch.cat([self.seen, self.seen.new_ones(*self.seen.shape[:2], 1)], -1) if self.biased else self.seen

    def jacobian(self) -> Tensor:
        if self.single:
            return (self.g[:, :, 0, :, None] * self.a[:, 0, None, :]).flatten(2)
        k, n, positions, outputs = self.g.shape
        back = self.g.permute(1, 0, 3, 2).reshape(
            n, k * outputs, positions
        )  # columns side by side: `a` is not repeated
        return (back @ self.a).view(n, k, -1).transpose(0, 1)

    def cost(self) -> int:
        multiplied = (
            0 if self.single else 2 * self.g.shape[0] * self.g.shape[1] * len(self.index) * self.g.element_size()
        )
        return 2 * (self.seen.nbytes + self.g.nbytes) + multiplied

    def some(self) -> Plain:
        """Gathered, not multiplied out: outputs and inputs of these weights alone, position by position."""
        keep = (self.index >= 0).nonzero()[:, 0]
        row, column = keep // self.a.shape[-1], keep % self.a.shape[-1]
        rows = self.g[:, :, 0][..., row] * self.a[:, 0][..., column]
        for r in range(1, self.a.shape[1]):
            rows = torch.addcmul(rows, self.g[:, :, r][..., row], self.a[:, r][..., column].expand_as(rows))
        return Plain(self.index[keep], rows)

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs: the weights at `index` are this matrix, row by row."""
        return self.g.shape[-1], self.seen.shape[-1] + self.biased

    @property
    def single(self) -> bool:
        """Each example meets the weights once."""
        return self.seen.shape[1] == 1

    def square(self) -> Tensor:
        if self.single:
            return (self.g[:, :, 0].square().sum(0).mT @ self.a[:, 0].square()).reshape(-1)
        return self.jacobian().square().sum((0, 1))

    def dot(self, vectors: Tensor) -> Tensor:
        if not self.single:
            return self.jacobian() @ vectors
        matrices = vectors.view(self.g.shape[-1], self.a.shape[-1], -1)  # (outputs, inputs, v)
        through = torch.einsum("ni,oiv->nov", self.a[:, 0], matrices)
        return torch.einsum("kno,nov->knv", self.g[:, :, 0], through)

    def pull(self, numbers: Tensor) -> Tensor:
        if not self.single:
            return self.jacobian().flatten(0, 1).mT @ numbers.flatten(0, 1)
        back = torch.einsum("kno,knv->nov", self.g[:, :, 0], numbers)
        return torch.einsum("nov,ni->oiv", back, self.a[:, 0]).flatten(0, 1)

    def weighted(self, d: Tensor) -> Tensor:
        if not self.single:
            rows = self.jacobian().transpose(0, 1)
            return (rows * d) @ rows.mT
        each = self.a[:, 0].square() @ d.view(self.g.shape[-1], -1).mT  # (N, outputs)
        g = self.g[:, :, 0].transpose(0, 1)  # (N, K, outputs)
        return (g * each[:, None]) @ g.mT

    def between(self, matrix: Tensor) -> Tensor:
        """J M Jᵀ of each example, (N, K, K), for an (outputs x inputs)² matrix; what went in is contracted first."""
        if not self.single:
            rows = self.jacobian().transpose(0, 1)
            return rows @ matrix @ rows.mT
        outputs, inputs = self.shape
        a, g = self.a[:, 0], self.g[:, :, 0].transpose(0, 1)  # (N, inputs), (N, K, outputs)
        half = a @ matrix.view(outputs, inputs, -1).transpose(0, 1).reshape(inputs, -1)
        each = (half.view(len(a), -1, inputs) @ a[:, :, None]).view(len(a), outputs, outputs)
        return g @ each @ g.mT

    def turned(self, left: Tensor, right: Tensor) -> Outer:
        """J (left ⊗ right)."""
        g = self.g * left if left.dim() == 1 else self.g @ left
        return Outer(self.index, self.a * right if right.dim() == 1 else self.a @ right, g)
