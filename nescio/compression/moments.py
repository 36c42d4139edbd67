"""Mean and standard deviation of every weight under a posterior, and what each weight costs to describe."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nescio.errors import UnsupportedError
from nescio.families.family import Factor
from nescio.families.independent import Gaussian
from nescio.families.point import Point
from nescio.families.scaled import Scaled
from nescio.families.scales import Signed, normal_rule
from nescio.families.variational_dropout import CONSTANT, Proportional, log_uniform_kl
from nescio.laws.law import unvalidated
from nescio.model import sort
from nescio.network import Params
from nescio.posterior.gaussian import WEIGHTS, GaussianPosterior
from nescio.posterior.posterior import Posterior
from nescio.posterior.variational import Variational

DRAWS = 200  # by which moments are known that have no formula
AT_ONCE = 2**20  # numbers of a quadrature


class Moments(NamedTuple):
    """Of the network's weights, by name; `numbers`: the likelihood's own, at their means; `statistics`: norm buffers."""

    mean: Params
    sd: Params
    numbers: Params
    statistics: Params


def moments(posterior: Posterior) -> Moments:
    """Of a posterior with one mode."""
    if not isinstance(posterior, (Variational, GaussianPosterior)):
        must, got = "compress needs a posterior with one mode", type(posterior).__name__
        raise UnsupportedError(must, got, "take one from VI or Laplace, or one part of a mixture")
    point = {name: x.detach() for name, x in posterior.point().items()}
    own, numbers = sort(point, posterior.model.likelihood)
    weights = posterior.model.network.weights()
    mean = {name: own[name] for name in weights}
    if isinstance(posterior, Variational):
        sd = spreads(posterior)
        missing = [name for name in weights if name not in sd]
        sd |= by_draws(posterior, {name: mean[name] for name in missing}) if missing else {}
    else:  # what is not among them is fixed
        found = posterior.variances()
        sd = {name: found[name].sqrt().to(m) if name in found else torch.zeros_like(m) for name, m in mean.items()}
    return Moments(mean, {n: sd[n] for n in weights}, numbers, {n: x for n, x in own.items() if n not in weights})


def spreads(posterior: Variational) -> Params:
    """Standard deviations that have a formula."""
    found: Params = {}
    with torch.no_grad():
        for factor in posterior.q.parts():
            factor.begin()
            block = factor.blocks[0]
            if isinstance(factor, Scaled):
                found |= {name: v.clamp_min(0).sqrt() for name, v in factor.variances().items()}
            elif isinstance(factor, (Gaussian, Proportional)) and block.site is not None:
                found[block.name] = (factor if isinstance(factor, Gaussian) else factor.law).sd.clone()
            elif isinstance(factor, Point) and block.site is not None:
                found[block.name] = torch.zeros(block.shape).to(block.start)
    return found


def by_draws(posterior: Variational, mean: Params) -> Params:
    """Of a family without a formula, some draws at a time."""
    many = max(1, WEIGHTS // max(1, posterior.model.dim))
    sums = {name: [torch.zeros_like(m, dtype=torch.float64) for _ in range(2)] for name, m in mean.items()}
    for i in range(0, DRAWS, many):
        drawn = posterior.sample(min(many, DRAWS - i), seed=i)
        for name, (first, second) in sums.items():
            away = drawn[name].double() - mean[name].double()
            first += away.sum(0)
            second += away.square().sum(0)
    return {
        name: ((second - first.square() / DRAWS) / (DRAWS - 1)).clamp_min(0).sqrt().to(mean[name])
        for name, (first, second) in sums.items()
    }


def nats(posterior: Variational) -> Params:
    """What each weight adds to the complexity L^C, by name, relative to a weight that is all noise, which says nothing.

    The divergence of a group's scale is shared out among its weights; that of a scale of scales is in no weight's part.
    """
    found: Params = {}
    with torch.no_grad(), unvalidated():
        call = posterior.q.call(at_mean=True)
        for factor in call.factors:
            block = factor.blocks[0]
            if isinstance(factor, Scaled):
                own = scale_nats(factor, call.law_for(factor, block))
                for i, (part, b) in enumerate(zip(factor.inner(), factor.weights, strict=True)):
                    index, law = factor.index(i), call.law_for(factor, b)
                    shared = (own / count(factor, len(own)))[index]
                    found[b.name] = (gaussian_nats(part.loc, part.sd, law) + shared).view(b.shape)
            elif isinstance(factor, Proportional) and call.layout.constant.get(block.name) is not None:
                law = call.law(block)
                improper = getattr(law, "power", None) == -1
                each = log_uniform_kl(factor.log_alpha()) + CONSTANT if improper else None
                found[block.name] = (
                    gaussian_nats(factor.law.loc, factor.law.sd, law).view(block.shape) if each is None else each
                )
            elif isinstance(factor, Gaussian) and block.site is not None:
                found[block.name] = gaussian_nats(factor.loc, factor.sd, call.law(block)).view(block.shape)
            elif block.site is not None:
                refuse(factor)
    return found


def scale_nats(factor: Scaled, law: torch.distributions.Distribution) -> Tensor:
    """Of each scale; one of either sign that is all noise says nothing."""
    each = factor.scales.kls(law)
    return each + CONSTANT - math.log(2) if isinstance(factor.scales, Signed) else each


def count(factor: Scaled, groups: int) -> Tensor:
    """How many weights each scale has."""
    indices = torch.cat([factor.index(i) for i in range(len(factor.inner()))])
    return torch.bincount(indices, minlength=groups).clamp_min(1)


def gaussian_nats(loc: Tensor, sd: Tensor, law: torch.distributions.Distribution) -> Tensor:
    """KL of each, (size,): closed under a Gaussian, else by quadrature."""
    loc, sd = loc.reshape(-1), sd.reshape(-1)
    if isinstance(law, torch.distributions.Normal):
        s = law.scale
        return 0.5 * ((sd.square() + (loc - law.loc).square()) / s.square() - 1) - (sd / s).log()
    nodes, weights = (torch.tensor(x).to(loc)[:, None] for x in normal_rule())
    if law.batch_shape:
        return -(weights * law.log_prob(loc + sd * nodes)).sum(0) - sd.log() - 0.5 * math.log(2 * math.pi * math.e)
    step = max(1, AT_ONCE // len(nodes))
    parts = [
        (weights * law.log_prob(m + s * nodes)).sum(0) for m, s in zip(loc.split(step), sd.split(step), strict=True)
    ]
    return -torch.cat(parts) - sd.log() - 0.5 * math.log(2 * math.pi * math.e)


def refuse(factor: Factor) -> None:
    must, got = "the evidence of single weights needs independent Gaussians", type(factor).__name__
    raise UnsupportedError(must, got, "use MeanField or VariationalDropout, or choose by Promised")
