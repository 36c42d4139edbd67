"""Scores of a predictive against what was observed. All are functions of Predictives; lower is better unless it says otherwise."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Categorical

from nescio.errors import InputError, UnsupportedError
from nescio.links import Classes
from nescio.posterior.posterior import Posterior
from nescio.predictive import Drawn, Predictive


def nll(predictive: Predictive, y: Any) -> float:
    """Mean negative log density of the mixture, not of its moments: -1/N Σ log (1/S) Σ_s p(y | w_s)."""
    return -float(predictive.log_prob(y).mean())


def rmse(predictive: Predictive, y: Tensor) -> float:
    expect_shape(predictive.mean.shape, y)
    return float((predictive.mean - y).square().mean().sqrt())


def coverage(predictive: Predictive, y: Tensor, level: float = 0.9) -> float:
    """Part of the observations inside the central interval; the nearer to `level` the better."""
    low, high = predictive.interval(level)
    expect_shape(low.shape, y)
    return float(((y >= low) & (y <= high)).double().mean())


def accuracy(predictive: Predictive, y: Tensor) -> float:
    """Part of the labels that the most probable class gets right; higher is better."""
    mean = predictive.mean
    if classes(predictive):
        expect_shape(mean.shape[:-1], y)
        return float((mean.argmax(-1) == y).double().mean())
    expect_shape(mean.shape, y)
    guess = (mean > 0.5).to(y.dtype)
    return float((guess == y).double().mean())


def brier(predictive: Predictive, y: Tensor) -> float:
    """Mean squared distance of the class probabilities from the truth, summed over classes."""
    mean = predictive.mean
    if not classes(predictive):  # yes and no
        expect_shape(mean.shape, y)
        return float(2 * (mean - y).square().mean())
    expect_shape(mean.shape[:-1], y)
    truth = torch.nn.functional.one_hot(y.long(), mean.shape[-1]).to(mean)
    return float((mean - truth).square().sum(-1).mean())


def classes(predictive: Predictive) -> bool:
    """Whether the mean has an axis of classes behind those of y."""
    if isinstance(predictive, Classes):
        return isinstance(predictive.observed, Categorical)
    return isinstance(predictive, Drawn) and isinstance(predictive.draws, Categorical)


def expect_shape(shape: torch.Size, y: Tensor) -> None:
    """y must have the shape of the predictions; (N,) against (N, 1) would broadcast to (N, N)."""
    if not isinstance(y, Tensor) or y.shape != shape:
        got = str(tuple(y.shape)) if isinstance(y, Tensor) else type(y).__name__
        raise InputError(f"y must be a tensor of shape {tuple(shape)}", got, "give one observation for each prediction")


def evaluate(
    posterior: Posterior, data: tuple[Any, Tensor], *, draws: int | None = 100, seed: int = 0
) -> dict[str, float]:
    """The scores that fit the kind of outcome. Data are moved to the device of the network, as in `fit`."""
    x, y = data
    predictive = posterior.predict(x, draws, seed)
    if isinstance(y, dict):
        raise UnsupportedError(
            "evaluate scores one task", type(y).__name__, "score predictive[task] by the functions of nescio.evaluation"
        )
    y = y.to(predictive.mean.device) if isinstance(y, Tensor) else y
    if predictive.probabilities is not None:
        return {"nll": nll(predictive, y), "accuracy": accuracy(predictive, y), "brier": brier(predictive, y)}
    return {"nll": nll(predictive, y), "rmse": rmse(predictive, y), "coverage": coverage(predictive, y)}
