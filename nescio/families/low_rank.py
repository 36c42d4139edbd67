r"""Low rank: a Gaussian with a variance for every number and a few directions in which all vary together.

    q(u) = N(μ, D² + F Fᵀ),     u = μ + D ε + F z,     ε as long as u, z as long as the rank

(Ong, Nott & Smith, 2018; Tomczak et al., 2020). Its cost grows with the rank, not with the square of the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal

from nescio.errors import InputError
from nescio.families.covariance import LowRankPlusDiagonal
from nescio.families.family import Block, Factor, Family
from nescio.families.full_rank import by_layers


@final
@dataclass(frozen=True)
class LowRank(Family):
    """`rank`: directions. `by_layer`: that many for the tensors of each module, and for all else. `sd`: as each number starts.

    `path_gradient`: the divergence by draws, its gradient along them alone, as in `FullRank`.
    """

    rank: int = 10
    by_layer: bool = False
    sd: float = 0.05
    path_gradient: bool = False

    def __post_init__(self) -> None:
        if self.rank < 1 or not self.sd > 0:
            got = f"rank={self.rank}, sd={self.sd}"
            raise InputError("rank and sd must be positive", got, "LowRank(10); without directions it is MeanField")

    def factors(self, blocks: Sequence[Block]) -> Sequence[Factor]:
        return [Directed(self, *group) for group in by_layers(blocks, self.by_layer)]


@final
class Directed(Factor):
    """One Gaussian over several blocks."""

    def __init__(self, family: LowRank, *blocks: Block) -> None:
        super().__init__(*blocks)
        start = torch.cat([block.start for block in blocks])
        self.path_gradient = family.path_gradient
        self.loc = nn.Parameter(start.clone())
        self.covariance = LowRankPlusDiagonal(len(start), min(family.rank, len(start)), family.sd, start)

    def begin(self) -> None:
        self.covariance.begin()

    def draw(self) -> Tensor:
        return self.loc + self.covariance.correlate(1)[:, 0]

    def mean(self) -> Tensor:
        return self.loc

    def log_prob(self, u: Tensor) -> Tensor:
        loc = self.loc.detach() if self.path_gradient else self.loc
        if self.path_gradient:
            self.covariance.begin(detach=True)
        away = (u - loc)[:, None]
        squares = (away * self.covariance.solve(away)).sum(dtype=torch.float64)
        return -0.5 * squares - self.covariance.half_log_det() - 0.5 * math.log(2 * math.pi) * len(u)

    def kl(self, priors: Sequence[Distribution]) -> Tensor | None:
        """From independent Gaussians: Σ_i ½ (Σ_ii + (μ_i - m_i)²) / s_i² - ½ + log s_i, minus ½ log det Σ."""
        if self.path_gradient or not all(isinstance(prior, Normal) for prior in priors):
            return None
        sizes, total = [len(block.start) for block in self.blocks], -self.covariance.half_log_det()
        parts = zip(priors, self.loc.split(sizes), self.covariance.variances().split(sizes), strict=True)
        return total + sum(cross_entropy(prior, loc, variance) for prior, loc, variance in parts)


def cross_entropy(prior: Distribution, loc: Tensor, variance: Tensor) -> Tensor:
    """-E log p of numbers with this mean and variance under a Gaussian, less the entropy of white noise."""
    assert isinstance(prior, Normal)
    each = 0.5 * (variance + (loc - prior.loc).square()) / prior.scale.square() - 0.5 + prior.scale.log()
    return each.sum(dtype=torch.float64)
