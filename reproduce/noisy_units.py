r"""Gaussian noise on the inputs of a layer, its variance learned for each input: variational dropout with one α for each unit.

    W = M diag(z),     z_j ~ N(1, α_j),     KL = Σ_j KL(N(1, α_j), 1 / |z|)

The divergence is that of nescio.families.VariationalDropout, counted once for each unit (as concrete dropout counts an entropy) and not
once for each weight. Not in the library: it is one reading of a row that its source does not explain, and an example of an own family.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from nescio.families.approximation import Approximation
from nescio.families.family import Block, Factor, Family
from nescio.families.masks import Multiplied, Rates, layers
from nescio.families.variational_dropout import log_uniform_kl


@final
@dataclass(frozen=True)
class NoisyUnits(Family):
    """`alpha`: where the variances start, for all layers, or {name pattern: variance}; 0 is no noise. Needs LogUniform where it is not."""

    alpha: Rates = 1.0

    def factors(self, blocks: Sequence[Block]) -> Sequence[Factor]:
        return layers(blocks, self.alpha, Scaled)


@final
class Scaled(Multiplied):
    """`log_alpha`: (inputs,)."""

    def __init__(self, block: Block, alpha: float) -> None:
        super().__init__(block)
        self.log_alpha = nn.Parameter(torch.full((self.inputs,), math.log(alpha)).to(self.loc))

    def noise(self, rows: int) -> Tensor:
        drawn = torch.randn(rows, self.inputs, dtype=self.loc.dtype, device=self.loc.device)
        return 1 + (0.5 * self.log_alpha).exp() * drawn

    def entropy(self) -> Tensor:
        return 0.5 * (self.log_alpha + math.log(2 * math.pi * math.e)).sum(dtype=torch.float64)

    def kl(self, priors: Sequence[Distribution]) -> Tensor:
        return log_uniform_kl(self.log_alpha).sum(dtype=torch.float64)


def unit_alphas(q: Approximation) -> dict[str, Tensor]:
    """The learned variances, by the name of the weights, (inputs,)."""
    return {f.blocks[0].name: f.log_alpha.detach().exp() for f in q.parts() if isinstance(f, Scaled)}
