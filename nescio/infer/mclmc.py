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
from nescio.diagnose.problems import sentence
from nescio.infer.isokinetic import Plan, Point, Tuning, correlation_time, disturbed, normalise, refresh, step
from nescio.infer.journey import stride
from nescio.infer.microcanonical import (
    DIVERGENT,
    EnergyStep,
    Info,
    State,
    begin,
    finite,
    summary,
    tune,
)
from nescio.infer.sampler import Sampler
from nescio.noise import Noise
from nescio.posterior.posterior import Ends
from nescio.target import Target

MISSED = 10  # times the goal: energy errors have long tails, and few draws know them badly
LOOSE = 0.5  # energy variance with which a warm-up begins (Sommer et al., 2025)


@final
@dataclass(frozen=True, kw_only=True)
class MCLMC(Sampler):
    """`energy_variance`: E ΔE² / d that the step size is adapted to, which sets the bias: 5e-4 for accuracy; 0.1 is usual for networks
    (Sommer et al., 2025). The way in goes by larger steps. `length`: L, else tuned. `precondition` scales every latent by its spread,
    in the warm-up and after it; `step_size` (at the start) and `length` are then in such units. A step takes two gradients. Without an
    accept step the way to a posterior that is narrow beside its prior is long: begin at `MAP() >>`."""

    step_size: float = 0.01
    energy_variance: float = 5e-4
    length: float | None = None
    precondition: bool = True

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
        info = Info(error, failed, 2, size, tuning.length, target.dim)
        warm = state.step < self.warmup
        return (self.learn(new, u[:, None], error[:, None], failed[:, None], state) if warm else new), info

    def learn(self, new: State, us: Tensor, errors: Tensor, failed: Tensor, old: State) -> State:
        """From some steps, (chains, steps, ...). A chain that started outside the support tells nothing about the step size."""
        inside = old.log_density.isfinite() & old.gradient.isfinite().all(1)
        return self.adapt(new, us, errors.cpu(), (failed & inside[:, None]).cpu())

    def together(self, step: int, work: float) -> int:
        most = stride(self.gradients() * work)
        if step >= self.warmup:
            return most
        return min(most, Plan.of(self.warmup).stretch(step), self.warmup - step)

    def several(
        self, target: Target, state: State, batch: Batch, noises: Sequence[Noise]
    ) -> tuple[State, list[State], list[Info]]:
        (chains, dim), count, size, tuning = state.u.shape, len(noises), state.step_size.now, state.tuning
        most = self.together(self.warmup, target.work(chains))
        drawn = state.u.new_zeros(chains, most, 2, dim)  # code is made for one length: there is room for `most`
        for i, noise in enumerate(noises):
            drawn[:, i] = noise.normal(2, chains, dim).movedim(0, 1)
        us, numbers = state.u.new_zeros(chains, most, dim), state.u.new_zeros(chains, most, 3, dtype=torch.float64)
        vectors = torch.stack([state.u, state.direction, state.gradient], 1)
        here = torch.stack([state.log_density.double(), torch.zeros(chains, dtype=torch.float64)], 1)
        shared = [tuning.root, torch.tensor([size, tuning.length], dtype=torch.float64)]
        vectors, _ = target.advance(langevins, batch, [vectors, here, drawn, us, numbers], shared, times=count)
        us, densities = us[:, :count], numbers[:, :count, 0].to(state.log_density)
        errors, failures = numbers[:, :count, 1], numbers[:, :count, 2] > 0
        states = [
            state._replace(u=u, log_density=density, step=state.step + i + 1)
            for i, (u, density) in enumerate(zip(us.unbind(1), densities.unbind(1), strict=True))
        ]
        infos = [Info(errors[:, i], failures[:, i], 2, size, tuning.length, dim) for i in range(count)]
        u, v, gradient = (x.clone() for x in vectors.unbind(1))
        last = states[-1]._replace(u=u, direction=v, gradient=gradient)
        if state.step < self.warmup:
            last = self.learn(last, us, errors, failures, state)
        return last, states, infos

    def adapt(self, state: State, us: Tensor, errors: Tensor, failed: Tensor) -> State:
        """After some steps of the warm-up: the step size, but not while the trace for L is taken; R and L as `Plan` says."""
        plan, step, size = Plan.of(self.warmup), state.step, state.step_size
        assert isinstance(size, EnergyStep)
        goals = [self.goal(i) * state.u.shape[1] for i in range(step - us.shape[1] + 1, step + 1)]
        size = size.seen(errors, failed, goals)
        tracing = plan.trace[0] < step <= plan.trace[1]
        if (plan.renews(step) or step == self.warmup) and (not tracing or size.most < size.now):
            size = size.renewed()
        tuning = tune(state, us, plan, 1.0, self.precondition, self.length is not None)
        if step == plan.trace[1] and self.length is None and tuning.trace.shape[1] >= 20:
            length = 0.4 * size.now * correlation_time(tuning.trace)
            tuning = tuning._replace(length=max(length, size.now))
        if step in plan.ends:
            size = EnergyStep(size.now / tuning.units(state.tuning))
        return state._replace(step_size=size, tuning=tuning)

    def goal(self, step: int) -> float:
        """Of E ΔE² / d: LOOSE on the way in, of which nothing is kept; then it falls, to what was asked for where the windows end."""
        plan, loose = Plan.of(self.warmup), max(LOOSE, self.energy_variance)
        part = min(1.0, max(0.0, (step - plan.first) / max(plan.ends[1] - plan.first, 1)))
        return loose ** (1 - part) * self.energy_variance**part

    def summary(self, infos: Sequence[Info]) -> dict[str, Any]:
        found, problems = summary(infos), []
        if not found["energy_variance"] <= MISSED * self.energy_variance:
            must = f"the energy variance of a step must be near the {self.energy_variance:g} that was asked for"
            remedy = "warm up for longer, or start at MAP() >> MCLMC()"
            problems.append(sentence(must, f"{found['energy_variance']:.2g}", remedy))
        return {**found, "problems": problems}


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
        normalise(torch.where(stay, after, disturbed(end.v, after, size / 2, length))),
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
