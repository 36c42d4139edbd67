"""What is inside and what is outside: images of the training set's kind and of others, and the scores that tell them apart.

Shared by the tables of out-of-distribution detection. All are (n, channels, h, w) in [0, 1], strokes bright.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nescio.data import arrays, images, mnist
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
def digits() -> Sets:
    """MNIST, against Fashion-MNIST, notMNIST and Omniglot."""
    x, y, x_test, y_test = mnist()
    outside = {
        "Fashion-MNIST": torch.from_numpy(arrays("fashion_mnist_test_5k")["x"])[:, None].float() / 255,
        "notMNIST": torch.from_numpy(arrays("notmnist_5k")["x"])[:, None].float() / 255,
        "Omniglot": omniglot(),
    }
    return Sets(x[:, None].float() / 255, y.long(), x_test[:, None].float() / 255, y_test.long(), outside)


def omniglot() -> Tensor:
    """(2720, 1, 28, 28): characters of 105 by 105 pixels, made smaller by the mean of areas; ink is 1, and the darkest pixel 1 again."""
    packed = arrays("omniglot_small1")["packed"]
    paper = torch.from_numpy(np.unpackbits(packed, axis=1)[:, : 105 * 105].reshape(-1, 1, 105, 105)).float()
    ink = 1 - paper if paper.mean() > 0.5 else paper
    small = F.interpolate(ink, size=(28, 28), mode="area")
    return small / small.amax((1, 2, 3), keepdim=True).clamp_min(1e-6)


@cache
def pictures() -> Sets:
    """CIFAR-10, its 10,000 images of the data folder, against Tiny-ImageNet classes that it does not have."""
    found = images("cifar10_subset")
    x, x_test = (torch.from_numpy(found[key]).permute(0, 3, 1, 2).float() / 255 for key in ("x_train", "x_test"))
    y, y_test = (torch.from_numpy(found[key]).long() for key in ("y_train", "y_test"))
    tiny = torch.from_numpy(images("tinyimagenet_ood_1k")["x"]).permute(0, 3, 1, 2).float() / 255
    return Sets(x, y, x_test, y_test, {"Tiny-ImageNet": tiny})


SETS: dict[str, Callable[[], Sets]] = {"mnist": digits, "cifar10": pictures}


def few(sets: Sets, n: int) -> Sets:
    return Sets(*(t[:n] for t in sets[:4]), {name: t[: n // 2] for name, t in sets.outside.items()})


def told_apart(
    predict: Callable[[Tensor], Predictive], inside: Tensor, outside: dict[str, Tensor]
) -> tuple[dict[str, float], Predictive, float]:
    """{"Omniglot, entropy: AUROC": ...} for every set and score, the predictive of the inside points, and the seconds that it took."""
    began = time.perf_counter()
    own = predict(inside)
    base = {name: of_points(doubt(own)).cpu() for name, doubt in DOUBTS.items()}
    seconds = time.perf_counter() - began
    found: dict[str, float] = {}
    for other, x in outside.items():
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
