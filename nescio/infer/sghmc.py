r"""Stochastic-gradient Hamiltonian Monte Carlo (Chen et al., 2014), in the form of momentum SGD with noise.

    v ← (1 - a) v + h G ĝ + √(2 a h G) z;     u ← u + v

ĝ is the gradient with N/B times the batch's likelihood, a the friction (1 - momentum), h the step size. At a constant step on a
Gaussian target the law of (u, v) is that of a linear recursion (tests/test_samplers.py solves it); it tends to p(u | D) as h and
the gradient noise go to zero. Cyclical by `step_size=Cycles(h, n)`; `precondition` as in SGLD.
"""

from __future__ import annotations

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
    v: Tensor  # (chains, dim)
    log_density: Tensor  # (chains,), by the last batch
    statistics: dict[str, Tensor]
    squares: Tensor  # (chains, dim), running mean of squared gradients


@final
@dataclass(frozen=True, kw_only=True)
class SGHMC(StochasticGradient):
    """`step_size` is h: a number, `Cycles`, or any function of the part of the run that is done. `friction`: a = 1 - momentum."""

    friction: float = 0.1

    def init(self, target: Target, ends: Ends, noise: Noise) -> State:
        u = target.u(ends.theta)
        v = self.size(0.0) ** 0.5 * noise.normal(*u.shape)
        return State(u, v, torch.zeros_like(u[:, 0]), ends.statistics, torch.zeros_like(u))

    def step(self, target: Target, state: State, batch: Batch, noise: Noise) -> tuple[State, Info]:
        h, log_density, gradient, scale, squares = self.slope(target, state.u, state.squares, batch)
        z = noise.normal(*state.u.shape)
        v = (1 - self.friction) * state.v + h * scale * gradient + (2 * self.friction * h * scale).sqrt() * z
        return State(state.u + v, v, log_density, state.statistics, squares), Info(log_density, h)
