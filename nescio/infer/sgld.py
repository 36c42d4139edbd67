r"""Stochastic-gradient Langevin dynamics (Welling & Teh, 2011), cyclical (Zhang et al., 2020) and preconditioned (Li et al., 2016).

    u ← u + h G ĝ + √(2h) G^½ z,     ĝ = ∇ log p̂(u), the gradient with N/B times the batch's likelihood

With G = 1, a constant step, target N(0, s²) and gradient noise of variance V the stationary variance is s² (1 + hV/2) / (1 - h/2s²):
biased in h and in V, exact as both go to zero. `step_size` h is multiplied by `schedule`. `precondition` adapts a diagonal G to
the gradients' size and leaves out the term of its derivative, as is usual; that bias does not vanish with h.
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
from nescio.noise import Noise
from nescio.posterior.posterior import Ends
from nescio.target import Batch, Target


class State(NamedTuple):
    u: Tensor  # (chains, dim)
    log_density: Tensor  # (chains,), by the last batch
    statistics: dict[str, Tensor]
    squares: Tensor  # (chains, dim), running mean of squared gradients


class Info(NamedTuple):
    log_density: Tensor  # (chains,), by the batch
    step_size: float


@final
@dataclass(frozen=True)
class SGLD(Sampler):
    """`step_size` is h, in units of the whole log density (of the order of 1 / N times a learning rate)."""

    step_size: float = 1e-5
    batch_size: int | None = None
    schedule: Callable[[float], float] = Constant()
    precondition: RMSprop | None = None

    def batch(self, source: Source) -> int:
        return minibatch(self.batch_size, source)

    def gradients(self) -> float:
        return 1.0

    def init(self, target: Target, ends: Ends, noise: Noise) -> State:
        u = target.u(ends.theta)
        return State(u, torch.zeros_like(u[:, 0]), ends.statistics, torch.zeros_like(u))

    def step(self, target: Target, state: State, batch: Batch, noise: Noise) -> tuple[State, Info]:
        h = self.step_size * self.schedule(batch.part)
        log_density, gradient = target.value_and_grad(state.u, batch)
        squares, scale = state.squares, torch.ones_like(gradient)
        if self.precondition is not None:
            squares, scale = self.precondition(squares, gradient / target.size)
        z = noise.normal(*state.u.shape)
        u = state.u + h * scale * gradient + (2 * h * scale).sqrt() * z
        return State(u, log_density, state.statistics, squares), Info(log_density, h)

    def point(self, state: State) -> tuple[Tensor, Tensor]:
        return state.u, state.log_density

    def summary(self, infos: Sequence[Info]) -> dict[str, Any]:
        return {"step_size": infos[-1].step_size, "gradients": len(infos)}
