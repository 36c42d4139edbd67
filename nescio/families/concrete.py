r"""Concrete dropout: Bernoulli dropout whose rates are learned (Gal, Hron & Kendall, 2017).

    W = M diag(z),     z_j ~ Bernoulli(1 - p_j)

with the divergence of nescio/families/dropout.py, whose entropy, one term for each input, keeps p from zero when data are few. Gradients
flow to p through relaxed masks of temperature t,

    z̃ = sigmoid((logit(1 - p) + logit u) / t),     u ~ U(0, 1),     P(z̃ > 1/2) = 1 - p at every t,

which are used where gradients are on, and only there: draws, predictions and the final ELBO are those of zeros and ones. The smaller t,
the smaller the bias of the gradient and the greater its variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.nn import functional as F

from nescio.errors import InputError
from nescio.families.approximation import Approximation
from nescio.families.dropout import spikes_cross_entropy
from nescio.families.family import Block, Factor, Family
from nescio.families.masks import Multiplied, Rates, check_rates, layers


@final
@dataclass(frozen=True)
class ConcreteDropout(Family):
    """`p`: where the probabilities to drop start, for all layers, or {name pattern: probability}; 0 is never dropped, and stays so.

    `per_unit`: a rate for each input of a layer instead of one for the layer.
    """

    p: Rates = 0.1
    per_unit: bool = False
    temperature: float = 0.1

    def __post_init__(self) -> None:
        check_rates(self.p, 1.0, "p, the probability to drop,")
        if not self.temperature > 0:
            raise InputError("temperature must be positive", str(self.temperature), "0.1 is the paper's")

    def factors(self, blocks: Sequence[Block]) -> Sequence[Factor]:
        return layers(blocks, self.p, lambda block, p: Relaxed(block, p, self.per_unit, self.temperature))


@final
class Relaxed(Multiplied):
    """`logit`: of the probability to drop, () or (inputs,)."""

    def __init__(self, block: Block, p: float, per_unit: bool, temperature: float) -> None:
        super().__init__(block)
        start = torch.full_like(self.loc.detach().reshape(-1)[:1], math.log(p) - math.log1p(-p))
        self.logit = nn.Parameter(start.expand(self.inputs).clone() if per_unit else start[0].clone())
        self.temperature = temperature

    def begin(self) -> None:
        self.keep = torch.sigmoid(-self.logit)

    def noise(self, rows: int) -> Tensor:
        u = torch.rand(rows, self.inputs, dtype=self.loc.dtype, device=self.loc.device)
        if torch.is_grad_enabled():
            return torch.sigmoid((torch.logit(u) - self.logit) / self.temperature) / self.keep
        return (u < self.keep).to(u.dtype) / self.keep

    def entropy(self) -> Tensor:
        each = (1 - self.keep) * F.softplus(-self.logit) + self.keep * F.softplus(
            self.logit
        )  # softplus(-logit): -log p
        return each.expand(self.inputs).sum(dtype=torch.float64)

    def kl(self, priors: Sequence[Distribution]) -> Tensor:
        keep = self.each(self.keep) if self.keep.dim() else self.keep
        return spikes_cross_entropy(priors[0], self.loc, keep) - self.entropy()


def drop_rates(q: Approximation) -> dict[str, Tensor]:
    """The learned probabilities to drop, by the name of the weights: () for a layer, or (inputs,)."""
    found = {factor.blocks[0].name: factor for factor in q.parts() if isinstance(factor, Relaxed)}
    return {name: torch.sigmoid(factor.logit).detach() for name, factor in found.items()}
