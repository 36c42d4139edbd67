"""Far from the data: bands of ReLU networks open without end, those of tanh networks stay as wide as they are.

Shown for MC dropout by 100 passes through a network of five layers, ReLU and tanh (Gal & Ghahramani, 2016). It should be a property of
the functions, not of dropout, so mean field and HMC are asked, too. Spread of f at distance d from the middle of the data, both
sides together; far out a ReLU network is linear, so that the spread doubles with d, and every tanh unit has come to its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from expectation import Expectation, Numbers
from torch import nn
from vi_between import NOISE, POINTS, approximated, fits, misfit, problem, root_mean_square, sampled, spread

from nescio import Model, Posterior, fit
from nescio.data.toys import gap
from nescio.diagnose import diagnose
from nescio.infer import MAP, VI
from nescio.infer.families import BernoulliDropout, MeanField
from nescio.laws import Normal
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior.mixing import functions
from nescio.report.figures.arrays import array
from nescio.report.style import EPISTEMIC, INK, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACTIVATIONS: dict[str, type[nn.Module]] = {"ReLU": nn.ReLU, "tanh": nn.Tanh}
DISTANCES = (2.0, 4.0, 8.0, 16.0)
METHODS = ("MC dropout", "MeanField", "HMC")
DROP, HIDDEN, LAYERS, PASSES = 0.1, 128, 4, 100


def dropout(activation: type[nn.Module], epochs: int, hidden: int) -> Posterior:
    """Four hidden layers, dropout before each but the first and before the output."""
    with Noise(0).at("bands").scope():
        net = mlp(1, *[hidden] * LAYERS, 1, activation=activation)
    model = Model(net, Normal(0.0, 1.0), Gaussian(NOISE))
    family = BernoulliDropout({"0.*": 0.0, "*": DROP})
    method = MAP(epochs=epochs, lr=3e-3, batch_size=POINTS) >> VI(family, epochs=epochs, lr=3e-3, batch_size=POINTS)
    return fit(model, gap(POINTS, NOISE, 0), method)


def bands_data(
    epochs: int = 4000,
    hidden: int = HIDDEN,
    draws: int = 600,
    warmup: int = 400,
    leapfrog: int = 200,
    many: int = 2000,
) -> Numbers:
    grid = torch.linspace(-6.0, 6.0, 121)[:, None]
    far = torch.tensor([[sign * d] for d in DISTANCES for sign in (-1, 1)])
    numbers: Numbers = {"x": array(grid[:, 0]), "distance": np.array(DISTANCES)}
    for name, activation in ACTIVATIONS.items():
        model, data = problem(0, activation)
        reference = sampled(model, data, draws, warmup, leapfrog)
        numbers[f"HMC, {name}, rhat"] = diagnose(functions(reference, grid)).rhat
        fitted: dict[str, tuple[Posterior, int | None]] = {
            "MC dropout": (dropout(activation, epochs, hidden), many),
            "MeanField": (approximated(model, data, MeanField(), epochs, POINTS), many),
            "HMC": (reference, None),
        }
        for method, (posterior, count) in fitted.items():
            mean, sd = spread(posterior, grid, count)
            out = spread(posterior, far, count)[1].reshape(len(DISTANCES), 2)
            numbers |= {f"{method}, {name}, mean": mean, f"{method}, {name}, sd": sd}
            numbers[f"{method}, {name}, misfit"] = np.array(misfit(posterior, data, count, NOISE))
            numbers[f"{method}, {name}, far"] = root_mean_square(out, np.array([True, True]))
        numbers |= {"x_train": array(data[0][:, 0]), "y_train": array(data[1][:, 0])}
        passes = fitted["MC dropout"][0].functions(grid, PASSES, 0)[0][..., 0]
        numbers[f"{name}, passes"] = array(passes[:20])
    return numbers


def bands_checks(numbers: Numbers) -> Iterator[Expectation]:
    for name in ACTIVATIONS:
        rhat = numbers[f"HMC, {name}, rhat"]
        yield Expectation(f"HMC, {name}", "largest R-hat of f", float(rhat.max()), len(rhat), high=1.05, says="mixed")
    for method in METHODS:
        for name in ACTIVATIONS:
            sd = numbers[f"{method}, {name}, far"]
            growth = float(sd[-1] / sd[-2])
            metric = f"sd of f at distance {DISTANCES[-1]:g} over that at {DISTANCES[-2]:g}"
            if name == "ReLU":
                says = "ReLU bands open: f is linear far out, so the spread doubles"
                yield Expectation(f"{method}, {name}", metric, growth, 2, low=1.6, says=says)
            else:
                says = "tanh bands do not: every unit has come to its end"
                yield Expectation(f"{method}, {name}", metric, growth, 2, high=1.2, says=says)
            yield fits(f"{method}, {name}", float(numbers[f"{method}, {name}, misfit"]), POINTS)
            for distance, one in zip(DISTANCES, sd, strict=True):
                yield Expectation(f"{method}, {name}", f"sd of f at distance {distance:g}", float(one), 2)


def draw_bands(numbers: Numbers) -> Figure:
    x = numbers["x"]
    with styled():
        figure, axes = canvas(2, 3, 11.0, 6.0, share_x=True, share_y=True)
        figure.suptitle("Far from the data: ReLU opens, tanh does not", x=0.008, ha="left")
        panels = [(method, name) for name in ACTIVATIONS for method in METHODS]
        for axis, (method, name) in zip(axes, panels, strict=True):
            mean, sd = (numbers[f"{method}, {name}, {what}"] for what in ("mean", "sd"))
            for k in (1, 2):
                axis.fill_between(x, mean - k * sd, mean + k * sd, color=EPISTEMIC, alpha=0.18, linewidth=0)
            if method == "MC dropout":
                axis.plot(x, numbers[f"{name}, passes"].T, color=INK, linewidth=0.3, alpha=0.5)
            axis.plot(x, mean, color=EPISTEMIC)
            axis.plot(numbers["x_train"], numbers["y_train"], ".", color=INK, markersize=3)
            axis.set(title=f"{method}, {name}", ylim=(-6, 6))
            axis.margins(x=0)
        for axis in axes[3:]:
            axis.set_xlabel("x")
    return figure
