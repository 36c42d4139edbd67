r"""Bernoulli dropout: a layer's inputs are dropped at random, in training and in prediction (Gal & Ghahramani, 2016).

    W = M diag(z),     z_j ~ Bernoulli(1 - p),     p: the probability to DROP

    KL(q, p) = Σ_j (1 - p) Σ_i -log p(M_ij) + p Σ_i -log p(0) - H(p),     H(p) = -p log p - (1 - p) log(1 - p)

which under Normal(0, 1 / l) is Σ (1 - p) l²/2 ‖M‖² - H(p) and a constant: weight decay. In closed form under every law with independent
weights. nescio/families/decay.py has weight decay, length scale and model precision from each other.

A convolution loses whole channels. Noise for each unit (pixel by pixel) is no law of the weights, which all pixels share; for that,
give the network `nn.Dropout` layers and use NetDropout.
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
class BernoulliDropout(Family):
    """`p`: the probability to drop an input of a layer, in all layers, or {name pattern: probability}, first match wins.

    All layers means the first one, too, which takes in the data. {"0.*": 0.0, "*": 0.5} leaves them whole, if that one's name is "0".
    """

    p: Rates = 0.5

    def __post_init__(self) -> None:
        check_rates(self.p, 1.0, "p, the probability to drop,")

    def factors(self, blocks: Sequence[Block]) -> Sequence[Factor]:
        return layers(blocks, self.p, Spikes)


@final
class Spikes(Multiplied):
    """Columns that are M_j = loc_j / (1 - p) or zero."""

    def __init__(self, block: Block, p: float) -> None:
        super().__init__(block)
        self.p = p

    def noise(self, rows: int) -> Tensor:
        kept = torch.rand(rows, self.inputs, device=self.loc.device) >= self.p
        return kept.to(self.loc.dtype) / (1 - self.p)

    def entropy(self) -> float:
        return self.inputs * -(self.p * math.log(self.p) + (1 - self.p) * math.log1p(-self.p))

    def kl(self, priors: Sequence[Distribution]) -> Tensor:
        return spikes_cross_entropy(priors[0], self.loc, 1 - self.p) - self.entropy()


def spikes_cross_entropy(prior: Distribution, loc: Tensor, keep: Tensor | float) -> Tensor:
    """E[-log p(W)] for weights that are loc / keep with probability keep, else zero. `keep` broadcasts to loc."""
    check_at_zero(prior)
    if isinstance(prior, Normal):
        return normal_cross_entropy(prior, loc, 1 / keep)
    kept = torch.as_tensor(keep, dtype=loc.dtype, device=loc.device).expand(loc.shape).reshape(-1)
    there, gone = prior.log_prob(loc.reshape(-1) / kept), prior.log_prob(torch.zeros_like(kept))
    return -(kept * there + (1 - kept) * gone).sum(dtype=torch.float64)
