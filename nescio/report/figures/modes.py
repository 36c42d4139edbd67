"""Posteriors over two weights, exactly on a grid, with the draws of a sampler on them: symmetries make modes and ridges.

    tanh(w₁x) + tanh(w₂x)     exchanging the units changes nothing: two modes, mirrored in the diagonal
    w₂ tanh(w₁x)              nor does changing both signs: two modes, mirrored in the origin
    w₂ relu(w₁x)              nor does (aw₁, w₂/a) for a > 0: a ridge, along which the prior alone decides

A chain may stay in one of several equal modes for ever. That is a fault in its weights and none in its predictions, so chains are to be
compared as functions: `rhat` has both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from nescio.data.source import source
from nescio.infer import HMC, NUTS, fit
from nescio.laws import Normal
from nescio.likelihoods import Gaussian
from nescio.model import Model
from nescio.noise import Noise
from nescio.posterior.draws import Draws
from nescio.posterior.mixing import in_functions, in_weights
from nescio.report.figures.arrays import array
from nescio.report.figures.regions import draw_regions, gridded, moments_z
from nescio.report.style import BLUE, CYCLE, GREY, INK, Numbers, canvas, styled
from nescio.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHAINS, SHOWN, BINS, PRIOR = 6, 50, 60, 1.5
ACCEPTANCE = 0.99  # the ends of the ridge are narrow: at 0.8 a chain that gets there diverges, and stays for long
WIDE = (((-9.0, 9.0), (-9.0, 9.0)), 601)  # for quadrature: six standard deviations of the prior
NOTE: Any = {"fontsize": 7.5, "color": GREY, "ha": "right", "va": "top"}
Function = Callable[[Tensor, Tensor], Tensor]


def exchange(w: Tensor, x: Tensor) -> Tensor:
    return torch.tanh(w[0] * x) + torch.tanh(w[1] * x)


def signs(w: Tensor, x: Tensor) -> Tensor:
    return w[1] * torch.tanh(w[0] * x)


def scale(w: Tensor, x: Tensor) -> Tensor:
    return w[1] * torch.relu(w[0] * x)


# function, weights that made the data, noise, where x begins, range of both axes, title, formula
CASES: dict[str, tuple[Function, tuple[float, float], float, float, tuple[float, float], str, str]] = {
    "exchange": (exchange, (0.3, 1.5), 0.12, -2.0, (-0.6, 3.4), "Units exchanged", r"tanh $w_1$x + tanh $w_2$x"),
    "signs": (signs, (1.0, 1.2), 0.4, -2.0, (-5.0, 5.0), "Signs changed", r"$w_2$ tanh $w_1$x"),
    "scale": (scale, (1.2, 1.2), 0.6, 0.2, (-0.6, 5.4), "Scale moved", r"$w_2$ relu $w_1$x"),
}


class Two(nn.Module):
    """A network with two free weights."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.w, self.function = nn.Parameter(torch.ones(2, dtype=torch.float64)), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.w, x)


def case(name: str, seed: int = 0) -> tuple[Model, tuple[Tensor, Tensor]]:
    """The model, prior N(0, 1.5²), and twelve observations of its own function."""
    function, weights, noise, begin, *_ = CASES[name]
    x = torch.linspace(begin, 2, 12, dtype=torch.float64)[:, None]
    f = function(torch.tensor(weights, dtype=torch.float64), x)
    y = f + noise * Noise(seed, ("modes", name), dtype=torch.float64).normal(12, 1)
    return Model(Two(function), Normal(0.0, PRIOR), Gaussian(noise)), (x, y)


def modes_data(draws: int = 1500, many: int = 4000, warmup: int = 800, seed: int = 0) -> Numbers:
    """`name_draws` (chains, 2, about SHOWN): draws by NUTS. `name_heights` (BINS,): the histogram of w₁ over many HMC chains, started
    by the prior, one draw each; `name_z`: their moments against quadrature. `name_mirrored`: the largest change of log density under
    the symmetry.
    """
    numbers: Numbers = {"many": np.array(many)}
    for name, (*_, ends, _, _) in CASES.items():
        model, data = case(name, seed)
        target = Target(model, source(data))
        few = fit(model, data, CHAINS * NUTS(draws=draws, warmup=draws // 4, acceptance=ACCEPTANCE), seed=seed)
        each = fit(model, data, many * HMC(draws=1, warmup=warmup, leapfrog=16), seed=seed)
        assert isinstance(few, Draws) and isinstance(each, Draws)
        w = each.theta[:, 0]
        rhat = [float(np.max(of.rhat)) for of in (in_weights(few), in_functions(few, data[0]))]
        found = {
            "draws": array(few.theta[:, :: max(1, draws // SHOWN)].mT),
            "heights": np.histogram(array(w[:, 0]), BINS, ends, density=True)[0],
            "z": moments_z(gridded(target, *WIDE), w, quantities(name)),
            "rhat": np.array(rhat),
            "divergences": np.array(few.info["divergences"]),
            "mirrored": np.array(mirrored(target, w, name)),
        }
        numbers |= {f"{name}_{key}": x for key, x in {**gridded(target, (ends, ends), 81), **found}.items()}
    return numbers


def quantities(name: str) -> Callable[[Tensor, Tensor], list[Tensor]]:
    """Both weights, their squares, their product, and the function at x = 1."""
    function, one = CASES[name][0], torch.ones((), dtype=torch.float64)
    return lambda a, b: [a, b, a * a, b * b, a * b, function(torch.stack([a, b]), one)]


def mirrored(target: Target, w: Tensor, name: str) -> float:
    """Log posterior for an exchange or a change of signs; log likelihood, prior taken off, for a change of scale."""
    other = {"exchange": w.flip(1), "signs": -w, "scale": w * torch.tensor([2.0, 0.5])}[name]
    prior = torch.distributions.Normal(0.0, PRIOR)
    heights = [target.log_density(u, target.batch(None)) for u in (w, other)]
    if name == "scale":
        heights = [h - prior.log_prob(u).sum(1) for h, u in zip(heights, (w, other), strict=True)]
    return float((heights[0] - heights[1]).abs().max())


def draw_modes(numbers: Numbers) -> Figure:
    with styled():
        figure, panels = canvas(2, len(CASES), 10.0, 5.4, heights=(3.2, 1.0))
        figure.suptitle("One function, many weights: posteriors over two weights", x=0.008, ha="left")
        for i, (name, (*_, ends, title, formula)) in enumerate(CASES.items()):
            above, below = panels[i], panels[i + len(CASES)]
            grid, density = numbers[f"{name}_first"], numbers[f"{name}_density"]
            draw_regions(above, grid, numbers[f"{name}_second"], density.T)
            for chain, colour in zip(numbers[f"{name}_draws"], CYCLE, strict=False):
                above.plot(*chain, "o", color=colour, markersize=2.4, markeredgewidth=0)
            above.set(title=f"{title}: {formula}", ylabel="weight $w_2$", xlim=ends, ylim=ends)
            weights, functions = numbers[f"{name}_rhat"]
            note = f"R-hat of the weights {weights:.2f}, of the function {functions:.2f}"
            above.text(0.02, 0.02, note, transform=above.transAxes, fontsize=7.5, color=GREY)
            below.stairs(numbers[f"{name}_heights"], np.linspace(*ends, BINS + 1), fill=True, color=BLUE, alpha=0.35)
            below.plot(grid, density.sum(1) * (grid[1] - grid[0]), color=INK, linewidth=1.2)
            below.set(xlabel="weight $w_1$", xlim=ends, yticks=[])
            below.spines["left"].set_visible(False)
            if not i:
                below.text(
                    0.98, 0.95, f"line: exact\narea: {int(numbers['many'])} chains", transform=below.transAxes, **NOTE
                )
    return figure
