r"""Missing pixels by the posterior over z: Metropolis within Gibbs (Rezende et al., 2014; Mattei & Frellsen, 2018).

    z' ~ q(z | x_o, x_m), accepted with min(1, [p(x | z') p(z') / q(z' | x)] / [p(x | z) p(z) / q(z | x)]);     x_m ~ p(x_m | z)

The chain of (z, x_m) has p(z, x_m | x_o) as its law: the encoder only proposes. A few steps in which everything is accepted
(pseudo-Gibbs) bring it near.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Normal

from nescio.densities import log_density
from nescio.errors import InputError
from nescio.generative.parts import Coder, Given, coders
from nescio.likelihoods.bound import log_ratio
from nescio.posterior.posterior import Posterior


class Imputed(NamedTuple):
    """Pictures with what was seen as it was: mean and standard deviation over the chain, some of its states, how often it moved."""

    mean: Tensor  # (points, ...): seen pixels, and E[x_m | x_o] by the decoder's means
    sd: Tensor  # (points, ...), of a missing pixel, its noise included; 0 where it was seen
    draws: Tensor  # (kept, points, ...)
    acceptance: Tensor  # (points,)


def impute(
    posterior: Posterior, x: Any, seen: Tensor, *, steps: int = 500, warmup: int = 100, kept: int = 10, seed: int = 0
) -> Imputed:
    """What the missing pixels may be. `seen`: a mask of the shape of the images; where it is False, x is not looked at.

    `warmup` steps are thrown away, the first half of them pseudo-Gibbs; of the rest, `kept` states are returned as draws.
    """
    given = Given.of(x)
    if seen.shape != given.image.shape or seen.dtype != torch.bool:
        got = f"{seen.dtype} {tuple(seen.shape)}"
        raise InputError(f"seen must be a mask of shape {tuple(given.image.shape)}", got, "use for instance x >= 0")
    if steps < 1 or warmup < 0 or not 1 <= kept <= steps:
        raise InputError("steps >= kept >= 1 and warmup >= 0", f"{steps}, {kept}, {warmup}", "leave them out")
    coder, noise = coders(posterior, None, 0)[0], posterior.model.noise(seed, "missing")
    plain = getattr(coder.net, "latent_prior", None) is None
    prior = None if plain else coder.prior(len(seen), given.condition)
    image = torch.where(seen, given.image, torch.zeros_like(given.image))
    with noise.at("start").scope(), torch.no_grad():
        z = coder.code(Given(image, given.condition)).mean
        image = filled(coder, image, seen, z, given)
    mean, second = torch.zeros_like(image), torch.zeros_like(image)
    moved, states = torch.zeros(len(seen), device=image.device), []
    for step in range(warmup + steps):
        with noise.at("step", step).scope(), torch.no_grad():
            q = coder.code(Given(image, given.condition))
            proposal = q.loc + q.scale * torch.randn_like(q.loc)
            gain = log_weight(coder, q, prior, proposal, image, given) - log_weight(coder, q, prior, z, image, given)
            accept = torch.rand_like(gain).log() < gain
            if step < warmup // 2:
                accept = torch.ones_like(accept)
            z = torch.where(accept[:, None], proposal, z)
            image = filled(coder, image, seen, z, given)
        if step >= warmup:
            law = coder.observe(z, given.condition)
            mean += law.mean / steps
            second += (law.variance + law.mean.square()) / steps
            moved += accept.to(moved) / steps
            if (step - warmup + 1) * kept // steps > (step - warmup) * kept // steps:
                states.append(image)
    sd = torch.where(seen, torch.zeros_like(mean), (second - mean.square()).clamp_min(0).sqrt())
    mean = torch.where(seen, given.image, mean)  # as it was, to the last digit
    return Imputed(mean, sd, torch.stack(states), moved)


def filled(coder: Coder, image: Tensor, seen: Tensor, z: Tensor, given: Given) -> Tensor:
    """x_m ~ p(x_m | z)."""
    return torch.where(seen, image, coder.observe(z, given.condition).sample())


def log_weight(coder: Coder, q: Normal, prior: Normal | None, z: Tensor, image: Tensor, given: Given) -> Tensor:
    """log p(x | z) p(z) / q(z | x), (points,)."""
    fit = log_density(coder.observe(z, given.condition), image, lead=1)
    return fit + log_ratio(q, prior, z[:, None])[:, 0]
