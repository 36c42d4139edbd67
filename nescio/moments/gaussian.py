r"""Mean and variance of functions of independent Gaussians.

relu        E = m Φ(a) + s φ(a),   Var = v Φ(a) + E (m - E),    a = m/s                 (Frey & Hinton, 1999)
Φ           1 - Φ(a) = φ(a) t (c_1 + ... + c_5 t⁴),  t = 1/(1 + c a), a > 0             (Hastings, 1955; error 7e-8)
any other   Σ_k c_k g(m + s z_k), Gauss-Hermite nodes: exact for polynomials of degree nine in g
x y         m_x m_y,   v_x v_y + m_x² v_y + m_y² v_x
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

TINY = 1e-20  # of a variance, so that a number without one has no 0/0
LEAST = -125.0  # below it 2^x is no normal number in single precision, and takes a processor ten times as long
HASTINGS = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
ROOT_HALF, ROOT_TWO_PI = math.sqrt(0.5), math.sqrt(2 * math.pi)


class Moments(NamedTuple):
    """Of numbers that are taken to be independent: mean and variance, of one shape."""

    mean: Tensor
    variance: Tensor


Number = Tensor | Moments


def hermite(nodes: int) -> list[tuple[float, float]]:
    """(place, weight) for the standard normal law."""
    places, weights = np.polynomial.hermite_e.hermegauss(nodes)
    return list(zip(places.tolist(), (weights / ROOT_TWO_PI).tolist(), strict=True))


NODES = hermite(5)


def normal(a: Tensor) -> tuple[Tensor, Tensor]:
    """exp(-a²/2) and Φ(a); `a` is spent. One exponential serves both, but not in double precision, where Φ would be too rough."""
    # in place where nobody else looks: a pass is memory, not arithmetic
    edge = (a * a).mul_(-0.5 / math.log(2)).clamp_min_(LEAST).exp2_()
    if a.dtype == torch.float64:
        return edge, a.mul_(ROOT_HALF).erf_().mul_(0.5).add_(0.5)
    t = a.abs().mul_(0.3275911 * ROOT_HALF).add_(1).reciprocal_()
    tail = t * HASTINGS[-1]
    for c in HASTINGS[-2::-1]:
        tail.add_(c).mul_(t)
    return edge, tail.mul_(edge).sub_(1).copysign_(a).add_(1).mul_(0.5)


def relu(x: Moments, slope: float = 0.0) -> Moments:
    """max(x, 0) + slope min(x, 0)."""
    m, v = x
    s = (v + TINY).sqrt_()
    edge, below = normal(m / s)
    mean = edge.mul_(s).mul_(1 / ROOT_TWO_PI).addcmul_(m, below)
    spread = below.mul_(v).addcmul_(mean, m - mean).clamp_min_(0)
    if not slope:
        return Moments(mean, spread)
    square = spread + mean * mean  # x = relu(x) - relu(-x), and the product of both is zero
    square = square + slope**2 * (m * m + v - square)
    mean = (1 - slope) * mean + slope * m
    return Moments(mean, (square - mean * mean).clamp_min(0))


def through(function: Callable[[Tensor], Tensor], x: Moments) -> Moments:
    """Of any function of each number by itself."""
    s = x.variance.sqrt()
    values = [(function(x.mean + z * s if z else x.mean), c) for z, c in NODES]
    mean = sum((c * value for value, c in values[1:]), values[0][1] * values[0][0])
    first, c = values[0]
    spread = c * (first - mean).square()
    for value, c in values[1:]:
        spread = spread + c * (value - mean).square()
    return Moments(mean, spread)


def product(x: Number, y: Number) -> Number:
    if not isinstance(x, Moments) and not isinstance(y, Moments):
        return x * y
    if not isinstance(x, Moments):
        x, y = y, x
    assert isinstance(x, Moments)
    if not isinstance(y, Moments):
        return Moments(x.mean * y, x.variance * y * y)
    spread = x.variance * (y.variance + y.mean.square()) + x.mean.square() * y.variance
    return Moments(x.mean * y.mean, spread)


def total(x: Number, y: Number, sign: float = 1.0) -> Number:
    """x + sign y."""
    (m, v), (n, w) = parts(x), parts(y)
    mean = m + sign * n
    if v is None and w is None:
        return mean
    spread = w if v is None else v if w is None else v + sign**2 * w
    assert spread is not None
    return Moments(mean, spread.expand_as(mean))


def larger(x: Number, y: Number) -> Number:
    """max(x, y) (Clark, 1961): y + relu(x - y), their covariance included."""
    (m, v), (n, w) = parts(x), parts(y)
    if v is None and w is None:
        return torch.maximum(m, n)
    v, w = (torch.zeros_like(m) if u is None else u for u in (v, w))
    s = (v + w + TINY).sqrt()
    edge, first = normal((m - n) / s)
    edge = edge * s / ROOT_TWO_PI
    mean = m * first + n * (1 - first) + edge
    square = (m * m + v) * first + (n * n + w) * (1 - first) + (m + n) * edge
    return Moments(mean, (square - mean * mean).clamp_min(0))


def parts(x: Number) -> tuple[Tensor, Tensor | None]:
    return (x.mean, x.variance) if isinstance(x, Moments) else (x, None)
