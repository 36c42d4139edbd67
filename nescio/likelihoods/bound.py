"""A lower bound on log p(x) in the place of a density of x, from draws of the latents behind it."""

from __future__ import annotations

import math
from typing import Any, final

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal


@final
class Bound(Distribution):
    """x given by z ~ q: `log_prob` is a bound on the log evidence of x, mean and variance are those of E_q p(x | z).

    q (..., B, Z); z (..., B, S, Z); `pixels` the law of x given each draw, (..., B, S, *x). `prior`: of z, N(0, I) for None. `seen`: what
    is to be explained where it is not what was handed over.
    """

    arg_constraints = {}  # noqa: RUF012

    def __init__(
        self,
        q: Normal,
        prior: Normal | None,
        z: Tensor,
        pixels: Distribution,
        beta: float = 1.0,
        importance: bool = False,
        seen: Tensor | None = None,
    ) -> None:
        self.q, self.prior, self.z, self.pixels, self.seen = q, prior, z, pixels, seen
        self.beta, self.importance = beta, importance
        self.axis = z.dim() - 2  # of the draws
        whole = torch.Size((*pixels.batch_shape, *pixels.event_shape))
        super().__init__(whole[: self.axis], whole[self.axis + 1 :], validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        fit = self.fit(value)  # (..., B, S)
        if self.importance:
            weights = fit + log_ratio(self.q, self.prior, self.z)
            return weights.logsumexp(-1) - math.log(weights.shape[-1])
        return fit.mean(-1) - self.beta * divergence(self.q, self.prior)

    def fit(self, value: Tensor) -> Tensor:
        """log p(x | z) of each draw, (..., B, S)."""
        value = value if self.seen is None else self.seen
        each = self.pixels.log_prob(value.unsqueeze(-len(self.event_shape) - 1))
        return each.flatten(self.axis + 1).sum(-1) if each.dim() > self.axis + 1 else each

    @property
    def mean(self) -> Tensor:
        return self.pixels.mean.mean(self.axis)

    @property
    def variance(self) -> Tensor:
        return self.pixels.variance.mean(self.axis) + self.pixels.mean.var(self.axis, correction=0)

    def cdf(self, value: Tensor) -> Tensor:
        return self.pixels.cdf(value.unsqueeze(-len(self.event_shape) - 1)).mean(self.axis)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:
        """Of one of the draws, by lot."""
        with torch.no_grad():
            x = self.pixels.sample(torch.Size(sample_shape))
            axis = x.dim() - len(self.event_shape) - 1
            lot = torch.randint(x.shape[axis], x.shape[:axis], device=x.device)
            lot = lot.reshape(*lot.shape, *[1] * (x.dim() - axis))
            return x.gather(axis, lot.expand(*x.shape[:axis], 1, *x.shape[axis + 1 :])).squeeze(axis)


def divergence(q: Normal, prior: Normal | None) -> Tensor:
    """KL(q, p(z)) of Gaussians, summed over the latents: ½ Σ (μ² + σ² - log σ² - 1) where p is N(0, I)."""
    mean, scale = (q.loc, q.scale) if prior is None else ((q.loc - prior.loc) / prior.scale, q.scale / prior.scale)
    return 0.5 * (mean.square() + scale.square() - 2 * scale.log() - 1).sum(-1)


def log_ratio(q: Normal, prior: Normal | None, z: Tensor) -> Tensor:
    """log p(z) - log q(z), summed over the latents: z (..., S, Z), q and prior without the axis of the draws."""
    mean, scale = q.loc.unsqueeze(-2), q.scale.unsqueeze(-2)
    log_q = -0.5 * ((z - mean) / scale).square() - scale.log()
    if prior is None:
        return (-0.5 * z.square() - log_q).sum(-1)
    centre, width = prior.loc.unsqueeze(-2), prior.scale.unsqueeze(-2)
    return (-0.5 * ((z - centre) / width).square() - width.log() - log_q).sum(-1)
