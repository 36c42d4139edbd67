"""Metropolis, Langevin and Hamiltonian chains on one weight with two hills: where each went, and what many of them found.

All three start on the left and evaluate the density equally often. A random walk shuffles; a Langevin step leans uphill, away from the
valley; a Hamiltonian path with enough momentum rolls through it (after Neal, 2011). Above, a draw from each of many chains lies on the
exact curve.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nescio.data.source import source
from nescio.infer import HMC, MALA, Metropolis, fit
from nescio.infer.sampler import Sampler
from nescio.noise import Noise
from nescio.posterior.draws import Draws
from nescio.report.figures.arrays import array
from nescio.report.figures.banana import hills, walk
from nescio.report.figures.paths import TITLES, draw_path
from nescio.report.style import BLUE, GREY, INK, Numbers, canvas, styled
from nescio.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

START = (-1.6,)
ENDS, WIDE, BINS = (-2.4, 2.4), 6.0, 40  # what is drawn; what holds all but nothing of the density


def samplers() -> dict[str, Sampler]:
    """No warm-up, so step sizes stay as they are. Where the tails fall as fast as here a Langevin step of the usual length overshoots, and
    a chain that begins in one stays there: hence the higher acceptance of those that adapt."""
    return {
        "metropolis": Metropolis(scale=0.7, warmup=0),
        "langevin": MALA(step_size=0.4, acceptance=0.95, warmup=0),
        "hamiltonian": HMC(step_size=0.2, leapfrog=16, warmup=0),
    }


def quantities(w: Tensor) -> list[Tensor]:
    return [w, w * w, w**3, w**4]


def exactly(points: int = 1201) -> tuple[np.ndarray, np.ndarray]:
    """The weight on a grid, and its density there."""
    model, data = hills()
    target = Target(model, source(data))
    w = torch.linspace(-WIDE, WIDE, points, dtype=torch.float64)
    heights = target.log_density(w[:, None], target.batch(None))
    return array(w), array((heights - heights.logsumexp(0)).exp() / (w[1] - w[0]))


def moments_z(w: Tensor) -> np.ndarray:
    """Means over independent draws (n,) against quadrature, in standard errors that quadrature knows."""
    grid, density = (torch.from_numpy(x) for x in exactly())
    weight = density / density.sum()
    exact = [(float(weight @ x), float(weight @ (x * x))) for x in quantities(grid)]
    drawn = [float(x.mean()) for x in quantities(w)]
    return np.array([(d - m) / (s - m * m) ** 0.5 * len(w) ** 0.5 for d, (m, s) in zip(drawn, exact, strict=True)])


def walks_data(looks: int = 120, many: int = 4000, steps: int = 1500, seed: int = 0) -> Numbers:
    """`name_states`, `name_points`: (2, ...), evaluations so far and the weight. `name_heights`: the histogram of one draw from each of
    many chains, adapted over so many evaluations; `name_z`: their moments against quadrature."""
    grid, density = exactly()
    numbers: Numbers = {"grid": grid, "density": density, "many": np.array(many)}
    for name, method in samplers().items():
        found = walk(method, hills(), START, looks, Noise(seed, ("walks", name), dtype=torch.float64))
        when = np.arange(1.0, found["points"].shape[1] + 1)
        ends = np.concatenate([[0.0], np.cumsum(found["lengths"])])
        found["states"], found["points"] = np.vstack([ends, found["states"]]), np.vstack([when, found["points"]])
        length = (method.leapfrog + 1) // 2 if isinstance(method, HMC) else 1
        each = fit(*hills(), many * replace(method, draws=1, warmup=steps // length), seed=seed)
        assert isinstance(each, Draws)
        w = each.theta[:, 0, 0]
        found |= {
            "z": moments_z(w),
            "heights": np.histogram(array(w), BINS, ENDS)[0] / many / (ENDS[1] - ENDS[0]) * BINS,
        }
        numbers |= {f"{name}_{key}": value for key, value in found.items()}
    return numbers


def draw_walks(numbers: Numbers) -> Figure:
    looks = numbers["metropolis_points"].shape[1]
    with styled():
        figure, panels = canvas(2, 3, 10.0, 5.6, heights=(1.0, 2.6))
        figure.suptitle(f"One weight, two hills: {looks} evaluations each", x=0.008, ha="left")
        marks: dict[str, Line2D] = {}
        for i, name in enumerate(TITLES):
            own = {key.removeprefix(f"{name}_"): x for key, x in numbers.items() if name in key}
            above, below = panels[i], panels[i + 3]
            above.stairs(own["heights"], np.linspace(*ENDS, BINS + 1), fill=True, color=BLUE, alpha=0.35)
            above.plot(numbers["grid"], numbers["density"], color=INK, linewidth=1.2)
            above.set(title=TITLES[name], xlim=ENDS, yticks=[])
            above.spines["left"].set_visible(False)
            marks = draw_path(below, own)
            below.set(xlabel="weight $w$", xlim=ENDS, ylim=(looks + 4, -4))
            if not i:
                note = f"line: exact\narea: {int(numbers['many'])} chains"
                above.text(0.01, 0.98, note, transform=above.transAxes, fontsize=7.5, color=GREY, va="top")
                below.set_ylabel("evaluations")
        figure.legend(list(marks.values()), list(marks), loc="upper right", ncols=4, columnspacing=1.2)
    return figure
