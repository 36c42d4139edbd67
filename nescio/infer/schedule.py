"""Step sizes over a run, functions of the part of it that is done, t in [0, 1); and a preconditioner."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import final

from torch import Tensor

from nescio.errors import InputError


def between(x: object, least: float, below: float) -> bool:
    """Whether it is a number in [least, below)."""
    return isinstance(x, Real) and not isinstance(x, bool) and least <= float(x) < below


@final
@dataclass(frozen=True)
class Constant:
    """1 throughout."""

    def __call__(self, t: float) -> float:
        return 1.0


@final
@dataclass(frozen=True)
class Cosine:
    """From 1 down to `least` along half a cosine (Loshchilov & Hutter, 2017)."""

    least: float = 0.0

    def __call__(self, t: float) -> float:
        return self.least + (1 - self.least) * 0.5 * (1 + math.cos(math.pi * t))


@final
@dataclass(frozen=True)
class Steps:
    """Multiplied by `factor` at each of the given parts of the run: `Steps(.5)` drops tenfold at half time."""

    at: float | tuple[float, ...] = 0.5
    factor: float = 0.1

    def __call__(self, t: float) -> float:
        at = self.at if isinstance(self.at, tuple) else (self.at,)
        return self.factor ** sum(t >= a for a in at)


@final
@dataclass(frozen=True)
class Cycles:
    """Step sizes of samplers on minibatches: `n` cosine cycles from `peak` to 0 (Zhang et al., 2020).

    `explore` is the part of a cycle that comes before its draws."""

    peak: float
    n: int = 4
    explore: float = 0.8

    def __post_init__(self) -> None:
        count = isinstance(self.n, Integral) and not isinstance(self.n, bool) and self.n >= 1
        if not (count and between(self.peak, 0, math.inf) and self.peak > 0 and between(self.explore, 0, 1)):
            must = "cycles need a positive peak, a whole number n of at least 1 and a part explore in [0, 1)"
            got = f"peak={self.peak!r}, n={self.n!r}, explore={self.explore!r}"
            raise InputError(must, got, "write step_size=Cycles(1e-6, n=4)")

    def __call__(self, t: float) -> float:
        return self.peak * 0.5 * (1 + math.cos(math.pi * ((t * self.n) % 1.0)))


@final
@dataclass(frozen=True)
class RMSprop:
    """A diagonal preconditioner from a running mean of squared gradients (per observation): G = 1 / (eps + √mean)."""

    decay: float = 0.99
    eps: float = 1e-5

    def __post_init__(self) -> None:
        if not (between(self.decay, 0, 1) and between(self.eps, 0, math.inf) and self.eps > 0):
            got = f"decay={self.decay!r}, eps={self.eps!r}"
            raise InputError("decay must lie in [0, 1) and eps be positive", got, "write RMSprop()")

    def __call__(self, squares: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        squares = self.decay * squares + (1 - self.decay) * gradient.square()
        return squares, 1 / (self.eps + squares.sqrt())
