r"""Microcanonical Langevin Monte Carlo (Robnik et al., 2023).

    v ← refresh(v);  (x, v) ← one isokinetic step of size ε;  v ← refresh(v)

with refresh(v) ∝ v + ν z, ν² = (e^{ε/L} - 1) / d: directions are forgotten over the length L. infer/isokinetic.py has the step and ΔE.
Targets a law whose bias falls with ε and is set by `energy_variance`, E ΔE² / d of a step; infer/adjusted.py is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from nescio.batch import Batch, Gradient
from nescio.data.source import Source
from nescio.infer.isokinetic import Plan, Point, Tuning, correlation_time, normalise, refresh, step
from nescio.infer.journey import side_by_side, stride
from nescio.infer.microcanonical import (
    DIVERGENT,
    EnergyStep,
    Info,
    State,
    begin,
    check_positive,
    finite,
    summary,
    tune,
)
from nescio.infer.sampler import Sampler
from nescio.noise import Noise
from nescio.posterior.posterior import Ends
from nescio.target import Target


@final
@dataclass(frozen=True)
class MCLMC(Sampler):
    """`energy_variance`: E ΔE² / d that the step size is adapted to, which sets the bias: 5e-4 for accuracy; 0.1 is usual for networks
    (Sommer et al., 2025). It begins five times as large. `length`: L, else tuned. `precondition` scales every latent by its spread,
    in the warm-up and after it; `step_size` (at the start) and `length` are then in such units. A step takes two gradients."""

    step_size: float = 0.01
    energy_variance: float = 5e-4
    length: float | None = None
    precondition: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(step_size=self.step_size, energy_variance=self.energy_variance, length=self.length)

    def batch(self, source: Source) -> int:
        return source.size

    def gradients(self) -> float:
        return 2.0

    def init(self, target: Target, ends: Ends, noise: Noise) -> State:
        tuning = Tuning.start(target.u(ends.theta), self.length, False, self.warmup)
        return begin(target, ends, noise, EnergyStep(self.step_size), tuning)

    def step(self, target: Target, state: State, batch: Batch, noise: Noise) -> tuple[State, Info]:
        size, tuning = state.step_size.now, state.tuning
        before, after = noise.normal(2, *state.u.shape)
        here = [state.u, state.direction, state.log_density, state.gradient, before, after]
        numbers = torch.tensor([size, tuning.length], dtype=torch.float64).to(state.u.device)
        u, v, log_density, gradient, error, failed = target.advance(langevin, batch, here, [tuning.root, numbers])
        new = state._replace(u=u, direction=v, log_density=log_density, gradient=gradient, step=state.step + 1)
        info = Info(error, failed, (~failed).to(error), 2, size, tuning.length, target.dim)
        return (self.learn(new, error, failed, state) if state.step < self.warmup else new), info

    def learn(self, new: State, error: Tensor, failed: Tensor, old: State) -> State:
        """A chain that started outside the support tells nothing about the step size."""
        lost = failed & old.log_density.isfinite() & old.gradient.isfinite().all(1)
        return self.adapt(new, error.cpu(), lost.cpu())

    def together(self, step: int, work: float) -> int:
        return 1 if step < self.warmup else stride(self.gradients() * work)

    def several(
        self, target: Target, state: State, batch: Batch, noises: Sequence[Noise]
    ) -> tuple[State, list[State], list[Info]]:
        (chains, dim), size, tuning = state.u.shape, state.step_size.now, state.tuning
        most = self.together(self.warmup, target.work(chains))
        drawn = side_by_side([noise.normal(2, chains, dim) for noise in noises], 2, most).movedim(0, 2).contiguous()
        us, numbers = state.u.new_empty(chains, most, dim), state.u.new_empty(chains, most, 3, dtype=torch.float64)
        vectors = torch.stack([state.u, state.direction, state.gradient], 1)
        here = torch.stack([state.log_density.double(), torch.zeros(chains, dtype=torch.float64)], 1)
        shared = [tuning.root, torch.tensor([size, tuning.length], dtype=torch.float64)]
        given = [vectors, here, drawn, us, numbers]
        vectors, here = target.advance(langevins, batch, given, shared, times=len(noises))
        u, v, gradient = (x.clone() for x in vectors.unbind(1))
        log_density = here[:, 0].to(state.log_density)
        densities, errors, failures = numbers[:, :, 0].to(log_density), numbers[:, :, 1], numbers[:, :, 2] > 0
        last = state._replace(
            u=u, direction=v, log_density=log_density, gradient=gradient, step=state.step + len(noises)
        )
        if state.step < self.warmup:
            last = self.learn(last, errors[:, 0], failures[:, 0], state)
        records = (us, densities, errors, failures, (~failures).to(errors))
        rows = list(zip(*(x.unbind(1) for x in records), strict=True))[: len(noises)]
        infos = [Info(e, f, a, 2, size, tuning.length, dim) for _, _, e, f, a in rows]
        states = [state._replace(u=row[0], log_density=row[1], step=state.step + i + 1) for i, row in enumerate(rows)]
        return last, states, infos

    def adapt(self, state: State, error: Tensor, failed: Tensor) -> State:
        """One step of the warm-up: the step size, but not while the trace for L is taken; R and L as `Plan` says."""
        plan, step, size = Plan.of(self.warmup), state.step, state.step_size
        assert isinstance(size, EnergyStep)
        loose = 1 + 4 * max(0.0, 1 - 2 * step / self.warmup)
        if not plan.trace[0] < step <= plan.trace[1] or bool(failed.any()):
            size = size.update(error, failed, loose * self.energy_variance * state.u.shape[1])
        tuning = tune(state, plan, 1.0, self.precondition, self.length is not None)
        if step == plan.trace[1] and self.length is None and tuning.trace.shape[1] >= 20:
            length = 0.4 * size.now * correlation_time(tuning.trace)
            tuning = tuning._replace(length=max(length, size.now))
        if step in plan.ends:
            units = (tuning.root / state.tuning.root).square().mean().sqrt()
            size = EnergyStep(size.now / float(units))
        return state._replace(step_size=size, tuning=tuning)

    def summary(self, infos: Sequence[Info]) -> dict[str, Any]:
        return summary(infos)


def langevin(
    gradient: Gradient,
    u: Tensor,
    v: Tensor,
    log_density: Tensor,
    slope: Tensor,
    before: Tensor,
    after: Tensor,
    root: Tensor,
    numbers: Tensor,
) -> tuple[Tensor, ...]:
    """One step between two half refreshes. Where it fails the chain stays, and tries a direction that nothing else has used."""
    size, length = numbers[0], numbers[1]
    turned = refresh(v, before, size / 2, length)
    none = torch.zeros_like(log_density, dtype=torch.float64)
    *moved, kinetic = step(gradient, u, turned, log_density, slope, none, root, size)
    end = Point(*moved)
    error = kinetic - (end.log_density.double() - log_density.double())
    failed = ~finite(end, error) | (error.abs() > max(DIVERGENT, u.shape[1]))
    stay = failed[:, None]
    return (
        torch.where(stay, u, end.x),
        torch.where(stay, normalise(after), refresh(end.v, after, size / 2, length)),
        torch.where(failed, log_density, end.log_density),
        torch.where(stay, slope, end.gradient),
        torch.where(failed, 0.0, error),
        failed,
    )


def langevins(
    gradient: Gradient,
    vectors: Tensor,
    here: Tensor,
    drawn: Tensor,
    us: Tensor,
    numbers: Tensor,
    root: Tensor,
    sizes: Tensor,
) -> tuple[Tensor, ...]:
    """One of several steps, its draw and its numbers written into their place.

    `vectors`: u, v and the gradient; `here`: log density, and which step it is, the same in all chains. As few tensors as can be, for
    each turn of a loop takes time for each.
    """
    (u, v, slope), (log_density, at) = vectors.unbind(1), here.unbind(1)
    place = at[:1].long()
    before, after = drawn.index_select(1, place)[:, 0].unbind(1)
    moved = langevin(gradient, u, v, log_density, slope, before, after, root, sizes)
    u, v, log_density, slope, error, failed = moved
    us.index_copy_(1, place, u[:, None])
    numbers.index_copy_(1, place, torch.stack([log_density.double(), error, failed.double()], 1)[:, None])
    return torch.stack([u, v, slope], 1), torch.stack([log_density.double(), at + 1], 1)
