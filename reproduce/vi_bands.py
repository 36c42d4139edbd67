"""Far from the data: bands of ReLU networks open without end, those of tanh networks stay as wide as they are.

Shown for MC dropout by 100 passes through a network of five layers, ReLU and tanh (Gal & Ghahramani, 2016). It should be a property of
the functions, not of dropout, so mean field and HMC are asked, too. Spread of f at distance d from the middle of the data, both
sides together; far out a ReLU network is linear, so that the spread doubles with d, and every tanh unit has come to its end.

What is fitted starts from five seeds, 1 to 5. Seed 0 was the whole of a first version, in which dropout's ReLU bands grew by 1.63 where
1.6 is asked for: too close for one number, so it is left out and the bounds stay. Beside the mean growth over the seeds there is a
test: two standard errors below it ReLU still grows by more than 1.2, which is what tanh may grow by two standard errors above its own.
Found: so it is for mean field and HMC. Dropout's ReLU bands grow too, but by less than was said, and by less than the seeds differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import torch
from expectation import Expectation, Numbers, at_least, at_most
from resumable import Job, Line
from torch import nn
from vi_between import NOISE, POINTS, SHORT, approximated, fits, misfit, problem, root_mean_square, sampled, spread

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
DROP, HIDDEN, LAYERS, PASSES, SHOWN = 0.1, 128, 4, 100, 20
SEEDS, MOST_TANH = (1, 2, 3, 4, 5), 1.2
AROUND = torch.linspace(-6.0, 6.0, 121)[:, None]


def dropout(activation: type[nn.Module], epochs: int, hidden: int, seed: int) -> Posterior:
    """Four hidden layers, dropout before each but the first and before the output."""
    with Noise(seed).at("bands").scope():
        net = mlp(1, *[hidden] * LAYERS, 1, activation=activation)
    model = Model(net, Normal(0.0, 1.0), Gaussian(NOISE))
    family = BernoulliDropout({"0.*": 0.0, "*": DROP})
    method = MAP(epochs=epochs, lr=3e-3, batch_size=POINTS) >> VI(family, epochs=epochs, lr=3e-3, batch_size=POINTS)
    return fit(model, gap(POINTS, NOISE, 0), method, seed=seed)


def bands_jobs(quick: bool) -> list[Job]:
    some = SHORT if quick else {"draws": 600, "warmup": 400, "leapfrog": 200}
    epochs, hidden, many = (4, 8, 20) if quick else (4000, HIDDEN, 2000)
    jobs: list[Job] = [{"experiment": "bands", "method": "HMC", "units": name, **some} for name in ACTIVATIONS]
    for method, name, seed in product(("MC dropout", "MeanField"), ACTIVATIONS, SEEDS[: 2 if quick else None]):
        own = {"units": name, "seed": seed, "epochs": epochs, "hidden": hidden, "many": many}
        jobs.append({"experiment": "bands", "method": method, **own})
    return jobs


def bands_work(job: Job) -> Line:
    """Mean and standard deviation of f on the grid, and the latter far out."""
    activation, count, line = ACTIVATIONS[job["units"]], job.get("many"), {}
    model, data = problem(job.get("seed", 0), activation)
    if job["method"] == "HMC":
        posterior: Posterior = sampled(model, data, job["draws"], job["warmup"], job["leapfrog"])
        line["rhat"] = diagnose(functions(posterior, AROUND)).rhat.tolist()
    elif job["method"] == "MeanField":
        posterior = approximated(model, data, MeanField(), job["epochs"], POINTS, job["seed"])
    else:
        posterior = dropout(activation, job["epochs"], job["hidden"], job["seed"])
        line["passes"] = array(posterior.functions(AROUND, PASSES, 0)[0][:SHOWN, :, 0]).tolist()
    mean, sd = spread(posterior, AROUND, count)
    far = torch.tensor([[sign * d] for d in DISTANCES for sign in (-1, 1)])
    out = spread(posterior, far, count)[1].reshape(len(DISTANCES), 2)
    line |= {"mean": mean.tolist(), "sd": sd.tolist(), "misfit": misfit(posterior, data, count, NOISE)}
    return {**line, "far": root_mean_square(out, np.array([True, True])).tolist()}


def bands_numbers(lines: Sequence[Line]) -> Numbers:
    """Far out (seeds, distances), misfit (seeds,); bands and passes are those of the first seed."""
    x, y = gap(POINTS, NOISE, 0)
    numbers: Numbers = {"x": array(AROUND[:, 0]), "distance": np.array(DISTANCES)}
    numbers |= {"x_train": array(x[:, 0]), "y_train": array(y[:, 0])}
    for method, name in product(METHODS, ACTIVATIONS):
        own = [line for line in lines if (line["job"]["method"], line["job"]["units"]) == (method, name)]
        for key in ("far", "misfit"):
            numbers[f"{method}, {name}, {key}"] = np.array([line[key] for line in own])
        for key in [key for key in ("mean", "sd", "rhat", "passes") if own and key in own[0]]:
            label = f"{name}, passes" if key == "passes" else f"{method}, {name}, {key}"
            numbers[label] = np.array(own[0][key])
    return numbers


def bands_checks(numbers: Numbers) -> Iterator[Expectation]:
    for name in ACTIVATIONS:
        rhat = numbers[f"HMC, {name}, rhat"]
        yield Expectation(f"HMC, {name}", "largest R-hat of f", float(rhat.max()), len(rhat), high=1.05, says="mixed")
    for method, name in product(METHODS, ACTIVATIONS):
        row, sd = f"{method}, {name}", numbers[f"{method}, {name}, far"]
        growth, n = sd[:, -1] / sd[:, -2], len(sd)
        metric = f"sd of f at distance {DISTANCES[-1]:g} over that at {DISTANCES[-2]:g}"
        if name == "ReLU":
            says = "ReLU bands open: f is linear far out, so the spread doubles"
            yield Expectation(row, metric, float(growth.mean()), n, low=1.6, says=says)
            if n > 1:
                says = "more than those of tanh may"
                yield Expectation(row, f"{metric}, less two se", at_least(growth), n, low=MOST_TANH, says=says)
        else:
            says = "tanh bands do not: every unit has come to its end"
            most = at_most(growth) if n > 1 else float(growth.mean())
            yield Expectation(row, f"{metric}, and two se" if n > 1 else metric, most, n, high=MOST_TANH, says=says)
        yield fits(row, float(numbers[f"{row}, misfit"].mean()), POINTS)
        for distance, one in zip(DISTANCES, sd.mean(0), strict=True):
            yield Expectation(row, f"sd of f at distance {distance:g}", float(one), n)


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
