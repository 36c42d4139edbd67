r"""Independent Gaussians, and how weights with such a law act in a network.

    q(w) = Π N(w_i; μ_i, σ_i²),     σ = softplus(ρ) = log(1 + e^ρ)

Where each example meets a weight once, y = x W is Gaussian given x and is drawn itself, with noise of its own for each example
(local reparameterisation: Kingma et al., 2015): the same bound, gradients of lower variance.

    y ~ N(x μ, x² σ²)

A convolution, or a linear map over tokens, meets one weight in many places: independent noise at each would forget that it is one
weight. There W = μ + (W' - μ) ∘ r sᵀ with one draw W' for the call and random signs r, s for each example, which leave the law of W
as it is (flipout: Wen et al., 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal
from torch.nn import functional as F

from nescio.families.family import Block, Factor, closed_form
from nescio.families.fused import noisy, normal_kl
from nescio.weights import Action, Convolve, RandomWeight, values


@final
class Gaussian(Factor, Action):
    """Independent Gaussians in one block."""

    sd: Tensor  # of the call at hand

    def __init__(self, block: Block, sd: float = 0.05, everywhere: bool = False) -> None:
        super().__init__(block)
        self.loc = nn.Parameter(block.start.view(block.shape).clone())
        self.rho = nn.Parameter(torch.full_like(self.loc, sd + math.log(-math.expm1(-sd))))  # softplus(rho) = sd
        self.everywhere = everywhere

    def begin(self) -> None:
        self.sd = F.softplus(self.rho)

    def draw(self) -> Tensor:
        return (self.loc + self.sd * torch.randn_like(self.loc)).reshape(-1)

    def mean(self) -> Tensor:
        return self.loc.reshape(-1)

    def log_prob(self, u: Tensor) -> Tensor:
        return Normal(self.mean(), self.sd.reshape(-1)).log_prob(u).sum(dtype=torch.float64)

    def kl(self, priors: Sequence[Distribution]) -> Tensor | None:
        return self.kls([self], [priors])[0]

    @classmethod
    def kls(cls, factors: Sequence[Gaussian], priors: Sequence[Sequence[Distribution]]) -> list[Tensor | None]:
        found: list[Tensor | None] = []
        normal: list[tuple[Gaussian, Normal]] = []  # under one Gaussian for all numbers of a block: at once
        for factor, (prior,) in zip(factors, priors, strict=True):
            if isinstance(prior, Normal) and not prior.loc.dim() and not prior.scale.dim():
                found.append(factor.loc.new_zeros(()))
                normal.append((factor, prior))
            else:
                found.append(closed_form(Normal(factor.mean(), factor.sd.reshape(-1)), prior))
        if normal:
            m, s = (torch.stack([getattr(prior, name) for _, prior in normal]) for name in ("loc", "scale"))
            kl = normal_kl([factor.loc for factor, _ in normal], [factor.sd for factor, _ in normal], m, s)
            found[factors.index(normal[0][0])] = kl
        return found

    # ---- how it acts -------------------------------------------------------------------------------------------

    def linear(self, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor]) -> Tensor:
        if x.dim() == 2 or self.everywhere:
            return self.local(F.linear, x, bias)
        return self.signed(F.linear, x, bias, value, axis=-1)

    def convolve(self, convolution: Convolve, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor]) -> Tensor:
        return self.local(convolution, x, bias) if self.everywhere else self.signed(convolution, x, bias, value, axis=1)

    def local(self, function: Convolve, x: Tensor, bias: Tensor | None) -> Tensor:
        """By the law of the output."""
        bias_sd = None
        if isinstance(bias, RandomWeight) and isinstance(bias.action, Gaussian):
            bias.used()
            bias, bias_sd = bias.action.loc, bias.action.sd
        return noisy(function, x, self.loc, self.sd, values(bias), bias_sd)

    def signed(
        self, function: Convolve, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor], axis: int
    ) -> Tensor:
        return signed(function, x, self.loc, bias, value, axis)


def own_bias(bias: Tensor, like: Tensor) -> Tensor:
    """A bias for each example of `like` (examples, outputs): with noise of its own where it is Gaussian, else as it is."""
    if isinstance(bias, RandomWeight) and isinstance(bias.action, Gaussian):
        bias.used()
        return torch.addcmul(bias.action.loc, bias.action.sd, torch.randn_like(like))
    return values(bias)


def signed(
    function: Convolve, x: Tensor, loc: Tensor, bias: Tensor | None, value: Callable[[], Tensor], axis: int
) -> Tensor:
    """One draw, its deviation from the mean with random signs for each example, input and output. `axis`: of the channels."""
    mean = function(x, loc, values(bias))
    return mean + function(x * signs(x, axis), value() - loc, None) * signs(mean, axis)


def signs(like: Tensor, axis: int) -> Tensor:
    """±1 for each example and each entry of an axis."""
    shape = [1] * like.dim()
    shape[0], shape[axis] = like.shape[0], like.shape[axis]
    return torch.randint(0, 2, shape, device=like.device).to(like.dtype) * 2 - 1
