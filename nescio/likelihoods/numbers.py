"""Numeric targets: the likelihood to begin with, and its units."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from nescio.laws.catalogue import HalfNormal
from nescio.likelihoods.gaussian import Gaussian, Heteroscedastic
from nescio.likelihoods.likelihood import Likelihood

FEW = 100  # rows from which a noise that changes from row to row can be learned


def to_begin_with(rows: int, step: float) -> Gaussian | Heteroscedastic:
    """`step`: of a target that is rounded, else 0."""
    return Heteroscedastic(rounded=step) if rows >= FEW else Gaussian(HalfNormal(1.0))


def in_units(likelihood: Likelihood, loc: Tensor, scale: Tensor) -> Likelihood:
    """With those of y, where the likelihood has room for them and nothing else was asked for."""
    given: Any = likelihood
    if not {"loc", "scale"} <= {field.name for field in fields(given)}:
        return likelihood
    asked = any(isinstance(x, torch.Tensor) or x != usual for x, usual in ((given.loc, 0.0), (given.scale, 1.0)))
    return likelihood if asked else replace(given, loc=loc.float(), scale=scale.float())
