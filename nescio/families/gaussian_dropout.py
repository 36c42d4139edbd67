r"""Gaussian dropout: a layer's inputs are multiplied by noise of mean one (Srivastava et al., 2014).

    W = M diag(z),     z_j ~ N(1, α)

α = 1 is the usual choice; α = p / (1 - p) has the variance of Bernoulli dropout. Under a Normal prior N(0, s²) the divergence is
Σ (1 + α) ‖M‖² / 2s² and a constant, weight decay once more; under other laws it is estimated by draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from nescio.families.family import Block, Factor, Family
from nescio.families.masks import Multiplied, Rates, check_at_zero, check_rates, layers, normal_cross_entropy


@final
@dataclass(frozen=True)
class GaussianDropout(Family):
    """`alpha`: the variance of the multipliers, in all layers, or {name pattern: variance}, first match wins; 0 is no noise."""

    alpha: Rates = 1.0

    def __post_init__(self) -> None:
        check_rates(self.alpha, math.inf, "alpha, a variance,")

    def factors(self, blocks: Sequence[Block]) -> Sequence[Factor]:
        return layers(blocks, self.alpha, Noisy)


@final
class Noisy(Multiplied):
    """Columns M_j z_j."""

    def __init__(self, block: Block, alpha: float) -> None:
        super().__init__(block)
        self.alpha = alpha

    def noise(self, rows: int) -> Tensor:
        return 1 + math.sqrt(self.alpha) * torch.randn(rows, self.inputs, dtype=self.loc.dtype, device=self.loc.device)

    def entropy(self) -> float:
        return self.inputs * 0.5 * math.log(2 * math.pi * math.e * self.alpha)

    def kl(self, priors: Sequence[Distribution]) -> Tensor | None:
        check_at_zero(priors[0])
        if not isinstance(priors[0], Normal):
            return None
        return normal_cross_entropy(priors[0], self.loc, 1 + self.alpha) - self.entropy()
