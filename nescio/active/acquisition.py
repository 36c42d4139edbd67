"""Scores that say which label would teach most (Gal et al., 2017).

    BALD               I(y; w) = H[E_w p] - E_w H[p]; real outcomes ½ log(1 + epistemic / aleatoric), exact for Gaussians
    MaxEntropy         H[E_w p]; real outcomes ½ log(2πe Var[y])
    VariationRatios    1 - max_c E_w p_c
    MeanStd            mean over classes of the standard deviation of p_c over w; real outcomes √epistemic
    Random             nothing at all: what the others are measured against

Of several outputs, pixels or steps the mean counts. Among equal scores the lot decides.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from nescio.errors import InputError
from nescio.evaluation.doubt import drawn, max_probability, of_points
from nescio.noise import Noise
from nescio.predictive import Predictive


class Acquisition(ABC):
    """How the next labels are chosen."""

    @abstractmethod
    def choose(self, predictive: Predictive, n: int, noise: Noise) -> Tensor:
        """n different indices of points of the predictive, the most wanted first."""


class Pointwise(Acquisition):
    """By a score of each point; a batch is the n best, however alike they are."""

    @abstractmethod
    def scores(self, predictive: Predictive, noise: Noise) -> Tensor:
        """(points,), larger for more wanted."""

    def choose(self, predictive: Predictive, n: int, noise: Noise) -> Tensor:
        return best(self.scores(predictive, noise), n, noise)


def best(scores: Tensor, n: int, noise: Noise) -> Tensor:
    """Indices of the n largest; equal ones by lot."""
    scores = scores.detach().cpu()
    expect_fits(n, len(scores))
    if not bool(scores.isfinite().all()):
        raise InputError("scores must be finite", f"{int((~scores.isfinite()).sum())} that are not", "check the model")
    lot = noise.at("lot").to(torch.device("cpu"), torch.float64).permutations(1, len(scores))[0]
    return lot[scores[lot].argsort(descending=True, stable=True)][:n]


def expect_fits(n: int, points: int) -> None:
    if not 1 <= n <= points:
        must = "an acquisition takes at least 1 and at most all points of the pool"
        raise InputError(must, f"{n} of {points}", "ask for fewer, or enlarge the pool")


@final
@dataclass(frozen=True)
class BALD(Pointwise):
    def scores(self, predictive: Predictive, noise: Noise) -> Tensor:
        if predictive.probabilities is not None:
            return of_points(predictive.epistemic)
        return of_points(0.5 * torch.log1p(predictive.epistemic / predictive.aleatoric))


@final
@dataclass(frozen=True)
class MaxEntropy(Pointwise):
    def scores(self, predictive: Predictive, noise: Noise) -> Tensor:
        if predictive.probabilities is not None:
            return of_points(predictive.total)
        return of_points(0.5 * (math.log(2 * math.pi * math.e) + predictive.total.log()))


@final
@dataclass(frozen=True)
class VariationRatios(Pointwise):
    def scores(self, predictive: Predictive, noise: Noise) -> Tensor:
        return of_points(max_probability(predictive))


@final
@dataclass(frozen=True)
class MeanStd(Pointwise):
    def scores(self, predictive: Predictive, noise: Noise) -> Tensor:
        if predictive.probabilities is None:
            return of_points(predictive.epistemic.sqrt())
        return of_points(drawn(predictive).std(0, correction=0).mean(-1))


@final
@dataclass(frozen=True)
class Random(Pointwise):
    def scores(self, predictive: Predictive, noise: Noise) -> Tensor:
        return torch.zeros(len(predictive.mean))
