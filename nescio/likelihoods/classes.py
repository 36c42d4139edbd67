"""Labels: one of C classes, or yes and no."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch import distributions as td
from torch.distributions import Distribution

from nescio.errors import InputError
from nescio.laws.law import Number, positive
from nescio.likelihoods.likelihood import Likelihood, expect_float, expect_shape


@final
@dataclass(frozen=True, eq=False)
class Categorical(Likelihood):
    """y ~ Categorical(softmax(f / noise²)); y holds class numbers.

    `noise` is the task's own in the sense of Kendall et al. (2018), so that `Categorical(Learned(1.))` weighs a task.
    `axis`: where the classes are, from the end: -1 for (N, C), -3 for images (N, C, H, W) with labels (N, H, W).
    """

    noise: Number = positive(1.0)
    axis: int = -1

    def __post_init__(self) -> None:
        if self.axis >= 0:
            raise InputError("axis counts from the end", str(self.axis), "use -1 for (N, C), -3 for (N, C, H, W)")

    def observe(self, f: Tensor, noise: Tensor) -> Distribution:
        return td.Categorical(logits=(f / noise.square()).movedim(self.axis, -1))

    def check(self, f: Any, y: Any) -> None:
        shape = list(f.shape)
        classes = shape.pop(self.axis)
        expect_shape(tuple(shape), y)
        if y.dtype not in (torch.int64, torch.int32, torch.int16, torch.uint8):
            raise InputError("labels must be whole numbers", str(y.dtype), "use y.long()")
        if y.numel() and not 0 <= int(y.min()) <= int(y.max()) < classes:
            low, high = int(y.min()), int(y.max())
            row = int(((y < 0) | (y >= classes)).reshape(len(y), -1).any(1).nonzero()[0])
            raise InputError(
                f"labels must lie in 0 ... {classes - 1}",
                f"{low} ... {high}, first at row {row}",
                "renumber them or widen the last layer",
            )


@final
@dataclass(frozen=True, eq=False)
class Bernoulli(Likelihood):
    """y ~ Bernoulli(sigmoid(f)), each output by itself; y holds zeros and ones.

    `grey`: y may lie between, and f y - log(1 + e^f) is taken for its density all the same, as the literature on autoencoders does.
    It is none: "actually this is wrong", says the tutorial that does so. `ContinuousBernoulli` is the density of grey values.
    """

    grey: bool = False

    def observe(self, f: Tensor) -> Distribution:
        return td.Bernoulli(logits=f)

    def check(self, f: Any, y: Any) -> None:
        expect_shape(tuple(f.shape), y)
        expect_float(y, f.dtype)
        expect_between(y, binary=not self.grey)


def expect_between(y: Tensor, binary: bool) -> None:
    bad = (y != 0) & (y != 1) if binary else (y < 0) | (y > 1)
    if bool(bad.any()):
        must = "y must hold zeros and ones" if binary else "y must lie in [0, 1]"
        remedy = "use ContinuousBernoulli for grey values" if binary else "divide pixels by 255"
        raise InputError(must, f"{float(y[bad][0])} and {int(bad.sum()) - 1} more", remedy)
