"""A network with one value for each weight beside the same network with a density for each (after Blundell et al., 2015, fig. 1).

The values are the mode of the posterior of a 1-3-1 tanh network, and the densities are the normal ones that have its mean there
and the covariance that the curvature gives. They are computed, not sketched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from nescio.data.source import source
from nescio.data.toys import gap
from nescio.infer.map import MAP
from nescio.infer.method import fit
from nescio.laws import Normal
from nescio.likelihoods import Gaussian
from nescio.model import Model
from nescio.nets.mlp import mlp
from nescio.noise import Noise
from nescio.report.figures.arrays import array
from nescio.report.figures.newton import climb
from nescio.report.style import BLUE, GREY, INK, PALE, Numbers, canvas, styled
from nescio.target import Target

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HIDDEN = 3
NODES = {"x": (0.0, 0.65), "1": (0.0, -0.65), "h1": (1.0, 1.0), "h2": (1.0, 0.15), "h3": (1.0, -0.7), "1 ": (1.0, -1.4)}
NODES["y"] = (2.0, 0.0)
HALF = 4.0  # the axis of every small density runs from -HALF to HALF


def weights_data(points: int = 20, epochs: int = 300, seed: int = 0) -> Numbers:
    """In the order x -> h, 1 -> h, h -> y, 1 -> y: the mode, its sd, and a density on a common grid; also the slope at the mode."""
    with Noise(seed).at("weights").scope():
        net = mlp(1, HIDDEN, 1, activation=nn.Tanh).double()
    model = Model(net, Normal(0, 1), Gaussian(0.2))
    x, y = (t.double() for t in gap(points, 0.2, seed))
    start = fit(model, (x, y), MAP(epochs=epochs, lr=0.05, batch_size=points), seed=seed).ends().theta[0]
    target = Target(model, source((x, y)))
    path, precision = climb(lambda u: target.log_density(u[None], target.batch(None))[0], start)
    mode = path[-1].requires_grad_()
    slope = torch.autograd.grad(target.log_density(mode[None], target.batch(None))[0], mode)[0]
    covariance = torch.linalg.inv(precision)
    sd = covariance.diagonal().sqrt()
    grid = torch.linspace(-HALF, HALF, 161, dtype=mode.dtype)
    density = torch.distributions.Normal(mode.detach()[:, None], sd[:, None]).log_prob(grid).exp()
    return {
        "point": array(mode),
        "sd": array(sd),
        "slope": array(slope),
        "precision": array(precision),
        "grid": array(grid),
        "density": array(density),
    }


def edges() -> list[tuple[str, str]]:
    hidden = [f"h{i + 1}" for i in range(HIDDEN)]
    return [("x", h) for h in hidden] + [("1", h) for h in hidden] + [(h, "y") for h in hidden] + [("1 ", "y")]


def draw_weights(numbers: Numbers) -> Figure:
    with styled():
        figure, (left, right) = canvas(1, 2, 8.6, 4.6)
        figure.suptitle("One value for each weight, or one distribution", x=0.012, ha="left")
        for axes in (left, right):
            for i, (a, b) in enumerate(edges()):
                (x0, y0), (x1, y1) = NODES[a], NODES[b]
                axes.plot([x0, x1], [y0, y1], color=GREY if axes is left else PALE, linewidth=1, zorder=1)
                # where along its edge a label sits: spread out, so that no two of them touch
                t = (0.5, 0.36, 0.78, 0.78, 0.36, 0.5, 0.45, 0.45, 0.45, 0.45)[i]
                x, y = x0 + t * (x1 - x0), y0 + t * (y1 - y0)
                if axes is left:
                    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
                    value = f"{numbers['point'][i]:+.2f}".replace("-", "−")
                    axes.text(x, y, value, ha="center", va="center", fontsize=8, bbox=box, zorder=2)
                else:
                    small(axes, x, y, numbers["grid"], numbers["density"][i])
            for name, (x, y) in NODES.items():
                axes.plot(x, y, "o", markersize=21, markerfacecolor="white", markeredgecolor=INK, zorder=4)
                axes.text(x, y - 0.005, name.strip(), ha="center", va="center", zorder=5)
            axes.set(xlim=(-0.2, 2.2), ylim=(-1.7, 1.35))
            axes.axis("off")
        left.set_title("A point: the mode of the posterior", fontweight="normal")
        right.set_title("A density on each edge", fontweight="normal")
        note = f"normal, with the curvature at the mode; from −{HALF:g} to {HALF:g}, tick at 0, height √density"
        right.text(-0.2, -1.68, note, fontsize=7, color=GREY, in_layout=False)
    return figure


def small(axes: Axes, x: float, y: float, grid: np.ndarray, density: np.ndarray) -> None:
    """A density as a small hill on its edge, with a tick at zero."""
    width, height = 0.17, 0.15
    across = x + width * grid / HALF
    up = y + height * np.sqrt(density)  # the root keeps broad ones visible beside narrow ones
    axes.fill_between(across, y, up, color=BLUE, alpha=0.55, linewidth=0, zorder=3)
    axes.plot(across, up, color=BLUE, linewidth=0.8, zorder=3)
    axes.plot([x - width, x + width], [y, y], color=INK, linewidth=0.7, zorder=3)
    axes.plot([x, x], [y - 0.03, y + 0.03], color=INK, linewidth=0.7, zorder=3)
