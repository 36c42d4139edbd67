r"""The evidence without an approximation of the posterior, for small networks: annealed importance sampling by HMC (Neal, 2001).

    p_β(θ) ∝ p(θ) p(D|θ)^β,    β: 0 → 1;      log w = Σ_t (β_t - β_{t-1}) log p(D | θ_{t-1}),   θ_t ~ HMC that leaves p_{β_t} as it is
    E[w] = p(D)  whatever the number of steps, so the error of log mean w is that of a mean over independent chains

Unbiased because a pilot run fixes everything: step sizes, metrics and the temperatures, which lie close where log p(D|θ) varies much.
That mean of log w is a sum for the thermodynamic integral ∫ E_β[log p(D|θ)] dβ, from below; the mean of w has no such lag.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nescio.data.source import source
from nescio.errors import InputError
from nescio.infer import HMC
from nescio.infer.adapt import Metric, Moments, identity
from nescio.infer.hmc import decide, leap
from nescio.model import Model
from nescio.noise import Noise
from nescio.target import Target, check

POWER = 4.0  # of the pilot's temperatures, (t / T)^4
GOAL = 0.8  # acceptance


class Annealed(NamedTuple):
    """`log_evidence` with its standard `error`. `bound`: the mean log weight, below it. `effective`: how many chains count."""

    log_evidence: float
    error: float
    bound: float
    effective: float
    acceptance: float


class Plan(NamedTuple):
    """What the pilot run settles, at each temperature."""

    betas: Tensor  # (T + 1,), from 0 to 1
    sizes: list[float]
    metrics: list[Metric]


class Path(NamedTuple):
    log_weights: Tensor  # (chains,)
    levels: Tensor  # (T + 1, chains), log p(D|θ) on the way
    plan: Plan  # as it would have suited this run
    acceptance: float


def anneal(
    model: Model, data: Any, *, chains: int = 100, temperatures: int = 100, leapfrog: int = 10, seed: int = 0
) -> Annealed:
    """log p(D) with a standard error. Everything random is integrated out, noise and scales, too; Learned numbers stay.

        anneal(model, data).log_evidence      beside  evidence(posterior)

    It takes temperatures * leapfrog gradients of all chains, on all data, twice. An `error` above 0.3 is not one: take more.
    """
    if chains < 2 or temperatures < 2 or leapfrog < 1:
        got = f"chains={chains}, temperatures={temperatures}, leapfrog={leapfrog}"
        raise InputError("two chains, two temperatures and one leapfrog are the least", got, "leave them out")
    given = source(data).to(model.network.like.device)
    check(model, given)
    method, noise = HMC(leapfrog=leapfrog), model.noise(seed, "anneal")
    target = method.view(Target(model, given), noise)
    theta = torch.stack([model.prior.draw(noise.at("prior", i)) for i in range(2 * chains)])
    target = target.free(method.moves(model.prior), theta)
    power = torch.linspace(0, 1, temperatures + 1, dtype=torch.float64) ** POWER
    u = target.u(theta)
    first = Plan(power, [0.5] * len(power), [identity(u, False)] * len(power))
    halves = [slice(0, chains), slice(chains, 2 * chains)]
    pilot = walked(target.chains(halves[0]), u[halves[0]], first, method, noise.at("pilot"), adapt=True)
    plan = respaced(pilot, temperatures)
    path = walked(target.chains(halves[1]), u[halves[1]], plan, method, noise.at("run"), adapt=False)
    return summed(path)


def walked(target: Target, u: Tensor, plan: Plan, method: HMC, noise: Noise, adapt: bool) -> Path:
    """All chains from β = 0 to β = 1. With `adapt` each temperature hands its step size on, and the metric is that of the chains."""
    level = torch.empty(0)
    log_weights, levels = torch.zeros(len(u), dtype=torch.float64, device=u.device), []
    sizes, metrics, accepted, size = [], [], [], plan.sizes[0]
    for t, beta in enumerate(plan.betas):
        if t:
            log_weights += (beta - plan.betas[t - 1]) * level
        metric = Moments.start(u, False).update(u).metric(u) if adapt else plan.metrics[t]
        size = size if adapt else plan.sizes[t]
        batch = target.batch(None)._replace(weight=float(beta))
        own = noise.at("temperature", t)
        value, slope = target.value_and_grad(u, batch)
        p0 = metric.momentum(own.at("momentum").normal(*u.shape))
        shared = [torch.tensor(size, dtype=torch.float64, device=u.device), *metric.tensors()]
        ends = target.advance(leap, batch, [u, p0, value, slope], shared, times=method.path(own))
        new_u, p, new_value, new_slope = ends
        coin = own.at("accept").uniform(len(u))
        given = [u, value, slope, p0, new_u, new_value, new_slope, p, coin]
        u, _, _, accept, *_ = target.advance(decide, batch, given, metric.tensors())
        level = target.log_likelihood(target.theta(u), {}, target.source).double()
        sizes.append(size)
        metrics.append(metric)
        accepted.append(float(accept.mean()))
        levels.append(level)
        size *= math.exp(0.5 * (accepted[-1] - GOAL))
    return Path(log_weights, torch.stack(levels), Plan(plan.betas, sizes, metrics), sum(accepted) / len(accepted))


def respaced(pilot: Path, temperatures: int) -> Plan:
    """Temperatures at equal parts of ∫ sd_β[log p(D|θ)] dβ, where each step costs the same; sizes and metrics of the nearest."""
    betas = pilot.plan.betas
    spread = pilot.levels.std(1).cpu().clamp_min(1e-6)
    length = torch.cat([torch.zeros(1), torch.cumsum((spread[1:] + spread[:-1]) / 2 * betas.diff(), 0)]).double()
    goal = torch.linspace(0, 1, temperatures + 1, dtype=torch.float64) * length[-1]
    right = torch.searchsorted(length, goal).clamp(1, len(betas) - 1)
    part = (goal - length[right - 1]) / (length[right] - length[right - 1]).clamp_min(1e-300)
    found = betas[right - 1] + part.clamp(0, 1) * (betas[right] - betas[right - 1])
    found[0], found[-1] = 0.0, 1.0
    near = [int((betas - beta).abs().argmin()) for beta in found]
    return Plan(found, [pilot.plan.sizes[i] for i in near], [pilot.plan.metrics[i] for i in near])


def summed(path: Path) -> Annealed:
    weights = (path.log_weights - path.log_weights.max()).exp()
    mean, count = weights.mean(), len(weights)
    log_evidence = float(path.log_weights.max() + mean.log())
    error = float(weights.std() / mean / math.sqrt(count))
    effective = float(weights.sum().square() / weights.square().sum())
    return Annealed(log_evidence, error, float(path.log_weights.mean()), effective, path.acceptance)
