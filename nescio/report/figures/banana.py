"""Sampler steps on a small density, taken apart: the states that were visited, the proposals, the leapfrog points on the way.

The densities are the posteriors of the weights of y = w₁ + (w₂ x)² + noise, a banana, and of y = (w x)² + noise, two hills. States
come from the samplers' own steps. A step does not tell
what it proposed, so proposals are made again from the same keyed noise; `mismatch` is how far any new state is from both its
proposal and the state before, and must be nothing but rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nescio.batch import Batch
from nescio.data.source import source
from nescio.infer import HMC, MALA, Metropolis
from nescio.infer.sampler import Sampler
from nescio.laws import Normal
from nescio.likelihoods import Gaussian
from nescio.model import Model
from nescio.noise import Noise
from nescio.posterior.posterior import Ends
from nescio.report.figures.regions import stacked
from nescio.report.style import Numbers
from nescio.target import Target

Problem = tuple[Model, tuple[Tensor, Tensor]]
START = (-2.2, -1.75)  # (w₁, w₂), far out on one arm


class Bent(nn.Module):
    """w₁ + (w₂ x)², or (w x)²: the last weight is squared, others are added."""

    def __init__(self, weights: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(weights, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.w[:-1].sum() + (self.w[-1] * x) ** 2


def banana() -> Problem:
    """Model and data: one observation, y = 1 at x = 1."""
    one = torch.ones(1, 1, dtype=torch.float64)
    scale = torch.tensor([2.0, 1.0], dtype=torch.float64)
    return Model(Bent(2), Normal(0.0, scale), Gaussian(0.6)), (one, one)


def hills() -> Problem:
    """The same observation, and one weight that may have either sign."""
    one = torch.ones(1, 1, dtype=torch.float64)
    return Model(Bent(1), Normal(0.0, 1.5), Gaussian(0.6)), (one, one)


def proposed(method: Sampler, target: Target, state: Any, batch: Batch, noise: Noise) -> Tensor:
    """(points, weights): where the next step would go, its last point the proposal; for HMC each leapfrog on the way."""
    if isinstance(method, Metropolis):
        return state.u + method.scale * noise.at("walk").normal(*state.u.shape)
    if isinstance(method, MALA):
        drift = method.step_size**2 / 2 * state.gradient
        return state.u + drift + method.step_size * noise.at("proposal").normal(*state.u.shape)
    assert isinstance(method, HMC)
    size, u, gradient, points = method.step_size, state.u, state.gradient, []
    p = noise.at("momentum").normal(*state.u.shape)
    for _ in range(method.path(noise)):
        p = p + 0.5 * size * gradient
        u = u + size * p
        gradient = target.value_and_grad(u, batch)[1]
        p = p + 0.5 * size * gradient
        points.append(u)
    return torch.cat(points)


def walk(method: Sampler, problem: Problem, start: Sequence[float], looks: int, noise: Noise) -> Numbers:
    """From a start, with the step size of the method as it stands, until the density has been looked at `looks` times."""
    model, data = problem
    target = Target(model, source(data))
    batch = target.batch(None)
    state = method.init(target, Ends(torch.tensor([start], dtype=torch.float64), {}), noise.at("init"))
    states, points, took, mismatch = [state.u], [], [], 0.0
    while sum(len(path) for path in points) < looks:
        own = noise.at("step", len(points))
        path = proposed(method, target, state, batch, own)
        new, _ = method.step(target, state, batch, own)
        stayed, moved = (float((new.u - u).abs().max()) for u in (state.u, path[-1:]))
        mismatch = max(mismatch, min(stayed, moved))
        took.append(moved <= stayed)
        points.append(path)
        states.append(new.u)
        state = new
    return {
        "states": stacked(states),  # (weights, steps + 1)
        "points": stacked(points),  # (weights, looks)
        "lengths": np.array([len(path) for path in points]),  # of each step's own part of the points
        "took": np.array(took, dtype=float),
        "mismatch": np.array(mismatch),
    }
