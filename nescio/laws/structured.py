"""Laws with correlated weights: w = loc + scale * L z with z white and L the Cholesky factor of a covariance.

`Correlated` takes a covariance over the weights of each tensor, or with `.per("net")` one over all tensors that the law matches
(Σ of size (#weights)²); `MatrixNormal` the Kronecker product of one over outputs and one over inputs.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor

from nescio.errors import InputError
from nescio.laws.law import BoundLaw, Law, Number, Sharing, positive, real
from nescio.laws.site import Group, Site

Covariance = Tensor | Callable[[Site], Tensor]


@dataclass(frozen=True, eq=False, repr=False)
class Structured(Law):
    """A Gaussian law with a covariance. Subclasses say how it is factorised at the sites."""

    location_scale: ClassVar[bool] = True

    @abstractmethod
    def factors(self, group: Group) -> list[tuple[Tensor, ...]]:
        """For each block in order, one Cholesky factor, or two for a Kronecker product (rows, columns)."""

    def bind(self, group: Group) -> BoundLaw:
        return Whitened(self.factors(group))


@final
@dataclass(frozen=True, eq=False, repr=False)
class Correlated(Structured):
    """N(loc, scale² Σ) over the flattened weights of each tensor; `.per("net")`: over all the matched tensors together."""

    covariance: Covariance
    loc: Number = real(0.0)
    scale: Number = positive(1.0)
    sharing: Sharing = field(default="layer", kw_only=True)

    def factors(self, group: Group) -> list[tuple[Tensor, ...]]:
        if self.sharing == "net":
            if callable(self.covariance):
                raise InputError(
                    'Correlated(...).per("net") needs a tensor', "a callable of one site", "build the whole matrix"
                )
            return [(cholesky(self.covariance, group.size, "all matched weights"),)]
        return [(cholesky(at(self.covariance, site), site.size, site.name),) for site in group.sites]


@final
@dataclass(frozen=True, eq=False, repr=False)
class MatrixNormal(Structured):
    """W = loc + scale * A Z Bᵀ with AAᵀ = rows (outputs) and BBᵀ = columns (inputs; for convolutions channels x kernel)."""

    rows: Covariance = field(default_factory=lambda: rows_identity)
    columns: Covariance = field(default_factory=lambda: columns_identity)
    loc: Number = real(0.0)
    scale: Number = positive(1.0)
    sharing: Sharing = field(default="layer", kw_only=True)

    def factors(self, group: Group) -> list[tuple[Tensor, ...]]:
        pairs: list[tuple[Tensor, ...]] = []
        for site in group.sites:
            if len(site.shape) < 2:
                raise InputError(
                    "MatrixNormal needs matrices",
                    f"{site.name} of shape {site.shape}",
                    "give biases another law by a pattern",
                )
            rows, columns = site.shape[0], site.size // site.shape[0]
            pairs.append(
                (cholesky(at(self.rows, site), rows, site.name), cholesky(at(self.columns, site), columns, site.name))
            )
        return pairs


class Whitened(BoundLaw):
    """A Gaussian with a block-diagonal covariance, each block dense or a Kronecker product."""

    def __init__(self, factors: list[tuple[Tensor, ...]]) -> None:
        self.factors = factors
        self.sizes = [math.prod(f.shape[0] for f in block) for block in factors]

    def to(self, like: Tensor) -> BoundLaw:
        return Whitened([tuple(f.to(like) for f in block) for block in self.factors])

    def colour(self, z: Tensor) -> Tensor:
        """L z."""
        parts = zip(self.factors, z.split(self.sizes), strict=True)
        return torch.cat(
            [b[0] @ p if len(b) == 1 else (b[0] @ p.view(-1, b[1].shape[0]) @ b[1].mT).reshape(-1) for b, p in parts]
        )

    def whiten(self, r: Tensor) -> Tensor:
        """L⁻¹ r."""
        white = []
        for block, part in zip(self.factors, r.split(self.sizes), strict=True):
            columns = block[1].shape[0] if len(block) == 2 else 1
            z = torch.linalg.solve_triangular(block[0], part.view(-1, columns), upper=False)
            if len(block) == 2:
                z = torch.linalg.solve_triangular(block[1], z.mT, upper=False).mT
            white.append(z.reshape(-1))
        return torch.cat(white)

    def log_prob(self, x: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        z = self.whiten((x - numbers["loc"]) / numbers["scale"])
        log_scale = numbers["scale"].log().expand(x.shape).sum()
        return -0.5 * (z * z).sum() - 0.5 * math.log(2 * math.pi) * z.numel() - self.half_log_det() - log_scale

    def half_log_det(self) -> Tensor:
        """½ log det Σ; a Kronecker factor counts once for each row (column) of the other."""
        total = torch.zeros((), dtype=self.factors[0][0].dtype, device=self.factors[0][0].device)
        for block, size in zip(self.factors, self.sizes, strict=True):
            for factor in block:
                total = total + factor.diagonal().log().sum() * (size // factor.shape[0])
        return total

    def sample(self, size: int, numbers: dict[str, Tensor]) -> Tensor:
        like = self.factors[0][0]
        white = torch.randn(size, dtype=like.dtype, device=like.device)
        return numbers["loc"] + numbers["scale"] * self.colour(white)


def at(covariance: Covariance, site: Site) -> Tensor:
    return covariance if isinstance(covariance, Tensor) else covariance(site)


def cholesky(covariance: Tensor, size: int, where: str) -> Tensor:
    if covariance.shape != (size, size):
        raise InputError(
            f"the covariance of {where} must have shape ({size}, {size})",
            str(tuple(covariance.shape)),
            "pass a callable of the site",
        )
    factor, failed = torch.linalg.cholesky_ex(covariance.double())
    if failed or (covariance - covariance.mT).abs().max() > 1e-5 * covariance.abs().max():  # up to rounding
        least = torch.linalg.eigvalsh(covariance.double()).min().item()
        raise InputError(
            f"the covariance of {where} must be symmetric positive definite",
            f"least eigenvalue {least:.3g}",
            "add to its diagonal",
        )
    return factor


def rows_identity(site: Site) -> Tensor:
    return torch.eye(site.shape[0])


def columns_identity(site: Site) -> Tensor:
    return torch.eye(site.size // site.shape[0])
