r"""Metropolis-adjusted microcanonical dynamics (Robnik et al., 2025).

    v uniform on the sphere;  n isokinetic steps, n jittered about L / ε;  accept with probability min(1, e^-ΔE)

infer/isokinetic.py has the step and ΔE. Targets p(u | D) exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from nescio.batch import Batch
from nescio.data.source import Source
from nescio.infer.adapt import StepSize
from nescio.infer.isokinetic import Plan, Point, Tuning, correlation_time, directions, path
from nescio.infer.microcanonical import DIVERGENT, State, begin, finite, summary, tune
from nescio.infer.sampler import Sampler
from nescio.noise import Noise
from nescio.posterior.posterior import Ends
from nescio.target import Target


class Info(NamedTuple):
    energy_error: Tensor  # (chains,), 0 where there is none
    divergent: Tensor  # (chains,)
    acceptance: Tensor  # (chains,), probability
    leapfrogs: int  # gradients
    step_size: float
    length: float
    dim: int


@final
@dataclass(frozen=True, kw_only=True)
class AdjustedMCLMC(Sampler):
    """`acceptance`: what the step size is adapted to. `length`: of a path on average, else tuned, in the units of the preconditioner, which
    is diagonal or `dense`. `most_steps`: no path is longer on average, whatever its length should be."""

    step_size: float = 0.1
    acceptance: float = 0.9
    length: float | None = None
    dense: bool = False
    most_steps: int = 256

    def batch(self, source: Source) -> int:
        return source.size

    def gradients(self) -> float:
        return 16.0  # a guess: the length of a path is tuned

    def init(self, target: Target, ends: Ends, noise: Noise) -> State:
        tuning = Tuning.start(target.u(ends.theta), self.length, self.dense, self.warmup)
        return begin(target, ends, noise, StepSize.start(self.step_size), tuning)

    def step(self, target: Target, state: State, batch: Batch, noise: Noise) -> tuple[State, Info]:
        warm, plan = state.step < self.warmup, Plan.of(self.warmup)
        assert isinstance(state.step_size, StepSize)
        tracing = plan.trace[0] <= state.step < plan.trace[1]
        size = state.step_size.now if warm and not tracing else state.step_size.best
        mean = min(max(state.tuning.length / size, 1.0), self.most_steps)
        count = jittered(mean, noise.at("path").fraction())
        v = directions(noise.at("direction"), state.u)
        start = Point(state.u, v, state.log_density, state.gradient)
        end, error = path(target, batch, state.tuning.root, start, size, count)
        error = torch.where(finite(end, error), error, torch.inf)
        accept = (-error).exp().clamp(max=1.0)
        took = noise.at("accept").uniform(len(v)) < accept
        new = state._replace(
            u=torch.where(took[:, None], end.x, state.u),
            direction=v,
            log_density=torch.where(took, end.log_density, state.log_density),
            gradient=torch.where(took[:, None], end.gradient, state.gradient),
            step=state.step + 1,
        )
        length = mean * size
        shown = torch.where(error.isfinite(), error, 0.0)
        info = Info(shown, error > DIVERGENT, accept, 2 * count, size, length, target.dim)
        return (self.adapt(new, float(accept.mean()), tracing, length) if warm else new), info

    def adapt(self, state: State, acceptance: float, tracing: bool, length: float) -> State:
        plan, step, size = Plan.of(self.warmup), state.step, state.step_size
        assert isinstance(size, StepSize)
        if not tracing:
            size = size.update(acceptance, self.acceptance)
        tuning = tune(state, state.u[:, None], plan, 2.0, True, self.length is not None)
        if step == plan.trace[1] and self.length is None and tuning.trace.shape[1] >= 20:
            tuning = tuning._replace(length=0.5 * length * correlation_time(tuning.trace))
        if step in plan.ends:  # other units
            size = StepSize.start(size.best / tuning.units(state.tuning))
        if step == plan.trace[1]:  # another length, the last
            size = size.settle()
        return state._replace(step_size=size, tuning=tuning)

    def summary(self, infos: Sequence[Info]) -> dict[str, Any]:
        return {"acceptance": float(torch.stack([i.acceptance for i in infos]).mean()), **summary(infos)}


def jittered(mean: float, uniform: float) -> int:
    """A number of steps from 1 on, uniform but for the last one, with exactly this mean."""
    k = math.floor(2 * mean - 1)
    last = k * (mean - (k + 1) / 2) / (k + 1 - mean)
    return max(1, math.ceil(uniform * (k + last)))
