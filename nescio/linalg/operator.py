"""Symmetric matrices that know their structure: one face, and the two that need no idea, `Diag` and `Dense`.

A covariance is an operator, and so is a precision. What can be added, inverted and factored in closed form stays structured; two
that do not fit together become a dense matrix, if that is small enough, and are refused otherwise. All of it is differentiable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

import torch
from torch import Tensor

from nescio.errors import InputError, UnsupportedError
from nescio.noise import Noise

LARGEST = 8192  # rows of a matrix that is made dense without having been asked for: half a gigabyte


class Operator(ABC):
    """A symmetric matrix, positive definite where it is inverted or factored. Vectors are columns: (size,) or (size, columns)."""

    kind: ClassVar[str]  # its name in a file

    @property
    @abstractmethod
    def size(self) -> int: ...

    @abstractmethod
    def __matmul__(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def plus(self, other: Operator) -> Operator | None:
        """The sum where the structure survives or is dense anyway; None otherwise."""

    @abstractmethod
    def times(self, factor: Tensor | float) -> Operator: ...

    @abstractmethod
    def inverse(self) -> Operator: ...

    @abstractmethod
    def root(self, z: Tensor) -> Tensor:
        """L z for an L with L Lᵀ = the matrix."""

    @abstractmethod
    def logdet(self) -> Tensor: ...

    @abstractmethod
    def diagonal(self) -> Tensor: ...

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """What it is made of, by the names of its constructor."""

    def __add__(self, other: Operator) -> Operator:
        if self.size != other.size:
            raise InputError("matrices of one size can be added", f"{self.size} and {other.size}", "check the blocks")
        for known in (self.plus(other), other.plus(self)):
            if known is not None:
                return known
        if self.size > LARGEST:
            must = f"the sum of {type(self).__name__} and {type(other).__name__} must be made dense"
            got = f"{self.size} rows, {self.size**2 * 8 / 2**30:.1f} GB"
            raise UnsupportedError(must, got, "use a diagonal structure, or one number for each row and column")
        return Dense(self.dense() + other.dense())

    def add_diag(self, d: Tensor) -> Operator:
        return self + Diag(d.expand(self.size))

    def dense(self) -> Tensor:
        return self @ torch.eye(self.size, dtype=self.like.dtype, device=self.like.device)

    def solve(self, x: Tensor) -> Tensor:
        return self.inverse() @ x

    def inv_sqrt(self, z: Tensor) -> Tensor:
        """L z for an L with L Lᵀ = the inverse."""
        return self.inverse().root(z)

    def sample(self, n: int, noise: Noise) -> Tensor:
        """n draws of N(0, matrix), (n, size)."""
        return self.root(noise.to(self.like.device, self.like.dtype).normal(n, self.size).mT).mT

    @property
    def like(self) -> Tensor:
        """One of its tensors, for device and precision."""
        return next(t for t in self.tensors().values() if t.is_floating_point())


@final
@dataclass(frozen=True, eq=False)
class Diag(Operator):
    """`values`: the diagonal, (size,)."""

    values: Tensor
    kind: ClassVar[str] = "Diag"

    @property
    def size(self) -> int:
        return len(self.values)

    def __matmul__(self, x: Tensor) -> Tensor:
        return along(self.values, x)

    def plus(self, other: Operator) -> Operator | None:
        return Diag(self.values + other.values) if isinstance(other, Diag) else None

    def times(self, factor: Tensor | float) -> Diag:
        return Diag(self.values * factor)

    def inverse(self) -> Diag:
        expect_positive(self.values)
        return Diag(self.values.reciprocal())

    def root(self, z: Tensor) -> Tensor:
        expect_positive(self.values)
        return along(self.values.sqrt(), z)

    def logdet(self) -> Tensor:
        expect_positive(self.values)
        return self.values.log().sum()

    def diagonal(self) -> Tensor:
        return self.values

    def tensors(self) -> dict[str, Tensor]:
        return {"values": self.values}


@final
@dataclass(frozen=True, eq=False)
class Dense(Operator):
    """`matrix`: (size, size)."""

    matrix: Tensor
    kind: ClassVar[str] = "Dense"

    @property
    def size(self) -> int:
        return len(self.matrix)

    def __matmul__(self, x: Tensor) -> Tensor:
        return self.matrix @ x

    def plus(self, other: Operator) -> Operator | None:
        return Dense(self.matrix + other.dense())

    def times(self, factor: Tensor | float) -> Dense:
        return Dense(self.matrix * factor)

    @cached_property
    def lower(self) -> Tensor:
        """The Cholesky factor."""
        lower, failed = torch.linalg.cholesky_ex(self.matrix)
        if failed:
            expect_positive(torch.linalg.eigvalsh(self.matrix))  # says how far it is from it
            raise InputError(
                "a matrix must be positive definite", "one that is not, by rounding", "add to its diagonal"
            )
        return lower

    def inverse(self) -> Dense:
        return Dense(torch.cholesky_inverse(self.lower))

    def solve(self, x: Tensor) -> Tensor:
        return torch.cholesky_solve(x if x.dim() > 1 else x[:, None], self.lower).view(x.shape)

    def root(self, z: Tensor) -> Tensor:
        return self.lower @ z

    def logdet(self) -> Tensor:
        return 2 * self.lower.diagonal().log().sum()

    def diagonal(self) -> Tensor:
        return self.matrix.diagonal()

    def tensors(self) -> dict[str, Tensor]:
        return {"matrix": self.matrix}


def along(values: Tensor, x: Tensor) -> Tensor:
    """A diagonal matrix times columns."""
    return values * x if x.dim() == 1 else values[:, None] * x


def expect_positive(values: Tensor) -> None:
    least = float(values.detach().min())
    if not least > 0:
        remedy = "go nearer to the mode, or use a prior that is a hill there, such as Normal"
        raise InputError("a covariance or precision must be positive definite", f"an eigenvalue {least:.3g}", remedy)
