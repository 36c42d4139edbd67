"""The elementwise laws. Arguments are torch's; `scale` is a standard deviation or the usual scale parameter, never a variance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor
from torch import distributions as td
from torch.distributions import Distribution

from nescio.densities import Folded, Improper
from nescio.densities import StudentT as Students
from nescio.laws.law import POSITIVE, Constraint, Elementwise, Number, positive, real

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Normal(Elementwise):
    """exp(-(w - loc)² / 2 scale²): the L2 penalty, and in the wide limit a Gaussian process."""

    loc: Number = real(0.0)
    scale: Number = positive(1.0)
    location_scale: ClassVar[bool] = True

    def distribution(self, loc: Tensor, scale: Tensor) -> Distribution:
        return td.Normal(loc, scale)

    def total(self, x: Tensor, numbers: dict[str, float]) -> Tensor:
        """In few passes over x; its slope, not its curvature."""
        loc, scale = numbers["loc"], numbers["scale"]
        away = x - loc if loc else x
        fixed = away.detach()
        squares = 2 * torch.dot(away, fixed) - torch.dot(fixed, fixed)
        return -0.5 / scale**2 * squares - len(x) * (math.log(scale) + HALF_LOG_2PI)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Laplace(Elementwise):
    """exp(-|w - loc| / scale): the lasso. Its *mode* is sparse; its draws and its mean are not."""

    loc: Number = real(0.0)
    scale: Number = positive(1.0)
    location_scale: ClassVar[bool] = True

    def distribution(self, loc: Tensor, scale: Tensor) -> Distribution:
        return td.Laplace(loc, scale)


@final
@dataclass(frozen=True, eq=False, repr=False)
class StudentT(Elementwise):
    """Heavy tails with bounded influence; df = 2a, scale = sqrt(b / a) is Normal(0, tau) with tau² ~ IG(a, b)."""

    df: Number = positive(3.0)
    loc: Number = real(0.0)
    scale: Number = positive(1.0)
    location_scale: ClassVar[bool] = True

    def distribution(self, df: Tensor, loc: Tensor, scale: Tensor) -> Distribution:
        return Students(df, loc, scale)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Cauchy(Elementwise):
    """StudentT with one degree of freedom: no mean, no variance, and no Gaussian-process limit."""

    loc: Number = real(0.0)
    scale: Number = positive(1.0)
    location_scale: ClassVar[bool] = True

    def distribution(self, loc: Tensor, scale: Tensor) -> Distribution:
        return td.Cauchy(loc, scale)


@final
@dataclass(frozen=True, eq=False, repr=False)
class HalfCauchy(Elementwise):
    """The horseshoe's scale: mass near zero and a tail that lets large weights go."""

    scale: Number = positive(1.0)
    support: ClassVar[Constraint] = POSITIVE
    location_scale: ClassVar[bool] = True

    def distribution(self, scale: Tensor) -> Distribution:
        return Folded(td.Cauchy(torch.zeros_like(scale), scale))


@final
@dataclass(frozen=True, eq=False, repr=False)
class HalfNormal(Elementwise):
    """|Normal(0, scale)|."""

    scale: Number = positive(1.0)
    support: ClassVar[Constraint] = POSITIVE
    location_scale: ClassVar[bool] = True

    def distribution(self, scale: Tensor) -> Distribution:
        return Folded(td.Normal(torch.zeros_like(scale), scale))


@final
@dataclass(frozen=True, eq=False, repr=False)
class HalfStudentT(Elementwise):
    """|StudentT(df, 0, scale)|."""

    df: Number = positive(3.0)
    scale: Number = positive(1.0)
    support: ClassVar[Constraint] = POSITIVE
    location_scale: ClassVar[bool] = True

    def distribution(self, df: Tensor, scale: Tensor) -> Distribution:
        return Folded(Students(df, torch.zeros_like(scale), scale))


@final
@dataclass(frozen=True, eq=False, repr=False)
class Gamma(Elementwise):
    """x^(concentration - 1) exp(-rate x)."""

    concentration: Number = positive(1.0)
    rate: Number = positive(1.0)
    support: ClassVar[Constraint] = POSITIVE

    def distribution(self, concentration: Tensor, rate: Tensor) -> Distribution:
        return td.Gamma(concentration, rate)


@final
@dataclass(frozen=True, eq=False, repr=False)
class InverseGamma(Elementwise):
    """1 / Gamma(concentration, scale): conjugate to a variance; `InverseGamma(a, b).sqrt()` is the standard deviation."""

    concentration: Number = positive(1.0)
    scale: Number = positive(1.0)
    support: ClassVar[Constraint] = POSITIVE
    location_scale: ClassVar[bool] = True

    def distribution(self, concentration: Tensor, scale: Tensor) -> Distribution:
        return td.InverseGamma(concentration, scale)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Exponential(Elementwise):
    """rate exp(-rate x); Normal(0, Exponential(rate).sqrt()) is Laplace(0, 1 / sqrt(2 rate))."""

    rate: Number = positive(1.0)
    support: ClassVar[Constraint] = POSITIVE

    def distribution(self, rate: Tensor) -> Distribution:
        return td.Exponential(rate)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Flat(Elementwise):
    """Density 1 on the line. Improper: the data have to make the posterior exist."""

    proper: ClassVar[bool] = False

    def distribution(self) -> Distribution:
        return Improper(0.0)

    def total(self, x: Tensor, numbers: dict[str, float]) -> Tensor:
        return x.new_zeros(())


@final
@dataclass(frozen=True, eq=False, repr=False)
class HalfFlat(Elementwise):
    """Density 1 on the half-line (in x itself, not in log x). Improper."""

    support: ClassVar[Constraint] = POSITIVE
    proper: ClassVar[bool] = False

    def distribution(self) -> Distribution:
        return Improper(0.0)
