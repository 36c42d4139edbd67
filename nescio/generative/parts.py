"""Encoder, decoder and the law of pixels of a network, each under one draw of the parameters."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal
from torch.func import functional_call
from torch.utils._pytree import tree_map

from nescio.errors import InputError, UnsupportedError
from nescio.laws.law import unvalidated
from nescio.likelihoods.latent import Latent
from nescio.likelihoods.likelihood import Likelihood
from nescio.likelihoods.partly import PartlyLabelled
from nescio.model import Model
from nescio.network import Params
from nescio.posterior.posterior import Posterior


class Given(NamedTuple):
    """What the network was called on: an image, and perhaps what it is conditioned on."""

    image: Tensor
    condition: tuple[Tensor, ...]

    @staticmethod
    def of(x: Any) -> Given:
        image, *condition = x if isinstance(x, tuple) else (x,)
        if not isinstance(image, Tensor) or not image.dim():
            raise InputError("images must be a tensor with a first axis of points", type(image).__name__, "use x[None]")
        if not len(image):
            raise InputError("inputs must hold at least one point", "none", "leave out what has no rows")
        return Given(image, tuple(condition))

    def rows(self, rows: slice) -> Given:
        return Given(*tree_map(lambda t: t[rows], tuple(self)))


@final
class Coder:
    """One network: `params` by name."""

    def __init__(self, model: Model, params: Params) -> None:
        self.model, self.params = model, params
        self.net = model.network.net
        missing = [name for name in ("encoder", "decoder") if not isinstance(getattr(self.net, name, None), nn.Module)]
        missing += [] if isinstance(getattr(self.net, "latent", None), int) else ["latent"]
        if missing:
            must, got = "the network must have an encoder and a decoder", f"{type(self.net).__name__} without {missing}"
            raise UnsupportedError(must, got, "use nescio.nets.vae and its kin, or VAE(encoder, decoder, latents)")

    @property
    def pixels(self) -> Likelihood:
        own = self.model.likelihood
        return own.pixels if isinstance(own, (Latent, PartlyLabelled)) else own

    def call(self, part: str, *args: Tensor) -> Any:
        own = {name.removeprefix(f"{part}."): x for name, x in self.params.items() if name.startswith(f"{part}.")}
        args = self.model.network.here(args)
        try:
            with torch.set_grad_enabled(any(x.requires_grad for x in args)), unvalidated():
                return functional_call(self.net.get_submodule(part), own, args)
        except (RuntimeError, TypeError, IndexError) as error:
            got = f"{str(error).splitlines()[0]} for shapes {[tuple(x.shape) for x in args]}"
            remedy = "check the shapes, and give a conditional network its condition: (images, condition), given=..."
            raise InputError(f"the {part} of {type(self.net).__name__} must accept its inputs", got, remedy) from error

    def code(self, x: Given) -> Normal:
        """q(z | x), (points, latents)."""
        found = self.call("encoder", x.image, *x.condition)
        if not isinstance(found, tuple):  # a plain autoencoder: no spread
            must, got = "a code must have a law", type(self.net).__name__
            raise UnsupportedError(must, got, "use reconstruct, or nescio.nets.vae")
        return Normal(*found, validate_args=False)

    def mean(self, x: Given) -> Tensor:
        found = self.call("encoder", x.image, *x.condition)
        return found[0] if isinstance(found, tuple) else found

    def prior(self, points: int, condition: tuple[Tensor, ...]) -> Normal:
        """p(z), (points, latents)."""
        if getattr(self.net, "latent_prior", None) is not None:
            return Normal(*self.call("latent_prior", *condition), validate_args=False)
        like = self.model.network.like
        zero = torch.zeros(points, self.latents(), dtype=like.dtype, device=like.device)
        return Normal(zero, torch.ones_like(zero), validate_args=False)

    def latents(self) -> int:
        """How many numbers a code has."""
        return int(self.net.latent)  # type: ignore[arg-type]

    def observe(self, z: Tensor, condition: tuple[Tensor, ...]) -> Distribution:
        """The law of pixels at codes (points, latents): batch shape (points, ...)."""
        with unvalidated():
            return self.pixels.observe(self.call("decoder", z, *condition), **self.numbers())

    def numbers(self) -> Params:
        prefix = "likelihood.pixels." if isinstance(self.model.likelihood, (Latent, PartlyLabelled)) else "likelihood."
        return {name: self.params[f"{prefix}{name}"] for name in self.pixels.numbers()}


def coders(posterior: Posterior, draws: int | None, seed: int) -> list[Coder]:
    """At the posterior's point for None; else so many draws of it."""
    model = posterior.model
    if draws is None:
        return [Coder(model, posterior.point())]
    if draws < 1:
        raise InputError("at least one draw must be asked for", str(draws), "leave draws out for the point")
    stacked = posterior.sample(draws, seed)
    return [Coder(model, {name: x[i] for name, x in stacked.items()}) for i in range(draws)]
