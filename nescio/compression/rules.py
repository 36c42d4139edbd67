"""Which weights are worth keeping: a score for each, and the least score that is kept.

The threshold of a rule is a number, or is chosen by data: `SignalToNoise(Promised(x, y, loss=0.002))` (nescio/compression/choice.py).
Biases and norm layers are kept with the units that they belong to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from nescio.compression.choice import Choice
from nescio.compression.moments import Moments
from nescio.errors import UnsupportedError
from nescio.families.scaled import LogNormal, Scaled, Signed
from nescio.laws.site import Sharing, Site, sites
from nescio.network import Params
from nescio.posterior.posterior import Posterior
from nescio.posterior.variational import Variational

LEAST = 1e-30


@dataclass(frozen=True)
class Rule(ABC):
    """Base of every rule; `threshold` is a field of each."""

    threshold: float | Choice

    @abstractmethod
    def scores(self, posterior: Posterior, moments: Moments) -> Params:
        """The higher, the more it is worth, by the names of weights with inputs and outputs."""

    def least(self, threshold: float) -> float:
        """The lowest score that is kept."""
        return threshold


@final
@dataclass(frozen=True)
class SignalToNoise(Rule):
    """Keep |mean| / sd >= threshold (Graves, 2011; Blundell et al., 2015). `per`: of the weights of an input or output together."""

    threshold: float | Choice = 1.0
    per: Sharing = "weight"

    def scores(self, posterior: Posterior, moments: Moments) -> Params:
        return {name: (0.5 * ratio).exp() for name, ratio in log_ratios(posterior, moments, self.per).items()}


@final
@dataclass(frozen=True)
class LogAlpha(Rule):
    """Keep log α <= threshold, α = variance / mean²; 3 is the paper's (Molchanov et al., 2017). `per`: as above."""

    threshold: float | Choice = 3.0
    per: Sharing = "weight"

    def scores(self, posterior: Posterior, moments: Moments) -> Params:
        return log_ratios(posterior, moments, self.per)

    def least(self, threshold: float) -> float:
        return -threshold


@final
@dataclass(frozen=True)
class GroupLogAlpha(Rule):
    """Keep groups whose random scale z has log(Var z / E[z]²) <= threshold: normal-Jeffreys (Louizos et al., 2017)."""

    threshold: float | Choice = -3.0

    def scores(self, posterior: Posterior, moments: Moments) -> Params:
        return {name: -alpha for name, alpha in of_groups(posterior, log_alpha).items()}

    def least(self, threshold: float) -> float:
        return -threshold


@final
@dataclass(frozen=True)
class GroupScale(Rule):
    """Keep groups whose random scale z has log median z >= threshold: the horseshoe (Louizos et al., 2017, by the mode)."""

    threshold: float | Choice = -5.0

    def scores(self, posterior: Posterior, moments: Moments) -> Params:
        return of_groups(posterior, lambda scales: scales.middle().log())


def masks(scores: Params, least: float) -> dict[str, Tensor]:
    return {name: score >= least for name, score in scores.items()}


# ---- scores --------------------------------------------------------------------------------------------------------------


def matrices(posterior: Posterior) -> list[Site]:
    """Weights with inputs and outputs."""
    return [site for site in sites(posterior.model.network.net) if len(site.shape) > 1]


def log_ratios(posterior: Posterior, moments: Moments, per: Sharing) -> Params:
    """log(mean² / variance), of each weight or of sums over groups."""
    found = {}
    for site in matrices(posterior):
        signal, noise = moments.mean[site.name].double().square(), moments.sd[site.name].double().square()
        if per != "weight":
            index = site.index("output" if per == "unit" else per).to(signal.device)
            zeros = signal.new_zeros(int(index.max()) + 1)
            signal, noise = (zeros.index_add(0, index, x.reshape(-1))[index].view(site.shape) for x in (signal, noise))
        found[site.name] = signal.clamp_min(LEAST).log() - noise.clamp_min(LEAST).log()
    return found


def log_alpha(scales: LogNormal | Signed) -> Tensor:
    if isinstance(scales, Signed):
        return scales.log_alpha()
    return torch.expm1((scales.power * scales.sd).square().double()).log()


def of_groups(posterior: Posterior, score: object) -> Params:
    """A score of each scale, for the weights that have it."""
    found: Params = {}
    factors = posterior.q.parts() if isinstance(posterior, Variational) else []
    with torch.no_grad():
        for factor in factors:
            if not isinstance(factor, Scaled):
                continue
            factor.begin()
            each: Tensor = score(factor.scales)  # type: ignore[operator]
            for i, block in enumerate(factor.blocks[1:]):
                if len(block.shape) > 1:
                    found[block.name] = each[factor.index(i)].view(block.shape).double()
    if not found:
        must, got = "this rule needs groups with random scales", repr(posterior)
        raise UnsupportedError(
            must, got, 'fit VI(MeanField()) under Normal(0, HalfCauchy(1.).per("input")), or use LogAlpha'
        )
    return found
