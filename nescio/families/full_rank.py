"""Full rank: one Gaussian with all covariances, over all latents or over each layer.

    q(u) = N(μ, L Lᵀ),     L = diag(σ) (1 + C),     σ = softplus(ρ), C strictly lower triangular

Its covariance has the square of the number of latents: for small networks and for last layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from nescio.errors import InputError, UnsupportedError
from nescio.families.correlated import Correlated, by_layers, together
from nescio.families.covariance import Full
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
    samples: ClassVar[int] = 4  # a draw serves all rows of a batch: with one the noise of gradients hides the slopes

    def __post_init__(self) -> None:
        if not self.sd > 0:
            raise InputError("sd must be positive", str(self.sd), "a tenth of the prior's is a good start")

    def factors(self, blocks: Sequence[Block]) -> Sequence[Factor]:
        return [self.factor(group) for group in by_layers(blocks, self.by_layer)]

    def factor(self, group: Sequence[Block]) -> Correlated:
        start = together(group)
        if len(start) > MOST:
            must = f"a full covariance must be of at most {MOST} latents"
            raise UnsupportedError(must, str(len(start)), "use LowRank or MeanField, or by_layer=True")
        return Correlated(Full(len(start), self.sd, start), self.path_gradient, *group)
