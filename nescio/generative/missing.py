r"""Missing pixels by the posterior over z: Langevin steps with a Metropolis decision (Roberts & Tweedie, 1996).

    p(z | x_o) ∝ p(x_o | z) p(z),     x_m ~ p(x_m | z)

Pixels are independent given z: what is missing drops out of the first law, and is drawn from the second. Chains start at draws of the
prior, which are codes of whole images, and p(x_o | z) is brought in little by little; from a code of half an image they would not come
back, for a density of many pixels is steep. The encoder, which knows whole images only, has no say but in the lengths of steps: those of
its own spreads, times a number for each chain that the warm-up adapts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from nescio.errors import InputError, UnsupportedError
from nescio.generative.parts import Coder, Given, coders
from nescio.posterior.posterior import Posterior

LEAST = 1e-4  # the part of log p(x_o | z) that the warm-up begins with
GOAL, RATE = 0.574, 0.3  # of accepted steps (Roberts & Rosenthal, 1998), and how fast lengths follow


class Imputed(NamedTuple):
    """Pictures with what was seen as it was: mean and standard deviation over the chain, some of its states, how often it moved."""

    mean: Tensor  # (points, ...): seen pixels, and E[x_m | x_o] by the decoder's means
    sd: Tensor  # (points, ...), of a missing pixel, its noise included; 0 where it was seen
    draws: Tensor  # (kept, points, ...)
    acceptance: Tensor  # (points,)


def impute(
    posterior: Posterior, x: Any, seen: Tensor, *, steps: int = 500, warmup: int = 200, kept: int = 10, seed: int = 0
) -> Imputed:
    """What the missing pixels may be. `seen`: a mask of the shape of the images; where it is False, x is not looked at.

    `warmup` steps are thrown away; in the first half of them what was seen is brought in. Of the rest, `kept` states are returned as
    draws. One chain for each point: repeat a point to see whether chains agree.
    """
    given, seen = Given.of(posterior.model.network.here(x)), posterior.model.network.here(seen)
    if seen.shape != given.image.shape or seen.dtype != torch.bool:
        got = f"{seen.dtype} {tuple(seen.shape)}"
        raise InputError(f"seen must be a mask of shape {tuple(given.image.shape)}", got, "use for instance x >= 0")
    if steps < 1 or warmup < 0 or not 1 <= kept <= steps:
        raise InputError("steps >= kept >= 1 and warmup >= 0", f"{steps}, {kept}, {warmup}", "leave them out")
    coder, noise = coders(posterior, None, 0)[0], posterior.model.noise(seed, "missing")
    prior = coder.prior(len(seen), given.condition)
    given = Given(torch.where(seen, given.image, torch.zeros_like(given.image)), given.condition)
    target = Target(coder, given, seen, prior)
    with noise.at("start").scope(), torch.no_grad():
        z = prior.sample()
    scale, factor = prior.scale, torch.full_like(z[:, 0], 0.5)
    mean, second = torch.zeros_like(given.image), torch.zeros_like(given.image)
    moved, states = torch.zeros_like(factor), []
    for step in range(warmup + steps):
        part = LEAST ** max(0.0, 1 - 2 * (step + 1) / warmup) if step < warmup else 1.0
        with noise.at("step", step).scope(), torch.no_grad():
            z, chance, accepted = moves(target, z, factor[:, None] * scale, part)
            law = coder.observe(z, given.condition)
            image = torch.where(seen, given.image, law.sample())
        if step < warmup:
            factor = factor * (RATE * (chance - GOAL)).exp()
            if step + 1 == warmup // 2:
                scale, factor = coder.code(Given(image, given.condition)).scale, torch.ones_like(factor)
            continue
        mean += law.mean / steps
        second += (law.variance + law.mean.square()) / steps
        moved += accepted.to(moved) / steps
        if (step - warmup + 1) * kept // steps > (step - warmup) * kept // steps:
            states.append(image)
    sd = torch.where(seen, torch.zeros_like(mean), (second - mean.square()).clamp_min(0).sqrt())
    mean = torch.where(seen, given.image, mean)  # as it was, to the last digit
    return Imputed(mean, sd, torch.stack(states), moved)


class Target(NamedTuple):
    """p(x_o | z)^part p(z)."""

    coder: Coder
    given: Given
    seen: Tensor
    prior: Normal

    def slope(self, z: Tensor, part: float) -> tuple[Tensor, Tensor]:
        """The logarithm, (points,), and its gradient, (points, latents)."""
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            fit = of_seen(self.coder.observe(z, self.given.condition), self.given.image, self.seen)
            value = part * fit + self.prior.log_prob(z).sum(1)
            (slope,) = torch.autograd.grad(value.sum(), z)
        return value.detach(), slope


def moves(target: Target, z: Tensor, length: Tensor, part: float) -> tuple[Tensor, Tensor, Tensor]:
    """One step of each chain; with it the chance that it had, and whether it was taken, (points,)."""
    before, slope = target.slope(z, part)
    forth = torch.randn_like(z)
    to = z + length * forth + 0.5 * length.square() * slope
    after, slope = target.slope(to, part)
    back = (z - to - 0.5 * length.square() * slope) / length
    gain = gained(before, after, forth, back)
    accepted = torch.rand_like(gain).log() < gain  # not where it is NaN
    return torch.where(accepted[:, None], to, z), gain.clamp_max(0).exp().nan_to_num(0.0), accepted


def gained(before: Tensor, after: Tensor, forth: Tensor, back: Tensor) -> Tensor:
    """log of the ratio of densities and of proposals, (points,); `forth` and `back` are the noise that either way takes."""
    return after - before + 0.5 * (forth.square() - back.square()).sum(1)


def of_seen(law: Distribution, image: Tensor, seen: Tensor) -> Tensor:
    """log p(x_o | z), (points,)."""
    each = law.log_prob(image)
    if each.shape != image.shape:
        must, got = "pixels must be independent given z", f"densities of shape {tuple(each.shape)}"
        raise UnsupportedError(must, got, "use Bernoulli, ContinuousBernoulli or Gaussian pixels")
    return torch.where(seen, each, torch.zeros_like(each)).flatten(1).sum(1)
