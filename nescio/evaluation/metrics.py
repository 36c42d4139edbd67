"""Scores of a predictive against what was observed. All are functions of Predictives; lower is better unless it says otherwise."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nescio.errors import UnsupportedError
from nescio.posterior.posterior import Posterior
from nescio.predictive import Drawn, Predictive


def nll(predictive: Predictive, y: Any) -> float:
    """Mean negative log density of the mixture, not of its moments: -1/N Σ log (1/S) Σ_s p(y | w_s)."""
    return -float(predictive.log_prob(y).mean())


def rmse(predictive: Predictive, y: Tensor) -> float:
    return float((predictive.mean - y).square().mean().sqrt())


def coverage(predictive: Predictive, y: Tensor, level: float = 0.9) -> float:
    """Part of the observations inside the central interval; the nearer to `level` the better."""
    low, high = predictive.interval(level)
    return float(((y >= low) & (y <= high)).double().mean())


def accuracy(predictive: Predictive, y: Tensor) -> float:
    """Part of the labels that the most probable class gets right; higher is better."""
    mean = predictive.mean
    guess = mean.argmax(-1) if mean.dim() > y.dim() else (mean > 0.5).to(y.dtype)
    return float((guess == y).double().mean())


def brier(predictive: Predictive, y: Tensor) -> float:
    """Mean squared distance of the class probabilities from the truth, summed over classes."""
    mean = predictive.mean
    if mean.dim() == y.dim():  # yes and no
        return float(2 * (mean - y).square().mean())
    truth = torch.nn.functional.one_hot(y.long(), mean.shape[-1]).to(mean)
    return float((mean - truth).square().sum(-1).mean())


def evaluate(
    posterior: Posterior, data: tuple[Any, Tensor], *, draws: int | None = 100, seed: int = 0
) -> dict[str, float]:
    """The scores that fit the kind of outcome."""
    x, y = data
    predictive = posterior.predict(x, draws, seed)
    if not isinstance(y, Tensor):
        raise UnsupportedError(
            "evaluate scores one task", type(y).__name__, "score predictive[task] by the functions of nescio.evaluation"
        )
    if isinstance(predictive, Drawn) and predictive.discrete:
        return {"nll": nll(predictive, y), "accuracy": accuracy(predictive, y), "brier": brier(predictive, y)}
    return {"nll": nll(predictive, y), "rmse": rmse(predictive, y), "coverage": coverage(predictive, y)}
