r"""Covariance matrices that can be learned: all of them, or a diagonal and a few directions.

    Full        Σ = L Lᵀ,          L = diag(σ) (1 + C),   C strictly lower triangular
    LowRank     Σ = D² + F Fᵀ,     D = diag(σ),           F of a few columns

with σ = softplus(ρ). F starts small and random: at zero it would have no slope.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nescio.noise import Noise


class Covariance(nn.Module, ABC):
    """Of `size` numbers, about sd² times the identity at first. `begin` is called once the parameters have changed."""

    rho: nn.Parameter

    def __init__(self, size: int, sd: float, like: Tensor) -> None:
        super().__init__()
        start = torch.full((size,), sd + math.log(-math.expm1(-sd)))  # softplus(rho) = sd
        self.rho = nn.Parameter(start.to(like))

    @abstractmethod
    def begin(self, detach: bool = False) -> None:
        """`detach`: gradients do not flow into the parameters."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Of the white noise that a draw takes."""

    @abstractmethod
    def root_times(self, white: Tensor) -> Tensor:
        """R x with R Rᵀ = Σ, (width, columns) to (size, columns)."""

    def correlate(self, columns: int) -> Tensor:
        """Independent columns of N(0, Σ), (size, columns)."""
        return self.root_times(torch.randn(self.width, columns, dtype=self.rho.dtype, device=self.rho.device))

    @abstractmethod
    def times(self, x: Tensor) -> Tensor:
        """Σ x, (size, columns)."""

    @abstractmethod
    def variances(self) -> Tensor:
        """The diagonal, (size,)."""

    @abstractmethod
    def half_log_det(self) -> Tensor:
        """½ log det Σ."""

    @abstractmethod
    def solve(self, x: Tensor) -> Tensor:
        """Σ⁻¹ x, (size, columns)."""

    def length(self, x: Tensor) -> Tensor:
        """xᵀ Σ⁻¹ x, summed over columns in double precision."""
        return (x * self.solve(x)).sum(dtype=torch.float64)

    def matrix(self) -> Tensor:
        """Σ itself."""
        return self.times(torch.eye(len(self.rho), dtype=self.rho.dtype, device=self.rho.device))


@final
class Full(Covariance):
    def __init__(self, size: int, sd: float, like: Tensor) -> None:
        super().__init__(size, sd, like)
        self.lower = nn.Parameter(like.new_zeros(size, size))

    def begin(self, detach: bool = False) -> None:
        rho, lower = (self.rho.detach(), self.lower.detach()) if detach else (self.rho, self.lower)
        self.root = F.softplus(rho)[:, None] * (
            lower.tril(-1) + torch.eye(len(rho), dtype=rho.dtype, device=rho.device)
        )

    @property
    def width(self) -> int:
        return len(self.rho)

    def root_times(self, white: Tensor) -> Tensor:
        return self.root @ white

    def times(self, x: Tensor) -> Tensor:
        return self.root @ (self.root.mT @ x)

    def variances(self) -> Tensor:
        return self.root.square().sum(1)

    def half_log_det(self) -> Tensor:
        return self.root.diagonal().log().sum(dtype=torch.float64)

    def solve(self, x: Tensor) -> Tensor:
        return torch.cholesky_solve(x, self.root)

    def length(self, x: Tensor) -> Tensor:
        """Of what was white: a sum of squares, however badly L is conditioned."""
        return torch.linalg.solve_triangular(self.root, x, upper=False).square().sum(dtype=torch.float64)


@final
class LowRankPlusDiagonal(Covariance):
    def __init__(self, size: int, rank: int, sd: float, like: Tensor) -> None:
        super().__init__(size, sd, like)
        noise = Noise(0, ("directions",)).normal(size, rank)
        self.directions = nn.Parameter((0.3 * sd / math.sqrt(rank) * noise).to(like))

    def begin(self, detach: bool = False) -> None:
        self.f = self.directions.detach() if detach else self.directions.view_as(self.directions)  # no second parameter
        self.sd = F.softplus(self.rho.detach() if detach else self.rho)
        self.scaled = self.f / self.sd[:, None]
        inner = self.scaled.mT @ self.scaled
        inner = inner + torch.eye(len(inner), dtype=inner.dtype, device=inner.device)
        self.root = torch.linalg.cholesky_ex(inner)[
            0
        ]  # of 1 + Fᵀ D⁻² F; nobody waits for a GPU to say that it went well

    @property
    def width(self) -> int:
        return sum(self.directions.shape)

    def root_times(self, white: Tensor) -> Tensor:
        size = len(self.rho)
        return torch.addmm(self.sd[:, None] * white[:size], self.f, white[size:])

    def times(self, x: Tensor) -> Tensor:
        return torch.addmm(self.sd.square()[:, None] * x, self.f, self.f.mT @ x)

    def variances(self) -> Tensor:
        return self.sd.square() + self.f.square().sum(1)

    def half_log_det(self) -> Tensor:
        return self.sd.log().sum(dtype=torch.float64) + self.root.diagonal().log().sum(dtype=torch.float64)

    def solve(self, x: Tensor) -> Tensor:
        """D⁻² x - D⁻² F (1 + Fᵀ D⁻² F)⁻¹ Fᵀ D⁻² x."""
        white = x / self.sd[:, None]
        return (white - self.scaled @ torch.cholesky_solve(self.scaled.mT @ white, self.root)) / self.sd[:, None]
