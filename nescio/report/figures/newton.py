"""Climbing a log density to its mode by Newton's method, and the curvature there."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad, jacrev


def climb(log_density: Callable[[Tensor], Tensor], start: Tensor, steps: int = 50) -> tuple[Tensor, Tensor]:
    """(the path, (steps taken + 1, dim); minus the second derivative at its end, (dim, dim)).

    Every step goes uphill: eigenvalues of the wrong sign are turned round, and a step that would lose height is halved.
    """
    slope_of = grad(log_density)
    curvature_of = jacrev(slope_of)  # twice in reverse: forward mode would load torch.jit
    path = [start.detach().clone()]
    for _ in range(steps):
        here, height = path[-1], log_density(path[-1])
        slope = slope_of(here)
        values, vectors = torch.linalg.eigh(-curvature_of(here))
        step = vectors @ ((vectors.mT @ slope) / values.abs().clamp_min(1e-6))
        for _ in range(40):
            if log_density(here + step) >= height:
                break
            step = step / 2
        path.append((here + step).detach())
        if float(step.abs().max()) < 1e-10:
            break
    return torch.stack(path), -curvature_of(path[-1]).detach()
