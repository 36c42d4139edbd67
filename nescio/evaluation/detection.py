"""How well a score tells outside from inside: AUROC, AUPR and FPR95, each with a confidence interval.

    AUROC   P(doubt outside > doubt inside) + ½ P(equal); its interval by DeLong et al. (1988), on the logit scale
    AUPR    average precision, Σ (R_k - R_{k-1}) P_k, outside as the positives (`aupr`) and inside (`aupr_inside`)
    FPR95   part of the inside points that are taken for outside ones where 95 % of the outside ones are found

Equal to scikit-learn's roc_auc_score, average_precision_score and roc_curve, ties included. Intervals of the last three are percentiles of
a bootstrap that draws inside and outside points apart; they are for new points of the same kinds, not for new trainings: repeat those.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.special import ndtri

from nescio.errors import InputError
from nescio.noise import Noise

FOUND = 0.95
CHUNK = 2**24  # counts of resamples held at a time


class Estimate(NamedTuple):
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


class Separation(NamedTuple):
    auroc: Estimate
    aupr: Estimate
    aupr_inside: Estimate
    fpr95: Estimate


def separation(
    inside: Tensor, outside: Tensor, *, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> Separation:
    """`inside`, `outside`: the doubt at points of each kind, larger for more doubt."""
    if not 0 < level < 1:
        raise InputError("a level lies strictly between 0 and 1", str(level), "use 0.95")
    a, b = scores(inside, "inside"), scores(outside, "outside")
    values, place = torch.cat([a, b]).unique(return_inverse=True)
    kinds = len(values)
    first, second = place[: len(a)], place[len(a) :]
    own = tuple(torch.bincount(p, minlength=kinds)[None].double() for p in (first, second))
    point = curves(*own)
    drawn = [[] for _ in point]  # type: list[list[Tensor]]
    noise, step = Noise(seed).at("bootstrap"), max(1, CHUNK // max(kinds, len(a) + len(b)))
    for start in range(0, resamples, step):
        many = min(step, resamples - start)
        pair = (resampled(p, kinds, many, noise.at(k, start)) for k, p in enumerate((first, second)))
        for kept, found in zip(drawn, curves(*pair), strict=True):
            kept.append(found)
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    ends = [torch.cat(kept).quantile(tails).tolist() if kept else [math.nan] * 2 for kept in drawn]
    rest = [Estimate(float(value[0]), *end) for value, end in zip(point, ends, strict=True)]
    return Separation(auroc(a, b, level), *rest)


def auroc(inside: Tensor, outside: Tensor, level: float = 0.95) -> Estimate:
    """By mid-ranks, with DeLong's variance."""
    a, b = scores(inside, "inside"), scores(outside, "outside")
    m, n = len(a), len(b)
    whole, above = midranks(torch.cat([a, b])), midranks(b)
    value = float((whole[m:].sum() / n - (n + 1) / 2) / m)
    over = (whole[m:] - above) / m  # (n,), part of the inside points below each outside one
    under = 1 - (whole[:m] - midranks(a)) / n  # (m,)
    variance = float(over.var() / n if n > 1 else 0.0) + float(under.var() / m if m > 1 else 0.0)
    if not 0 < value < 1 or variance == 0:  # told apart without a fault, so no spread is seen: the rule of three
        wide = min(1.0, 3 / min(m, n))
        return Estimate(value, max(0.0, value - wide), min(1.0, value + wide))
    z = float(ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64)))
    logit, step = math.log(value / (1 - value)), z * math.sqrt(variance) / (value * (1 - value))
    low, high = (1 / (1 + math.exp(-min(max(logit + s * step, -700), 700))) for s in (-1, 1))
    return Estimate(value, low, high)


def curves(inside: Tensor, outside: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """AUPR, AUPR of the inside and FPR95 from counts of each value, (resamples, values) ascending."""
    false, true = (counts.flip(1).cumsum(1) for counts in (inside, outside))  # at least so much doubt
    aupr = average_precision(true, false)
    backwards = average_precision(inside.cumsum(1), outside.cumsum(1))
    found = true >= FOUND * true[:, -1:] * (1 - 1e-12)
    first = found.double().argmax(1, keepdim=True)
    return aupr, backwards, (false.gather(1, first) / false[:, -1:])[:, 0]


def average_precision(true: Tensor, false: Tensor) -> Tensor:
    precision = true / (true + false).clamp_min(1)
    gained = torch.diff(true, dim=1, prepend=torch.zeros_like(true[:, :1])) / true[:, -1:]
    return (gained * precision).sum(1)


def resampled(place: Tensor, kinds: int, many: int, noise: Noise) -> Tensor:
    """(many, kinds): how often each value is drawn."""
    rows = place[noise.integers(0, len(place), many, len(place))]
    counts = torch.zeros(many, kinds, dtype=torch.float64)
    return counts.scatter_add_(1, rows, torch.ones((), dtype=torch.float64).expand(rows.shape))


def midranks(x: Tensor) -> Tensor:
    """Ranks from 1, ties their mean."""
    _, place, counts = x.unique(return_inverse=True, return_counts=True)
    ends = counts.cumsum(0).double()
    return (ends - (counts.double() - 1) / 2)[place]


def scores(x: Any, which: str) -> Tensor:
    if not isinstance(x, Tensor) or x.dim() != 1 or not len(x):
        got = str(tuple(x.shape)) if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"{which} must hold one number a point", got, "use of_points(doubt) for images and sequences")
    if not bool(x.isfinite().all()):
        raise InputError("scores must be finite", f"{int((~x.isfinite()).sum())} that are not", "check the predictive")
    return x.detach().double().cpu()
