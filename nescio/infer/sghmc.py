r"""Stochastic-gradient Hamiltonian Monte Carlo (Chen et al., 2014), in the form of momentum SGD with noise.

    v ← (1 - a) v + h G ĝ + √(2 a h G) z;     u ← u + v

ĝ is the gradient with N/B times the batch's likelihood, a the friction (1 - momentum), h the step size. At a constant step on a
Gaussian target the law of (u, v) is that of a linear recursion (tests/test_samplers.py solves it); it tends to p(u | D) as h and
the gradient noise go to zero. Cyclical by `schedule=Cycles(n)`; `precondition` as in SGLD.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from nescio.data.source import Source
from nescio.infer.iterative import minibatch
from nescio.infer.sampler import Sampler
from nescio.infer.schedule import Constant, RMSprop
from nescio.infer.sgld import Info
from nescio.noise import Noise
from nescio.posterior.posterior import Ends
from nescio.target import Batch, Target


class State(NamedTuple):
    u: Tensor  # (chains, dim)
    v: Tensor  # (chains, dim)
    log_density: Tensor  # (chains,), by the last batch
    statistics: dict[str, Tensor]
    squares: Tensor  # (chains, dim), running mean of squared gradients


@final
@dataclass(frozen=True)
class SGHMC(Sampler):
    """`step_size` is h, `friction` a = 1 - momentum."""

    step_size: float = 1e-6
    friction: float = 0.1
    batch_size: int | None = None
    schedule: Callable[[float], float] = Constant()
    precondition: RMSprop | None = None

    def batch(self, source: Source) -> int:
        return minibatch(self.batch_size, source)

    def gradients(self) -> float:
        return 1.0

    def init(self, target: Target, ends: Ends, noise: Noise) -> State:
        u = target.u(ends.theta)
        v = self.step_size**0.5 * noise.normal(*u.shape)
        return State(u, v, torch.zeros_like(u[:, 0]), ends.statistics, torch.zeros_like(u))

    def step(self, target: Target, state: State, batch: Batch, noise: Noise) -> tuple[State, Info]:
        h = self.step_size * self.schedule(batch.part)
        log_density, gradient = target.value_and_grad(state.u, batch)
        squares, scale = state.squares, torch.ones_like(gradient)
        if self.precondition is not None:
            squares, scale = self.precondition(squares, gradient / target.size)
        z = noise.normal(*state.u.shape)
        v = (1 - self.friction) * state.v + h * scale * gradient + (2 * self.friction * h * scale).sqrt() * z
        return State(state.u + v, v, log_density, state.statistics, squares), Info(log_density, h)

    def point(self, state: State) -> tuple[Tensor, Tensor]:
        return state.u, state.log_density

    def summary(self, infos: Sequence[Info]) -> dict[str, Any]:
        return {"step_size": infos[-1].step_size, "gradients": len(infos)}
