"""Labels that are partly missing: pixels nobody marked, depths beyond the sensor's reach, tasks that only some images have.

    Masked(Categorical(axis=-3), missing=11)          Masked(Gaussian(.1), missing=-1.)

An entry of y that equals `missing` has no likelihood: it adds nothing to the log density and nothing to the curvature. Predictions are made
everywhere; what the data do not speak of there, the prior does, so epistemic uncertainty is the larger part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch import distributions as td
from torch.distributions import Distribution

from nescio.errors import InputError, UnsupportedError
from nescio.laws.law import Constraint, Number
from nescio.likelihoods.likelihood import Likelihood


@final
class PartlyCategorical(td.Categorical):
    """Labels that equal `missing` have log density 0."""

    def __init__(self, logits: Tensor, missing: float) -> None:
        super().__init__(logits=logits, validate_args=False)
        self.missing = missing

    def log_prob(self, value: Tensor) -> Tensor:
        known = value != self.missing
        return torch.where(known, td.Categorical.log_prob(self, torch.where(known, value, 0)), 0.0)


@final
class PartlyBernoulli(td.Bernoulli):
    def __init__(self, logits: Tensor, missing: float) -> None:
        super().__init__(logits=logits, validate_args=False)
        self.missing = missing

    def log_prob(self, value: Tensor) -> Tensor:
        known = value != self.missing
        return torch.where(known, td.Bernoulli.log_prob(self, torch.where(known, value, 0.0)), 0.0)


@final
class PartlyNormal(td.Normal):
    def __init__(self, loc: Tensor, scale: Tensor, missing: float) -> None:
        super().__init__(loc, scale, validate_args=False)
        self.missing = missing

    def log_prob(self, value: Tensor) -> Tensor:
        known = value != self.missing
        return torch.where(known, td.Normal.log_prob(self, torch.where(known, value, self.loc)), 0.0)


Partly = PartlyCategorical | PartlyBernoulli | PartlyNormal


@final
@dataclass(frozen=True, eq=False)
class Masked(Likelihood):
    """`missing`: a finite number that is no label; for classes a class number beyond the network's."""

    likelihood: Likelihood
    missing: float

    def __post_init__(self) -> None:
        if not isinstance(self.likelihood, Likelihood) or not math.isfinite(self.missing):
            got = f"{self.likelihood!r} and {self.missing}"
            must = "Masked takes a likelihood and a finite number for what is missing"
            raise InputError(must, got, "write for instance Masked(Gaussian(.1), missing=-1.)")

    def numbers(self) -> dict[str, tuple[Number, Constraint]]:
        return self.likelihood.numbers()

    def observe(self, f: Any, **numbers: Tensor) -> Distribution:
        observed = self.likelihood.observe(f, **numbers)
        if isinstance(observed, td.Categorical):
            return PartlyCategorical(observed.logits, self.missing)
        if isinstance(observed, td.Bernoulli):
            return PartlyBernoulli(observed.logits, self.missing)
        if isinstance(observed, td.Normal):
            return PartlyNormal(observed.loc, observed.scale, self.missing)
        got = type(observed).__name__
        raise UnsupportedError("labels may be missing of classes, yes and no, and Gaussians", got, "leave rows out")

    def check(self, f: Any, y: Any) -> None:
        """Refuse an image without any label: it would count as a row and say nothing."""
        self.check_known(f, y)
        refuse_empty(self.absent(y), "label")

    def check_known(self, f: Any, y: Any) -> None:
        """What is there must fit; rows may be empty, for another task may have them."""
        known = y != self.missing if isinstance(y, Tensor) else None
        self.likelihood.check(f, y if known is None else torch.where(known, y, torch.zeros_like(y)))

    def absent(self, y: Tensor) -> Tensor:
        """(rows,): where nothing at all is known."""
        return (y == self.missing).reshape(len(y), -1).all(1)


def refuse_empty(absent: Tensor, what: str) -> None:
    if bool(absent.any()):
        rows = absent.nonzero()[:, 0].tolist()
        got = f"none in {len(rows)} rows, the first of them {rows[0]}"
        raise InputError(f"every row must have at least one {what}", got, "leave such rows out")


def like(observed: Distribution, drawn: Tensor, y: Tensor) -> Tensor:
    """Outcomes drawn from the likelihood, missing where y is."""
    return torch.where(y == observed.missing, y, drawn.to(y)) if isinstance(observed, Partly) else drawn


def known(observed: Distribution, eta: Tensor, y: Any) -> Tensor | float:
    """1 for each number η of a distribution whose label is there, 0 for the others; broadcasts to η."""
    if not isinstance(observed, Partly):
        return 1.0
    there = (y != observed.missing).to(eta)
    return there[..., None] if eta.dim() > there.dim() else there
