"""Functions drawn from the prior as the hidden layer grows: normal output weights against Cauchy ones (after Neal, 1996, ch. 2).

With variance 1/H the normal prior becomes a Gaussian process, to which no single unit contributes. Cauchy weights of scale 1/H have
no variance, the limit is a stable process, and however many units there are a few of them make visible jumps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from nescio.laws import Cauchy, Law, Normal, Site, fan_in
from nescio.likelihoods import Gaussian
from nescio.model import Model
from nescio.nets.mlp import mlp
from nescio.report.figures.arrays import array
from nescio.report.figures.functions import prior_draws
from nescio.report.style import CYCLE, GREY, Numbers, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 4  # functions in each panel
STEEP = 15.0  # scale of the first layer: units are steps of width about 1 / STEEP


def per_unit(site: Site) -> float:
    """The scale 1/H at which a sum of H Cauchy variables keeps its law."""
    return 1 / site.fan_in


def laws() -> dict[str, Law]:
    return {"normal": Normal(0, fan_in), "cauchy": Cauchy(0, per_unit)}


def widths_data(
    widths: tuple[int, ...] = (10, 100, 1000), draws: int = 40, points: int = 301, seed: int = 0
) -> Numbers:
    """`name` (widths, SHOWN, points) and `name_share` (widths, draws): the part of Σ v² that the largest output weight has."""
    x = torch.linspace(-1, 1, points)[:, None]
    numbers: Numbers = {"x": array(x[:, 0]), "width": np.array(widths)}
    for name, law in laws().items():
        functions, shares = [], []
        for width in widths:
            prior = {"2.weight": law, "2.bias": Normal(0, 0.01), "*": Normal(0, STEEP)}
            model = Model(mlp(1, width, 1, activation=nn.Tanh), prior, Gaussian(1.0))
            params, f = prior_draws(model, x, draws, seed)
            squares = params["2.weight"][:, 0].double().square()  # (draws, H)
            functions.append(array(f[:SHOWN]))
            shares.append(array(squares.amax(1) / squares.sum(1)))
        numbers[name], numbers[f"{name}_share"] = np.stack(functions), np.stack(shares)
    return numbers


def draw_widths(numbers: Numbers) -> Figure:
    widths = numbers["width"]
    with styled():
        figure, axes = canvas(2, len(widths), 9.6, 5.2, share_x=True, share_y=True)
        figure.suptitle("Wider networks: a Gaussian process, or jumps that stay", x=0.008, ha="left")
        rows = (("normal", "normal weights"), ("cauchy", "Cauchy weights"))
        for row, (name, text) in enumerate(rows):
            for i, width in enumerate(widths):
                one = axes[row * len(widths) + i]
                for j in range(SHOWN):
                    f = numbers[name][i, j]
                    one.plot(numbers["x"], f / np.abs(f).max(), color=CYCLE[j], linewidth=1.1)
                share = float(np.median(numbers[f"{name}_share"][i]))
                one.set_title(f"{text}, H = {width}")
                note = f"largest unit: {share:.0%} of Σv²" if share > 0.005 else f"largest unit: {share:.1%} of Σv²"
                one.text(0.02, 0.02, note, transform=one.transAxes, fontsize=8, color=GREY)
                one.set_ylim(-1.3, 1.1)
                one.margins(x=0)
                if row:
                    one.set_xlabel("x")
            axes[row * len(widths)].set_ylabel("f(x) / max |f|")
    return figure
