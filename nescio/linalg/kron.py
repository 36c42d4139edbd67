"""Kronecker products, and their sums with each other, which have a closed form.

    A ⊗ B + P ⊗ Q = (X ⊗ Y) (a bᵀ + 1) (X ⊗ Y)ᵀ,    P^-½ A P^-½ = U a Uᵀ,  X = P^½ U,   and likewise Q^-½ B Q^-½ = V b Vᵀ,  Y = Q^½ V

Vectors are matrices (rows, columns) laid end to end row by row: (A ⊗ B) vec(M) = vec(A M Bᵀ). A factor is a matrix, or a vector
that stands for a diagonal one: a prior with a scale for each row and each column is such a product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from torch import Tensor

from nescio.linalg.operator import Dense, Diag, Operator, expect_positive
from nescio.linalg.symmetric import eigen


@final
@dataclass(frozen=True, eq=False)
class Kron(Operator):
    """left ⊗ right, each (n, n), or (n,) for a diagonal one."""

    left: Tensor
    right: Tensor
    kind: ClassVar[str] = "Kron"

    @property
    def size(self) -> int:
        return len(self.left) * len(self.right)

    def __matmul__(self, x: Tensor) -> Tensor:
        return both(self.left, self.right, x)

    def plus(self, other: Operator) -> Operator | None:
        """Where the other is a product, too, and one of them positive definite."""
        product = other if isinstance(other, Kron) else as_product(other, len(self.left), len(self.right))
        if product is None or len(product.left) != len(self.left):
            return None
        one, two = (self, product) if product.definite() else (product, self)
        if not two.definite():
            return None
        (a, *lefts), (b, *rights) = together(one.left, two.left), together(one.right, two.right)
        found = Spectral(lefts[0], rights[0], lefts[1], rights[1], a[:, None] * b + 1, two.logdet())
        if isinstance(other, Diag) and other.values.requires_grad:  # a product here, but perhaps not a step further
            slack = (
                found.inverse().diagonal().detach() * (other.values - product.diagonal())
            ).sum()  # zero, with a slope
            found = replace(found, volume=found.volume + slack)
        return found

    def definite(self) -> bool:
        return all(
            bool((f > 0).all()) if f.dim() == 1 else not bool(torch.linalg.cholesky_ex(f.detach())[1])
            for f in (self.left, self.right)
        )

    def times(self, factor: Tensor | float) -> Kron:
        return Kron(self.left, self.right * factor)

    def inverse(self) -> Kron:
        return Kron(*(f.reciprocal() if f.dim() == 1 else Dense(f).inverse().matrix for f in (self.left, self.right)))

    def root(self, z: Tensor) -> Tensor:
        return both(factor(self.left), factor(self.right), z)

    def logdet(self) -> Tensor:
        left, right = (f.log().sum() if f.dim() == 1 else Dense(f).logdet() for f in (self.left, self.right))
        return len(self.right) * left + len(self.left) * right

    def diagonal(self) -> Tensor:
        left, right = (f if f.dim() == 1 else f.diagonal() for f in (self.left, self.right))
        return (left[:, None] * right).reshape(-1)

    def tensors(self) -> dict[str, Tensor]:
        return {"left": self.left, "right": self.right}


@final
@dataclass(frozen=True, eq=False)
class Spectral(Operator):
    """(left ⊗ right) diag(values) (left ⊗ right)ᵀ with values (rows, columns) and invertible factors, not always rotations.

    `inner`, `outer`: the inverses of left and right, transposed, which are known when these are made.
    `volume`: log det of the same with all values 1. It is carried along, because its gradient through eigenvectors would divide
    by the differences of eigenvalues, which may be equal.
    """

    left: Tensor
    right: Tensor
    inner: Tensor
    outer: Tensor
    values: Tensor
    volume: Tensor
    kind: ClassVar[str] = "Spectral"

    @property
    def size(self) -> int:
        return self.values.numel()

    def __matmul__(self, x: Tensor) -> Tensor:
        flat = self.values.reshape(-1, *[1] * (x.dim() - 1))
        return both(self.left, self.right, flat * both(turned(self.left), turned(self.right), x))

    def plus(self, other: Operator) -> Operator | None:
        return None

    def times(self, factor: Tensor | float) -> Spectral:
        return replace(self, values=self.values * factor)

    def inverse(self) -> Spectral:
        expect_positive(self.values)
        return Spectral(self.inner, self.outer, self.left, self.right, self.values.reciprocal(), -self.volume)

    def root(self, z: Tensor) -> Tensor:
        expect_positive(self.values)
        return both(self.left, self.right, self.values.sqrt().reshape(-1, *[1] * (z.dim() - 1)) * z)

    def logdet(self) -> Tensor:
        expect_positive(self.values)
        return self.values.log().sum() + self.volume

    def diagonal(self) -> Tensor:
        left, right = (f.square().diag() if f.dim() == 1 else f.square() for f in (self.left, self.right))
        return (left @ self.values @ right.mT).reshape(-1)

    def tensors(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in ("left", "right", "inner", "outer", "values", "volume")}


def both(left: Tensor, right: Tensor, x: Tensor) -> Tensor:
    """(left ⊗ right) x."""
    matrix = x.reshape(len(left), len(right), -1)  # (rows, columns, vectors)
    matrix = left[:, None, None] * matrix if left.dim() == 1 else torch.einsum("ij,jkv->ikv", left, matrix)
    matrix = right[:, None] * matrix if right.dim() == 1 else torch.einsum("kl,ilv->ikv", right, matrix)
    return matrix.reshape(x.shape)


def turned(f: Tensor) -> Tensor:
    return f if f.dim() == 1 else f.mT


def factor(f: Tensor) -> Tensor:
    """A root of a factor."""
    return f.sqrt() if f.dim() == 1 else Dense(f).lower


def together(a: Tensor, p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Eigenvalues and X with a = X diag(values) Xᵀ and p = X Xᵀ; and the inverse of Xᵀ."""
    if a.dim() == 1 and p.dim() == 1:
        return a / p, p.sqrt(), p.rsqrt()
    a = a.diag() if a.dim() == 1 else a
    if p.dim() == 1:
        root = p.sqrt()
        values, vectors = eigen(a / (root[:, None] * root))
        return values.clamp_min(0), root[:, None] * vectors, vectors / root[:, None]
    lower = Dense(p).lower
    half = torch.linalg.solve_triangular(lower, a, upper=False)
    values, vectors = eigen(torch.linalg.solve_triangular(lower, half.mT, upper=False))
    return values.clamp_min(0), lower @ vectors, torch.linalg.solve_triangular(lower.mT, vectors, upper=True)


def as_product(other: Operator, rows: int, columns: int) -> Kron | None:
    """A diagonal that is the product of a number for each row and one for each column, as such."""
    if not isinstance(other, Diag):
        return None
    table = other.values.view(rows, columns)
    left, right = table[:, 0] / table[0, 0], table[0]
    close = torch.allclose(left[:, None] * right, table, rtol=1e-6, atol=0.0)
    return Kron(left, right) if close and bool((table > 0).all()) else None
