"""Is what a predictive says of its own certainty true? Reliability of probabilities, and the probability integral transform of intervals.

reliability    among answers given with probability p, a part p should be right (Murphy & Winkler, 1977); ECE is the mean gap over bins
PIT            u = P(outcome <= y) is uniform on [0, 1] if the predictive is right (Dawid, 1984)
CRPS           ∫ (P(outcome <= t) - 1[y <= t])² dt = E|X - y| - ½ E|X - X'|, a proper score in the units of y (Gneiting & Raftery, 2007)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from nescio.errors import InputError, UnsupportedError
from nescio.evaluation.metrics import expect_shape
from nescio.predictive import Predictive

SAMPLES = 1000


class Reliability(NamedTuple):
    """One entry for each bin of the stated probability; empty bins hold NaN."""

    stated: Tensor  # (bins,), mean probability of the answers
    right: Tensor  # (bins,), part of them that was right
    count: Tensor  # (bins,)
    ece: float


def reliability(predictive: Predictive, y: Tensor, bins: int = 15) -> Reliability:
    """Of the most probable class, in bins of equal width as in Guo et al. (2017)."""
    if bins < 1:
        raise InputError("there must be a bin", str(bins), "leave bins out")
    found = predictive.probabilities
    if found is None:
        raise UnsupportedError("reliability is for classes", "real outcomes", "use pit or coverage")
    if tuple(y.shape) != tuple(found.shape[:-1]):
        must = f"y must have shape {tuple(found.shape[:-1])}"
        raise InputError(must, str(tuple(y.shape)), "give one label for each prediction")
    best = found.max(-1)
    stated, right = best.values.flatten().double().cpu(), (best.indices == y).flatten().double().cpu()
    index = (stated * bins).long().clamp(0, bins - 1)
    count = torch.zeros(bins, dtype=torch.float64).index_add_(0, index, torch.ones_like(stated))
    sums = [torch.zeros(bins, dtype=torch.float64).index_add_(0, index, part) for part in (stated, right)]
    gap = float((sums[0] - sums[1]).abs().sum() / len(stated))
    return Reliability(sums[0] / count, sums[1] / count, count, gap)


def ece(predictive: Predictive, y: Tensor, bins: int = 15) -> float:
    """Expected calibration error. It is above 0 even for a perfect predictive: bins hold finitely many answers."""
    return reliability(predictive, y, bins).ece


def pit(predictive: Predictive, y: Tensor) -> Tensor:
    """P(outcome <= y) of every observation, (points, ...)."""
    if predictive.probabilities is not None:
        raise UnsupportedError("the transform is for real outcomes", "classes", "use reliability")
    expect_shape(predictive.mean.shape, y)
    return predictive.cdf(y)


def crps(predictive: Predictive, y: Tensor, seed: int = 0) -> Tensor:
    """Of every observation, from 1000 samples of each predictive, unbiased; lower is better."""
    if predictive.probabilities is not None:
        raise UnsupportedError("CRPS is for real outcomes", "classes", "use brier or nll")
    expect_shape(predictive.mean.shape, y)
    drawn = predictive.sample(SAMPLES, seed).double().sort(0).values  # (samples, points, ...)
    order = 2 * torch.arange(1, SAMPLES + 1, dtype=torch.float64, device=drawn.device) - SAMPLES - 1
    spread = (drawn * order.view(-1, *[1] * (drawn.dim() - 1))).sum(0) / (SAMPLES * (SAMPLES - 1))  # ½ E|X - X'|
    return (drawn - y).abs().mean(0) - spread
