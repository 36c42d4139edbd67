r"""A latent variable for each datum, integrated by a bound: the likelihood of a variational autoencoder.

    log p(x) >= E_q log p(x | z) - KL(q(z | x), p(z))                                (Kingma & Welling, 2014)
    log p(x) >= E log 1/S Σ_s p(x, z_s) / q(z_s | x),   tighter as S grows           (importance weighted: Burda et al., 2016)

The network (nescio.nets.vae and its kin) gives q(z | x) and what the decoder says of S draws from it, each datum with noise of its own.
What comes out is an unbiased estimate of the bound, so optimisers and VI take it, and samplers, which compare densities, refuse it.
The encoder belongs to the approximation, not to the model: it is fitted, and has no prior unless a pattern names it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar, final

from torch import Tensor, nn
from torch.distributions import Distribution, Normal

from nescio.errors import InputError
from nescio.laws.fitted import Fitted
from nescio.laws.law import Constraint, Law, Number
from nescio.likelihoods.bound import Bound
from nescio.likelihoods.classes import expect_between
from nescio.likelihoods.likelihood import Likelihood, expect_shape

ENCODER = "encoder.*"


@final
@dataclass(frozen=True, eq=False)
class Latent(Likelihood):
    """`pixels`: the likelihood of a datum given z. `samples`: draws of z for each datum and step.

    `beta`: the weight of the divergence; 1 is the bound, more asks for independent latents (Higgins et al., 2017), and is no bound on
    log p(x) below 1. `importance`: the importance-weighted bound of the samples, the same at 1.

        Model(vae(784, 500, 20), Normal(0, 1), Latent(ContinuousBernoulli()))
    """

    pixels: Likelihood
    samples: int = 1
    beta: float = 1.0
    importance: bool = False

    estimated: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_pixels(self.pixels, self.samples)
        if not (math.isfinite(self.beta) and self.beta >= 0):
            raise InputError("beta is a finite number of at least 0", repr(self.beta), "1 is the bound")
        if self.importance and self.beta != 1:
            raise InputError(
                "the importance-weighted bound has no weight to set", f"beta={self.beta}", "leave beta at 1"
            )

    def prepared(self, net: nn.Module) -> nn.Module:
        return with_samples(net, self.samples, "vae(784, 500, 20)")

    def laws(self, prior: Law | Mapping[str, Law], names: Sequence[str]) -> Law | Mapping[str, Law]:
        return without_encoder(prior, names)

    def numbers(self) -> dict[str, tuple[Number, Constraint]]:
        return {f"pixels.{name}": number for name, number in self.pixels.numbers().items()}

    def observe(self, f: dict[str, Tensor], **numbers: Tensor) -> Distribution:
        own = {name.removeprefix("pixels."): x for name, x in numbers.items()}
        prior = None
        if "prior_mean" in f:
            prior = Normal(f["prior_mean"], f["prior_scale"], validate_args=False)
        q = Normal(f["mean"], f["scale"], validate_args=False)
        pixels = self.pixels.observe(f["pixels"], **own)
        return Bound(q, prior, f["z"], pixels, self.beta, self.importance, f.get("seen"))

    def check(self, f: Any, y: Any) -> None:
        wanted = {"mean", "scale", "z", "pixels"}
        if not isinstance(f, dict) or not wanted <= set(f):
            got = sorted(f) if isinstance(f, dict) else type(f).__name__
            must = f"the network must give a dictionary with {sorted(wanted)}"
            raise InputError(must, str(got), "use nescio.nets.vae, or VAE(encoder, decoder, latents)")
        one = f["pixels"][:, 0]
        if "seen" in f:  # thrown anew at each call: y may be grey
            expect_shape(tuple(one.shape), y)
            expect_between(y, binary=False)
            y = (y > 0.5).to(y.dtype)
        self.pixels.check(one, y)


def check_pixels(pixels: object, samples: object) -> None:
    if not isinstance(pixels, Likelihood) or pixels.estimated:
        got, remedy = repr(pixels), "write for instance Latent(ContinuousBernoulli())"
        raise InputError("pixels must be a likelihood of a datum given z", got, remedy)
    if not isinstance(samples, int) or isinstance(samples, bool) or samples < 1:
        raise InputError("samples is a whole number of at least 1", repr(samples), "1 is usual for minibatches")


def with_samples(net: nn.Module, samples: int, example: str) -> nn.Module:
    """A copy of the network that draws so often; the user's own is not written to."""
    if not isinstance(getattr(net, "samples", None), int):
        must, got = "the network must have a latent variable for each datum", type(net).__name__
        raise InputError(must, got, f"use nescio.nets.{example}, or VAE(encoder, decoder, latents) of your own")
    net = copy.copy(net)  # its modules are shared, and copied by whoever keeps it
    net.samples = samples  # type: ignore[assignment]
    return net


def without_encoder(prior: Law | Mapping[str, Law], names: Sequence[str]) -> Law | Mapping[str, Law]:
    """The encoder has no law unless a pattern names it."""
    if not any(fnmatchcase(name, ENCODER) for name in names):
        return prior
    if isinstance(prior, Law):
        return {ENCODER: Fitted(), "*": prior}
    missed = [name for name in names if not any(fnmatchcase(name, pattern) for pattern in prior)]
    return {**prior, ENCODER: Fitted()} if any(fnmatchcase(name, ENCODER) for name in missed) else prior
