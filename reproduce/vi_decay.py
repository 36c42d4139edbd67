"""Weight decay of a dropout network too small, good and too large: the picture that every course has, as numbers.

The objective of MC dropout has the weight decay keep l² / 2N (Lee, 2019): too small and the network follows the noise, too large and it
no longer follows the data. Thirty noisy points of a sine, two hidden layers of 100 ReLU units, dropout of 0.05. The three decays are
those of the priors N(0, 100²), N(0, 1) and N(0, 0.03²).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from expectation import Expectation, Numbers, at_least
from resumable import Job, Line
from torch import Tensor, nn
from vi_between import misfit, spread

from nescio import Model, fit
from nescio.infer import MAP, VI
from nescio.infer.families import BernoulliDropout, weight_decay
from nescio.laws import Normal
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.report.figures.arrays import array
from nescio.report.style import EPISTEMIC, GREY, INK, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS, NOISE, DROP, SEEDS = 30, 0.3, 0.05, 3
SCALES = {"too small": 100.0, "good": 1.0, "too large": 0.03}
AXIS = torch.linspace(-2.2, 2.2, 111)[:, None]


def points() -> tuple[Tensor, Tensor]:
    """y = sin(2x) + N(0, NOISE²), x uniform on [-2, 2]."""
    stream = Noise(0).at("decay")
    x = 4 * stream.at("x").uniform(POINTS, 1) - 2
    return x, torch.sin(2 * x) + NOISE * stream.at("y").normal(POINTS, 1)


def decay_of(scale: float) -> float:
    return weight_decay(scale, POINTS, DROP, NOISE**-2)


def decay_jobs(quick: bool) -> list[Job]:
    epochs, seeds, many = (4, 2, 20) if quick else (3000, SEEDS, 1000)
    own = {"epochs": epochs, "many": many}
    return [{"experiment": "decay", "decay": name, "seed": s, **own} for name in SCALES for s in range(seeds)]


def decay_work(job: Job) -> Line:
    """Mean and standard deviation of f on the axis; distances of the mean from the points and from the sine."""
    data = points()
    with Noise(job["seed"]).at("decay").scope():
        net = mlp(1, 100, 100, 1, activation=nn.ReLU)
    model = Model(net, Normal(0.0, SCALES[job["decay"]]), Gaussian(NOISE))
    batch = {"epochs": job["epochs"], "lr": 3e-3, "batch_size": POINTS}
    method = MAP(**batch) >> VI(BernoulliDropout({"0.*": 0.0, "*": DROP}), **batch)
    posterior = fit(model, data, method, seed=job["seed"])
    mean, sd = spread(posterior, AXIS, job["many"])
    inside = np.abs(array(AXIS[:, 0])) <= 2
    away = (mean - np.sin(2 * array(AXIS[:, 0])))[inside]
    line: Line = {"mean": mean.tolist(), "sd": sd.tolist(), "misfit": misfit(posterior, data, job["many"], NOISE)}
    return {**line, "error": float(np.sqrt(np.square(away).mean())) / NOISE}


def decay_numbers(lines: Sequence[Line]) -> Numbers:
    """(seeds,), the curves (seeds, points)."""
    x, y = points()
    numbers = {"x": array(AXIS[:, 0]), "x_train": array(x[:, 0]), "y_train": array(y[:, 0])}
    for name in SCALES:
        own = [line for line in lines if line["job"]["decay"] == name]
        for key in ("mean", "sd", "misfit", "error"):
            numbers[f"{name}, {key}"] = np.array([line[key] for line in own])
    return numbers


def decay_checks(numbers: Numbers) -> Iterator[Expectation]:
    seeds = len(numbers["good, misfit"])
    for name, scale in SCALES.items():
        row = f"{name}: {decay_of(scale):.1e}"
        near, far = (numbers[f"{name}, {key}"] for key in ("misfit", "error"))
        metric = "rmse of the mean on the points over the noise"
        if name == "too large":
            says = "too large: it does not follow the data"
            yield Expectation(row, metric, float(near.mean()), seeds, low=1.5, says=says)
        else:
            says = "it follows the data"
            yield Expectation(row, metric, float(near.mean()), seeds, high=1.2, says=says)
        yield Expectation(row, "rmse of the mean to the sine over the noise", float(far.mean()), seeds)
        if name != "good":
            worse = at_least(far - numbers["good, error"])
            metric = "that error less that of the good one, less two se"
            yield Expectation(row, metric, worse, seeds, low=0.0, says="in between is better")


def draw_decay(numbers: Numbers) -> Figure:
    x = numbers["x"]
    with styled():
        figure, axes = canvas(1, 3, 11.0, 3.4, share_x=True, share_y=True)
        figure.suptitle("Weight decay of a dropout network", x=0.008, ha="left")
        for axis, (name, scale) in zip(axes, SCALES.items(), strict=True):
            mean, sd = numbers[f"{name}, mean"][0], numbers[f"{name}, sd"][0]
            axis.fill_between(x, mean - 2 * sd, mean + 2 * sd, color=EPISTEMIC, alpha=0.2, linewidth=0)
            axis.plot(x, np.sin(2 * x), color=GREY, linewidth=1, linestyle="--")
            axis.plot(x, mean, color=EPISTEMIC)
            axis.plot(numbers["x_train"], numbers["y_train"], ".", color=INK, markersize=4)
            power = math.floor(math.log10(decay_of(scale)))
            axis.set(title=f"{name} (10^{power})", ylim=(-2.5, 2.5), xlabel="x")
            axis.margins(x=0)
    return figure
