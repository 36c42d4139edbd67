r"""Stochastic-gradient Langevin dynamics (Welling & Teh, 2011), cyclical (Zhang et al., 2020) and preconditioned (Li et al., 2016).

    u ← u + h G ĝ + √(2h) G^½ z,     ĝ = ∇ log p̂(u), the gradient with N/B times the batch's likelihood

With G = 1, a constant step, target N(0, s²) and gradient noise of variance V the stationary variance is s² (1 + hV/2) / (1 - h/2s²):
biased in h and in V, exact as both go to zero. Cyclical by `step_size=Cycles(h, n)`. `precondition` adapts a diagonal G to
the gradients' size and leaves out the term of its derivative, as is usual; that bias does not vanish with h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from nescio.batch import Batch
from nescio.infer.stochastic import Info, StochasticGradient
from nescio.noise import Noise
from nescio.posterior.posterior import Ends
from nescio.target import Target


class State(NamedTuple):
    u: Tensor  # (chains, dim)
    log_density: Tensor  # (chains,), by the last batch
    statistics: dict[str, Tensor]
    squares: Tensor  # (chains, dim), running mean of squared gradients


@final
@dataclass(frozen=True, kw_only=True)
class SGLD(StochasticGradient):
    """`step_size` is h, in units of the whole log density (of the order of 1 / N times a learning rate): a number, `Cycles`, or any
    function of the part of the run that is done. `precondition`: steps of each weight by the size of its gradients."""

    step_size: float | Callable[[float], float] = 1e-5

    def init(self, target: Target, ends: Ends, noise: Noise) -> State:
        u = target.u(ends.theta)
        return State(u, torch.zeros_like(u[:, 0]), ends.statistics, torch.zeros_like(u))

    def step(self, target: Target, state: State, batch: Batch, noise: Noise) -> tuple[State, Info]:
        h, log_density, gradient, scale, squares = self.slope(target, state.u, state.squares, batch)
        z = noise.normal(*state.u.shape)
        u = state.u + h * scale * gradient + (2 * h * scale).sqrt() * z
        return State(u, log_density, state.statistics, squares), Info(log_density, h)
