"""Convolutions of few channels, said as ones of many: pixels that lie side by side become channels of one.

The matrix units of a GPU, which halves and TF32 are for, work on tiles of 64 channels and more: of 16, most of a tile is empty. In memory
images come channels last, so that n neighbours of a row are one pixel of n times the channels already: nothing is moved. Output p of a
group takes from input q of the group that lies b groups further the weight of column n b + q - p + padding, where there is one, else 0.
The sums are the same, with zeros among them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

WIDE = 64  # channels that fill a tile; with 32 a gradient of ResNet-20 takes longer, though products are fewer
aten: Any = torch.ops.aten
LAST = torch.channels_last


class Settings(NamedTuple):
    """What follows input, weights and bias among the arguments of torch's convolutions."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    transposed: bool
    output_padding: list[int]
    groups: int


def neighbours(x: Tensor, w: Tensor, given: Settings) -> int:
    """So many pixels make one; 1 leaves the convolution as it is. `x`: (images, channels, h, w), `w`: (out, in, rows, columns)."""
    halves = x.dtype in (torch.bfloat16, torch.float16)
    coarse = halves or (x.dtype == torch.float32 and torch.backends.cudnn.allow_tf32)
    plain = not given.transposed and given.groups == 1 and {*given.stride, *given.dilation} == {1}
    if x.ndim != 4 or not coarse or not plain or not x.is_contiguous(memory_format=LAST):
        return 1
    out, channels, _, columns = w.shape
    n = WIDE // max(out, channels)
    while n > 1 and x.shape[3] % n:
        n -= 1
    same = columns % 2 and columns > 1 and given.padding[1] == columns // 2  # as many pixels come out as go in
    return n if n > 1 and same and not (out % 8 or channels % 8) else 1


def grouped(x: Tensor, n: int) -> Tensor:
    """(images, c, h, w) to (images, n c, h, w / n)."""
    images, channels, h, w = x.shape
    return x.permute(0, 2, 3, 1).reshape(images, h, w // n, n * channels).permute(0, 3, 1, 2)


def apart(x: Tensor, n: int) -> Tensor:
    """The way back."""
    images, channels, h, w = x.shape
    return x.permute(0, 2, 3, 1).reshape(images, h, w * n, channels // n).permute(0, 3, 1, 2)


def along(axis: int, count: int, like: Tensor) -> Tensor:
    """0, 1, ... along one of three axes."""
    return torch.arange(count, device=like.device).reshape([-1 if axis == i else 1 for i in range(3)])


def widened(w: Tensor, n: int) -> Tensor:
    """(out, in, rows, columns) to (n out, n in, rows, groups)."""
    out, channels, rows, columns = w.shape
    reach = -(-(columns // 2) // n)
    p, q, b = (along(i, k, w) for i, k in enumerate((n, n, 2 * reach + 1)))
    column = n * (b - reach) + q - p + columns // 2
    none = (column < 0) | (column >= columns)
    taken = torch.cat([w, w.new_zeros(out, channels, rows, 1)], 3)[..., torch.where(none, columns, column)]
    return taken.permute(3, 0, 4, 1, 2, 5).reshape(n * out, n * channels, rows, 2 * reach + 1)


def narrowed(g: Tensor, w: Tensor, n: int) -> Tensor:
    """The gradient of w, from that of the widened one: each column is taken once by each output of a group.

    By places, not by a sum with a mask: that one the compiler of torch 2.11 gets wrong on a GPU.
    """
    out, channels, rows, columns = w.shape
    groups = g.shape[3]
    d, p = along(0, columns, w)[..., 0], along(1, n, w)[..., 0]
    away = d + p - columns // 2
    place = (p * n + away % n) * groups + torch.div(away, n, rounding_mode="floor") + groups // 2
    parts = g.reshape(n, out, n, channels, rows, groups).permute(1, 3, 4, 0, 2, 5)
    return parts.reshape(out, channels, rows, n * n * groups)[..., place].sum(4)


@torch.library.custom_op("nescio::convolution", mutates_args=())
def wide_convolution(x: Tensor, wide: Tensor, n: int, padding: list[int]) -> Tensor:
    """An operation of its own, for a compiler leaves the arguments of one where they are, and would copy views of views."""
    y = aten.convolution(grouped(x, n), wide, None, [1, 1], padding, [1, 1], False, [0, 0], 1)
    return apart(y, n).contiguous(memory_format=LAST)


@wide_convolution.register_fake
def _(x: Tensor, wide: Tensor, n: int, padding: list[int]) -> Tensor:
    rows = x.shape[2] + 2 * padding[0] - wide.shape[2] + 1
    return x.new_empty((len(x), len(wide) // n, rows, x.shape[3])).contiguous(memory_format=LAST)


@torch.library.custom_op("nescio::convolution_backward", mutates_args=())
def wide_backward(
    g: Tensor, x: Tensor, wide: Tensor, n: int, padding: list[int], mask: list[bool]
) -> tuple[Tensor, Tensor]:
    """Of x and of the widened weights, where the mask has them; else nothing."""
    given = (grouped(g, n), grouped(x, n), wide, None, [1, 1], padding, [1, 1], False, [0, 0], 1, [*mask, False])
    to_x, to_wide, _ = aten.convolution_backward(*given)
    to_x = apart(to_x, n).contiguous(memory_format=LAST) if mask[0] else x.new_empty(0)
    return to_x, to_wide.contiguous() if mask[1] else x.new_empty(0)


@wide_backward.register_fake
def _(g: Tensor, x: Tensor, wide: Tensor, n: int, padding: list[int], mask: list[bool]) -> tuple[Tensor, Tensor]:
    to_x = torch.empty_like(x, memory_format=LAST) if mask[0] else x.new_empty(0)
    return to_x, wide.new_empty(wide.shape) if mask[1] else x.new_empty(0)


FORWARD = (aten.convolution.default, wide_convolution._opoverload)
BACKWARD = (aten.convolution_backward.default, wide_backward._opoverload)


def convolution(x: Tensor, w: Tensor, bias: Tensor | None, *settings: Any) -> Any:
    """In the place of torch's; NotImplemented leaves that as it is."""
    given = Settings(*settings)
    n = neighbours(x, w, given)
    if n == 1:
        return NotImplemented
    wide = widened(w, n)
    y = FORWARD[1](x, wide, n, [given.padding[0], wide.shape[3] // 2])
    return y if bias is None else y + bias.reshape(-1, 1, 1)


def convolution_backward(g: Tensor, x: Tensor, w: Tensor, bias_sizes: list[int] | None, *settings: Any) -> Any:
    """Likewise; the last of the settings is a mask: which gradients are asked for, of x, w and the bias."""
    given, mask = Settings(*settings[:-1]), settings[-1]
    n = neighbours(x, w, given)
    if n == 1:
        return NotImplemented
    g, wide = g.contiguous(memory_format=LAST), widened(w, n)
    to_x, to_wide = BACKWARD[1](g, x, wide, n, [given.padding[0], wide.shape[3] // 2], mask[:2])
    single = torch.promote_types(g.dtype, torch.float32)
    to_bias = g.sum((2, 3), dtype=single).sum(0).to(g.dtype) if mask[2] else None  # within images, beside other sums
    return to_x if mask[0] else None, narrowed(to_wide, w, n) if mask[1] else None, to_bias
