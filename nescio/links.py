"""Class probabilities under Gaussian logits f ~ N(m, V), without draws of weights.

probit      softmax(m / √(1 + π/8 diag V))                                        (MacKay, 1992)
Bridge()    a Dirichlet with α_k = (1 - 2/C + e^{m_k} Σ_l e^{-m_l} / C²) / V_kk    (MacKay, 1998; Hobbhahn et al., 2022)
Sampled(n)  the softmax averaged over n draws of f: exact as n grows
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical

from nescio.densities import log_density
from nescio.errors import InputError, UnsupportedError
from nescio.noise import Noise
from nescio.predictive import Drawn, Predictive

Label = type[Categorical] | type[Bernoulli]
DRAWS = 256  # of f, for an expected entropy that has no closed form


class Link(ABC):
    """How an integral over logits is done."""

    @abstractmethod
    def predictive(self, kind: Label, logits: Tensor, covariance: Tensor, noise: Noise) -> Predictive:
        """`logits` (points, classes), or (points, D) each yes or no, and their covariance (points, D, D)."""


@final
@dataclass(frozen=True, eq=False)
class Classes(Predictive):
    """Labels with these probabilities; `expected_entropy()` is what would be left if the weights were known."""

    observed: Categorical | Bernoulli  # with the predictive probabilities
    expected_entropy: Callable[[], Tensor]

    @property
    def mean(self) -> Tensor:
        return self.observed.probs

    @property
    def probabilities(self) -> Tensor:
        return self.mean if isinstance(self.observed, Categorical) else torch.stack([1 - self.mean, self.mean], -1)

    @property
    def variance(self) -> Tensor:
        return self.mean * (1 - self.mean)

    @property
    def aleatoric(self) -> Tensor:
        return torch.minimum(self.expected_entropy(), self.observed.entropy())

    @property
    def epistemic(self) -> Tensor:
        return self.observed.entropy() - self.aleatoric

    def log_prob(self, y: Tensor) -> Tensor:
        return log_density(self.observed, y, lead=1)

    def quantile(self, q: float) -> Tensor:
        remedy = "use mean: it holds the probabilities"
        raise UnsupportedError("quantiles need an ordered outcome", type(self.observed).__name__, remedy)

    def sample(self, n: int, seed: int = 0) -> Tensor:
        if n < 1:
            raise InputError("at least one sample must be asked for", str(n), "use for instance sample(100)")
        with Noise(seed).at("predictive").to(self.mean.device, self.mean.dtype).scope():
            return self.observed.sample((n,))


@final
@dataclass(frozen=True)
class Probit(Link):
    def predictive(self, kind: Label, logits: Tensor, covariance: Tensor, noise: Noise) -> Predictive:
        flatter = logits / (1 + math.pi / 8 * covariance.diagonal(dim1=1, dim2=2)).sqrt()
        observed = kind(logits=flatter, validate_args=False)
        return Classes(observed, lambda: drawn(kind, logits, covariance, DRAWS, noise).entropy().mean(0))


@final
@dataclass(frozen=True)
class Sampled(Link):
    draws: int = 1000

    def predictive(self, kind: Label, logits: Tensor, covariance: Tensor, noise: Noise) -> Predictive:
        return Drawn(drawn(kind, logits, covariance, self.draws, noise))


@final
@dataclass(frozen=True)
class Bridge(Link):
    """`normalised`: logits and variances scaled so that the variances average √(C/2), where the bridge is good."""

    normalised: bool = True

    def predictive(self, kind: Label, logits: Tensor, covariance: Tensor, noise: Noise) -> Predictive:
        if kind is not Categorical:
            raise UnsupportedError("the bridge is for classes", kind.__name__, "use probit")
        row = covariance.sum(2)
        total = row.sum(1, keepdim=True).clamp_min(torch.finfo(row.dtype).tiny)  # zero where they sum to zero already
        mean = logits - row * logits.sum(1, keepdim=True) / total  # given that they sum to zero
        variance = (covariance - row[:, :, None] * row[:, None, :] / total[:, :, None]).diagonal(dim1=1, dim2=2)
        classes = mean.shape[1]
        if self.normalised:
            size = variance.mean(1, keepdim=True) / math.sqrt(classes / 2)
            mean, variance = mean / size.sqrt(), variance / size
        alpha = (1 - 2 / classes + mean.exp() * (-mean).exp().sum(1, keepdim=True) / classes**2) / variance
        probabilities = alpha / alpha.sum(1, keepdim=True)
        whole = torch.digamma(alpha.sum(1) + 1)
        observed = Categorical(probs=probabilities, validate_args=False)
        return Classes(observed, lambda: whole - (probabilities * torch.digamma(alpha + 1)).sum(1))


def drawn(kind: Label, logits: Tensor, covariance: Tensor, draws: int, noise: Noise) -> Categorical | Bernoulli:
    """The distribution of labels under draws of the logits, (draws, points, ...)."""
    values, vectors = torch.linalg.eigh(covariance.double())
    root = (vectors * values.clamp_min(0).sqrt()[:, None]).to(logits)
    z = noise.to(logits.device, logits.dtype).normal(draws, *logits.shape, 1)
    return kind(logits=logits + (root @ z)[..., 0], validate_args=False)


probit = Probit()
