r"""Metropolis-Hastings (Metropolis et al., 1953; Hastings, 1970): a random walk for what is continuous, flips for what is discrete.

    u* = u + s L z,  z ~ N(0, I)         one discrete entry of each chain: another of its values, uniformly
    accept with probability min(1, p(u* | D) / p(u | D)), else repeat u.

Both proposals are symmetric, and one step does first the one and then the other. Targets p(u | D) exactly, needs no gradient, and is
slow in many dimensions. The scale s is adapted to an acceptance of 0.234 (Roberts et al., 1997), the shape L to the chains' spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import torch
from torch import Tensor

from nescio.batch import Batch
from nescio.data.source import Source
from nescio.infer.adapt import Diagonal, Metric, Moments, StepSize, Windows, identity
from nescio.infer.hmc import LEAST_DRAWS
from nescio.infer.sampler import Sampler
from nescio.noise import Noise
from nescio.posterior.posterior import Ends
from nescio.target import Target


class State(NamedTuple):
    u: Tensor  # (chains, dim)
    log_density: Tensor  # (chains,)
    statistics: dict[str, Tensor]
    step: int
    scale: StepSize
    moments: Moments
    metric: Metric
    choices: Tensor  # (dim, most values): the values of discrete entries, NaN beyond; all NaN for continuous ones


class Info(NamedTuple):
    acceptance: Tensor  # (chains,), of the walk; of the flips where nothing walks
    flips: Tensor  # (chains,), acceptance of the flips; NaN where nothing is discrete
    scale: float


@final
@dataclass(frozen=True, kw_only=True)
class Metropolis(Sampler):
    """`scale`: the first step of the walk, in units of the chains' spread once that is known."""

    scale: float = 0.1
    acceptance: float = 0.234
    needs_gradients: ClassVar[bool] = False

    def batch(self, source: Source) -> int:
        return source.size

    def init(self, target: Target, ends: Ends, noise: Noise) -> State:
        u = target.u(ends.theta)
        log_density = target.log_density(u, target.batch(None)).detach()
        moments, choices = Moments.start(u, dense=False), values_of(target).to(u)
        return State(u, log_density, ends.statistics, 0, StepSize.start(self.scale), moments, identity(u), choices)

    def step(self, target: Target, state: State, batch: Batch, noise: Noise) -> tuple[State, Info]:
        warm = state.step < self.warmup
        scale = state.scale.now if warm else state.scale.best
        discrete = ~state.choices[:, 0].isnan()
        assert isinstance(state.metric, Diagonal)
        flips = torch.full_like(state.log_density, torch.nan)
        accept = flips
        if not bool(discrete.all()):
            shift = scale * state.metric.root * noise.at("walk").normal(*state.u.shape)
            proposal = torch.where(discrete, state.u, state.u + shift)
            state, accept = choose(target, state, proposal, batch, noise.at("accept"))
        if bool(discrete.any()):
            proposal = flipped(state, discrete, noise.at("flip"))
            state, flips = choose(target, state, proposal, batch, noise.at("accept flip"))
        state = state._replace(step=state.step + 1)
        info = Info(flips if bool(discrete.all()) else accept, flips, scale)
        if warm and not bool(discrete.all()):
            state = self.adapt(state, float(accept.mean()))
        return state, info

    def adapt(self, state: State, acceptance: float) -> State:
        windows = Windows.of(self.warmup)
        scale, moments, metric = state.scale.update(acceptance, self.acceptance), state.moments, state.metric
        if state.step > windows.first:
            moments = moments.update(state.u)
        if state.step in windows.ends and moments.count >= LEAST_DRAWS:
            metric, moments = moments.metric(state.u), Moments.start(state.u, dense=False)
            scale = StepSize.start(2.4 / state.u.shape[1] ** 0.5)  # best for a Gaussian of this spread
        return state._replace(scale=scale, moments=moments, metric=metric)

    def summary(self, infos: Sequence[Info]) -> dict[str, Any]:
        accepted = {"acceptance": float(torch.stack([i.acceptance for i in infos]).mean()), "scale": infos[-1].scale}
        flips = torch.stack([i.flips for i in infos])
        return accepted if bool(flips.isnan().any()) else {**accepted, "flips": float(flips.mean())}


def choose(target: Target, state: State, proposal: Tensor, batch: Batch, noise: Noise) -> tuple[State, Tensor]:
    """The Metropolis rule: (the state after it, the probabilities of acceptance)."""
    log_density = target.log_density(proposal, batch).detach()
    ratio = log_density - state.log_density
    accept = torch.where(ratio.isnan(), 0.0, ratio.clamp(max=0.0).exp())
    took = noise.uniform(len(proposal)) < accept
    u = torch.where(took[:, None], proposal, state.u)
    return state._replace(u=u, log_density=torch.where(took, log_density, state.log_density)), accept


def flipped(state: State, discrete: Tensor, noise: Noise) -> Tensor:
    """One discrete entry of each chain, another of its values."""
    chains = len(state.u)
    slots = discrete.nonzero()[:, 0]
    at = slots[noise.at("which").integers(0, len(slots), chains)]
    choices = state.choices[at]  # (chains, most values)
    count = (~choices.isnan()).sum(1)
    now = (choices == state.u.gather(1, at[:, None])).to(torch.uint8).argmax(1)
    onward = 1 + (noise.at("value").uniform(chains) * (count - 1)).long()
    new = choices.gather(1, ((now + onward) % count)[:, None])
    return state.u.scatter(1, at[:, None], new)


def values_of(target: Target) -> Tensor:
    """For each free entry the values that it can take; NaN for continuous entries and beyond the last value."""
    variables = target.model.prior.variables
    most = max((len(getattr(v.law, "values", ())) for v in variables if v.discrete), default=1)
    rows = []
    for variable in variables:
        row = torch.full((most,), torch.nan, dtype=torch.float64)
        if variable.discrete:
            values = torch.tensor(variable.law.values, dtype=torch.float64)  # type: ignore[union-attr]
            row[: len(values)] = values
        rows.append(row.expand(variable.size, most))
    table = torch.cat(rows)
    return table if target.slots is None else table[target.slots.cpu()]
