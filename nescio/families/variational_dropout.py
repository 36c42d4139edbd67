r"""Variational dropout: Gaussian noise in proportion to each weight, its variance learned (Kingma et al., 2015; Molchanov et al., 2017).

    q(w) = N(θ, α θ²),     p(w) ∝ 1 / |w|     (nescio.laws.LogUniform)

The divergence depends on α alone. It has no closed form; with k = (0.63576, 1.87320, 1.48695),

    KL(q, p) ≈ k₁ (1 - sigmoid(k₂ + k₃ log α)) + ½ log(1 + 1/α) - c,     c = ½ (γ + log 2) + ½ log 2πe,

which is within 0.0094 nats of the truth for every α (measured by quadrature: tests/test_dropout_learned.py). c makes it the divergence from
the density 1 / |w| itself, so that bounds compare with those of other families. Weights with log α > 3 are noise and can be pruned.

Mean and standard deviation are the parameters, α = σ² / θ²; noise in training is that of MeanField. Under any other prior it is MeanField.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.distributions import Distribution
from torch.nn import functional as F

from nescio.densities import Improper
from nescio.errors import InputError
from nescio.families.approximation import Approximation
from nescio.families.family import Block, Factor, Family
from nescio.families.fused import by_hand
from nescio.families.independent import Gaussian
from nescio.weights import Action, Convolve, RandomWeight

K1, K2, K3 = 0.63576, 1.87320, 1.48695
CONSTANT = 0.5 * (float(np.euler_gamma) + math.log(2)) + 0.5 * math.log(2 * math.pi * math.e)
LEAST = 1e-4  # standard deviation of a weight that starts at zero
ZERO = 1e-20  # what counts as one: there log α has no slope


@final
@dataclass(frozen=True)
class VariationalDropout(Family):
    """`alpha`: the variance of every weight at the start, relative to its square."""

    alpha: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.alpha < math.inf:
            raise InputError("alpha must be positive", str(self.alpha), "0.1 is a mild start")

    def factors(self, blocks: Sequence[Block]) -> Sequence[Factor]:
        return [Gaussian(b) if b.site is None else Proportional(b, self.alpha) for b in blocks]


@final
class Proportional(Factor, Action):
    """Independent Gaussians in one block, whose divergence from LogUniform is known."""

    def __init__(self, block: Block, alpha: float) -> None:
        super().__init__(block)
        self.law = Gaussian(block)
        with torch.no_grad():
            sd = (math.sqrt(alpha) * self.law.loc.abs()).clamp_min(LEAST)
            self.law.rho.copy_(sd + torch.log(-torch.expm1(-sd)))  # softplus(rho) = sd

    def begin(self) -> None:
        self.law.begin()

    def draw(self) -> Tensor:
        return self.law.draw()

    def mean(self) -> Tensor:
        return self.law.mean()

    def log_prob(self, u: Tensor) -> Tensor:
        return self.law.log_prob(u)

    def log_alpha(self) -> Tensor:
        return 2 * (self.law.sd.log() - self.law.loc.abs().clamp_min(ZERO).log())

    def kl(self, priors: Sequence[Distribution]) -> Tensor | None:
        if isinstance(priors[0], Improper) and priors[0].power == -1:
            if by_hand(self.law.loc):
                return cast(Tensor, LogUniformKL.apply(self.law.loc, self.law.sd))
            each = log_uniform_kl(self.log_alpha())
            return each.sum(-1).sum(dtype=torch.float64) if each.dim() else each.double()
        return self.law.kl(priors)

    # ---- how it acts -------------------------------------------------------------------------------------------

    def linear(self, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor]) -> Tensor:
        return self.law.linear(x, plain(bias), value)

    def convolve(self, convolution: Convolve, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor]) -> Tensor:
        return self.law.convolve(convolution, x, plain(bias), value)


def plain(bias: Tensor | None) -> Tensor | None:
    """A bias as the Gaussian that it is."""
    if isinstance(bias, RandomWeight) and isinstance(bias.action, Proportional):
        bias.used()
        law = bias.action.law
        return RandomWeight.of(law, bias.value, law.loc)
    return bias


def log_uniform_kl(log_alpha: Tensor) -> Tensor:
    """KL(N(θ, α θ²), 1 / |w|) of each weight, approximately."""
    return K1 * torch.sigmoid(-(K2 + K3 * log_alpha)) + 0.5 * F.softplus(-log_alpha) - CONSTANT


@final
class LogUniformKL(torch.autograd.Function):
    """The sum of the above over weights, its slope in log α taken along: a third of the passes over memory that autograd makes."""

    @staticmethod
    def forward(ctx: Any, loc: Tensor, sd: Tensor) -> Tensor:  # type: ignore[override]
        away = loc.abs().clamp_min_(ZERO)
        log_alpha = (sd / away).log_().mul_(2)
        bend = torch.sigmoid(log_alpha.mul(-K3).sub_(K2))
        soft = F.softplus(log_alpha.neg_())  # log(1 + 1/α)
        slope = torch.sigmoid(log_alpha).mul_(-0.5)
        total = K1 * bend.sum(dtype=torch.float64) + 0.5 * soft.sum(dtype=torch.float64) - CONSTANT * loc.numel()
        slope.addcmul_(bend, 1 - bend, value=-K1 * K3)
        ctx.save_for_backward(loc, sd, slope)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        loc, sd, slope = ctx.saved_tensors
        slope = slope * (2 * g)
        return torch.where(loc.abs() > ZERO, slope / -loc, 0.0), slope / sd


def log_alphas(q: Approximation) -> dict[str, Tensor]:
    """log α of every weight, by name."""
    found = [factor for factor in q.parts() if isinstance(factor, Proportional)]
    for factor in found:
        factor.begin()
    return {factor.blocks[0].name: factor.log_alpha().detach() for factor in found}
