"""The second form of a predictive: Gaussian functions with Gaussian noise, in closed form. No draws.

y | x ~ N(centre, spread + noise):   epistemic = the spread of the function, aleatoric = the noise
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal

from nescio.errors import InputError
from nescio.noise import Noise
from nescio.predictive import Predictive


@final
@dataclass(frozen=True, eq=False)
class Functions(Predictive):
    """`centre` (points, ...), `spread` (points, D, D) of the D outputs of each point, `noise` (points, ...): a variance."""

    centre: Tensor
    spread: Tensor
    noise: Tensor

    @property
    def mean(self) -> Tensor:
        return self.centre

    @property
    def variance(self) -> Tensor:
        return self.aleatoric + self.epistemic

    @property
    def aleatoric(self) -> Tensor:
        return self.noise

    @property
    def epistemic(self) -> Tensor:
        return self.spread.diagonal(dim1=-2, dim2=-1).reshape(self.centre.shape)

    def log_prob(self, y: Tensor) -> Tensor:
        """Of each point, its outputs jointly."""
        if not isinstance(y, Tensor) or y.shape != self.centre.shape:
            got = str(tuple(y.shape)) if isinstance(y, Tensor) else type(y).__name__
            raise InputError(f"y must have shape {tuple(self.centre.shape)}", got, "one row for each row of x")
        return self._joint().log_prob((y - self.centre).flatten(1).double()).to(self.centre)

    def quantile(self, q: float) -> Tensor:
        if not 0 < q < 1:
            raise InputError("a quantile's level lies strictly between 0 and 1", str(q), "use 0.5 for the median")
        return Normal(self.centre, self.std).icdf(torch.full_like(self.centre, q))

    def sample(self, n: int, seed: int = 0) -> Tensor:
        """(n, points, ...): the outputs of a point together, points one by one."""
        if n < 1:
            raise InputError("at least one sample must be asked for", str(n), "use for instance sample(100)")
        z = Noise(seed).at("predictive").to(self.centre.device, torch.float64).normal(n, *self.spread.shape[:2], 1)
        return self.centre + (self._joint().scale_tril @ z)[..., 0].reshape(n, *self.centre.shape).to(self.centre)

    def _joint(self) -> MultivariateNormal:
        covariance = self.spread.double() + torch.diag_embed(self.noise.flatten(1).double())
        return MultivariateNormal(torch.zeros_like(covariance[:, 0]), covariance, validate_args=False)
