"""The Laplace approximation in two steps on a skewed posterior: find the mode, match the curvature there (after Immer et al., 2021).

One weight of a logistic regression. Curvature is minus the second derivative of log p(w) + Σ log p(y_n | x_n, w): the prior is
counted once, not once for each observation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nescio.data.source import source
from nescio.laws import Normal
from nescio.likelihoods import Bernoulli
from nescio.model import Model
from nescio.report.figures.arrays import array
from nescio.report.figures.newton import climb
from nescio.report.style import BLUE, GREY, INK, ORANGE, Numbers, canvas, styled
from nescio.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALE = 4.0  # of the prior
X = (-2.0, -1.2, -0.6, 0.3, 0.8, 1.5, 2.2)
Y = (0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0)


def posterior() -> Target:
    x, y = (torch.tensor(t, dtype=torch.float64)[:, None] for t in (X, Y))
    model = Model(nn.Linear(1, 1, bias=False).double(), Normal(0, SCALE), Bernoulli())
    return Target(model, source((x, y)))


def laplace_data(points: int = 601) -> Numbers:
    """On a grid of w: log p(w | D) by quadrature, and the normal log density with the mode's place and curvature."""
    target = posterior()
    batch = target.batch(None)
    grid = torch.linspace(-3.0, 14.0, points, dtype=torch.float64)

    def log_joint(w: Tensor) -> Tensor:
        return target.log_density(w[None], batch)[0]

    path, precision = climb(log_joint, torch.tensor([-0.5], dtype=torch.float64))
    heights = target.log_density(grid[:, None], batch)
    evidence = torch.trapezoid(heights.exp(), grid).log()
    log_posterior = heights - evidence
    mode, sd = path[-1], precision[0, 0].rsqrt()
    mean = torch.trapezoid(grid * log_posterior.exp(), grid)
    return {
        "w": array(grid),
        "log_posterior": array(log_posterior),
        "log_normal": array(torch.distributions.Normal(mode, sd).log_prob(grid)),
        "parabola": array(-0.5 * ((grid - mode) / sd) ** 2 + log_joint(mode) - evidence),
        "path": array(path[:, 0]),
        "path_height": array(torch.stack([log_joint(w) for w in path]) - evidence),
        "mode": array(mode[0]),
        "curvature": array(precision[0, 0]),
        "mean": array(mean),
    }


def draw_laplace(numbers: Numbers) -> Figure:
    import numpy as np

    w, mode, sd = numbers["w"], float(numbers["mode"]), float(numbers["curvature"]) ** -0.5
    top = float(numbers["log_posterior"].max())
    with styled():
        figure, (first, second, third) = canvas(1, 3, 10.0, 3.6)
        figure.suptitle("Laplace's approximation in two steps", x=0.008, ha="left")
        for axes in (first, second):
            axes.plot(w, numbers["log_posterior"], color=INK, label="log posterior")
            axes.set(xlabel="weight w", ylim=(top - 6, top + 1.8), xlim=(-1.5, 11))
        first.set_ylabel("log density")
        first.plot(
            numbers["path"], numbers["path_height"], "o-", color=ORANGE, markersize=5, linewidth=1, label="climb"
        )
        first.plot(mode, top, "*", color=BLUE, markersize=14, label=f"mode, w = {mode:.2f}", zorder=4)
        first.set_title("1  Find the mode")
        first.legend(loc="lower center")
        second.plot(w, numbers["parabola"], "--", color=BLUE, label="parabola, same curvature")
        second.plot(mode, top, "*", color=BLUE, markersize=14, zorder=4)
        second.set_title("2  Match the curvature")
        second.legend(loc="upper right")
        third.fill_between(w, np.exp(numbers["log_posterior"]), color=GREY, alpha=0.25, linewidth=0)
        third.plot(w, np.exp(numbers["log_posterior"]), color=INK, label="posterior, skewed")
        third.plot(
            w, np.exp(numbers["log_normal"]), "--", color=BLUE, label=f"normal, sd {sd:.2f} = curvature$^{{-1/2}}$"
        )
        mean = float(numbers["mean"])
        third.vlines(mean, 0, 0.25, color=GREY, linewidth=1, linestyle=":", label=f"posterior mean {mean:.2f}")
        third.set(xlabel="weight w", ylabel="density", title="The result", xlim=(-1.5, 11), ylim=(0, 0.36))
        third.legend(loc="upper right")
    return figure
