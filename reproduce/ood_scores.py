"""What is inside and what is outside: images of the training set's kind and of others, and the scores that tell them apart.

Shared by the tables of out-of-distribution detection. All are (n, channels, h, w) in [0, 1], strokes bright.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from ood_data import OUTSIDE, digits, outside
from torch import Tensor

from nescio.data import images
from nescio.evaluation import (
    FeatureDensity,
    Separation,
    entropy,
    max_probability,
    mutual_information,
    of_points,
    separation,
    total_variance,
)
from nescio.predictive import Predictive

DOUBTS: dict[str, Callable[[Predictive], Tensor]] = {
    "max probability": max_probability,
    "entropy": entropy,
    "mutual information": mutual_information,
    "total variance": total_variance,
}


class Sets(NamedTuple):
    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    outside: dict[str, Tensor]


@cache
def numerals() -> Sets:
    """MNIST, against Fashion-MNIST, notMNIST and Omniglot."""
    return Sets(*digits(), {name: outside(name) for name in OUTSIDE})


@cache
def pictures() -> Sets:
    """CIFAR-10, its 10,000 images of the data folder, against Tiny-ImageNet classes that it does not have."""
    found = images("cifar10_subset")
    x, x_test = (torch.from_numpy(found[key]).permute(0, 3, 1, 2).float() / 255 for key in ("x_train", "x_test"))
    y, y_test = (torch.from_numpy(found[key]).long() for key in ("y_train", "y_test"))
    tiny = torch.from_numpy(images("tinyimagenet_ood_1k")["x"]).permute(0, 3, 1, 2).float() / 255
    return Sets(x, y, x_test, y_test, {"Tiny-ImageNet": tiny})


SETS: dict[str, Callable[[], Sets]] = {"mnist": numerals, "cifar10": pictures}


def few(sets: Sets, n: int) -> Sets:
    return Sets(*(t[:n] for t in sets[:4]), {name: t[: n // 2] for name, t in sets.outside.items()})


def told_apart(
    predict: Callable[[Tensor], Predictive], inside: Tensor, others: dict[str, Tensor]
) -> tuple[dict[str, float], Predictive, float]:
    """{"Omniglot, entropy: AUROC": ...} for every set and score, the predictive of the inside points, and the seconds that it took."""
    predict(inside[:2])  # what is found out once and kernels that are loaded first are no part of the time
    began = time.perf_counter()
    own = predict(inside)
    base = {name: of_points(doubt(own)).cpu() for name, doubt in DOUBTS.items()}
    seconds = time.perf_counter() - began
    found: dict[str, float] = {}
    for other, x in others.items():
        foreign = predict(x)
        for name, doubt in DOUBTS.items():
            apart = separation(base[name], of_points(doubt(foreign)).cpu(), resamples=200)
            found |= numbers(f"{other}, {name}", apart)
    return found, own, seconds


def by_density(features: Callable[[Tensor], Tensor], sets: Sets, inside: Tensor) -> dict[str, float]:
    """The same by the density of a network's features, which needs no posterior."""
    density = FeatureDensity.of(features(sets.x[:10_000]), sets.y[:10_000])
    base = density(features(inside)).cpu()
    found: dict[str, float] = {}
    for other, x in sets.outside.items():
        found |= numbers(f"{other}, feature density", separation(base, density(features(x)).cpu(), resamples=200))
    return found


def numbers(name: str, apart: Separation) -> dict[str, Any]:
    said = {"AUROC": apart.auroc, "AUPR": apart.aupr, "FPR95": apart.fpr95}
    values = {f"{name}: {metric}": estimate.value for metric, estimate in said.items()}
    return values | {f"{name}: AUROC low": apart.auroc.low, f"{name}: AUROC high": apart.auroc.high}
