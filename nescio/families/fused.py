"""What training computes of all weights at every step, with gradients by hand: a third of the passes over memory that autograd makes.

Each is a line of torch, which is taken where hands would do harm: a compiler fuses by itself, and under autocast precisions mix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from nescio.weights import Convolve

LEAST = 1e-16  # of the variance of an output: its root has no slope at zero


def normal_kl(locs: Sequence[Tensor], sds: Sequence[Tensor], m: Tensor, s: Tensor) -> Tensor:
    """Σ KL(N(loc, sd²), N(m, s²)) over tensors, each with one number of m and of s, (tensors,)."""
    if by_hand(m):
        return cast(Tensor, NormalKL.apply(m, s, *locs, *sds))
    each = zip(locs, sds, m, s, strict=True)
    return sum((normal_kl_of(*one) for one in each), m.new_zeros(()))


def normal_kl_of(loc: Tensor, sd: Tensor, m: Tensor, s: Tensor) -> Tensor:
    each = (sd.square() + (loc - m).square()) * (0.5 / s.square()) - sd.log()
    total = each.sum(-1).sum(dtype=torch.float64) if each.dim() else each.double()  # few in single precision
    return total + loc.numel() * (s.log() - 0.5)


def noisy(
    function: Convolve, x: Tensor, loc: Tensor, sd: Tensor, bias: Tensor | None, bias_sd: Tensor | None
) -> Tensor:
    """A linear function of x under Gaussian weights, each of its outputs with noise of its own."""
    if function is F.linear and x.dim() == 2 and by_hand(x):
        noise = torch.randn(len(x), len(loc), dtype=x.dtype, device=x.device)
        return cast(Tensor, NoisyLinear.apply(x, loc, sd, bias, bias_sd, noise))
    mean = function(x, loc, bias)
    variance = function(x * x, sd.square(), None if bias_sd is None else bias_sd.square())
    return mean + variance.clamp_min(LEAST).sqrt() * torch.randn_like(mean)


def by_hand(like: Tensor) -> bool:
    if torch.compiler.is_compiling():  # asked first: its tracer cannot see what follows
        return False
    traced = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None  # type: ignore[attr-defined]
    return not (traced or torch.is_autocast_enabled(like.device.type))


@final
class NormalKL(torch.autograd.Function):
    """Σ ½ (sd² + (loc - m)²) / s² - ½ - log(sd / s). Several tensors at once: for small ones the calls are what costs."""

    @staticmethod
    def forward(ctx: Any, m: Tensor, s: Tensor, *tensors: Tensor) -> Tensor:  # type: ignore[override]
        k = len(tensors) // 2
        away, sds = tensors[:k], tensors[k:]
        if m.requires_grad or m.is_cuda or bool(m.any()):  # mostly m is zero, and there is nothing to copy
            away = tuple(x - m[i] for i, x in enumerate(away))
        squares = torch.stack([squared(d) + squared(x) for d, x in zip(sds, away, strict=True)])
        sizes = torch.stack([s.new_full((), x.numel()) for x in sds])  # no copy from here to a GPU
        ctx.save_for_backward(s, squares, sizes, *away, *sds)
        logarithms = torch.stack([sum_of_logs(x.reshape(-1)) for x in sds])
        return (0.5 * squares / s.square() + sizes * (s.log() - 0.5) - logarithms).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        s, squares, sizes, *tensors = ctx.saved_tensors
        k, factor, minus = len(tensors) // 2, g / s.square(), -g
        of_loc = [x * factor[i] for i, x in enumerate(tensors[:k])]
        of_sd = [(d * factor[i]).addcdiv_(minus, d) for i, d in enumerate(tensors[k:])]
        of_m = torch.stack([-x.sum() for x in of_loc]) if ctx.needs_input_grad[0] else None
        of_s = g * (sizes / s - squares / s**3) if ctx.needs_input_grad[1] else None
        return of_m, of_s, *of_loc, *of_sd


def squared(x: Tensor) -> Tensor:
    return torch.dot(x.reshape(-1), x.reshape(-1))


def sum_of_logs(x: Tensor) -> Tensor:
    """A quarter as many logarithms, of products of four, where these do not vanish."""
    quarter = len(x) // 4
    if x.is_cuda or quarter < 1000:
        return x.log().sum()
    a, b, c, d = x[: 4 * quarter].view(4, quarter)
    products = (a * b).mul_(c).mul_(d)
    if float(products.min()) < torch.finfo(x.dtype).tiny:
        return x.log().sum()
    return products.log_().sum() + x[4 * quarter :].log().sum()


@final
class NoisyLinear(torch.autograd.Function):
    """x @ locᵀ + bias, plus √(x² @ sd²ᵀ + bias_sd²) ε: for each row of x noise of its own."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, x: Tensor, loc: Tensor, sd: Tensor, bias: Tensor | None, bias_sd: Tensor | None, noise: Tensor
    ) -> Tensor:
        squares, variance = x * x, sd * sd
        out = F.linear(squares, variance, None if bias_sd is None else bias_sd * bias_sd)
        root = out.clamp_(min=LEAST).sqrt_()
        ctx.save_for_backward(x, loc, sd, bias_sd, squares, variance, noise / root)
        return F.linear(x, loc, bias).addcmul_(root, noise)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, loc, sd, bias_sd, squares, variance, ratio = ctx.saved_tensors
        spread = g * ratio  # twice the slope of the variance
        of_x = (g @ loc).addcmul_(x, spread @ variance) if ctx.needs_input_grad[0] else None
        of_bias = g.sum(0) if ctx.needs_input_grad[3] else None
        of_bias_sd = None if bias_sd is None else bias_sd * spread.sum(0)
        return of_x, g.mT @ x, (spread.mT @ squares).mul_(sd), of_bias, of_bias_sd, None
