r"""Mean field: every number has its own Gaussian (Bayes by Backprop: Blundell et al., 2015).

    q(w) = Π N(w_i; μ_i, σ_i²)

How they act in a network: nescio/families/independent.py. Groups of weights with a random scale: nescio/families/scaled.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from nescio.errors import InputError
from nescio.families.family import Block, Factor, Family
from nescio.families.independent import Gaussian
from nescio.families.scaled import Scaled, above, grouped


@final
@dataclass(frozen=True)
class MeanField(Family):
    """`sd`: the standard deviation that every number starts with.

    `local_convolutions`: draw the outputs of convolutions and of maps over tokens position by position, too. An approximation: each
    output has its law, but outputs that share a weight are independent. Cheaper, and of lower variance still.

    `scaled`: where a law gives groups of weights a random scale, `Normal(0, HalfCauchy(1.).per("input"))`, the independent numbers are
    the scales and the weights before they are scaled, and so for scales that have a random scale (nescio/families/scaled.py). Without:
    the scales and the weights themselves.
    """

    sd: float = 0.05
    local_convolutions: bool = False
    scaled: bool = True

    def __post_init__(self) -> None:
        if not self.sd > 0:
            raise InputError("sd must be positive", str(self.sd), "a tenth of the prior's is a good start")

    def factors(self, blocks: Sequence[Block]) -> Sequence[Factor]:
        groups, named = grouped(blocks) if self.scaled else {}, {block.name: block for block in blocks}
        over = {name: above(named[name], named) for name in groups}
        taken = {*groups, *(block.name for own in groups.values() for block in own)}
        taken |= {block.name for block in over.values() if block is not None}
        scaled = [
            Scaled(named[name], own, self.sd, self.local_convolutions, over[name]) for name, own in groups.items()
        ]
        return [*scaled, *(Gaussian(b, self.sd, self.local_convolutions) for b in blocks if b.name not in taken)]
