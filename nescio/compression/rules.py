"""Which weights are worth keeping: a score for each, and the least score that is kept.

The threshold of a rule is a number, or is chosen by data: `SignalToNoise(Promised(x, y, loss=0.002))` (nescio/compression/choice.py).
Biases and norm layers are kept with the units that they belong to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from nescio.compression.choice import Choice
from nescio.compression.moments import Moments
from nescio.errors import UnsupportedError
from nescio.families.scaled import Scaled
from nescio.families.scales import LogNormal, Signed
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


@final
@dataclass(frozen=True)
class GroupSignalToNoise(Rule):
    """Keep groups with a common random scale whose weights have Σ mean² / Σ variance >= threshold², whatever the law of the scale."""

    threshold: float | Choice = 1.0

    def scores(self, posterior: Posterior, moments: Moments) -> Params:
        found: Params = {}
        for factor in groups(posterior):
            sums = [
                torch.zeros(len(factor.scales.loc), dtype=torch.float64, device=factor.scales.loc.device) for _ in "ab"
            ]
            for i, block in enumerate(factor.weights):
                for total, part in zip(sums, (moments.mean[block.name], moments.sd[block.name]), strict=True):
                    total.index_add_(0, factor.index(i), part.detach().double().square().reshape(-1))
            ratio = (sums[0] / sums[1].clamp_min(LEAST)).sqrt()
            found |= {
                b.name: ratio[factor.index(i)].view(b.shape) for i, b in enumerate(factor.weights) if len(b.shape) > 1
            }
        return found


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
    spread = (scales.power * scales.sd).square().double()
    if scales.above is not None:
        spread = spread + (scales.above.power * scales.above.sd).square().double()[scales.under]
    return torch.expm1(spread).log()


def of_groups(posterior: Posterior, score: Callable[[Any], Tensor]) -> Params:
    """A score of each scale, for the weights that have it."""
    found: Params = {}
    with torch.no_grad():
        for factor in groups(posterior):
            factor.begin()
            each = score(factor.scales).double()
            found |= {
                b.name: each[factor.index(i)].view(b.shape) for i, b in enumerate(factor.weights) if len(b.shape) > 1
            }
    return found


def groups(posterior: Posterior) -> list[Scaled]:
    parts = posterior.q.parts() if isinstance(posterior, Variational) else []
    found = [factor for factor in parts if isinstance(factor, Scaled)]
    if not found:
        must, got = "this rule needs groups with random scales", repr(posterior)
        raise UnsupportedError(
            must, got, 'fit VI(MeanField()) under Normal(0, HalfCauchy(1.).per("input")), or use LogAlpha'
        )
    return found
