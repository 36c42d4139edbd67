"""Functions drawn from a prior and by dropout: one network over the whole grid for each draw.

A draw of the weights, or of the masks, is one function. A fresh mask at every point, which is what a network in training mode
gives, has the same spread at each point and is no function at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from nescio.data.toys import gap
from nescio.infer.map import MAP
from nescio.infer.method import fit
from nescio.laws import Normal, fan_in
from nescio.likelihoods import Gaussian
from nescio.model import Model
from nescio.network import Params
from nescio.noise import Noise
from nescio.report.figures.arrays import array
from nescio.report.style import BLUE, GREEN, INK, ORANGE, Numbers, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DROP = 0.1
HIDDEN = 64


def prior_draws(model: Model, x: Any, draws: int, seed: int) -> tuple[Params, Tensor]:
    """Stacked parameters from the prior, and the function (draws, points) of each."""
    theta = torch.stack([model.prior.draw(model.noise(seed, "prior", i)) for i in range(draws)])
    params = model.named(theta)
    return params, model.observed(params, x).mean[..., 0]


def masked(params: Params, draws: int, noise: Noise) -> Params:
    """Stacked parameters with dropped inputs: columns of the later weight matrices are zero, the others divided by keep."""
    keep = 1 - DROP
    stacked = {name: value.expand(draws, *value.shape) for name, value in params.items()}
    for name in ("3.weight", "6.weight"):
        mask = (noise.at(name).uniform(draws, 1, params[name].shape[1]) < keep).to(params[name])
        stacked[name] = stacked[name] * mask / keep
    return stacked


def trained(epochs: int, seed: int) -> tuple[Model, Params, Tensor, Tensor]:
    """A network with dropout before its second and third layer, at the MAP."""
    with Noise(seed).at("functions").scope():
        first = [nn.Linear(1, HIDDEN), nn.Tanh(), nn.Dropout(DROP)]
        second = [nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Dropout(DROP)]
        net = nn.Sequential(*first, *second, nn.Linear(HIDDEN, 1))
    model = Model(net, Normal(0, 1), Gaussian(0.1))
    x, y = gap(60, 0.1, seed)
    return model, fit(model, (x, y), MAP(epochs=epochs, lr=0.01, batch_size=60), seed=seed).point(), x, y


def functions_data(draws: int = 15, points: int = 161, epochs: int = 600, seed: int = 0) -> Numbers:
    model, params, x, y = trained(epochs, seed)
    grid = torch.linspace(-2.6, 2.6, points)[:, None]
    prior = {"0.*": Normal(0, 4), "*.bias": Normal(0, 0.5), "*": Normal(0, fan_in)}
    wide = Model(model.network.net, prior, Gaussian(0.1))
    _, before = prior_draws(wide, grid, draws, seed)
    coherent = model.observed(masked(params, draws, Noise(seed).at("masks")), grid).mean[..., 0]
    own = {name: params[name] for name in model.network.weights()}
    with torch.no_grad(), Noise(seed).at("pointwise").scope():
        pointwise = torch.stack([model.network.call(own, grid, training=True)[:, 0] for _ in range(draws)])
    return {
        "x": array(grid[:, 0]),
        "prior": array(before),
        "dropout": array(coherent),
        "pointwise": array(pointwise),
        "x_train": array(x[:, 0]),
        "y_train": array(y[:, 0]),
    }


def roughness(functions: np.ndarray) -> np.ndarray:
    """How far each drawn function travels, relative to its range: 1 if it is monotone, large if it jumps to and fro."""
    return np.abs(np.diff(functions, axis=1)).sum(1) / np.ptp(functions, axis=1)


def draw_functions(numbers: Numbers) -> Figure:
    with styled():
        figure, axes = canvas(1, 3, 10.0, 3.6)
        figure.suptitle("A draw of the weights is a function", x=0.008, ha="left")
        panels = (
            ("prior", "Prior draws", BLUE, 15),
            ("dropout", "Dropout: one mask for all x", GREEN, 15),
            ("pointwise", "Not a function: a mask for each x", ORANGE, 3),
        )
        for one, (name, title, colour, most) in zip(axes, panels, strict=True):
            one.plot(numbers["x"], numbers[name][:most].T, color=colour, linewidth=0.9, alpha=0.8)
            one.set(title=title, xlabel="x")
            one.margins(x=0)
            if name != "prior":
                one.plot(numbers["x_train"], numbers["y_train"], "o", color=INK, markersize=3)
                one.set_ylim(-1.7, 1.7)
        axes[0].set_ylabel("f(x)")
    return figure
