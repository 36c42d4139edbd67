"""Codes and pictures: q(z | x), p(x | z), and both ways together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Normal

from nescio.errors import InputError, UnsupportedError
from nescio.generative.parts import Coder, Given, coders
from nescio.posterior.posterior import Posterior
from nescio.predictive import Drawn, Predictive


def encode(posterior: Posterior, x: Any, draws: int | None = None, seed: int = 0) -> Normal:
    """q(z | x), batch shape (points, latents), at the posterior's point; (draws, points, latents) under draws of the weights.

    `x` as the network takes it: images, or (images, condition). Members of an ensemble have latent spaces of their own.
    """
    given = Given.of(posterior.model.network.here(x))
    each = [coder.code(given) for coder in coders(posterior, draws, seed)]
    if draws is None:
        return each[0]
    mean, sd = (torch.stack([getattr(q, name) for q in each]) for name in ("loc", "scale"))
    return Normal(mean, sd, validate_args=False)


def decode(
    posterior: Posterior, z: Tensor, *, given: Tensor | None = None, draws: int | None = None, seed: int = 0
) -> Predictive:
    """p(x | z) at codes (points, latents): `.mean` is the picture, `.sample(n)` has its noise, `.epistemic` the decoder's doubt.

    `given`: what a conditional network is conditioned on, (points, ...). Codes (draws, points, latents) go one by one to the draws.
    """
    if not isinstance(z, Tensor) or z.dim() not in (2, 3) or (z.dim() == 3 and len(z) != (draws or 1)):
        got = str(tuple(z.shape)) if isinstance(z, Tensor) else type(z).__name__
        raise InputError("codes must be (points, latents), or (draws, points, latents)", got, "use encode(...).mean")
    found = coders(posterior, draws, seed)
    return mixture(found, [z if z.dim() == 2 else z[i] for i in range(len(found))], () if given is None else (given,))


def generate(
    posterior: Posterior, n: int, *, given: Tensor | None = None, draws: int | None = None, seed: int = 0
) -> Predictive:
    """n pictures of z ~ p(z), batch shape (draws, n, ...). `given`: one row for each, or one row for all."""
    if n < 1:
        raise InputError("at least one picture must be asked for", str(n), "use for instance generate(posterior, 64)")
    found = coders(posterior, draws, seed)
    condition = () if given is None else (given.expand(n, *given.shape[1:]),)
    like = posterior.model.network.like
    prior = [coder.prior(n, condition) for coder in found]
    noise = posterior.model.noise(seed, "generate").to(like.device, like.dtype).normal(*prior[0].loc.shape)
    return mixture(found, [p.loc + p.scale * noise for p in prior], condition)


def reconstruct(posterior: Posterior, x: Any, draws: int | None = None, seed: int = 0) -> Predictive:
    """The picture at the mean of each code. `posterior.predict(x)` goes through draws of the code instead."""
    given = Given.of(posterior.model.network.here(x))
    found = coders(posterior, draws, seed)
    return mixture(found, [coder.mean(given) for coder in found], given.condition)


def classify(posterior: Posterior, x: Tensor, draws: int | None = None, seed: int = 0) -> Tensor:
    """q(y | x) of a semi-supervised network, averaged over draws, (points, classes)."""
    found = coders(posterior, draws, seed)
    label = getattr(found[0].net.encoder, "label", None)
    if label is None:
        must, got = "the network must infer a label", type(found[0].net).__name__
        raise UnsupportedError(must, got, "use nescio.nets.m2")
    with torch.no_grad():
        return torch.stack([coder.call("encoder.label", x).softmax(-1) for coder in found]).mean(0)


def mixture(found: Sequence[Coder], codes: Sequence[Tensor], condition: tuple[Tensor, ...]) -> Predictive:
    """What each of the networks says of its codes."""
    f = torch.stack([coder.call("decoder", z, *condition) for coder, z in zip(found, codes, strict=True)])
    numbers = {name: torch.stack([coder.numbers()[name] for coder in found]) for name in found[0].numbers()}
    spread = {name: x.reshape(len(x), *[1] * (f.dim() - x.dim()), *x.shape[1:]) for name, x in numbers.items()}
    with torch.no_grad():
        return Drawn(found[0].pixels.observe(f, **spread))
