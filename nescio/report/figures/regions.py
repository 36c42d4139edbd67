"""Regions of highest density of a gridded density: what a posterior over two weights looks like from above."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nescio.report.figures.arrays import array
from nescio.report.style import Numbers
from nescio.target import Target

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HOLDS = (0.99, 0.9, 0.7, 0.4, 0.15)
SHADES = ("#eef3f8", "#d9e6f1", "#bfd5e8", "#9dbedb", "#7aa6cc")


def gridded(target: Target, ranges: tuple[tuple[float, float], tuple[float, float]], points: int) -> Numbers:
    """`first`, `second`: the axes; `density`: p(u₁, u₂ | D), normalised over the grid, (first, second)."""
    axes = [torch.linspace(low, high, points, dtype=torch.float64) for low, high in ranges]
    heights = target.log_density(torch.cartesian_prod(*axes), target.batch(None)).reshape(points, points)
    cell = float((axes[0][1] - axes[0][0]) * (axes[1][1] - axes[1][0]))
    density = (heights - heights.logsumexp((0, 1))).exp() / cell
    return {"first": array(axes[0]), "second": array(axes[1]), "density": array(density)}


def expectation(grid: Numbers, values: np.ndarray) -> float:
    """Of a function given on the grid, by the rectangle rule: exponentially accurate where the density dies at the edges."""
    return float((grid["density"] * values).sum() / grid["density"].sum())


def moments_z(grid: Numbers, w: Tensor, quantities: Callable[[Tensor, Tensor], Sequence[Tensor]]) -> np.ndarray:
    """Means of functions of both weights over independent draws (n, 2) against quadrature, in standard errors that quadrature knows."""
    exact = quantities(*torch.meshgrid(torch.tensor(grid["first"]), torch.tensor(grid["second"]), indexing="ij"))
    means = [expectation(grid, array(x)) for x in exact]
    sds = [expectation(grid, (array(x) - mean) ** 2) ** 0.5 for x, mean in zip(exact, means, strict=True)]
    drawn = [float(x.mean()) for x in quantities(w[:, 0], w[:, 1])]
    return (np.array(drawn) - means) / sds * len(w) ** 0.5


def levels(density: np.ndarray, holds: tuple[float, ...] = HOLDS) -> np.ndarray:
    """Heights above which the density holds these probabilities."""
    high = np.sort(density.reshape(-1))[::-1]
    mass = np.cumsum(high) / high.sum()
    return high[np.searchsorted(mass, holds)]


def draw_regions(axes: Axes, across: np.ndarray, up: np.ndarray, density: np.ndarray) -> None:
    """`density`: (up, across)."""
    heights = np.log(levels(density))
    log_density = np.log(np.maximum(density, np.exp(heights[0] - 50)))  # logs are smoother between the points of a grid
    axes.contourf(across, up, log_density, levels=[*heights, log_density.max() + 0.01], colors=SHADES)
    axes.contour(across, up, log_density, levels=heights[:2], colors="#9fb6cb", linewidths=0.6, linestyles="solid")


def stacked(points: list[Tensor]) -> np.ndarray:
    """(weights, points) of rows (n, weights)."""
    return array(torch.cat(points).mT)
