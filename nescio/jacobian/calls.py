"""What a call is: where its examples are, and whether it is a linear map of them, as convolutions are, too."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_flatten

from nescio.jacobian.watch import Call, Watched

CONVOLUTIONS = {torch.conv1d, torch.conv2d, torch.conv3d}


class Axes(NamedTuple):
    """Where the examples are: for each leaf of the arguments and for each output; None where it has none."""

    given: tuple[int | None, ...]
    outputs: tuple[int | None, ...]


class Linear(NamedTuple):
    """A call as a linear map: what it acts on, and by which weights."""

    seen: Tensor  # (N, R, inputs), without the one that a bias sees
    outputs: Tensor
    weight: str | None
    bias: str | None


def axes(two: Call, three: Call) -> Axes | None:
    """Compared over calls with two and with three examples; None where some axis is neither fixed nor the examples'."""
    given = [example_axis(*pair) for pair in zip(leaves(two), leaves(three), strict=True)]
    outputs = [example_axis(*pair) for pair in zip(two.outputs, three.outputs, strict=True)]
    known = all(axis != -1 for axis in (*given, *outputs))
    met = any(axis is not None for axis in given) and outputs and all(axis is not None for axis in outputs)
    return Axes(tuple(given), tuple(outputs)) if known and met else None


def example_axis(two: Any, three: Any) -> int | None:
    """The one axis that has two and three rows; None if all are alike, -1 if something else changes."""
    if not isinstance(two, Tensor) or isinstance(two, Watched):
        return None if isinstance(two, Tensor) or two == three else -1
    if two.dim() != three.dim():
        return -1
    changed = [i for i, (a, b) in enumerate(zip(two.shape, three.shape, strict=True)) if a != b]
    if not changed:
        return None
    return changed[0] if len(changed) == 1 and (two.shape[changed[0]], three.shape[changed[0]]) == (2, 3) else -1


def leaves(call: Call) -> list[Any]:
    return tree_flatten(call.given)[0]


def linear(call: Call, where: Axes) -> Linear | None:
    """The call as a linear map, if it is one on the examples' axis."""
    if call.function is F.linear:
        x, weight, bias = bound(*call.given[0], **call.given[1])[:3]
        axis = where.outputs[0]
        if isinstance(x, Watched) or axis is None or where.given[0] != axis or axis == x.dim() - 1:
            return None
        a = x.movedim(axis, 0).reshape(x.shape[axis], -1, x.shape[-1])
    elif call.function in CONVOLUTIONS:
        x, weight, bias, *options, groups = bound(*call.given[0], **call.given[1])
        if isinstance(x, Watched) or where.outputs[0] != 0 or groups != 1:
            return None
        a = patches(x, tuple(weight.shape[2:]), *options)
    else:
        return None
    names = [w.label if isinstance(w, Watched) else None for w in (weight, bias)]
    return Linear((a if names[0] else a[..., :0]).detach(), call.outputs[0], *names)


def bound(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> tuple[Any, ...]:
    return input, weight, bias, stride, padding, dilation, groups


def patches(x: Tensor, kernel: tuple[int, ...], stride: Any, padding: Any, dilation: Any) -> Tensor:
    """What a convolution sees at each position, (N, positions, channels x kernel)."""
    spatial = len(kernel)
    stride, dilation = spread(stride, spatial), spread(dilation, spatial)
    if isinstance(padding, str):
        total = [d * (k - 1) if padding == "same" else 0 for d, k in zip(dilation, kernel, strict=True)]
        sides = [(t // 2, t - t // 2) for t in total]
    else:
        sides = [(p, p) for p in spread(padding, spatial)]
    x = F.pad(x, [n for side in reversed(sides) for n in side])
    for i in range(spatial):
        axis = 2 + 2 * i
        first = torch.arange(0, x.shape[axis] - dilation[i] * (kernel[i] - 1), stride[i], device=x.device)
        index = first[:, None] + dilation[i] * torch.arange(kernel[i], device=x.device)
        x = x.index_select(axis, index.reshape(-1)).unflatten(axis, index.shape)
    positions, taps = range(2, 2 + 2 * spatial, 2), range(3, 3 + 2 * spatial, 2)
    return x.permute(0, *positions, 1, *taps).reshape(len(x), -1, x.shape[1] * prod(kernel))


def spread(number: Any, count: int) -> tuple[int, ...]:
    return (
        tuple(number) * (count if len(number) == 1 else 1) if isinstance(number, (tuple, list)) else (number,) * count
    )
