"""The second form of a predictive: Gaussian functions with Gaussian noise, in closed form. No draws.

y | x ~ N(centre, spread + noise):   epistemic = the spread of the function, aleatoric = the noise

and, where the noise variance σ² ~ IG(a, b) is unknown and the function's variance is σ² · spread, Student's t:

y | x ~ t_2a(centre, (b/a) (spread + 1)):   epistemic = b/(a-1) · spread, aleatoric = b/(a-1)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal

from nescio.diagnose.beta import beta_quantile
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

    def cdf(self, y: Tensor) -> Tensor:
        return Normal(self.centre, self.std).cdf(y)

    def sample(self, n: int, seed: int = 0) -> Tensor:
        """(n, points, ...): the outputs of a point together, points one by one."""
        if n < 1:
            raise InputError("at least one sample must be asked for", str(n), "use for instance sample(100)")
        z = Noise(seed).at("predictive").to(self.centre.device, torch.float64).normal(n, *self.spread.shape[:2], 1)
        return self.centre + (self._joint().scale_tril @ z)[..., 0].reshape(n, *self.centre.shape).to(self.centre)

    def _joint(self) -> MultivariateNormal:
        covariance = self.spread.double() + torch.diag_embed(self.noise.flatten(1).double())
        return MultivariateNormal(torch.zeros_like(covariance[:, 0]), covariance, validate_args=False)


@final
@dataclass(frozen=True, eq=False)
class StudentFunctions(Predictive):
    """`spread` (points, outputs, outputs) and `unit` (points, outputs): covariance of the functions and variance of the noise in units of
    σ². σ² ~ IG(shape, rate), one for all outputs of a point, (1,), or one for each, (outputs,): these do not vary together."""

    centre: Tensor
    spread: Tensor
    unit: Tensor
    shape: Tensor
    rate: Tensor

    @property
    def mean(self) -> Tensor:
        return self.centre

    @property
    def variance(self) -> Tensor:
        return self.aleatoric + self.epistemic

    @property
    def aleatoric(self) -> Tensor:
        """The mean of the noise variance; infinite where the law of σ² has none."""
        return self._expected() * self.unit

    @property
    def epistemic(self) -> Tensor:
        return self._expected() * self.spread.diagonal(dim1=-2, dim2=-1)

    def log_prob(self, y: Tensor) -> Tensor:
        """Of each point, its outputs jointly: one noise variance for all of them ties them together."""
        if not isinstance(y, Tensor) or y.shape != self.centre.shape:
            got = str(tuple(y.shape)) if isinstance(y, Tensor) else type(y).__name__
            raise InputError(f"y must have shape {tuple(self.centre.shape)}", got, "one row for each row of x")
        a, b, lower = self.shape.double(), self.rate.double(), self._root()
        white = torch.linalg.solve_triangular(lower, (y - self.centre).double()[..., None], upper=False)[..., 0]
        square = white.square() / (2 * b)  # over 2a · (b/a)
        outputs, together = y.shape[1], len(a) < y.shape[1]
        count, square = (outputs, square.sum(1, keepdim=True)) if together else (1, square)
        density = torch.lgamma(a + count / 2) - torch.lgamma(a) - (a + count / 2) * torch.log1p(square)
        density = density - count / 2 * (2 * math.pi * b).log()
        return (density.sum(1) - lower.diagonal(dim1=1, dim2=2).log().sum(1)).to(self.centre)

    def quantile(self, q: float) -> Tensor:
        """½ + ½ t/√(ν + t²) ~ Beta(ν/2, ν/2)."""
        if not 0 < q < 1:
            raise InputError("a quantile's level lies strictly between 0 and 1", str(q), "use 0.5 for the median")
        if not bool((self.shape >= 1).all()):
            raise InputError(
                "quantiles need a shape of at least 1", f"{float(self.shape.min()):.3g}", "add a row or two"
            )
        a = self.shape.double()
        u = 2 * beta_quantile(q, a, a) - 1
        t = (2 * a).sqrt() * u / (1 - u.square()).sqrt()
        wide = self.spread.diagonal(dim1=-2, dim2=-1) + self.unit
        return self.centre + (t * (self.rate.double() / a * wide).sqrt()).to(self.centre)

    def sample(self, n: int, seed: int = 0) -> Tensor:
        """(n, points, ...): the outputs of a point together, points one by one."""
        if n < 1:
            raise InputError("at least one sample must be asked for", str(n), "use for instance sample(100)")
        noise = Noise(seed).at("predictive").to(self.centre.device, torch.float64)
        shape = self.shape.double().expand(n, len(self.centre), len(self.shape))
        with noise.at("variance").scope():
            variance = self.rate.double() / torch._standard_gamma(shape)
        z = (self._root() @ noise.normal(n, *self.centre.shape, 1))[..., 0]
        return self.centre + (z * variance.sqrt()).to(self.centre)

    def _root(self) -> Tensor:
        """Of the covariance of y in units of σ², (points, outputs, outputs), lower triangular."""
        return torch.linalg.cholesky(self.spread.double() + torch.diag_embed(self.unit.double()))

    def _expected(self) -> Tensor:
        """E[σ²]."""
        return torch.where(self.shape > 1, self.rate / (self.shape - 1).clamp_min(1e-30), math.inf)
