r"""Microcanonical Langevin Monte Carlo (Robnik et al., 2023), and its Metropolis-adjusted form (Robnik et al., 2025).

    MCLMC:          v ← refresh(v);  (x, v) ← one isokinetic step of size ε;  v ← refresh(v)
    AdjustedMCLMC:  v uniform on the sphere;  n isokinetic steps, n jittered about L / ε;  accept with probability min(1, e^-ΔE)

with refresh(v) ∝ v + ν z, ν² = (e^{ε/L} - 1) / d: directions are forgotten over the length L. infer/isokinetic.py has the step and ΔE.
AdjustedMCLMC targets p(u | D) exactly; MCLMC a law whose bias falls with ε and is set by `energy_variance`, E ΔE² / d of a step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from nescio.data.source import Source
from nescio.errors import InputError, UnsupportedError
from nescio.infer.adapt import StepSize
from nescio.infer.isokinetic import Plan, Point, Tuning, correlation_time, directions, normalise, path, refresh, step
from nescio.infer.journey import side_by_side, stride
from nescio.infer.sampler import Sampler
from nescio.noise import Noise
from nescio.posterior.posterior import Ends
from nescio.target import Batch, Gradient, Target

DIVERGENT = 1000.0  # an energy error above this, or above the number of dimensions, is a divergence


class EnergyStep(NamedTuple):
    """The step size at which E ΔE² / d meets its goal: ΔE ~ ε³, so ε⁻⁶ is averaged, with a memory of 50 steps."""

    now: float
    most: float = math.inf
    total: float = 0.0
    weight: float = 0.0

    def update(self, error: Tensor, failed: Tensor, goal: float) -> EnergyStep:
        """`error` (chains,) against E ΔE² = `goal`; the part of the chains that `failed` shrinks the largest step allowed."""
        xi = error[~failed].square() / goal + 1e-8
        if self.weight == 0 and len(xi) == len(failed) and float(xi.mean()) < 0.01:
            return self._replace(now=min(2 * self.now, self.most))  # far too small: averaging it in would last
        trust = torch.exp(-0.5 * (xi.log() / 9).square())  # a wild error says little
        memory = 99 / 101
        total, weight = memory * self.total, memory * self.weight
        if len(xi):
            total, weight = total + float((trust * xi).mean()) / self.now**6, weight + float(trust.mean())
        part = float(failed.double().mean())
        most = min(self.most, (1 - 0.2 * part) * self.now) if part else self.most
        wanted = (total / weight) ** (-1 / 6) if weight else self.now
        return EnergyStep(min(wanted, most), most, total, weight)


class State(NamedTuple):
    u: Tensor  # (chains, dim)
    direction: Tensor  # (chains, dim), unit vectors
    log_density: Tensor  # (chains,)
    gradient: Tensor  # (chains, dim)
    statistics: dict[str, Tensor]
    step: int
    step_size: EnergyStep | StepSize
    tuning: Tuning


class Info(NamedTuple):
    energy_error: Tensor  # (chains,), 0 where there is none
    divergent: Tensor  # (chains,)
    acceptance: Tensor  # (chains,), probability
    leapfrogs: int  # gradients
    step_size: float
    length: float
    dim: int


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


@final
@dataclass(frozen=True)
class AdjustedMCLMC(Sampler):
    """`acceptance`: what the step size is adapted to. `length`: of a path on average, else tuned, in the units of the preconditioner, which
    is diagonal or `dense`. `most_steps`: no path is longer on average, whatever its length should be."""

    step_size: float = 0.1
    acceptance: float = 0.9
    length: float | None = None
    dense: bool = False
    most_steps: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(step_size=self.step_size, length=self.length, most_steps=self.most_steps)
        if not 0 < self.acceptance < 1:
            raise InputError("acceptance must lie between 0 and 1", str(self.acceptance), "leave it at 0.9")

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
        tuning = tune(state, plan, 2.0, True, self.length is not None)
        if step == plan.trace[1] and self.length is None and tuning.trace.shape[1] >= 20:
            tuning = tuning._replace(length=0.5 * length * correlation_time(tuning.trace))
        if step in plan.ends:  # other units
            size = StepSize.start(size.best)
        if step == plan.trace[1]:  # another length, the last
            size = size.settle()
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


def begin(target: Target, ends: Ends, noise: Noise, size: EnergyStep | StepSize, tuning: Tuning) -> State:
    if target.dim < 2:
        raise UnsupportedError(
            "a direction needs two dimensions to turn in", "one latent that moves", "use HMC or MALA"
        )
    u = target.u(ends.theta)
    log_density, gradient = target.value_and_grad(u, target.batch(None))
    return State(u, directions(noise, u), log_density, gradient, ends.statistics, 0, size, tuning)


def finite(end: Point, error: Tensor) -> Tensor:
    """Steps that stayed within the finite numbers, gradients included: the next step starts from them. (chains,)"""
    return error.isfinite() & end.x.isfinite().all(1) & end.v.isfinite().all(1) & end.gradient.isfinite().all(1)


def tune(state: State, plan: Plan, factor: float, precondition: bool, fixed: bool) -> Tuning:
    """What the state adds to the windows and the trace; L is `factor` √ΣVar at the end of a window."""
    tuning, step = state.tuning, state.step
    if plan.first < step <= plan.ends[1]:
        tuning = tuning.add(state.u)
    if step in plan.ends:
        tuning = tuning.close(factor, precondition, fixed)
    if plan.trace[0] < step <= plan.trace[1]:
        tuning.write(state.u, step - plan.trace[0] - 1)
    return tuning


def jittered(mean: float, uniform: float) -> int:
    """A number of steps from 1 on, uniform but for the last one, with exactly this mean."""
    k = math.floor(2 * mean - 1)
    last = k * (mean - (k + 1) / 2) / (k + 1 - mean)
    return max(1, math.ceil(uniform * (k + last)))


def check_positive(**numbers: float | None) -> None:
    for name, x in numbers.items():
        if x is not None and not x > 0:
            raise InputError(f"{name} must be positive", str(x), "leave it out")


def summary(infos: Sequence[Info]) -> dict[str, Any]:
    """Of the kept steps."""
    return {
        "acceptance": float(torch.stack([i.acceptance for i in infos]).mean()),
        "divergences": int(torch.stack([i.divergent for i in infos]).sum()),
        "energy_variance": float(torch.stack([i.energy_error for i in infos]).square().mean() / infos[-1].dim),
        "step_size": infos[-1].step_size,
        "length": infos[-1].length,
        "gradients": sum(i.leapfrogs for i in infos),
    }
