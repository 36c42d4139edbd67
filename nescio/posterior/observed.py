"""From Gaussian outputs to what is observed, without draws: the last part of a compiled posterior, as plain modules.

(mean, variance) of the network's outputs -> (mean, epistemic, aleatoric) of y: variances of real outcomes, entropies in nats of labels.
Classes do not see what all logits share, so there is a third number: the variances of independent logits whose differences from their
common mean vary as the true ones do.
"""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nescio.errors import UnsupportedError
from nescio.likelihoods import Bernoulli, Categorical, Gaussian, Heteroscedastic
from nescio.likelihoods.gaussian import LEAST
from nescio.model import Model
from nescio.moments.gaussian import hermite
from nescio.network import Params

Told = tuple[Tensor, Tensor, Tensor]
POINTS = 16  # pairs of fixed points at which the entropy of classes is averaged
NODES = 9  # for one number


@final
class Real(nn.Module):
    """y = loc + scale (f + noise), noise a variance."""

    loc: Tensor
    scale: Tensor
    noise: Tensor

    def __init__(self, loc: Tensor, scale: Tensor, noise: Tensor) -> None:
        super().__init__()
        self.register_buffer("loc", loc)
        self.register_buffer("scale", scale)
        self.register_buffer("noise", noise)

    def forward(self, mean: Tensor, variance: Tensor, apart: Tensor) -> Told:
        known = (self.scale.square() * self.noise).expand_as(mean)
        return self.loc + self.scale * mean, self.scale.square() * variance, known


@final
class Scaled(nn.Module):
    """Mean and raw scale, σ = softplus: aleatoric is E σ² over the raw scale."""

    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("loc", loc)
        self.register_buffer("scale", scale)

    def forward(self, mean: Tensor, variance: Tensor, apart: Tensor) -> Told:
        (m, raw), (v, open_) = mean.chunk(2, -1), variance.chunk(2, -1)
        s = open_.sqrt()
        known = torch.stack([c * (LEAST + F.softplus(raw + z * s)).square() for z, c in hermite(NODES)]).sum(0)
        return self.loc + self.scale * m, self.scale.square() * v, self.scale.square() * known


@final
class Labels(nn.Module):
    """Probabilities as the probit link has them (nescio/links.py); the expected entropy over fixed points of logits."""

    points: Tensor
    cooler: Tensor

    def __init__(self, classes: int, cooler: Tensor) -> None:
        super().__init__()
        u = torch.quasirandom.SobolEngine(classes).draw(POINTS + 1, dtype=torch.float64)[1:]
        z = torch.cat([torch.special.ndtri(u), -torch.special.ndtri(u)])
        self.register_buffer("points", (z / z.std(0, correction=0))[:, None].to(cooler))  # (points, 1, classes)
        self.register_buffer("cooler", cooler)
        self.plain = bool((cooler == 1).all())

    def forward(self, mean: Tensor, variance: Tensor, apart: Tensor) -> Told:
        if not self.plain:
            mean, variance, apart = mean / self.cooler, variance / self.cooler.square(), apart / self.cooler.square()
        shrunk = mean * (1 + math.pi / 8 * variance).rsqrt()
        drawn = torch.addcmul(mean, apart.sqrt(), self.points)
        together = torch.cat([shrunk[None], drawn])  # calls are what takes time of a single input
        log = F.log_softmax(together, -1)
        p = log.exp()
        entropies = -(p * log).sum(-1)
        whole = entropies[0]
        aleatoric = torch.minimum(entropies[1:].mean(0), whole)
        return p[0], whole - aleatoric, aleatoric


@final
class YesNo(nn.Module):
    """Each output by itself, integrals by Gauss-Hermite nodes."""

    def forward(self, mean: Tensor, variance: Tensor, apart: Tensor) -> Told:
        s = variance.sqrt()
        nodes = [(torch.sigmoid(mean + z * s), c) for z, c in hermite(NODES)]
        p = torch.stack([c * q for q, c in nodes]).sum(0)
        aleatoric = torch.stack([c * entropy(q) for q, c in nodes]).sum(0)
        return p, (entropy(p) - aleatoric).clamp_min(0), aleatoric


def entropy(p: Tensor) -> Tensor:
    tiny = torch.finfo(p.dtype).tiny
    return -p * p.clamp_min(tiny).log() - (1 - p) * (1 - p).clamp_min(tiny).log()


def observed(model: Model, numbers: Params, outputs: int) -> nn.Module:
    """For the model's likelihood, with its numbers at these values, and a network of so many outputs."""
    likelihood, like = model.likelihood, model.network.like.detach()
    if isinstance(likelihood, (Gaussian, Heteroscedastic)):
        given = (likelihood.loc, likelihood.scale)
        loc, scale = (torch.as_tensor(n, dtype=like.dtype, device=like.device) for n in given)
        return Real(loc, scale, numbers["noise"].square()) if isinstance(likelihood, Gaussian) else Scaled(loc, scale)
    if isinstance(likelihood, Categorical) and likelihood.axis == -1:
        return Labels(outputs, numbers["noise"].square())
    if isinstance(likelihood, Bernoulli):
        return YesNo()
    must = "a compiled posterior is for Gaussian, Heteroscedastic, Categorical and Bernoulli"
    raise UnsupportedError(must, repr(likelihood), "use predict")
