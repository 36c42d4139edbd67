"""How near a predictive is to that of a reference: agreement and total variation for classes, total variation of densities for numbers.

TV = mean over points of ½ ∫ |p(y) - q(y)| dy, by the trapezoidal rule between the outermost 1e-4 quantiles
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from nescio.errors import InputError
from nescio.evaluation import agreement, total_variation
from nescio.evaluation.agreement import halves
from nescio.posterior import Posterior
from nescio.predictive import Predictive

GRID = 200
TAIL = 1e-4


def near(p: Predictive, q: Predictive) -> dict[str, float]:
    if p.probabilities is not None:
        return {"agreement": agreement(p, q), "total variation": total_variation(p, q)}
    return {"total variation": densities_apart(p, q)}


def densities_apart(p: Predictive, q: Predictive) -> float:
    """For one output a point; several are taken together as they come, point by point."""
    ends = [bound(each, level) for each in (p, q) for level in (TAIL, 1 - TAIL)]
    low, high = torch.minimum(ends[0], ends[2]), torch.maximum(ends[1], ends[3])
    if low.shape[1:].numel() != 1:
        return math.nan  # a density of several outputs has no grid
    total = torch.zeros(len(low), dtype=torch.float64)
    for i in range(GRID + 1):
        y = low + (high - low) * i / GRID
        weight = 0.5 if i in (0, GRID) else 1.0
        total += weight * (p.log_prob(y).double().exp() - q.log_prob(y).double().exp()).abs().cpu()
    width = (high - low).reshape(-1).double().cpu() / GRID
    return float((0.5 * total * width).clamp(max=1.0).mean())


def bound(predictive: Predictive, level: float) -> Tensor:
    return predictive.quantile(level)


def ceiling(reference: Posterior, x: Any) -> dict[str, float]:
    """The reference against itself, one half of its chains against the other; of one chain there is none."""
    first, second = halves(reference)
    found = near(first.predict(x, draws=200), second.predict(x, draws=200))
    if not all(map(math.isfinite, found.values())):
        must = "a total variation of densities needs one output a point, and a density"
        raise InputError(must, "halves of the reference that are NaN apart", "compare the outputs one at a time")
    return found
