r"""Hamiltonian Monte Carlo (Duane et al., 1987; Neal, 2011).

    H(u, p) = -log p(u | D) + ½ pᵀ Σ p,     p ~ N(0, Σ⁻¹)
    p ← p + ½ε ∇log p(u);   u ← u + ε Σ p;   p ← p + ½ε ∇log p(u)      (leapfrog, L times)
    accept u* with probability min(1, exp(-ΔH)), else repeat u.

Targets p(u | D) exactly. L is drawn anew at every step from 1 ... `leapfrog`: a fixed path length resonates. Step size and inverse
mass Σ (diagonal or dense) are adapted in the warm-up. Energy differences are formed in double precision, elementwise for the kinetic
part, so that single-precision networks are accepted or rejected rightly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from nescio.batch import Batch, Gradient
from nescio.data.source import Source
from nescio.infer.adapt import Metric, Moments, StepSize, Windows, identity, remade
from nescio.infer.journey import Course, Journey, side_by_side, stride
from nescio.infer.sampler import Sampler
from nescio.noise import Noise
from nescio.posterior.posterior import Ends
from nescio.target import Target

DIVERGENT = 1000.0  # an energy error above this is a divergence
LEAST_DRAWS = 10  # from which a metric is estimated; a window with fewer goes on into the next


class State(NamedTuple):
    u: Tensor  # (chains, dim)
    log_density: Tensor  # (chains,)
    gradient: Tensor  # (chains, dim)
    statistics: dict[str, Tensor]
    step: int
    step_size: StepSize
    moments: Moments
    metric: Metric


class Began(NamedTuple):
    """What an energy error needs to know of where a trajectory began."""

    log_density: Tensor
    metric: Metric


class Info(NamedTuple):
    acceptance: Tensor  # (chains,), probability
    divergent: Tensor  # (chains,)
    energy: Tensor  # (chains,), H where the trajectory begins, its momentum just drawn
    leapfrogs: int
    step_size: float


@final
@dataclass(frozen=True, kw_only=True)
class HMC(Sampler):
    """`leapfrog`: the longest path, in steps. `acceptance`: what the step size is adapted to. `dense`: a full inverse mass matrix."""

    leapfrog: int = 20
    step_size: float = 0.1
    acceptance: float = 0.8
    dense: bool = False

    def batch(self, source: Source) -> int:
        return source.size  # a density is compared with itself: all data, always

    def gradients(self) -> float:
        return (1 + self.leapfrog) / 2

    def init(self, target: Target, ends: Ends, noise: Noise) -> State:
        u = target.u(ends.theta)
        log_density, gradient = target.value_and_grad(u, target.batch(None))
        size, metric = StepSize.start(self.step_size), identity(u, self.dense)
        return State(u, log_density, gradient, ends.statistics, 0, size, Moments.start(u, self.dense), metric)

    def path(self, noise: Noise) -> int:
        """How many leapfrogs the step with this noise takes."""
        return 1 + int(self.leapfrog * noise.at("path").fraction())

    def step(self, target: Target, state: State, batch: Batch, noise: Noise) -> tuple[State, Info]:
        warm = state.step < self.warmup
        size = state.step_size.now if warm else state.step_size.best
        count = self.path(noise)
        p0 = state.metric.momentum(noise.at("momentum").normal(*state.u.shape))
        u, p, log_density, gradient = leapfrog(target, batch, state, p0, size, count)
        ends = [state.u, state.log_density, state.gradient, p0, u, log_density, gradient, p]
        coin = noise.at("accept").uniform(len(u))
        u, log_density, gradient, accept, divergent, energy = target.advance(
            decide, batch, [*ends, coin], state.metric.tensors()
        )
        new = state._replace(u=u, log_density=log_density, gradient=gradient, step=state.step + 1)
        info = Info(accept, divergent, energy, count, size)
        return (adapt(new, float(accept.mean()), self.acceptance, self.warmup, self.dense) if warm else new), info

    def together(self, step: int, work: float) -> int:
        return 1 if step < self.warmup else stride(self.gradients() * work)

    def several(
        self, target: Target, state: State, batch: Batch, noises: Sequence[Noise]
    ) -> tuple[State, list[State], list[Info]]:
        warm, (chains, dim), many = state.step < self.warmup, state.u.shape, len(noises)
        size = state.step_size.now if warm else state.step_size.best
        most = self.together(self.warmup, target.work(chains))
        counts, momentum = [self.path(noise) for noise in noises], state.metric.momentum
        momenta = side_by_side([momentum(noise.at("momentum").normal(chains, dim)) for noise in noises], 1, most)
        coins = side_by_side([noise.at("accept").uniform(chains) for noise in noises], 1, most).double()
        lengths = coins.new_tensor([*counts, *[0] * (most - many)]).expand(chains, -1)
        here, course = (state.u, state.log_density, state.gradient), Course(momenta, torch.stack([coins, lengths], 2))
        records = JOURNEY.go(target, batch, here, course, size, state.metric, sum(counts))
        densities, accepts, divergent, energies = records.numbers[:, 1 : many + 1].unbind(2)
        each = (records.u[:, 1 : many + 1], densities.to(state.log_density), accepts, divergent > 0, energies)
        rows = list(zip(*(x.unbind(1) for x in each), strict=True))
        infos = [Info(a, d, e, count, size) for (_, _, a, d, e), count in zip(rows, counts, strict=True)]
        new = [state._replace(u=row[0], log_density=row[1], step=state.step + i + 1) for i, row in enumerate(rows)]
        u, log_density, gradient = (x.clone() for x in (*rows[-1][:2], records.gradient[:, many]))
        last = new[-1]._replace(u=u, log_density=log_density, gradient=gradient)
        if warm:
            last = adapt(last, float(infos[0].acceptance.mean()), self.acceptance, self.warmup, self.dense)
        return last, new, infos

    def summary(self, infos: Sequence[Info]) -> dict[str, Any]:
        return summary(infos)


def leapfrog(
    target: Target, batch: Batch, start: State, p: Tensor, size: float, count: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`count` steps: u, p, the log density there and its gradient."""
    here = [start.u, p, start.log_density, start.gradient]
    shared = [torch.tensor(size, dtype=torch.float64, device=p.device), *start.metric.tensors()]
    return target.advance(leap, batch, here, shared, times=count)


def leap(
    gradient: Gradient, u: Tensor, p: Tensor, log_density: Tensor, slope: Tensor, size: Tensor, *metric: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Kick, drift, kick. A negative size goes back in time."""
    p = p + 0.5 * size * slope
    u = u + size * remade(metric).velocity(p)
    log_density, slope = gradient(u)
    return u, p + 0.5 * size * slope, log_density, slope


def decide(_: Gradient, *given: Tensor) -> tuple[Tensor, ...]:
    """Accept or repeat: the next u, log density and gradient, the chance of it, divergence, and the energy at the start."""
    u, log_density, slope, p0, new_u, new_log_density, new_slope, p, coin, *tensors = given
    metric = remade(tensors)
    error = energy_error(Began(log_density, metric), p0, new_log_density, p)
    accept = (-error).exp().clamp(max=1.0)
    took = coin < accept
    kinetic = 0.5 * (p0 * metric.velocity(p0)).sum(1, dtype=torch.float64)
    return (
        torch.where(took[:, None], new_u, u),
        torch.where(took, new_log_density, log_density),
        torch.where(took[:, None], new_slope, slope),
        accept,
        error > DIVERGENT,
        kinetic - log_density,
    )


JOURNEY = Journey(leap, decide)


def energy_error(start: State | Began, p0: Tensor, log_density: Tensor, p: Tensor) -> Tensor:
    """ΔH in double precision; the kinetic difference is (p - p0)ᵀ Σ (p + p0) / 2, elementwise before it is summed."""
    kinetic = 0.5 * ((p - p0).double() * start.metric.velocity(p + p0).double()).sum(1)
    error = kinetic - (log_density.double() - start.log_density.double())
    return torch.where(error.isfinite(), error, torch.inf)  # outside the support, or overflown: never accepted


def adapt(state: State, acceptance: float, goal: float, warmup: int, dense: bool) -> State:
    """One step of the warm-up: the step size always, the metric at the ends of its windows."""
    windows = Windows.of(warmup)
    size, moments, metric = state.step_size.update(acceptance, goal), state.moments, state.metric
    if state.step > windows.first:
        moments = moments.update(state.u)
    if state.step in windows.ends and moments.count >= LEAST_DRAWS:
        metric, moments = moments.metric(state.u), Moments.start(state.u, dense)
        size = size.settle() if state.step == windows.ends[-1] else StepSize.start(size.best)
    return state._replace(step_size=size, moments=moments, metric=metric)


def summary(infos: Sequence[Any]) -> dict[str, Any]:
    """Acceptance, divergences, gradients and energies of the kept steps."""
    return {
        "acceptance": float(torch.stack([i.acceptance for i in infos]).mean()),
        "divergences": int(torch.stack([i.divergent for i in infos]).sum()),
        "step_size": float(infos[-1].step_size),
        "gradients": int(sum(i.leapfrogs for i in infos)),
    }
