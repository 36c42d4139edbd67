"""Priors as values: the catalogue of laws, `Learned` numbers, `fan_in`."""

from nescio.laws.catalogue import (
    Cauchy,
    Exponential,
    Flat,
    Gamma,
    HalfCauchy,
    HalfFlat,
    HalfNormal,
    HalfStudentT,
    InverseGamma,
    Laplace,
    Normal,
    StudentT,
)
from nescio.laws.fitted import Fitted
from nescio.laws.law import Elementwise, Law, Learned, Number, positive, real, unit
from nescio.laws.site import Site, fan_in
from nescio.laws.sparse import (
    Bernoulli,
    Discrete,
    HalfLogUniform,
    HalfScaleMixture,
    Horseshoe,
    LogUniform,
    ScaleMixture,
    SpikeSlab,
)
from nescio.laws.structured import Correlated, MatrixNormal

__all__ = [
    "Bernoulli", "Cauchy", "Correlated", "Discrete", "Elementwise", "Exponential", "Fitted", "Flat", "Gamma", "HalfCauchy", "HalfFlat",
    "HalfLogUniform", "HalfNormal", "HalfScaleMixture", "HalfStudentT", "Horseshoe", "InverseGamma", "Laplace", "Law", "Learned",
    "LogUniform", "MatrixNormal", "Normal", "Number", "ScaleMixture", "Site", "SpikeSlab", "StudentT", "fan_in", "positive", "real", "unit",
]  # fmt: skip
