"""Metropolis, Langevin and Hamiltonian proposals on the same banana: visited states, refused proposals, leapfrog points.

All three start at one point and evaluate the density equally often. A random walk is refused where the ridge bends away; a Langevin
step leans towards higher density; a Hamiltonian path follows the bend (after Neal, 2011). In two dimensions the walk holds its own;
gradients pay in many.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from nescio.data.source import source
from nescio.diagnose import ess_bulk
from nescio.infer import HMC, MALA, Metropolis, fit
from nescio.infer.sampler import Sampler
from nescio.noise import Noise
from nescio.posterior.draws import Draws
from nescio.report.figures.banana import START, banana, walk
from nescio.report.figures.regions import draw_regions, gridded, moments_z
from nescio.report.style import BLUE, GREY, INK, VERMILION, Numbers, canvas, styled
from nescio.target import Target

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

RANGES = ((-6.2, 3.0), (-2.8, 2.8))  # of w₁ and w₂, that are drawn
WIDE = ((-12.0, 6.0), (-4.5, 4.5))  # that hold all but nothing of the density
CHAINS = 16
TITLES = {"metropolis": "Metropolis", "langevin": "Langevin, adjusted", "hamiltonian": "Hamiltonian"}


def samplers() -> dict[str, Sampler]:
    """No warm-up, so step sizes stay as they are. At the usual acceptance of 0.574 Langevin steps are so long that a chain which starts
    in the tail stays there: the drift overshoots, and hardly a proposal is accepted.
    """
    return {
        "metropolis": Metropolis(scale=0.9, warmup=0),
        "langevin": MALA(step_size=0.35, acceptance=0.85, warmup=0),
        "hamiltonian": HMC(step_size=0.15, leapfrog=24, warmup=0),
    }


def quantities(w1: Tensor, w2: Tensor) -> list[Tensor]:
    return [w1, w2, w1 * w1, w2 * w2, w1 * w2 * w2]


def paths_data(looks: int = 100, draws: int = 2000, many: int = 4000, steps: int = 1500, seed: int = 0) -> Numbers:
    """`cost`: evaluations of the density for one effective draw of w₂, from long chains with the same step sizes.

    `name_z`: moments of one draw from each of many chains, adapted over so many evaluations, against quadrature.
    """
    model, data = banana()
    target = Target(model, source(data))
    numbers, fine, costs, acceptances = gridded(target, RANGES, 71), gridded(target, WIDE, 401), [], []
    for name, method in samplers().items():
        found = walk(method, (model, data), START, looks, Noise(seed, ("paths", name), dtype=torch.float64))
        long = fit(model, data, CHAINS * replace(method, draws=draws), seed=seed)
        length = (method.leapfrog + 1) // 2 if isinstance(method, HMC) else 1
        each = fit(model, data, many * replace(method, draws=1, warmup=steps // length), seed=seed)
        assert isinstance(long, Draws) and isinstance(each, Draws)
        found["z"] = moments_z(fine, each.theta[:, 0], quantities)
        numbers |= {f"{name}_{key}": value for key, value in found.items()}
        costs.append(CHAINS * long.info.get("gradients", draws) / float(ess_bulk(long.theta[:, :, 1])))
        acceptances.append(long.info["acceptance"])
    return {**numbers, "cost": np.array(costs), "acceptance": np.array(acceptances), "many": np.array(many)}


def draw_paths(numbers: Numbers) -> Figure:
    looks = numbers["metropolis_points"].shape[1]
    with styled():
        figure, panels = canvas(1, 3, 10.0, 4.1, share_y=True)
        figure.suptitle(f"Three ways to propose, {looks} evaluations each", x=0.008, ha="left")
        for i, (axes, name) in enumerate(zip(panels, TITLES, strict=True)):
            draw_regions(axes, numbers["second"], numbers["first"], numbers["density"])
            marks = draw_path(axes, {key.removeprefix(f"{name}_"): x for key, x in numbers.items() if name in key})
            axes.set(title=TITLES[name], xlabel="weight $w_2$", xlim=(-2.6, 2.6), ylim=(-5.4, 2.8))
            cost, accepted = float(numbers["cost"][i]), float(numbers["acceptance"][i])
            note = f"{accepted:.0%} accepted\n{cost:.0f} evaluations per effective draw"
            axes.text(0, -5.3, note, fontsize=7.5, color=GREY, ha="center", linespacing=1.4)
        panels[0].set_ylabel("weight $w_1$")
        figure.legend(list(marks.values()), list(marks), loc="upper right", ncols=4, columnspacing=1.2)
    return figure


def draw_path(axes: Axes, own: Numbers) -> dict[str, Line2D]:
    """Every step from the state before to its proposal, over its leapfrog points; what the marks stand for."""
    states, points, took = own["states"], own["points"], own["took"].astype(bool)
    lengths = own["lengths"].astype(int)
    ends = np.cumsum(lengths)
    for step, (first, last) in enumerate(zip(ends - lengths, ends, strict=True)):
        path = np.column_stack([states[:, step], points[:, first:last]])
        colour, width = (BLUE, 0.9) if took[step] else (VERMILION, 0.5)
        axes.plot(path[1], path[0], color=colour, linewidth=width, alpha=0.7)
    refused, between = points[:, ends[~took] - 1], np.delete(points, ends - 1, 1)
    circle: dict[str, Any] = {
        "linestyle": "",
        "marker": "o",
        "color": BLUE,
        "markeredgecolor": "white",
        "markeredgewidth": 0.5,
    }
    lines = {
        "leapfrog point": axes.plot(between[1], between[0], **circle | {"markersize": 2.4, "markeredgewidth": 0}),
        "refused: the state is repeated": axes.plot(refused[1], refused[0], "x", color=VERMILION, markersize=4),
        "state": axes.plot(states[1], states[0], **circle, markersize=4.6),
        "start": axes.plot(*states[::-1, :1], **circle | {"color": INK, "markersize": 6.5}),
    }
    return {text: line[0] for text, line in reversed(lines.items())}
