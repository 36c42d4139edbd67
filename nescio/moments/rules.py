"""What each operation of a network does to means and variances. What is not here is refused, with the name of the node.

Numbers of one layer are taken to be independent, with two exceptions. Averages over positions are taken of numbers that move together:
positions share their weights, and it is the weights that are unknown. The statistics by which a norm divides are those of the means.
Of a max-pool the winner is that of the means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nescio.moments.gaussian import Moments, Number, larger, parts, product, relu, through, total

aten = torch.ops.aten
Rule = Callable[..., Any]


def averaged(function: Callable[..., Tensor]) -> Rule:
    """Of numbers that move together: standard deviations are averaged."""
    return lambda x, *rest, **named: Moments(
        function(x.mean, *rest, **named), function(x.variance.sqrt(), *rest, **named).square()
    )


def reshaped(function: Callable[..., Tensor]) -> Rule:
    """Numbers are moved, not changed."""
    return lambda x, *rest, **named: Moments(function(x.mean, *rest, **named), function(x.variance, *rest, **named))


def elementwise(function: Callable[..., Tensor]) -> Rule:
    return lambda x, *rest, **named: through(lambda t: function(t, *rest, **named), x)


def added(x: Number, y: Number, *, alpha: float = 1.0) -> Number:
    one, two = tensors(x, y)
    return total(one, two, float(alpha))


def subtracted(x: Number, y: Number, *, alpha: float = 1.0) -> Number:
    one, two = tensors(x, y)
    return total(one, two, -float(alpha))


def multiplied(x: Number, y: Number) -> Number:
    one, two = tensors(x, y)
    return product(one, two)


def divided(x: Number, y: Number) -> Number:
    if isinstance(y, Moments):
        raise NotImplementedError
    return product(x, 1 / torch.as_tensor(y))


def squared(x: Moments) -> Moments:
    m2 = x.mean.square()
    return Moments(m2 + x.variance, 2 * x.variance * (x.variance + 2 * m2))


def statistic(function: Callable[[Tensor], Tensor]) -> Rule:
    """Of what a norm divides by: taken at its mean."""
    return lambda x: function(x.mean)


def pad(x: Moments, width: list[int], mode: str = "constant", value: float | None = None) -> Moments:
    edge = None if mode == "constant" else value
    return Moments(F.pad(x.mean, width, mode, value), F.pad(x.variance, width, mode, edge))


def max_pool(x: Moments, *options: Any) -> Moments:
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    given = {name: option for name, option in zip(names, options, strict=False) if option != []}
    mean, where = F.max_pool2d(x.mean, **given, return_indices=True)  # type: ignore[arg-type]
    return Moments(mean, x.variance.flatten(-2).gather(-1, where.flatten(-2)).reshape(mean.shape))


def batch_norm(
    x: Moments, weight: Any, bias: Any, mean: Tensor, variance: Tensor, training: bool, _m: float, eps: float, *_: Any
) -> Number:
    if training:
        raise NotImplementedError
    (gamma, open_), (beta, loose) = (parts(n) if n is not None else (None, None) for n in (weight, bias))
    zero, one = torch.zeros_like(mean), torch.ones_like(mean)
    power = (one if gamma is None else gamma.square()) + (zero if open_ is None else open_)
    centre = F.batch_norm(x.mean, mean, variance, gamma, beta, eps=eps)
    # torch's own kernel for an affine map of each channel is the fastest there is
    spread = F.batch_norm(x.variance, zero, one, power / (variance + eps), loose, eps=0.0)
    if open_ is None:
        return Moments(centre, spread)
    away = F.batch_norm(x.mean, mean, variance, open_.sqrt(), None, eps=eps)  # what γ multiplies, times its deviation
    return Moments(centre, torch.addcmul(spread, away, away))


def layer_norm(x: Moments, over: list[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> Number:
    axes = tuple(range(-len(over), 0))
    return scaled(normed(x, axes, eps), weight, bias, tuple(over))


def group_norm(x: Moments, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> Number:
    split = Moments(*(t.unflatten(1, (groups, -1)) for t in x))
    apart = normed(split, tuple(range(2, split.mean.dim())), eps)
    return scaled(Moments(*(t.flatten(1, 2) for t in apart)), weight, bias, (1, -1, *[1] * (x.mean.dim() - 2)))


def normed(x: Moments, axes: tuple[int, ...], eps: float) -> Moments:
    centre = x.mean.mean(axes, keepdim=True)
    scale = ((x.mean - centre).square() + x.variance).mean(axes, keepdim=True).add(eps).rsqrt()
    return Moments((x.mean - centre) * scale, x.variance * scale.square())


def scaled(x: Moments, weight: Any, bias: Any, shape: tuple[int, ...]) -> Number:
    """γ x + β, both perhaps uncertain."""
    found: Number = x
    for function, number in ((product, weight), (total, bias)):
        if number is not None:
            mean, variance = parts(number)
            wide = mean.view(shape)
            found = function(found, wide if variance is None else Moments(wide, variance.view(shape)))
    return found


def joined(given: list[Number], axis: int = 0) -> Moments:
    pairs = [(m, torch.zeros_like(m) if v is None else v) for m, v in map(parts, given)]
    return Moments(*(torch.cat(each, axis) for each in zip(*pairs, strict=True)))


def tensors(*numbers: Any) -> list[Number]:
    return [n if isinstance(n, (Tensor, Moments)) else torch.as_tensor(n) for n in numbers]


RULES: dict[Any, Rule] = {
    aten.relu.default: relu,
    aten.relu_.default: relu,
    aten.leaky_relu.default: lambda x, slope=0.01: relu(x, float(slope)),
    aten.add.Tensor: added,
    aten.add_.Tensor: added,
    aten.sub.Tensor: subtracted,
    aten.mul.Tensor: multiplied,
    aten.div.Tensor: divided,
    aten.neg.default: lambda x: Moments(-x.mean, x.variance),
    aten.square.default: squared,
    aten.rsqrt.default: statistic(torch.rsqrt),
    aten.maximum.default: larger,
    aten.cat.default: joined,
    aten.pad.default: pad,
    aten.max_pool2d.default: max_pool,
    aten.batch_norm.default: batch_norm,
    aten.layer_norm.default: layer_norm,
    aten.group_norm.default: group_norm,
    **{op: averaged(op) for op in (aten.mean.dim, aten.avg_pool1d.default, aten.avg_pool2d.default)},
    **{op: averaged(op) for op in (aten.adaptive_avg_pool1d.default, aten.adaptive_avg_pool2d.default)},
    **{
        op: elementwise(op)
        for op in (
            *(aten.tanh.default, aten.sigmoid.default, aten.silu.default, aten.silu_.default, aten.gelu.default),
            *(aten.elu.default, aten.softplus.default, aten.hardtanh.default, aten.mish.default, aten.sin.default),
        )
    },
    **{
        op: reshaped(op)
        for op in (
            *(aten.flatten.using_ints, aten.reshape.default, aten.permute.default),
            *(aten.transpose.int, aten.squeeze.dim, aten.unsqueeze.default, aten.expand.default, aten.select.int),
            *(aten.slice.Tensor, aten.contiguous.default, aten.clone.default, aten.to.dtype, aten.to.device),
        )
    },
    aten.expand_as.default: lambda x, other: Moments(*(t.expand_as(parts(other)[0]) for t in x)),
    aten.dropout.default: lambda x, p, train: _evaluating(x, train),
    aten.feature_dropout.default: lambda x, p, train: _evaluating(x, train),
}


def _evaluating(x: Moments, train: bool) -> Moments:
    if train:
        raise NotImplementedError
    return x
