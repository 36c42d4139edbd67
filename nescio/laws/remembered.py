"""What an earlier posterior knew, as a prior: a Gaussian over all matched weights with a covariance that is an operator.

`posterior.as_prior()` makes it (Kirkpatrick et al., 2017; Ritter et al., 2018). Exact where the posterior was Gaussian: data in two
parts, one after the other, then say what they say together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from nescio.errors import InputError
from nescio.laws.law import BoundLaw, Law
from nescio.laws.site import Group
from nescio.linalg import Operator, described, restored


@final
@dataclass(frozen=True, eq=False, repr=False)
class Remembered(Law):
    """N(mean, covariance) of the matched weights, laid end to end in the order of the network."""

    mean: Tensor
    covariance: Operator

    def __repr__(self) -> str:
        return f"Remembered({len(self.mean)} weights, {self.covariance.kind})"

    def bind(self, group: Group) -> BoundLaw:
        if self.covariance.size != group.size or len(self.mean) != group.size:
            got = f"{self.covariance.size} for {[site.name for site in group.sites]}, which are {group.size}"
            raise InputError("a remembered posterior must be of the matched weights", got, "build the same network")
        covariance = moved(self.covariance, self.mean.device)
        return Known(self.mean.double(), covariance, covariance.inverse(), covariance.logdet())


class Known(BoundLaw):
    """With mean, covariance, precision and log det covariance in double precision."""

    def __init__(self, mean: Tensor, covariance: Operator, precision: Operator, logdet: Tensor) -> None:
        self.mean, self.covariance, self.precision, self.logdet = mean, covariance, precision, logdet

    def to(self, like: Tensor) -> BoundLaw:
        if like.device == self.mean.device:
            return self
        covariance, precision = (moved(op, like.device) for op in (self.covariance, self.precision))
        return Known(self.mean.to(like.device), covariance, precision, self.logdet.to(like.device))

    def log_prob(self, x: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        r = x.double() - self.mean
        return -0.5 * ((r * (self.precision @ r)).sum() + self.logdet + len(self.mean) * math.log(2 * math.pi))

    def sample(self, size: int, numbers: dict[str, Tensor]) -> Tensor:
        return self.mean + self.covariance.root(torch.randn(size, dtype=torch.float64, device=self.mean.device))


def moved(operator: Operator, device: torch.device) -> Operator:
    """In double precision, there."""
    tensors = {
        name: x.to(device, torch.float64 if x.is_floating_point() else x.dtype)
        for name, x in operator.tensors().items()
    }
    return restored(described(operator), tensors)
