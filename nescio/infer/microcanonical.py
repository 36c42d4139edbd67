"""What the two microcanonical samplers share: their State, where they begin, what their warm-up learns, how they are summed up.

infer/mclmc.py and infer/adjusted.py are the samplers, infer/isokinetic.py is their step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nescio.errors import UnsupportedError
from nescio.infer.adapt import StepSize
from nescio.infer.isokinetic import Plan, Point, Tuning, directions
from nescio.noise import Noise
from nescio.posterior.posterior import Ends
from nescio.target import Target

MEMORY = 99 / 101  # of the average: 50 steps
DIVERGENT = 1000.0  # an energy error above this, or above the number of dimensions, is a divergence


class EnergyStep(NamedTuple):
    """The step size at which E ΔE² / d meets its goal: ΔE ~ ε³, so ΔE² ε⁻⁶ is averaged."""

    now: float
    most: float = math.inf
    total: float = 0.0
    weight: float = 0.0

    def seen(self, error: Tensor, failed: Tensor, goals: Sequence[float]) -> EnergyStep:
        """After steps of this size with these errors (chains, steps), E ΔE² to be that of `goals`; chains that `failed` lower `most`."""
        now, most, total, weight = self
        numbers = zip(error.numpy().T, failed.numpy().T, goals, strict=True)  # so few that torch's calls take longer
        for each, gone, goal in numbers:
            xi = np.square(each[~gone]) / goal + 1e-8
            trust = np.exp(-0.5 * np.square(np.log(xi) / 9))  # a wild error says little
            total, weight = MEMORY * total, MEMORY * weight
            if len(xi):
                total, weight = total + float((trust * xi).mean()) / now**6, weight + float(trust.mean())
            if gone.any():
                most = (1 - 0.2 * float(gone.mean())) * min(most, now)
        return EnergyStep(now, most, total, weight)

    def renewed(self) -> EnergyStep:
        """The size that was asked for; at most twice the one before, of which nothing need then be remembered."""
        wanted = (self.total / self.weight) ** (-1 / 6) if self.weight else self.now
        if wanted > 2 * self.now:
            return EnergyStep(min(2 * self.now, self.most), self.most)
        return self._replace(now=min(wanted, self.most))


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
    leapfrogs: int  # gradients
    step_size: float
    length: float
    dim: int


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
    return error.isfinite() & (end.x.isfinite() & end.v.isfinite() & end.gradient.isfinite()).all(1)


def tune(state: State, us: Tensor, plan: Plan, factor: float, precondition: bool, fixed: bool) -> Tuning:
    """What the last states, us (chains, steps, dim), add to the windows and the trace; L is `factor` √ΣVar at the end of a window."""
    tuning, step = state.tuning, state.step
    if plan.first < step <= plan.ends[1]:
        tuning = tuning.add(us)
    if step in plan.ends:
        tuning = tuning.close(factor, precondition, fixed)
    if plan.trace[0] < step <= plan.trace[1]:
        tuning.write(us, step - plan.trace[0] - us.shape[1])
    return tuning


def summary(infos: Sequence[Any]) -> dict[str, Any]:
    """Of the kept steps."""
    return {
        "divergences": int(torch.stack([i.divergent for i in infos]).sum()),
        "energy_variance": float(torch.stack([i.energy_error for i in infos]).square().mean() / infos[-1].dim),
        "step_size": infos[-1].step_size,
        "length": infos[-1].length,
        "gradients": sum(i.leapfrogs for i in infos),
    }
