"""A point in the place of a distribution: for what a family does not spread, such as the biases of a dropout network.

Its divergence is -log p(w), the penalty of MAP; the entropy of a point, which is minus infinity whatever the point, is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from nescio.families.family import Block, Factor


@final
class Point(Factor):
    """The numbers of one block, without a spread."""

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self.loc = nn.Parameter(block.start.clone())

    def draw(self) -> Tensor:
        return self.loc

    def mean(self) -> Tensor:
        return self.loc

    def log_prob(self, u: Tensor) -> Tensor:
        return u.new_zeros(())

    def kl(self, priors: Sequence[Distribution]) -> Tensor:
        return -priors[0].log_prob(self.loc).sum(dtype=torch.float64)
