"""Variational families on a correlated normal p: factorised over the weights q is too narrow, over the layer it is exact.

The minimum of KL(q || p) over factorised q has variances 1 / Λ_ii with Λ = Σ⁻¹, never more than the marginal variances Σ_ii
(after Blei et al., 2017, fig. 1). Both q are found here by minimising the KL, not by writing this answer down.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nescio.report.figures.arrays import array
from nescio.report.style import BLUE, GREY, INK, ORANGE, Numbers, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COVARIANCE = ((1.0, 0.9), (0.9, 1.3))


def closest(p: Tensor, factorised: bool) -> Tensor:
    """Covariance of the normal q with the least KL(q || p), both with mean zero, by gradients in its Cholesky factor."""
    size = len(p)
    logs = torch.zeros(size, dtype=p.dtype, requires_grad=True)
    below = torch.zeros(size, size, dtype=p.dtype, requires_grad=not factorised)
    free = [logs] if factorised else [logs, below]
    optimizer = torch.optim.LBFGS(
        free, max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )
    precision = torch.linalg.inv(p)

    def loss() -> Tensor:
        optimizer.zero_grad()
        factor = torch.diag(logs.exp()) + below.tril(-1)
        kl = 0.5 * (precision * (factor @ factor.mT)).sum() - logs.sum()  # up to a constant
        kl.backward()
        return kl

    optimizer.step(loss)
    factor = (torch.diag(logs.exp()) + below.tril(-1)).detach()
    return factor @ factor.mT


def outline(covariance: Tensor, level: float) -> Tensor:
    """(2, points): the ellipse that holds this probability."""
    angle = torch.linspace(0, 2 * math.pi, 181, dtype=covariance.dtype)
    circle = torch.stack([angle.cos(), angle.sin()])
    return math.sqrt(-2 * math.log(1 - level)) * torch.linalg.cholesky(covariance) @ circle


def ellipses_data(level: float = 0.9) -> Numbers:
    p = torch.tensor(COVARIANCE, dtype=torch.float64)
    found = {"p": p, "factorised": closest(p, factorised=True), "full": closest(p, factorised=False)}
    grid = torch.linspace(-3.5, 3.5, 281, dtype=torch.float64)
    zero = torch.zeros((), dtype=torch.float64)
    numbers: Numbers = {"level": np.array(level), "grid": array(grid)}
    for name, covariance in found.items():
        numbers[f"{name}_covariance"] = array(covariance)
        numbers[f"{name}_outline"] = array(outline(covariance, level))
        first = torch.distributions.Normal(zero, covariance[0, 0].sqrt())
        numbers[f"{name}_marginal"] = array(first.log_prob(grid).exp())
    return numbers


def draw_ellipses(numbers: Numbers) -> Figure:
    level = float(numbers["level"])
    with styled():
        figure, (left, middle, right) = canvas(1, 3, 9.6, 3.7)
        figure.suptitle("A factorised q is too certain when weights are correlated", x=0.008, ha="left")
        titles = {"factorised": "q factorised over weights", "full": "q over the whole layer: exact"}
        for axes, name, colour in ((left, "factorised", ORANGE), (middle, "full", BLUE)):
            axes.fill(*numbers["p_outline"], color=GREY, alpha=0.25, linewidth=0, label="p")
            axes.plot(*numbers["p_outline"], color=INK, linewidth=1)
            axes.plot(*numbers[f"{name}_outline"], color=colour, linewidth=2.2, linestyle="--", label="q")
            axes.set_aspect("equal")
            axes.set(xlabel="weight 1", ylabel="weight 2", title=titles[name], xlim=(-2.9, 2.9), ylim=(-2.9, 2.9))
            axes.legend(loc="upper left", title=f"regions of {level:.0%}", title_fontsize=8, alignment="left")
        right.fill_between(numbers["grid"], numbers["p_marginal"], color=GREY, alpha=0.25, linewidth=0)
        for name, colour, dashes, text in (
            ("p", INK, "-", "p"),
            ("factorised", ORANGE, "--", "factorised q"),
            ("full", BLUE, "--", "full q"),
        ):
            sd = math.sqrt(numbers[f"{name}_covariance"][0, 0])
            right.plot(numbers["grid"], numbers[f"{name}_marginal"], dashes, color=colour, label=f"{text}: sd {sd:.2f}")
        right.set(xlabel="weight 1", ylabel="density", title="The marginal of weight 1", ylim=(0, 0.85))
        right.margins(x=0)
        right.legend(loc="upper left", fontsize=7.5, handlelength=1.5, borderaxespad=0.1)
    return figure
