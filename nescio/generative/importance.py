r"""log p(x) by importance sampling with q(z | x) as the proposal (Rezende et al., 2014; Burda et al., 2016).

    p(x) ≈ 1/S Σ_s w_s,   w_s = p(x | z_s) p(z_s) / q(z_s | x),   z_s ~ q(z | x)

Unbiased for p(x), so on average too low for log p(x), by about half the squared relative error. The standard error is that of log p(x)
to first order, sd(w) / (mean(w) √S); the effective sample size is (Σ w)² / Σ w². Where it is near 1, one draw of z says everything, and
both numbers are too good to be true.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nescio.densities import log_density
from nescio.errors import InputError
from nescio.generative.parts import Coder, Given, coders
from nescio.likelihoods.bound import log_ratio
from nescio.noise import Noise
from nescio.posterior.posterior import Posterior

NUMBERS = 2**23  # pixels at a time; on a GPU sixteen times as many


class Evidence(NamedTuple):
    """For each point: log p(x) in nats, its standard error, the effective number of samples, and log p(x) under each draw."""

    value: Tensor  # (points,), the log of the mean over draws of the weights
    se: Tensor  # (points,)
    ess: Tensor  # (points,), of the samples of all draws
    each: Tensor  # (draws, points)

    def agreement(self) -> Tensor:
        """How many of the draws explain each point, in [1, draws]: few where the weights disagree, as they do far from the data
        (Daxberger & Hernández-Lobato, 2019)."""
        weights = self.each.softmax(0)
        return 1 / weights.square().sum(0)


def log_likelihood(
    posterior: Posterior, x: Any, samples: int = 100, *, draws: int | None = None, seed: int = 0
) -> Evidence:
    """log p(x) of each point, with its error, by `samples` draws of the code under each of `draws` of the weights (None: the point).

    `x`: images, or (images, condition). Pixels must be such as the likelihood takes: zeros and ones for Bernoulli.
    """
    if samples < 1:
        raise InputError("at least one sample must be asked for", str(samples), "100 is a start, 5000 is usual")
    given, found = Given.of(posterior.model.network.here(x)), coders(posterior, draws, seed)
    found[0].pixels.check(found[0].call("decoder", *start(found[0], given)), given.image)
    noise = posterior.model.noise(seed, "importance")
    sums = torch.stack([accumulated(c, given, samples, noise.at(i)) for i, c in enumerate(found)])  # (draws, 2, points)
    each = sums[:, 0] - math.log(samples)
    first, second = sums[:, 0].logsumexp(0), sums[:, 1].logsumexp(0)
    ess = (2 * first - second).exp()
    total = samples * len(found)
    se = ((1 / ess - 1 / total).clamp_min(0) * (total / max(total - 1, 1))).sqrt()
    return Evidence(first - math.log(total), se, ess, each)


def start(coder: Coder, given: Given) -> tuple[Tensor, ...]:
    one = given.rows(slice(0, 1))
    return coder.mean(one), *one.condition


def accumulated(coder: Coder, given: Given, samples: int, noise: Noise) -> Tensor:
    """log Σ w and log Σ w² of each point, (2, points), in double precision, piece by piece."""
    numbers = NUMBERS * (16 if given.image.is_cuda else 1)
    pixels = max(1, given.image[0].numel())
    rows = max(1, min(len(given.image), numbers // pixels // min(samples, 50)))
    many = max(1, min(samples, numbers // pixels // rows))
    columns = []
    for i in range(0, len(given.image), rows):
        piece = given.rows(slice(i, i + rows))
        parts = []
        for j in range(0, samples, many):
            weights = log_weights(coder, piece, min(many, samples - j), noise.at(i, j)).double()
            parts.append(torch.stack([weights.logsumexp(1), (2 * weights).logsumexp(1)]))
        columns.append(torch.stack(parts).logsumexp(0))
    return torch.cat(columns, 1)


def log_weights(coder: Coder, given: Given, samples: int, noise: Noise) -> Tensor:
    """log w of fresh draws, (points, samples)."""
    q = coder.code(given)
    points, latents = q.loc.shape
    z = q.loc[:, None] + q.scale[:, None] * noise.normal(points, samples, latents)
    repeated = tuple(c.repeat_interleave(samples, 0) for c in given.condition)
    law = coder.observe(z.flatten(0, 1), repeated)
    fit = log_density(law, given.image.repeat_interleave(samples, 0), lead=1).unflatten(0, (points, samples))
    plain = getattr(coder.net, "latent_prior", None) is None
    return fit + log_ratio(q, None if plain else coder.prior(points, given.condition), z)
