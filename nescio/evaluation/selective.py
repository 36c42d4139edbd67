"""Selective prediction: answer the points with the least doubt, and see what is risked (Geifman & El-Yaniv, 2017).

    risk at coverage k/n    mean loss of the k points with the least doubt; among equal doubts in expectation over their order
    AURC                    its mean over k = 1 ... n; the excess over the best possible order is E-AURC

`promise` finds a threshold with a guarantee that does not rest on the model: on calibration points that were not trained on, the risk of
`levels` coverages is bounded by Clopper & Pearson, each at (1 - confidence) / levels, and the largest coverage whose bound holds is taken.
For new points of the same law, P(risk of what is answered <= risk) >= confidence over the drawing of the calibration points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from nescio.answers import Answers
from nescio.diagnose.binomial import at_most, clopper_pearson
from nescio.errors import InputError
from nescio.evaluation.doubt import Doubt, max_probability, of_points
from nescio.predictive import Predictive


class RiskCoverage(NamedTuple):
    coverage: Tensor  # (points,), 1/n ... 1
    risk: Tensor  # (points,), mean loss of those
    aurc: float
    excess: float  # over the best order there is


def losses(predictive: Predictive, y: Tensor) -> Tensor:
    """0 or 1 for classes, the squared error of the mean for real outcomes."""
    found = predictive.probabilities
    shape = predictive.mean.shape if found is None else found.shape[:-1]
    if not isinstance(y, Tensor) or y.shape != shape:
        got = str(tuple(y.shape)) if isinstance(y, Tensor) else type(y).__name__
        raise InputError(f"y must be a tensor of shape {tuple(shape)}", got, "give one observation for each prediction")
    return (predictive.mean - y).square() if found is None else (found.argmax(-1) != y).to(found)


def risk_coverage(doubt: Tensor, loss: Tensor) -> RiskCoverage:
    """`doubt` and `loss` of each point (or pixel), of one shape."""
    doubt, loss = flat(doubt, loss)
    curve, best = averaged(doubt, loss), averaged(loss, loss)
    coverage = torch.arange(1, len(loss) + 1, dtype=torch.float64) / len(loss)
    return RiskCoverage(coverage, curve, float(curve.mean()), float(curve.mean() - best.mean()))


def averaged(doubt: Tensor, loss: Tensor) -> Tensor:
    """Risk at every coverage. Points of equal doubt share their loss, which is the mean over their orders."""
    order = doubt.argsort()
    _, place, counts = doubt[order].unique_consecutive(return_inverse=True, return_counts=True)
    shared = torch.zeros(len(counts), dtype=loss.dtype).index_add_(0, place, loss[order]) / counts
    return shared[place].cumsum(0) / torch.arange(1, len(loss) + 1, dtype=torch.float64)


@final
@dataclass(frozen=True, eq=False)
class Promise:
    """Answer where doubt < `threshold`: wrong with probability at most `risk`, with the given `confidence`."""

    threshold: float
    risk: float
    confidence: float
    coverage: float  # part of the calibration points that is answered
    bound: float  # upper confidence bound of the risk there
    doubt: Doubt

    def answers(self, predictive: Predictive) -> Answers:
        found = predictive.probabilities
        if found is None:
            raise InputError("promises are made for classes", "real outcomes", "use conformal, or abstain(within=...)")
        best = found.max(-1)
        return Answers(best.indices, of_points(self.doubt(predictive)) < self.threshold, 1 - best.values)


def promise(
    predictive: Predictive,
    y: Tensor,
    *,
    risk: float,
    confidence: float = 0.95,
    doubt: Doubt = max_probability,
    levels: int = 20,
) -> Promise:
    """The rule that answers most and keeps the promise. Where none does, one that never answers: its coverage is 0."""
    for name, value in {"risk": risk, "confidence": confidence}.items():
        if not 0 < value < 1:
            raise InputError(f"{name} lies strictly between 0 and 1", str(value), "use risk=.05, confidence=.95")
    wrong = losses(predictive, y)
    if wrong.dim() != 1 or predictive.probabilities is None:
        raise InputError("a promise is about labels of points", f"losses {tuple(wrong.shape)}", "flatten pixels first")
    scored, wrong = flat(of_points(doubt(predictive)), wrong)
    order = scored.argsort()
    scored, errors = scored[order], wrong[order].cumsum(0)
    n = len(wrong)
    for level in range(levels, 0, -1):  # from everything downwards
        count = round(n * level / levels)
        if count == 0:
            continue
        limit = math.inf if count == n else float(scored[count])
        below = int((scored < limit).sum())  # fewer than count where doubts are equal
        if not below:
            continue
        found, tail = int(errors[below - 1]), (1 - confidence) / levels
        if at_most(found, below, risk) <= tail:  # the same as a bound of at most `risk`
            return Promise(limit, risk, confidence, below / n, clopper_pearson(found, below, tail), doubt)
    return Promise(-math.inf, risk, confidence, 0.0, 0.0, doubt)


def flat(doubt: Any, loss: Any) -> tuple[Tensor, Tensor]:
    if doubt.shape != loss.shape or not doubt.numel():
        got = f"{tuple(doubt.shape)} and {tuple(loss.shape)}"
        raise InputError("doubt and loss must have one shape", got, "use of_points on both, or on neither")
    doubt, loss = (t.detach().double().cpu().flatten() for t in (doubt, loss))
    if not bool(doubt.isfinite().all() and loss.isfinite().all()):
        raise InputError("doubt and loss must be finite", "NaN or infinity", "check the predictive and y")
    return doubt, loss
