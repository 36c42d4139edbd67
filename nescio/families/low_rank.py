r"""Low rank: a Gaussian with a variance for every number and a few directions in which all vary together.

    q(u) = N(μ, D² + F Fᵀ),     u = μ + D ε + F z,     ε as long as u, z as long as the rank

(Ong, Nott & Smith, 2018; Tomczak et al., 2020). Its cost grows with the rank, not with the square of the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from nescio.errors import InputError
from nescio.families.correlated import Correlated, by_layers, together
from nescio.families.covariance import LowRankPlusDiagonal
from nescio.families.family import Block, Factor, Family


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
    samples: ClassVar[int] = 4  # a draw serves all rows of a batch: with one the noise of gradients hides the slopes

    def __post_init__(self) -> None:
        if self.rank < 1 or not self.sd > 0:
            got = f"rank={self.rank}, sd={self.sd}"
            raise InputError("rank and sd must be positive", got, "LowRank(10); without directions it is MeanField")

    def factors(self, blocks: Sequence[Block]) -> Sequence[Factor]:
        return [self.factor(group) for group in by_layers(blocks, self.by_layer)]

    def factor(self, group: Sequence[Block]) -> Correlated:
        start = together(group)
        covariance = LowRankPlusDiagonal(len(start), min(self.rank, len(start)), self.sd, start)
        return Correlated(covariance, self.path_gradient, *group)
