r"""Langevin dynamics: unadjusted (ULA; Roberts & Tweedie, 1996) and Metropolis-adjusted (MALA; Besag, 1994).

    u* = u + h Σ ∇log p(u) + √(2h) L z,     z ~ N(0, I),  Σ = L Lᵀ
    MALA accepts u* with probability min(1, p(u*) q(u | u*) / p(u) q(u* | u)), else repeats u; ULA always accepts.

MALA targets p(u | D) exactly; ULA a law that is O(h) away: on N(0, 1) its variance is 1 / (1 - h/2). The noise has twice the variance
of the gradient's step. MALA's step size and Σ are adapted in the warm-up; ULA has no acceptance to be adapted to.
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
from nescio.infer.adapt import Moments, StepSize, identity
from nescio.infer.hmc import DIVERGENT, Info, State, adapt, summary
from nescio.infer.sampler import Sampler
from nescio.noise import Noise
from nescio.posterior.posterior import Ends
from nescio.target import Target


class Unadjusted(NamedTuple):
    divergent: Tensor  # (chains,)
    energy: Tensor  # (chains,)
    leapfrogs: int  # gradients
    step_size: float


@final
@dataclass(frozen=True, kw_only=True)
class ULA(Sampler):
    """`step_size` is h."""

    step_size: float = 1e-3

    def batch(self, source: Source) -> int:
        return source.size

    def gradients(self) -> float:
        return 1.0

    def init(self, target: Target, ends: Ends, noise: Noise) -> State:
        return start(target, ends, self.step_size)

    def step(self, target: Target, state: State, batch: Batch, noise: Noise) -> tuple[State, Unadjusted]:
        h = self.step_size
        z = noise.normal(*state.u.shape)
        u = state.u + h * state.gradient + math.sqrt(2 * h) * z
        log_density, gradient = target.value_and_grad(u, batch)
        new = state._replace(u=u, log_density=log_density, gradient=gradient, step=state.step + 1)
        return new, Unadjusted(~log_density.isfinite(), energy(state, z), 1, h)

    def summary(self, infos: Sequence[Unadjusted]) -> dict[str, Any]:
        lost = torch.stack([i.divergent for i in infos])
        return {
            "divergences": int(lost.sum()),
            "step_size": self.step_size,
            "gradients": sum(i.leapfrogs for i in infos),
        }


@final
@dataclass(frozen=True, kw_only=True)
class MALA(Sampler):
    """`step_size` is √(2h) at the start; it is adapted to the `acceptance` that is best in many dimensions, 0.574."""

    step_size: float = 0.1
    acceptance: float = 0.574
    dense: bool = False

    def batch(self, source: Source) -> int:
        return source.size

    def gradients(self) -> float:
        return 1.0

    def init(self, target: Target, ends: Ends, noise: Noise) -> State:
        return start(target, ends, self.step_size, self.dense)

    def step(self, target: Target, state: State, batch: Batch, noise: Noise) -> tuple[State, Info]:
        warm = state.step < self.warmup
        size = state.step_size.now if warm else state.step_size.best
        h, metric = size**2 / 2, state.metric
        z = noise.at("proposal").normal(*state.u.shape)
        u = state.u + h * metric.velocity(state.gradient) + size * metric.spread(z)
        log_density, gradient = target.value_and_grad(u, batch)
        back = metric.gather(state.u - u - h * metric.velocity(gradient)) / size  # the z that would lead back
        proposal = 0.5 * ((z - back).double() * (z + back).double()).sum(1)  # log q(u | u*) - log q(u* | u)
        error = -(log_density - state.log_density + proposal)
        error = torch.where(error.isfinite(), error, torch.inf)
        accept = (-error).exp().clamp(max=1.0)
        took = noise.at("accept").uniform(len(u)) < accept
        new = state._replace(
            u=torch.where(took[:, None], u, state.u),
            log_density=torch.where(took, log_density, state.log_density),
            gradient=torch.where(took[:, None], gradient, state.gradient),
            step=state.step + 1,
        )
        info = Info(accept, error > DIVERGENT, energy(state, z), 1, size)
        return (adapt(new, float(accept.mean()), self.acceptance, self.warmup, self.dense) if warm else new), info

    def summary(self, infos: Sequence[Info]) -> dict[str, Any]:
        return summary(infos)


def energy(state: State, z: Tensor) -> Tensor:
    """H where the step begins, with z as its momentum: a Langevin step is one leapfrog of size √(2h)."""
    return 0.5 * z.square().sum(1, dtype=torch.float64) - state.log_density


def start(target: Target, ends: Ends, size: float, dense: bool = False) -> State:
    u = target.u(ends.theta)
    log_density, gradient = target.value_and_grad(u, target.batch(None))
    moments, metric = Moments.start(u, dense), identity(u, dense)
    return State(u, log_density, gradient, ends.statistics, 0, StepSize.start(size), moments, metric)
