"""Densities of priors and their scores: a spike at zero, tails, and how hard a prior pulls on a large weight.

The spike and the tails are two properties: Student-t has only the tails, spike-and-slab only the spike, the horseshoe both. Laws with
a random scale are integrated over it numerically: p(w) = ∫ N(w; 0, s²) p(s) ds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import grad, vmap

from nescio.laws import Elementwise, HalfCauchy, Laplace, LogUniform, Normal, ScaleMixture, StudentT
from nescio.report.figures.arrays import array
from nescio.report.style import CYCLE, GREY, INK, Numbers, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {
    "normal": "normal",
    "laplace": "Laplace",
    "student": "Student-t, 3 df",
    "spike_slab": "spike and slab",
    "horseshoe": "horseshoe",
    "log_uniform": "log-uniform (improper)",
}


def density_of(law: Elementwise, **numbers: float) -> Callable[[Tensor], Tensor]:
    """log p(w) of a law whose numbers are constants."""
    fixed = {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}
    return law.distribution(**fixed).log_prob


def mixed(law: Elementwise, root: bool = False, **numbers: float) -> Callable[[Tensor], Tensor]:
    """log ∫ N(w; 0, s²) p(s) ds with s, or s² for `root`, from the law; the trapezoid rule on a grid of log s is exact to rounding."""
    logs = torch.linspace(-30, 30, 4001, dtype=torch.float64)
    scale = logs.exp()
    drawn = scale.square() if root else scale
    log_weight = (
        density_of(law, **numbers)(drawn) + drawn.log() + (0.6931471805599453 if root else 0.0)
    )  # d drawn / d log s
    log_step = (logs[1] - logs[0]).log()

    def log_density(w: Tensor) -> Tensor:
        each = -0.5 * (w[..., None] / scale).square() - logs - 0.9189385332046727 + log_weight
        return each.logsumexp(-1) + log_step

    return log_density


def densities() -> dict[str, Callable[[Tensor], Tensor]]:
    return {
        "normal": density_of(Normal(), loc=0.0, scale=1.0),
        "laplace": density_of(Laplace(), loc=0.0, scale=1.0),
        "student": density_of(StudentT(), df=3.0, loc=0.0, scale=1.0),
        "spike_slab": density_of(ScaleMixture(), inclusion=0.5, slab=1.0, spike=0.1),
        "horseshoe": mixed(HalfCauchy(), scale=1.0),
        "log_uniform": density_of(LogUniform()),
    }


def priors_data(points: int = 321) -> Numbers:
    """For w > 0 on a logarithmic grid: `name` the density and `name_score` the pull -d log p / dw."""
    w = torch.logspace(-6, 2, points, dtype=torch.float64)
    numbers: Numbers = {"w": array(w)}
    for name, log_density in densities().items():
        numbers[name] = array(log_density(w).exp())
        numbers[f"{name}_score"] = -array(vmap(grad(log_density))(w))
    return numbers


def draw_priors(numbers: Numbers) -> Figure:
    import numpy as np

    w = numbers["w"]
    both = np.concatenate([-w[::-1], w])
    with styled():
        figure, (near, far, score) = canvas(1, 3, 10.0, 3.8)
        figure.suptitle("Priors differ at zero, in the tails, and in how they pull", x=0.008, ha="left")
        for (name, text), colour in zip(NAMES.items(), (INK, *CYCLE), strict=False):
            dashes = {"log_uniform": ":", "spike_slab": "--"}.get(name, "-")
            density = numbers[name] * (0.1 if name == "log_uniform" else 1.0)
            near.plot(both, np.concatenate([density[::-1], density]), dashes, color=colour)
            far.loglog(w, density, dashes, color=colour, label=text)
            score.plot(w, numbers[f"{name}_score"], dashes, color=colour)
        near.set(xlim=(-3, 3), ylim=(0, 2.2), xlabel="weight w", ylabel="density", title="Spike at 0")
        far.set(xlim=(0.1, 100), ylim=(1e-11, 10), xlabel="weight w", ylabel="density", title="Tails")
        score.set(xlim=(0, 10), ylim=(0, 4), xlabel="weight w", ylabel="−d log p(w) / dw", title="Pull towards 0")
        score.text(4.1, 3.55, "grows without bound", color=INK, fontsize=8)
        score.text(7.6, 1.08, "constant", color=CYCLE[0], fontsize=8)
        score.text(5.5, 0.7, "lets large weights go", color=GREY, fontsize=8)
        far.legend(loc="lower left", fontsize=7.5, borderaxespad=0.1)
    return figure
