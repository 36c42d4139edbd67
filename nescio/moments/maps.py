r"""A linear map and the norm after it, as one map of means and variances. Weights, γ and β may be uncertain, all of them independent.

    y = W x + b                 E y = M m + b,                  Var y = (M² + S) v + S m² + Var b
    z = γ (y - μ) / σ + β       E z = γ (E y - μ) / σ + β,      Var z = k Var y + Var γ (E y - μ)² / σ² + Var β,    k = (γ² + Var γ) / σ²

γ / σ becomes a part of M, and k one of S and M² + S, so that a norm costs nothing but its own uncertainty. `factored`: where S meets m²
it is replaced by the product of a number for each output, one for each input and, of a convolution, one for each place of its kernel,
which has the same sums along each of them: S m² = s (κ * tᵀm²), a convolution of one channel. Exact where variances are such a
product, as those of a Kronecker-factored covariance nearly are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from nescio.moments.gaussian import Moments, Number, parts

aten = torch.ops.aten
LINEAR = (aten.linear.default, aten.conv1d.default, aten.conv2d.default, aten.conv2d.padding, aten.conv3d.default)


class Norm(NamedTuple):
    """z = γ (y - μ) / σ + β, channel by channel."""

    gamma: Number
    beta: Number
    centre: Tensor
    square: Tensor  # σ²


class Map(NamedTuple):
    """What a pass needs of the weights, with the norm's part in them."""

    mean: Tensor  # M
    power: Tensor  # M² + S
    variance: Tensor | None  # S
    shift: Tensor | None  # a bias of the means
    spread: Tensor | None  # and of the variances
    slope: Tensor | None  # slope E z + start = (E y - μ) sd(γ) / σ
    start: Tensor | None
    row: Tensor | None  # s, κ and t, where they take the place of S
    kernel: Tensor | None
    column: Tensor | None


def mapped(weight: Number, bias: Number | None, norm: Norm | None = None, factored: bool = False) -> Map:
    (mean, variance), (shift, spread) = parts(weight), (None, None) if bias is None else parts(bias)
    power = mean.square() + (0 if variance is None else variance)
    row, kernel, column = separated(variance) if factored and variance is not None else (None, None, None)
    slope, start = None, None
    if norm is not None:
        (gamma, loose), (beta, open_) = parts(norm.gamma), parts(norm.beta)
        scale, k = gamma / norm.square.sqrt(), (gamma.square() + (0 if loose is None else loose)) / norm.square
        each = (-1, *[1] * (mean.dim() - 1))
        mean, power = scale.view(each) * mean, k.view(each) * power
        variance = None if variance is None else k.view(each) * variance
        row = None if row is None else k.view(each[:-1]) * row
        shift = beta + scale * ((0 if shift is None else shift) - norm.centre)
        spread = open_ if spread is None else k * spread + (0 if open_ is None else open_)
        if loose is not None:
            slope = loose.sqrt() / gamma
            slope, start = slope.view(each[:-1]), (-slope * beta).view(each[:-1])
    variance = variance if row is None else None
    return Map(mean, power, variance, shift, spread, slope, start, row, kernel, column)


def apply(function: Any, own: Map, x: Number, *options: Any) -> Number:
    """`options`: what the function takes after weight and bias."""
    m, v = parts(x)
    mean = function(m, own.mean, own.shift, *options)
    spread = None if v is None else function(v, own.power, own.spread, *options)
    rest = None if own.spread is None or v is not None else own.spread.view(-1, *[1] * (own.mean.dim() - 2))
    if own.variance is not None:
        spread = total(spread, function(m.square(), own.variance, None, *options))
    elif own.column is not None and own.row is not None:
        spread = total(spread, common(function, own.kernel, own.column, m, *options), own.row)
    if own.slope is not None and own.start is not None:
        off = torch.addcmul(own.start, mean, own.slope)
        spread = total(spread, off, off)
    spread = rest if spread is None else spread if rest is None else spread + rest
    return mean if spread is None else Moments(mean, spread.expand_as(mean))


def common(function: Any, kernel: Tensor | None, column: Tensor, m: Tensor, *options: Any) -> Tensor:
    """κ * tᵀm², which is the same for all outputs."""
    if kernel is None:
        return (m.square() @ column)[..., None]
    return function((m.square().movedim(1, -1) @ column)[:, None], kernel, None, *options)


def total(x: Tensor | None, y: Tensor, scale: Tensor | None = None) -> Tensor:
    """x + scale y, in the place of x: a pass is memory, not arithmetic."""
    if x is None:
        return y if scale is None else scale * y
    return x.add_(y) if scale is None else x.addcmul_(y, scale)


def separated(variance: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
    """(outputs, 1, ...), (1, 1, ...) and (inputs,) whose product has the same sums along outputs, inputs and places of a kernel."""
    places, whole = tuple(range(2, variance.dim())), variance.sum().clamp_min(torch.finfo(variance.dtype).tiny)
    row = variance.sum((1, *places)).view(-1, *[1] * len(places))
    return row, variance.sum((0, 1), keepdim=True) / whole if places else None, variance.sum((0, *places)) / whole


def laid_out(x: Any) -> Any:
    """Images and kernels channel by channel within a place: convolutions are faster so, and so is a sum over channels."""
    return x.contiguous(memory_format=torch.channels_last) if isinstance(x, Tensor) and x.dim() == 4 else x
