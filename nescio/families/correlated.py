r"""One Gaussian over several blocks of the vector, with any covariance that can be learned (covariance.py).

q(u) = N(μ, Σ),     KL(q, Π N(m_i, s_i²)) = Σ_i ½ (Σ_ii + (μ_i - m_i)²) / s_i² - ½ + log s_i, minus ½ log det Σ
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal

from nescio.families.covariance import Covariance
from nescio.families.family import Block, Factor


@final
class Correlated(Factor):
    """`path_gradient`: the divergence by draws, its gradient along them alone (sticking the landing: Roeder et al., 2017)."""

    def __init__(self, covariance: Covariance, path_gradient: bool, *blocks: Block) -> None:
        super().__init__(*blocks)
        self.path_gradient = path_gradient
        self.loc = nn.Parameter(together(blocks))
        self.covariance = covariance

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
        return (
            -0.5 * self.covariance.length((u - loc)[:, None])
            - self.covariance.half_log_det()
            - 0.5 * math.log(2 * math.pi) * len(u)
        )

    def kl(self, priors: Sequence[Distribution]) -> Tensor | None:
        if self.path_gradient or not all(isinstance(prior, Normal) for prior in priors):
            return None
        sizes, total = [len(block.start) for block in self.blocks], -self.covariance.half_log_det()
        parts = zip(priors, self.loc.split(sizes), self.covariance.variances().split(sizes), strict=True)
        return total + sum(cross_entropy(prior, loc, variance) for prior, loc, variance in parts)


def together(blocks: Sequence[Block]) -> Tensor:
    """Where they start, end to end."""
    return torch.cat([block.start for block in blocks])


def by_layers(blocks: Sequence[Block], apart: bool) -> list[list[Block]]:
    """The tensors of each module, and all else; or all in one."""
    groups: dict[str, list[Block]] = {}
    for block in blocks:
        layer = "" if block.site is None else f"{block.name.rpartition('.')[0]}."
        groups.setdefault(layer if apart else "", []).append(block)
    return list(groups.values())


def cross_entropy(prior: Distribution, loc: Tensor, variance: Tensor) -> Tensor:
    """-E log p of numbers with this mean and variance under a Gaussian, less the entropy of white noise."""
    assert isinstance(prior, Normal)
    each = 0.5 * (variance + (loc - prior.loc).square()) / prior.scale.square() - 0.5 + prior.scale.log()
    return each.sum(dtype=torch.float64)
