"""Regression of noisy data with interquartile ranges (Blundell et al., 2015, fig. 5).

    y = x + 0.3 sin 2π(x + ε) + 0.3 sin 4π(x + ε) + ε,     ε ~ N(0, 0.02²),     x uniform on [0, 0.5]

shown on [-0.4, 1]. One hidden layer of 50 ReLU units in every method, the noise of the observations learned: mean field (Bayes by
Backprop), a plain network at its maximum a posteriori, and HMC, which has the noise that mean field found. The paper has a figure and no
numbers, does not say how many points there are and whether 0.02 is a variance: here 200 points, and a standard deviation. In the figure the
range of Bayes by Backprop opens where there are no data, and that of the plain network does not.

    python reproduce/bbb_regression.py [--quick] [--out docs/figures] [--results FOLDER]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from evidence import RESULTS, origin, write
from expectation import Expectation, Numbers, show
from torch import Tensor, nn
from vi_between import approximated, sampled

from nescio import Model, Posterior, fit
from nescio.diagnose import diagnose
from nescio.infer import MAP
from nescio.infer.families import MeanField
from nescio.laws import Learned, Normal
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior.mixing import functions
from nescio.report import save
from nescio.report.figures.arrays import array
from nescio.report.style import EPISTEMIC, INK, MISS, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS, EPSILON, WIDTH, SEED = 200, 0.02, 50, 0
CENTRE, SPREAD = 0.25, 0.5 / math.sqrt(12)  # of x uniform on [0, 0.5]
METHODS = {"MeanField": "Bayes by Backprop", "MAP": "plain network", "HMC": "HMC"}
IDS = ("000-28",)
ALT = (
    "Three panels with the same points between 0 and 0.5. In the first, Bayes by Backprop, and in the last, HMC, the interquartile range "
    "about the median opens to both sides of the points; in the middle one, a plain network, it has one width everywhere."
)


def blundell(n: int = POINTS, seed: int = SEED) -> tuple[Tensor, Tensor]:
    stream = Noise(seed).at("blundell")
    x, e = 0.5 * stream.at("x").uniform(n, 1), EPSILON * stream.at("y").normal(n, 1)
    return x, x + 0.3 * torch.sin(2 * torch.pi * (x + e)) + 0.3 * torch.sin(4 * torch.pi * (x + e)) + e


def model(noise: float | Learned) -> Model:
    """Inputs are standardised before they come in."""
    with Noise(SEED).at("bbb regression").scope():
        net = mlp(1, WIDTH, 1, activation=nn.ReLU)
    prior = {"0.*": Normal(0.0, 2.0), "*.weight": Normal(0.0, 2 * WIDTH**-0.5), "*": Normal(0.0, 1.0)}
    return Model(net, prior, Gaussian(noise))


def regression_data(
    epochs: int = 3000, draws: int = 2000, warmup: int = 1000, leapfrog: int = 500, many: int = 2000
) -> Numbers:
    """Quartiles and median of y on a grid, by each method."""
    x, y = blundell()
    grid = torch.linspace(-0.4, 1.0, 141)[:, None]
    inputs, at = ((t - CENTRE) / SPREAD for t in (x, grid))
    batch = POINTS // 2
    fitted: dict[str, Posterior] = {
        "MeanField": approximated(model(Learned(0.1)), (inputs, y), MeanField(), epochs, batch),
        "MAP": fit(model(Learned(0.1)), (inputs, y), MAP(epochs=epochs, batch_size=batch)),
    }
    noise = float(fitted["MeanField"].point()["likelihood.noise"])
    reference = sampled(model(noise), (inputs, y), draws, warmup, leapfrog)
    fitted["HMC"] = reference
    mixed = diagnose(functions(reference, at))
    numbers = {"x": array(grid[:, 0]), "x_train": array(x[:, 0]), "y_train": array(y[:, 0])}
    numbers |= {"rhat": mixed.rhat, "ess": mixed.ess_bulk, "noise": np.array(noise)}
    for name, posterior in fitted.items():
        predictive = posterior.predict(at, draws=None if name == "HMC" else many)
        for part, level in {"low": 0.25, "median": 0.5, "high": 0.75}.items():
            numbers[f"{name}_{part}"] = array(predictive.quantile(level)[:, 0])
    return numbers


def regression_checks(numbers: Numbers) -> Iterator[Expectation]:
    x, points = numbers["x"], len(numbers["x"])
    on_data = (x >= 0.02) & (x <= 0.48)
    ends = np.isin(x, x[[0, -1]])
    rhat, ess = float(numbers["rhat"].max()), float(numbers["ess"].min())
    yield Expectation("HMC", "largest R-hat of f", rhat, points, high=1.05, says="mixed")
    yield Expectation("HMC", "smallest ESS of f", ess, points, low=200, says="mixed")
    yield Expectation("MeanField", "noise learned", float(numbers["noise"]), POINTS)
    width = {name: numbers[f"{name}_high"] - numbers[f"{name}_low"] for name in METHODS}
    opens = {name: float(own[ends].mean() / own[on_data].mean()) for name, own in width.items()}
    metric = "interquartile range at both ends over that on the data"
    says = "Bayes by Backprop is uncertain where there are no data (Blundell et al., 2015)"
    yield Expectation("MeanField", metric, opens["MeanField"], 2, low=2, says=says)
    says = "a plain network has one width everywhere"
    yield Expectation("MAP", metric, opens["MAP"], 2, 0.999, 1.001, says)
    yield Expectation("HMC", metric, opens["HMC"], 2, low=2, says="so is the posterior")
    for name in METHODS:
        inside = (numbers["y_train"] >= np.interp(numbers["x_train"], x, numbers[f"{name}_low"])) & (
            numbers["y_train"] <= np.interp(numbers["x_train"], x, numbers[f"{name}_high"])
        )
        yield Expectation(name, "part of the training points in the interquartile range", float(inside.mean()), POINTS)
    near = float(width["MeanField"][ends].mean() / width["HMC"][ends].mean())
    yield Expectation("MeanField", "interquartile range at both ends over that of HMC", near, 2)


def draw_regression(numbers: Numbers) -> Figure:
    x = numbers["x"]
    with styled():
        figure, axes = canvas(1, 3, 12.0, 3.8, share_y=True)
        figure.suptitle("Noisy regression: medians and interquartile ranges", x=0.008, ha="left")
        for axis, (name, title) in zip(axes, METHODS.items(), strict=True):
            axis.fill_between(
                x, numbers[f"{name}_low"], numbers[f"{name}_high"], color=EPISTEMIC, alpha=0.3, linewidth=0
            )
            axis.plot(x, numbers[f"{name}_median"], color=MISS)
            axis.plot(numbers["x_train"], numbers["y_train"], "x", color=INK, markersize=3, markeredgewidth=0.6)
            axis.set(title=title, xlabel="x", ylim=(-1.2, 1.6))
            axis.margins(x=0)
    return figure


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few steps: for a test, not for a result")
    parser.add_argument("--out", type=Path, default=Path("docs/figures"), help="folder (default: docs/figures)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the table")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    short = {"epochs": 4, "draws": 8, "warmup": 8, "leapfrog": 4, "many": 20}
    numbers = regression_data(**(short if options.quick else {}))
    options.out.mkdir(parents=True, exist_ok=True)
    source = "000-28: after Blundell et al. (2015), fig. 5"
    path = options.out / "bbb_regression.svg"
    save(draw_regression(numbers), path, alt=ALT, values=numbers, interval="50% of y", source=source, seed=SEED)
    rows = [expected.to_row(IDS, options.quick) for expected in regression_checks(numbers)]
    command = "python reproduce/bbb_regression.py" + (" --quick" if options.quick else "")
    write("bbb_regression", command, rows, [SEED], options.quick, options.results, origin())
    print(show(rows))
    return rows


if __name__ == "__main__":
    main()
