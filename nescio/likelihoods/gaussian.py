"""Real observations with Gaussian noise: the same for all points, or predicted by the network for each.

Both work in the units of y. Where the network speaks standardised numbers, `loc` and `scale` translate: y = loc + scale * z, so
densities, intervals and errors come out in the user's own units and nothing else has to know.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal
from torch.nn.functional import softplus

from nescio.errors import InputError
from nescio.laws.law import Number, positive, shape_of
from nescio.likelihoods.likelihood import Likelihood, expect_float, expect_shape

LEAST = 1e-6  # of the standard deviation the network speaks of; a network that memorises its data would divide by zero


@final
@dataclass(frozen=True, eq=False)
class Gaussian(Likelihood):
    """y ~ N(loc + scale f, (scale noise)²): homoscedastic, noise constant, `Learned` or random (`Gaussian(HalfCauchy(1.))`).

    For one noise scale per output give a tensor: `Gaussian(Learned(torch.ones(3)))`.
    """

    noise: Number = positive(1.0)
    loc: float | Tensor = 0.0
    scale: float | Tensor = 1.0

    def observe(self, f: Tensor, noise: Tensor) -> Distribution:
        loc, scale = units(self.loc, f), units(self.scale, f)
        return Normal(loc + scale * f, (scale * noise).expand_as(f))

    def check(self, f: Any, y: Any) -> None:
        expect_shape(tuple(f.shape), y)
        expect_float(y, f.dtype)
        for name, number in {"noise": shape_of(self.noise), "loc": shape(self.loc), "scale": shape(self.scale)}.items():
            expect_broadcast(name, tuple(number), tuple(f.shape[1:]))
        expect_positive(self.scale)


@final
@dataclass(frozen=True, eq=False)
class Heteroscedastic(Likelihood):
    """y ~ N(m(x), σ(x)²): the network's last axis holds means and then raw scales s, σ = softplus(s) (Kendall & Gal, 2017).

    The loss is (y - m)² / 2σ² + log σ: the weight 1/σ² learns to discount noisy points, log σ keeps σ from growing. Softplus is
    e^s for small scales and s for large ones; e^s throughout overflows on outlying inputs, where a ReLU network is linear.

    `rounded`: the step of a y that is known to the nearest one only (whole stars, quarter hours). A network that hits such numbers would
    be rewarded without end for a smaller σ; rounding has the variance step² / 12 (Sheppard), and y has it on top of σ².
    """

    loc: float | Tensor = 0.0
    scale: float | Tensor = 1.0
    rounded: float = 0.0

    def observe(self, f: Tensor) -> Distribution:
        mean, raw = f.chunk(2, dim=-1)
        loc, scale = units(self.loc, mean), units(self.scale, mean)
        sd = scale * (LEAST + softplus(raw))
        return Normal(loc + scale * mean, (sd.square() + self.rounded**2 / 12).sqrt() if self.rounded else sd)

    def check(self, f: Any, y: Any) -> None:
        if f.shape[-1] % 2:
            raise InputError(
                "the network must give a mean and a scale per output",
                f"{f.shape[-1]} outputs",
                "double its last layer",
            )
        outputs = (*f.shape[:-1], f.shape[-1] // 2)
        expect_shape(outputs, y)
        expect_float(y, f.dtype)
        for name, number in {"loc": shape(self.loc), "scale": shape(self.scale)}.items():
            expect_broadcast(name, number, outputs[1:])
        expect_positive(self.scale)
        if not 0 <= self.rounded < math.inf:
            raise InputError("rounded is a step, in the units of y", str(self.rounded), "0 says that y was not rounded")


def shape(number: float | Tensor) -> tuple[int, ...]:
    return tuple(number.shape) if isinstance(number, Tensor) else ()


def expect_positive(scale: float | Tensor) -> None:
    if not bool((torch.as_tensor(scale) > 0).all()):
        raise InputError(
            "the scale of y must be positive", str(scale), "use the standard deviation of y in the training rows"
        )


def expect_broadcast(name: str, own: tuple[int, ...], outputs: tuple[int, ...]) -> None:
    """A number per output must have as many entries as there are outputs; anything else would widen them."""
    fits = len(own) <= len(outputs) and all(a in (1, b) for a, b in zip(own[::-1], outputs[::-1], strict=False))
    if not fits:
        raise InputError(
            f"{name} must broadcast to the outputs {outputs}", f"shape {own}", "give one number per output, or one"
        )


def units(number: float | Tensor, like: Tensor) -> Tensor:
    return torch.as_tensor(number, dtype=like.dtype, device=like.device)
