"""Split-conformal prediction around any posterior (Vovk et al., 2005; Romano et al., 2019, 2020).

A nonconformity score s(x, y) is computed on n calibration points, and q is the ⌈(n + 1) level⌉-th smallest of them. For a new point of
the same law, whatever the model,

    level <= P(s(x, y) <= q) <= level + 1 / (n + 1),        given the calibration points a Beta(k, n + 1 - k)

    Around()   interval: s = max(low - y, y - high), how far y is outside the posterior's own interval of this level
    Scaled()   interval: s = |y - mean| / std
    Least()    sets: s = 1 - p_y, the smallest sets on average
    Adaptive() sets: s = the mass of the classes that are more probable, plus a uniform part of p_y: fairer to difficult points

By hand rather than with MAPIE, which wraps scikit-learn estimators: the rule is these few lines, and tests hold it to its exact law.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from nescio.errors import InputError, UnsupportedError
from nescio.noise import Noise
from nescio.predictive import Predictive


class Score(ABC):
    """How strange an outcome is."""

    @abstractmethod
    def of(self, predictive: Predictive, y: Tensor, level: float) -> Tensor: ...


class IntervalScore(Score):
    @abstractmethod
    def interval(self, predictive: Predictive, q: float, level: float) -> tuple[Tensor, Tensor]: ...


class SetScore(Score):
    @abstractmethod
    def every(self, probabilities: Tensor, stream: int) -> Tensor:
        """The score of every class, (points, classes); `stream`: 0 for calibration points and 1 for new ones, who share no noise."""

    def of(self, predictive: Predictive, y: Tensor, level: float) -> Tensor:
        return self.every(labels(predictive), 0).gather(-1, y.long()[..., None])[..., 0]


@final
@dataclass(frozen=True)
class Around(IntervalScore):
    def of(self, predictive: Predictive, y: Tensor, level: float) -> Tensor:
        low, high = predictive.interval(level)
        return torch.maximum(low - y, y - high)

    def interval(self, predictive: Predictive, q: float, level: float) -> tuple[Tensor, Tensor]:
        low, high = predictive.interval(level)
        middle = (low + high) / 2  # a large negative q could turn them round
        return torch.minimum(low - q, middle), torch.maximum(high + q, middle)


@final
@dataclass(frozen=True)
class Scaled(IntervalScore):
    def of(self, predictive: Predictive, y: Tensor, level: float) -> Tensor:
        return (y - predictive.mean).abs() / predictive.std

    def interval(self, predictive: Predictive, q: float, level: float) -> tuple[Tensor, Tensor]:
        return predictive.mean - q * predictive.std, predictive.mean + q * predictive.std


@final
@dataclass(frozen=True)
class Least(SetScore):
    def every(self, probabilities: Tensor, stream: int) -> Tensor:
        return 1 - probabilities


@final
@dataclass(frozen=True)
class Adaptive(SetScore):
    """`seed`: of the uniform numbers, one a point."""

    seed: int = 0

    def every(self, probabilities: Tensor, stream: int) -> Tensor:
        sorted_, order = probabilities.sort(-1, descending=True)
        before = sorted_.cumsum(-1) - sorted_
        noise = Noise(self.seed).at("conformal", stream).to(probabilities.device, probabilities.dtype)
        part = noise.uniform(*probabilities.shape[:-1], 1)
        return torch.empty_like(before).scatter_(-1, order, before + part * sorted_)


@final
@dataclass(frozen=True)
class Intervals:
    """`q`: by how much to widen; `points`: how many calibrated it."""

    q: float
    level: float
    points: int
    score: IntervalScore

    def __call__(self, predictive: Predictive) -> tuple[Tensor, Tensor]:
        """Low and high."""
        return self.score.interval(predictive, self.q, self.level)


@final
@dataclass(frozen=True)
class Sets:
    q: float
    level: float
    points: int
    score: SetScore

    def __call__(self, predictive: Predictive) -> Tensor:
        """(points, classes), True for the classes of the set."""
        return self.score.every(labels(predictive), 1) <= self.q


def conformal(predictive: Predictive, y: Tensor, level: float = 0.9, score: Score | None = None) -> Intervals | Sets:
    """The rule from predictions and outcomes of calibration points, which must not have been trained on.

    `score`: Around() for real outcomes and Adaptive() for classes, unless given. The promise is about outcomes of points on average, not at
    each x; for several outputs or pixels it is about one of them drawn at random, and exact only if they are exchangeable.
    """
    found = predictive.probabilities
    shape = predictive.mean.shape if found is None else found.shape[:-1]
    if not isinstance(y, Tensor) or y.shape != shape:
        got = str(tuple(y.shape)) if isinstance(y, Tensor) else type(y).__name__
        raise InputError(f"y must be a tensor of shape {tuple(shape)}", got, "give one observation for each prediction")
    if not 0 < level < 1:
        raise InputError("a level lies strictly between 0 and 1", str(level), "use 0.9")
    rule = score if score is not None else (Around() if found is None else Adaptive())
    strange = rule.of(predictive, y, level).flatten().double().sort().values
    rank = math.ceil((len(strange) + 1) * level - 1e-9)
    if rank > len(strange):
        need = math.ceil(level / (1 - level) - 1e-9)
        must = f"a level of {level:g} needs at least {need} calibration points"
        raise InputError(must, str(len(strange)), "hold out more, or lower the level")
    q = float(strange[rank - 1])
    if isinstance(rule, SetScore):
        return Sets(q, level, len(strange), rule)
    assert isinstance(rule, IntervalScore)
    return Intervals(q, level, len(strange), rule)


def labels(predictive: Predictive) -> Tensor:
    found = predictive.probabilities
    if found is None:
        raise UnsupportedError("sets are for classes", "real outcomes", "use Around() or Scaled()")
    return found
