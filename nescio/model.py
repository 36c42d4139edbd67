"""A model is the joint law of weights and observations: net × prior × likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.func import vmap

from nescio.densities import log_density
from nescio.errors import InputError
from nescio.laws.fingerprint import digest, spelled, tensors_in
from nescio.laws.law import Law, unvalidated
from nescio.laws.prior import Prior
from nescio.laws.site import sites
from nescio.likelihoods.likelihood import Likelihood
from nescio.network import Network, Params
from nescio.noise import Noise
from nescio.predictive import Drawn, Predictive


@final
class Model(nn.Module):
    """`net`: any nn.Module. `prior`: one law for all weights, or {name pattern: law}, first match wins."""

    def __init__(self, net: nn.Module, prior: Law | Mapping[str, Law], likelihood: Likelihood) -> None:
        super().__init__()
        kinds = (nn.Module, (Law, Mapping), Likelihood)
        if not all(isinstance(part, kind) for part, kind in zip((net, prior, likelihood), kinds, strict=True)):
            got = f"{type(net).__name__}, {type(prior).__name__} and {type(likelihood).__name__}"
            raise InputError("a model is net × prior × likelihood", got, "write Model(net, Normal(0, 1), Gaussian(.1))")
        found = sites(net)
        if not found:
            raise InputError(
                "the network must have a trainable parameter", "none", "set requires_grad on what is uncertain"
            )
        taken = [name for name, _ in net.named_children() if name in ("likelihood", "prior")]
        if taken:  # such parameters would be mistaken for the model's own numbers
            raise InputError(
                "likelihood.* and prior.* are the model's own names", f"a submodule {taken[0]!r}", "rename it"
            )
        net, prior = likelihood.prepared(net), likelihood.laws(prior, [site.name for site in found])
        self.network = Network(net)
        self.laws, self.likelihood = prior, likelihood
        like = self.network.like
        self.prior = Prior(prior, found, likelihood.numbers()).to(like.device, like.dtype)

    @property
    def dim(self) -> int:
        """Length of the flat vector."""
        return self.prior.dim

    def noise(self, seed: int, *key: str | int) -> Noise:
        """A random stream on the network's device and in its precision."""
        return Noise(seed, key, self.network.like.device, self.network.like.dtype)

    def describe(self) -> dict[str, Any]:
        """What a stored posterior must agree with to be read back into this model."""
        net = self.network.net
        laws = {"*": self.laws} if isinstance(self.laws, Law) else self.laws
        frozen = [p for p in net.parameters() if not p.requires_grad]
        return {
            "net": spelled(net),
            "shapes": [[name, list(t.shape)] for name, t in (*net.named_parameters(), *net.named_buffers())],
            "prior": [[pattern, spelled(law)] for pattern, law in laws.items()],  # a list: the first match wins
            "likelihood": spelled(self.likelihood),
            "constants": digest([*self.prior.buffers(), *tensors_in(dict(laws)), *tensors_in(self.likelihood)]),
            "frozen weights": digest(frozen),
        }

    # ---- the joint law -----------------------------------------------------------------------------------------

    def params(self, u: Tensor) -> Params:
        """Named parameters of one unconstrained vector."""
        return self.prior.params(self.prior.unpack(u).values)

    def log_prior(self, u: Tensor) -> Tensor:
        """Log density of the unconstrained vector, Jacobian included."""
        with unvalidated():
            return torch.as_tensor(self.prior.unpack(u).log_density)

    def forward(self, params: Params, x: Any) -> Distribution:
        """The distribution of y at x, given one set of parameters."""
        with unvalidated():
            own, numbers = sort(params, self.likelihood)
            return self.likelihood.observe(self.network.call(own, x), **numbers)

    def log_likelihood(self, params: Params, x: Any, y: Any, training: bool = False) -> Tensor:
        """Summed over the batch. When training, buffers among the params are updated in place."""
        own, numbers = sort(params, self.likelihood)
        f = self.network.call(own, x, training)
        return log_density(self.likelihood.observe(f, **numbers), y, lead=1).sum(
            dtype=torch.float64
        )  # in double precision: samplers compare such sums

    # ---- predictions -------------------------------------------------------------------------------------------

    def point(self, noise: Noise) -> Params:
        """The network's own weights, and scales and noise at their typical values."""
        return {name: x[0] for name, x in self.named(self.prior.at(self.network.weights(), noise)[None]).items()}

    def named(self, theta: Tensor) -> Params:
        """Everything by name, from stacked values (draws, dim): parameters, the likelihood's numbers, the prior's scales."""

        def one(row: Tensor) -> Params:
            values = self.prior.split(row)
            return {**self.prior.params(values), **self.prior.scales(values)}

        return vmap(one)(theta)

    def observed(self, params: Params, x: Any) -> Distribution:
        """The distribution of y under stacked parameters: batch shape (draws, points, ...)."""
        own, numbers = sort(params, self.likelihood)
        with torch.no_grad():
            return self.observe(self.network.outputs(own, x), numbers)

    def observe(self, f: Any, numbers: Params) -> Distribution:
        """The distribution of y given outputs (draws, points, ...) and the likelihood's own numbers, (draws, ...) each."""
        with torch.no_grad(), unvalidated():
            spread = {name: between(number, f, name) for name, number in numbers.items()}
            return self.likelihood.observe(f, **spread)

    def log_prob(self, params: Params, x: Any, y: Any) -> Tensor:
        """Log density of each observation under each of the stacked parameters, (draws, points)."""
        with torch.no_grad(), unvalidated():
            return log_density(self.observed(params, x), y, lead=2)

    def predictive(self, params: Params, x: Any) -> Predictive:
        """The mixture over stacked parameters, draw axis first."""
        return Drawn(self.observed(params, x))

    def prior_predictive(self, x: Any, draws: int = 100, seed: int = 0) -> Predictive:
        """What the model believes before it has seen data: look at it before you trust a prior."""
        if draws < 1:
            raise InputError("at least one draw must be asked for", str(draws), "leave draws out")
        theta = torch.stack([self.prior.draw(self.noise(seed, "prior", i)) for i in range(draws)])
        return self.predictive(self.named(theta), x)


def sort(params: Params, likelihood: Likelihood) -> tuple[Params, Params]:
    """What belongs to the network, and the likelihood's own numbers (not the scales of their laws) without their prefix."""
    own = {name: x for name, x in params.items() if not name.startswith(("likelihood.", "prior."))}
    return own, {name: params[f"likelihood.{name}"] for name in likelihood.numbers()}


def between(number: Tensor, f: Any, name: str) -> Tensor:
    """(draws, *shape) to (draws, 1, ..., 1, *shape), to broadcast against outputs (draws, points, ...)."""
    while isinstance(f, dict):
        task, _, name = name.partition(".")
        f = f[task]
    shape = number.shape[1:]
    return number.reshape(len(number), *[1] * (f.dim() - 1 - len(shape)), *shape)
