"""What the tests of the dropout families share: layers, laws of multipliers, a bound by enumeration of all masks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributions as td

from nescio import Model
from nescio.families import (
    Family,
)
from nescio.families.concrete import Relaxed
from nescio.families.dropout import Spikes
from nescio.families.family import Block
from nescio.families.gaussian_dropout import Noisy as NoisyColumns
from nescio.families.masks import Multiplied
from nescio.infer import VI
from nescio.infer.elbo import NegativeELBO
from nescio.laws import Normal
from nescio.laws.site import sites
from nescio.likelihoods import Gaussian as Noise_
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.weights import RandomWeight

DOUBLE = torch.float64
SD = 0.5
P = 0.3


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def block_of(module: nn.Module, name: str = "weight") -> Block:
    site = next(site for site in sites(module) if site.name == name)
    return Block(name, site, dict(module.named_parameters())[name].detach().reshape(-1))


def random(factor: Multiplied) -> RandomWeight:
    factor.begin()
    return RandomWeight.of(factor, lambda: factor.draw().view_as(factor.loc), factor.loc)


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> Any:
    with Noise(seed).scope():
        return make().double()


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(3, 2), (3,)),
    "tokens": (lambda: nn.Linear(3, 2), (4, 3)),
    "conv1d": (lambda: nn.Conv1d(3, 2, 2), (3, 4)),
    "conv2d": (lambda: nn.Conv2d(3, 4, 2, padding=1), (3, 3, 3)),
    "grouped": (lambda: nn.Conv2d(4, 6, 2, groups=2), (4, 3, 3)),
    "transposed": (lambda: nn.ConvTranspose1d(3, 2, 2), (3, 4)),
    "transposed, grouped": (lambda: nn.ConvTranspose1d(4, 2, 2, groups=2), (4, 4)),
}
KINDS: dict[str, Callable[[Block], Multiplied]] = {
    "bernoulli": lambda block: Spikes(block, P),
    "gaussian": lambda block: NoisyColumns(block, P / (1 - P)),
    "concrete": lambda block: Relaxed(block, P, False, 0.1),
}  # all with the variance p / (1 - p) of their multipliers


def loss_of(
    net: nn.Module, family: Family, x: Tensor, y: Tensor | None = None, prior: Any = None, outputs: int = 1
) -> NegativeELBO:
    y = torch.zeros(len(x), outputs).to(next(net.parameters())) if y is None else y
    model = Model(net, Normal(0.0, 0.8) if prior is None else prior, Noise_(SD))
    return VI(family).objective(model, (x, y))[1]


class Enumerated:
    """A net 2-3-1 under dropout of its inputs and units, every mask with its probability."""

    def __init__(self, p: float = P) -> None:
        self.net = seeded(lambda: mlp(2, 3, 1), 1)
        self.x, self.y = normal(7, 2), normal(7, 1, seed=1)
        masks = torch.tensor(list(itertools.product([0.0, 1.0], repeat=5)), dtype=DOUBLE)
        self.probability = (masks * (1 - p) + (1 - masks) * p).prod(1)
        self.first, self.second = (masks / (1 - p)).split([2, 3], 1)

    def outputs(self, x: Tensor) -> Tensor:
        """(masks, points)"""
        a, b = self.net[0], self.net[2]
        hidden = [self.net[1](a(x * z)) for z in self.first]
        return torch.stack([b(h * z)[:, 0] for h, z in zip(hidden, self.second, strict=True)])

    def fit(self) -> Tensor:
        """E log p(D | W)"""
        law = td.Normal(self.outputs(self.x), torch.tensor(SD, dtype=DOUBLE))
        return self.probability @ law.log_prob(self.y[:, 0]).sum(1)

    def divergence(self, prior: Callable[[str, Tensor], Tensor]) -> Tensor:
        """E [log q(z) - log p(W)], and -log p of the biases."""
        a, b = self.net[0], self.net[2]
        log_p = [
            prior("0.weight", a.weight * u) + prior("2.weight", b.weight * v)
            for u, v in zip(self.first, self.second, strict=True)
        ]
        points = prior("0.bias", a.bias) + prior("2.bias", b.bias)
        return self.probability @ (self.probability.log() - torch.stack(log_p)) - points
