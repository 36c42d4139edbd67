"""Full rank: one Gaussian with all covariances, over all latents or over each layer.

    q(u) = N(μ, L Lᵀ),     L = diag(σ) (1 + C),     σ = softplus(ρ), C strictly lower triangular

Its covariance has the square of the number of latents: for small networks and for last layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal
from torch.nn import functional as F

from nescio.errors import InputError, UnsupportedError
from nescio.families.family import Block, Factor, Family

MOST = 20_000  # latents of one Gaussian: L of that many takes 1.6 GB


@final
@dataclass(frozen=True)
class FullRank(Family):
    """`by_layer`: a Gaussian for the tensors of each module, and one for all else. `sd`: what every latent starts with.

    `path_gradient`: the divergence by the draws of the call, its gradient along them alone (sticking the landing: Roeder et al., 2017).
    Its noise goes away as q comes near a posterior that is Gaussian; far from one it is wild. For several samples a step.
    """

    by_layer: bool = False
    sd: float = 0.05
    path_gradient: bool = False

    def __post_init__(self) -> None:
        if not self.sd > 0:
            raise InputError("sd must be positive", str(self.sd), "a tenth of the prior's is a good start")

    def factors(self, blocks: Sequence[Block]) -> Sequence[Factor]:
        return [Correlated(self.sd, self.path_gradient, *group) for group in by_layers(blocks, self.by_layer)]


def by_layers(blocks: Sequence[Block], apart: bool) -> list[list[Block]]:
    """The tensors of each module, and all else; or all in one."""
    groups: dict[str, list[Block]] = {}
    for block in blocks:
        layer = "" if block.site is None else f"{block.name.rpartition('.')[0]}."
        groups.setdefault(layer if apart else "", []).append(block)
    return list(groups.values())


@final
class Correlated(Factor):
    """One Gaussian over several blocks."""

    def __init__(self, sd: float, path_gradient: bool, *blocks: Block) -> None:
        super().__init__(*blocks)
        start = torch.cat([block.start for block in blocks])
        if len(start) > MOST:
            raise UnsupportedError(
                f"a full covariance must be of at most {MOST} latents",
                str(len(start)),
                "use MeanField or by_layer=True",
            )
        self.path_gradient = path_gradient
        self.loc = nn.Parameter(start)
        self.rho = nn.Parameter(torch.full_like(start, sd + math.log(-math.expm1(-sd))))  # softplus(rho) = sd
        self.lower = nn.Parameter(start.new_zeros(len(start), len(start)))

    def begin(self) -> None:
        self.root = F.softplus(self.rho)[:, None] * (self.lower.tril(-1) + torch.eye(len(self.rho)).to(self.lower))

    def draw(self) -> Tensor:
        self.white = torch.randn_like(self.loc)
        return self.loc + self.root @ self.white

    def mean(self) -> Tensor:
        return self.loc

    def log_prob(self, u: Tensor) -> Tensor:
        white, root = self.white, self.root
        if self.path_gradient:
            root = root.detach()
            white = torch.linalg.solve_triangular(root, (u - self.loc.detach())[:, None], upper=False)
        constant = 0.5 * math.log(2 * math.pi) * len(u)
        return (
            -0.5 * white.square().sum(dtype=torch.float64) - root.diagonal().log().sum(dtype=torch.float64) - constant
        )

    def kl(self, priors: Sequence[Distribution]) -> Tensor | None:
        """From independent Gaussians: Σ_i ½ (Σ_ii + (μ_i - m_i)²) / s_i² - ½ + log s_i, minus ½ log det Σ."""
        sizes, total = [len(block.start) for block in self.blocks], -self.root.diagonal().log().sum(dtype=torch.float64)
        variances = self.root.square().sum(1)
        for p, loc, variance in zip(priors, self.loc.split(sizes), variances.split(sizes), strict=True):
            if self.path_gradient or not isinstance(p, Normal):
                return None
            each = 0.5 * (variance + (loc - p.loc).square()) / p.scale.square() - 0.5 + p.scale.log()
            total = total + each.sum(dtype=torch.float64)
        return total
