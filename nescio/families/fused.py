"""What training computes of all weights at every step, with gradients by hand: a third of the passes over memory that autograd makes.

Each is a line of torch, which is taken where hands would do harm: a compiler fuses by itself, and under autocast precisions mix.
"""

from __future__ import annotations

from typing import Any, cast, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from nescio.weights import Convolve

LEAST = 1e-16  # of the variance of an output: its root has no slope at zero


def normal_kl(loc: Tensor, sd: Tensor, m: Tensor, s: Tensor) -> Tensor:
    """Σ KL(N(loc, sd²), N(m, s²)) for numbers m and s."""
    if by_hand(loc):
        return cast(Tensor, NormalKL.apply(loc, sd, m, s))
    return (0.5 * (sd.square() + (loc - m).square()) / s.square() - 0.5 - (sd / s).log()).sum()


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
    return not (torch.compiler.is_compiling() or torch.is_autocast_enabled(like.device.type))


@final
class NormalKL(torch.autograd.Function):
    """Σ ½ (sd² + (loc - m)²) / s² - ½ - log(sd / s)."""

    @staticmethod
    def forward(ctx: Any, loc: Tensor, sd: Tensor, m: Tensor, s: Tensor) -> Tensor:  # type: ignore[override]
        away, flat = loc.reshape(-1), sd.reshape(-1)
        if m.requires_grad or m.is_cuda or m.item():  # mostly m is zero, and there is nothing to copy
            away = away - m
        squares = torch.dot(flat, flat) + torch.dot(away, away)
        ctx.save_for_backward(away, sd, s, squares)
        half = len(flat) // 2  # half as many logarithms, of products of two
        logarithms = (flat[:half] * flat[half : 2 * half]).log().sum() + flat[2 * half :].log().sum()
        return 0.5 * squares / s.square() + len(flat) * (s.log() - 0.5) - logarithms

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        away, sd, s, squares = ctx.saved_tensors
        factor = g / s.square()
        slope = (away * factor).view_as(sd)
        of_m = -slope.sum() if ctx.needs_input_grad[2] else None
        of_s = g * (sd.numel() / s - squares / s**3) if ctx.needs_input_grad[3] else None
        return slope, (sd * factor).sub_(g / sd), of_m, of_s


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
