"""Dropout rates that are learned, against the width of the network.

It is said that large models push the rate towards 1/2, that small ones want less, and that larger ones have the better uncertainty
(after Gal et al., 2017). The entropy of the masks,
one term for each unit, pulls towards 1/2 and grows with the width; what the data say against noise does not.
The rates came out as it is said, but not that larger is better: with 1024 units the noise that the rates bring is more than the data
bear, and the mean misses the training points by twice the noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from expectation import Expectation, Numbers, at_least
from resumable import Job, Line
from torch import nn
from vi_between import GRID, fits, misfit, places, root_mean_square, spread

from nescio import Model, fit
from nescio.data.toys import gap
from nescio.evaluation import nll
from nescio.infer import MAP, VI
from nescio.infer.families import ConcreteDropout, drop_rates
from nescio.laws import Normal, fan_in
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior.variational import Variational
from nescio.report.figures.arrays import array
from nescio.report.style import CYCLE, GREY, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTHS = (16, 64, 256, 1024)
POINTS, NOISE, START, SEEDS = 200, 0.1, 0.1, 3
LAYERS = {"2.weight": "into the second layer", "4.weight": "into the output"}


def rates_jobs(quick: bool) -> list[Job]:
    """The widest first: it takes longest."""
    widths, epochs, seeds, many = ((4, 8), 4, 2, 20) if quick else (WIDTHS, 2000, SEEDS, 1000)
    common = {"epochs": epochs, "many": many}
    return [
        {"experiment": "rates", "width": w, "seed": seed, **common} for w in reversed(widths) for seed in range(seeds)
    ]


def rates_work(job: Job) -> Line:
    """Two hidden ReLU layers; the input is never dropped."""
    data, test = gap(POINTS, NOISE, 0), gap(1000, NOISE, 1)
    width, seed, many = job["width"], job["seed"], job["many"]
    with Noise(seed).at("rates").scope():
        net = mlp(1, width, width, 1, activation=nn.ReLU)
    prior = {"0.weight": Normal(0.0, 2.0), "*.weight": Normal(0.0, fan_in), "*": Normal(0.0, 1.0)}
    batch = {"epochs": job["epochs"], "lr": 3e-3, "batch_size": POINTS // 2}
    method = MAP(**batch) >> VI(ConcreteDropout({"0.*": 0.0, "*": START}), **batch)
    posterior = fit(Model(net, prior, Gaussian(NOISE)), data, method, seed=seed)
    assert isinstance(posterior, Variational)
    inside = places({"x": array(GRID[:, 0])})[0]
    return {
        **{name: float(rate) for name, rate in drop_rates(posterior.q).items()},
        "misfit": misfit(posterior, data, many, NOISE),
        "gap": float(root_mean_square(spread(posterior, GRID, many)[1], inside)),
        "nll": nll(posterior.predict(test[0], draws=many), test[1]),
    }


def rates_numbers(lines: Sequence[Line]) -> Numbers:
    """(seeds, widths) each."""
    widths = sorted({line["job"]["width"] for line in lines})
    of = {(line["job"]["width"], line["job"]["seed"]): line for line in lines}
    seeds = sorted({seed for _, seed in of})
    keys = (*LAYERS, "gap", "nll", "misfit")
    numbers = {key: np.array([[of[w, seed][key] for w in widths] for seed in seeds]) for key in keys}
    return {**numbers, "width": np.array(widths)}


def rates_checks(numbers: Numbers) -> Iterator[Expectation]:
    widths, seeds = numbers["width"], len(numbers["gap"])
    for name, where in LAYERS.items():
        rates = numbers[name]
        says = "large models push the rate up, towards 1/2"
        grown = at_least(rates[:, -1] - rates[:, 0])
        metric = f"rate {where}, widest less narrowest, less two se"
        yield Expectation(f"concrete dropout, {name}", metric, grown, seeds, low=0.0, says=says)
        highest = float(rates.mean(0).max())
        yield Expectation(f"concrete dropout, {name}", "highest rate", highest, seeds, high=0.55, says="1/2 is the end")
        for width, rate in zip(widths, rates.mean(0), strict=True):
            yield Expectation(f"concrete dropout, {name}", f"rate at width {width}", float(rate), seeds)
    yield fits("concrete dropout, at the worst width", float(numbers["misfit"].mean(0).max()), seeds)
    for key, what in {"gap": "sd of f in the gap", "nll": "test NLL"}.items():
        for width, value in zip(widths, numbers[key].mean(0), strict=True):
            yield Expectation("concrete dropout", f"{what} at width {width}", float(value), seeds)


def draw_rates(numbers: Numbers) -> Figure:
    widths = numbers["width"]
    with styled():
        figure, (left, right) = canvas(1, 2, 9.0, 3.8)
        figure.suptitle("Learned dropout rates against width", x=0.008, ha="left")
        for (name, where), colour in zip(LAYERS.items(), CYCLE, strict=False):
            left.plot(widths, numbers[name].T, "o", color=colour, markersize=3, alpha=0.6)
            left.plot(widths, numbers[name].mean(0), color=colour, label=where)
        left.axhline(0.5, color=GREY, linewidth=1, linestyle="--")
        left.set(xscale="log", xlabel="units in each layer", ylabel="probability to drop", ylim=(0, 0.6))
        left.legend(loc="center left")
        right.plot(widths, numbers["gap"].T, "o", color=CYCLE[2], markersize=3, alpha=0.6)
        right.plot(widths, numbers["gap"].mean(0), color=CYCLE[2])
        right.set(xscale="log", xlabel="units in each layer", ylabel="sd of f between the clusters", ylim=(0, None))
    return figure
