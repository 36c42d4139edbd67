"""Laws for sparse and discrete weights: spike and slab, horseshoe, log-uniform, atoms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from torch import Tensor
from torch import distributions as td
from torch.distributions import Distribution, constraints

from nescio.densities import Atoms, Folded, Improper, TwoNormals
from nescio.errors import InputError
from nescio.laws.catalogue import HalfCauchy, Normal
from nescio.laws.law import POSITIVE, Constraint, Elementwise, Law, Number, positive, unit


@final
@dataclass(frozen=True, eq=False, repr=False)
class ScaleMixture(Elementwise):
    """inclusion * N(0, slab²) + (1 - inclusion) * N(0, spike²), the indicator summed out (Blundell et al., 2015)."""

    inclusion: Number = unit(0.5)
    slab: Number = positive(1.0)
    spike: Number = positive(0.0025)

    def distribution(self, inclusion: Tensor, slab: Tensor, spike: Tensor) -> Distribution:
        return TwoNormals(inclusion, slab, spike)


@final
@dataclass(frozen=True, eq=False, repr=False)
class HalfScaleMixture(Elementwise):
    """|ScaleMixture|, a spike and a slab for scales: `Normal(0, HalfScaleMixture().per("input"))` has one for each group."""

    inclusion: Number = unit(0.5)
    slab: Number = positive(1.0)
    spike: Number = positive(0.0025)
    support: ClassVar[Constraint] = POSITIVE

    def distribution(self, inclusion: Tensor, slab: Tensor, spike: Tensor) -> Distribution:
        return Folded(TwoNormals(inclusion, slab, spike))


def SpikeSlab(inclusion: Number = 0.5, slab: Number = 1.0, spike: Number = 0.0) -> Law:
    """A weight is from the slab with probability `inclusion`, else from the spike.

    With a spike of positive width a continuous density; with `spike=0` a delta at zero: one 0/1 latent for each weight, 2^M
    models, which samplers that move discrete latents can visit and gradient methods refuse.
    """
    if isinstance(spike, (int, float)) and spike == 0:
        return replace(Normal(0.0, slab), gate=Bernoulli(inclusion))
    return ScaleMixture(inclusion, slab, spike)


def Horseshoe(scale: Number = 1.0) -> Law:
    """Normal with a half-Cauchy scale for each weight and one for all (Carvalho et al., 2009). `scale` is that of the global one."""
    return Normal(0.0, HalfCauchy(HalfCauchy(scale).per("net")))


@final
@dataclass(frozen=True, eq=False, repr=False)
class LogUniform(Elementwise):
    """p(w) ∝ 1 / |w|, the normal-Jeffreys law of variational dropout. Improper, and its mode is w = 0."""

    proper: ClassVar[bool] = False

    def distribution(self) -> Distribution:
        return Improper(-1.0)


@final
@dataclass(frozen=True, eq=False, repr=False)
class HalfLogUniform(Elementwise):
    """p(z) ∝ 1 / z on the half-line: flat in log z. Improper."""

    support: ClassVar[Constraint] = POSITIVE
    proper: ClassVar[bool] = False

    def distribution(self) -> Distribution:
        return Improper(-1.0)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Bernoulli(Elementwise):
    """Weights in {0, 1}, one with the given probability."""

    probability: Number = unit(0.5)
    support: ClassVar[Constraint] = constraints.boolean
    values: ClassVar[tuple[float, ...]] = (0.0, 1.0)

    def distribution(self, probability: Tensor) -> Distribution:
        return td.Bernoulli(probability)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Discrete(Elementwise):
    """Weights from a finite set: `Discrete((-1., 1.))` are binary, `Discrete((-1., 0., 1.), (.25, .5, .25))` ternary."""

    values: tuple[float, ...] = (-1.0, 1.0)
    probabilities: tuple[float, ...] | None = None  # equal ones if not given
    support: ClassVar[Constraint] = constraints.integer_interval(-(2**31), 2**31)

    def __post_init__(self) -> None:
        weights = self.probabilities or (1 / len(self.values),) * len(self.values)
        if len(weights) != len(self.values) or min(weights) < 0 or abs(sum(weights) - 1) > 1e-6:
            raise InputError(
                "a discrete law needs one probability for each value, summing to 1",
                f"{len(self.values)} values and probabilities {weights}",
                "leave the probabilities out for equal ones",
            )

    def distribution(self) -> Distribution:
        weights = self.probabilities or (1 / len(self.values),) * len(self.values)
        return Atoms(torch.tensor(self.values, dtype=torch.float64), torch.tensor(weights, dtype=torch.float64).log())
