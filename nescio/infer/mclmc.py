r"""Microcanonical Langevin Monte Carlo (Robnik et al., 2023).

    v ← refresh(v);  (x, v) ← one isokinetic step of size ε;  v ← refresh(v)

with refresh(v) ∝ v + ν z, ν² = (e^{ε/L} - 1) / d: directions are forgotten over the length L. infer/isokinetic.py has the
isokinetic step and ΔE, infer/halves.py what is done at a step.
Targets a law whose bias falls with ε and is set by `energy_variance`, E ΔE² / d of a step; infer/adjusted.py is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from nescio.batch import Batch
from nescio.data.source import Source
from nescio.infer.halves import half, langevin
from nescio.infer.isokinetic import Plan, Tuning, correlation_time
from nescio.infer.journey import stride
from nescio.infer.microcanonical import EnergyStep, Info, State, begin, check_positive, summary, tune
from nescio.infer.sampler import Sampler
from nescio.noise import Noise
from nescio.posterior.posterior import Ends
from nescio.target import Target

LOOSE = 0.5  # energy variance with which a warm-up begins (Sommer et al., 2025)


@final
@dataclass(frozen=True)
class MCLMC(Sampler):
    """`energy_variance`: E ΔE² / d that the step size is adapted to, which sets the bias: 5e-4 for accuracy; 0.1 is usual for networks
    (Sommer et al., 2025). The way in goes by larger steps. `length`: L, else tuned. `precondition` scales every latent by its spread,
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
        drawn = state.u.new_empty(chains, most, 2, dim)  # code is made for one length: there is room for `most`
        for i, noise in enumerate(noises):
            drawn[:, i] = noise.normal(2, chains, dim).movedim(0, 1)
        us, slopes = state.u.new_empty(2, chains, most + 1, dim)
        numbers = state.u.new_empty(chains, most + 1, 3, dtype=torch.float64)
        us[:, 0], slopes[:, 0], numbers[:, 0, 0] = state.u, state.gradient, state.log_density
        vectors = torch.stack([state.u, state.direction, state.gradient], 1)
        here = torch.zeros(chains, 2, dtype=torch.float64)
        shared = [tuning.root, torch.tensor([size, tuning.length], dtype=torch.float64)]
        given = [vectors, here, drawn, us, slopes, numbers]
        vectors, _ = target.advance(half, batch, given, shared, times=2 * count)
        us, errors, failures = us[:, 1 : count + 1], numbers[:, 1 : count + 1, 1], numbers[:, 1 : count + 1, 2] > 0
        densities = numbers[:, 1 : count + 1, 0].to(state.log_density)
        states = [
            state._replace(u=u, log_density=density, step=state.step + i + 1)
            for i, (u, density) in enumerate(zip(us.unbind(1), densities.unbind(1), strict=True))
        ]
        moving = (~failures).to(errors)
        infos = [Info(errors[:, i], failures[:, i], moving[:, i], 2, size, tuning.length, dim) for i in range(count)]
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
            units = (tuning.root / state.tuning.root).square().mean().sqrt()
            size = EnergyStep(size.now / float(units))
        return state._replace(step_size=size, tuning=tuning)

    def goal(self, step: int) -> float:
        """Of E ΔE² / d: LOOSE on the way in, of which nothing is kept; then it falls, to what was asked for where the windows end."""
        plan, loose = Plan.of(self.warmup), max(LOOSE, self.energy_variance)
        part = min(1.0, max(0.0, (step - plan.first) / max(plan.ends[1] - plan.first, 1)))
        return loose ** (1 - part) * self.energy_variance**part

    def summary(self, infos: Sequence[Info]) -> dict[str, Any]:
        return summary(infos)
