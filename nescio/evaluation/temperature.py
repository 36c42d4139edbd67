"""Temperature scaling (Guo et al., 2017): one number, from held-out labels, that makes probabilities say what they mean.

    p_T(y) = (1/S) Σ_s softmax(log p_s(y) / T),    T* = argmin_T of the negative log density of the held-out labels

Each draw is tempered, so that the parts of the uncertainty stay what they are; the order of classes within a draw does not change. It helps
on data like the held-out ones, and only there (Ovadia et al., 2019).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch import distributions as td

from nescio.errors import InputError, UnsupportedError
from nescio.links import Classes
from nescio.predictive import Drawn, Predictive

RANGE = 100.0  # temperatures are looked for between 1 / RANGE and RANGE
LEAST = 10


@final
@dataclass(frozen=True)
class Temperature:
    """`value` above 1 makes probabilities more doubtful. `before`, `after`: the negative log density of the held-out labels."""

    value: float
    before: float
    after: float

    def __call__(self, predictive: Predictive) -> Predictive:
        """The predictive with tempered probabilities."""
        return tempered(predictive, self.value)


def temperature(predictive: Predictive, y: Tensor) -> Temperature:
    """The temperature that suits the labels y best; they must not be those of the training, where a network looks surer than it is."""
    if len(y) < LEAST:
        raise InputError(f"a temperature needs at least {LEAST} labels", str(len(y)), "hold out more")

    def loss(log_t: float) -> float:
        return -float(tempered(predictive, math.exp(log_t)).log_prob(y).double().mean())

    grid = torch.linspace(-math.log(RANGE), math.log(RANGE), 41, dtype=torch.float64).tolist()
    best = min(grid, key=loss)  # a mixture's loss need not have one minimum
    step = grid[1] - grid[0]
    found = golden(loss, best - step, best + step)
    return Temperature(math.exp(found), loss(0.0), loss(found))


def golden(f: object, low: float, high: float, steps: int = 40) -> float:
    """The minimum of a function of one number with one valley, by the golden section."""
    assert callable(f)
    ratio = (math.sqrt(5) - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    fa, fb = f(a), f(b)
    for _ in range(steps):
        if fa < fb:
            high, b, fb = b, a, fa
            a = high - ratio * (high - low)
            fa = f(a)
        else:
            low, a, fa = a, b, fb
            b = low + ratio * (high - low)
            fb = f(b)
    return (low + high) / 2


def tempered(predictive: Predictive, t: float) -> Predictive:
    if not t > 0:
        raise InputError("a temperature is positive", str(t), "1 changes nothing")
    if isinstance(predictive, Drawn) and isinstance(predictive.draws, (td.Categorical, td.Bernoulli)):
        return Drawn(cooled(predictive.draws, t))
    if isinstance(predictive, Classes):
        remedy = "use linearize(Sampled(1000)) to have both parts"

        def unknown() -> Tensor:
            raise UnsupportedError("parts of the uncertainty need draws", "tempered probabilities alone", remedy)

        return Classes(cooled(predictive.observed, t), unknown)
    raise UnsupportedError("temperatures are for classes", type(predictive).__name__, "use conformal for real outcomes")


def cooled(draws: td.Categorical | td.Bernoulli, t: float) -> td.Categorical | td.Bernoulli:
    kind = td.Categorical if isinstance(draws, td.Categorical) else td.Bernoulli
    return kind(logits=draws.logits / t, validate_args=False)
