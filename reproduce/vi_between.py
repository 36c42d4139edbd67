"""Between two clusters of points: mean field is too certain there, families with correlated weights less so.

It is said that Bayes by Backprop is usually too certain in 1-D problems, and that matrix-variate Gaussians and multiplicative flows
beat it (Gavves, lecture). For one hidden layer of ReLU units the first half is proven (Foong et al., 2020): neither mean field nor MC
dropout can be much less certain between two regions than they are there. HMC says how uncertain one should be: same network, prior,
noise and data. Approximations start at the maximum a posteriori: from a random start mean field may end where it ignores the
data, and then what it says of the gap says nothing of the family. Whether it fits is checked. Found: full rank and matrix-variate
Gaussians close a part of the gap; multiplicative flows have a higher bound than mean field, and are as certain between the clusters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from expectation import Expectation, Numbers, at_least
from resumable import Job, Line
from torch import nn

from nescio import Model, Posterior, fit
from nescio.data.toys import gap
from nescio.diagnose import diagnose
from nescio.infer import HMC, MAP, VI
from nescio.infer.families import Family, FullRank, LowRank, MatrixNormal, MeanField, MultiplicativeFlow
from nescio.laws import Normal
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior.draws import Draws
from nescio.posterior.mixing import functions
from nescio.posterior.variational import Variational
from nescio.report.figures.arrays import array
from nescio.report.style import CYCLE, EPISTEMIC, GREY, INK, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS, NOISE, WIDTH, CHAINS, SEEDS = 100, 0.2, 50, 4, 3
FAMILIES: dict[str, Family] = {
    "MeanField": MeanField(),
    "MatrixNormal": MatrixNormal(),
    "MultiplicativeFlow": MultiplicativeFlow(),
    "LowRank": LowRank(10),
    "FullRank": FullRank(),
}
HOLDS_MEAN_FIELD = ("LowRank", "FullRank")  # families of which it is a member: at their best their bounds are no lower
MOST_MISFIT = 1.5
PRIOR = {"0.*": Normal(0.0, 2.0), "*.weight": Normal(0.0, 2 * WIDTH**-0.5), "*": Normal(0.0, 1.0)}
EXPECTED = {  # who the seed says is better, and what holds every Gaussian
    "MatrixNormal": "matrix-variate Gaussians beat Bayes by Backprop (Louizos & Welling, 2016)",
    "MultiplicativeFlow": "multiplicative normalising flows beat it (Louizos & Welling, 2017)",
    "FullRank": "it holds mean field and every other Gaussian",
}


def problem(seed: int, activation: type[nn.Module] = nn.ReLU) -> tuple[Model, tuple[torch.Tensor, torch.Tensor]]:
    """The network starts elsewhere for each seed; the data are the same."""
    with Noise(seed).at("between").scope():
        net = mlp(1, WIDTH, 1, activation=activation)
    return Model(net, PRIOR, Gaussian(NOISE)), gap(POINTS, NOISE, 0)


def sampled(
    model: Model, data: tuple[torch.Tensor, torch.Tensor], draws: int, warmup: int, leapfrog: int, seed: int = 0
) -> Draws:
    start = CHAINS * MAP(epochs=200 if draws > 50 else 5, lr=0.02, batch_size=len(data[0]))
    posterior = fit(model, data, start >> HMC(draws=draws, warmup=warmup, leapfrog=leapfrog), seed=seed)
    assert isinstance(posterior, Draws)
    return posterior


def approximated(
    model: Model, data: tuple[torch.Tensor, torch.Tensor], family: Family, epochs: int, batch: int, seed: int = 0
) -> Variational:
    start = MAP(epochs=epochs, batch_size=batch)
    posterior = fit(model, data, start >> VI(family, epochs=epochs, batch_size=batch), seed=seed)
    assert isinstance(posterior, Variational)
    return posterior


def misfit(posterior: Posterior, data: tuple[torch.Tensor, torch.Tensor], draws: int | None, noise: float) -> float:
    """Root mean square distance of the mean from the points, over the noise: about one where it fits."""
    away = posterior.predict(data[0], draws=draws).mean - data[1]
    return float(away.square().mean().sqrt()) / noise


def fits(row: str, over_noise: float, n: int) -> Expectation:
    metric = "rmse of the mean on the training points over the noise"
    return Expectation(row, metric, over_noise, n, high=MOST_MISFIT, says="it fits the data that it is to be judged by")


def spread(posterior: Posterior, x: torch.Tensor, draws: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of f, the noise left out, (points,) each."""
    predictive = posterior.predict(x, draws=draws)
    return array(predictive.mean[:, 0]), array(predictive.epistemic[:, 0]) ** 0.5


GRID = torch.linspace(-3.0, 3.0, 121)[:, None]
FULL: Job = {"draws": 1500, "warmup": 500, "leapfrog": 200}  # of HMC
SHORT: Job = {"draws": 8, "warmup": 8, "leapfrog": 4}


def between_jobs(names: Sequence[str], epochs: int, quick: bool) -> list[Job]:
    """HMC once, each family from three starts."""
    some, epochs, many = (SHORT, 4, 20) if quick else (FULL, epochs, 2000)
    each = [
        {"experiment": "between", "method": name, "seed": seed, "epochs": epochs, "many": many}
        for name in names
        for seed in range(2 if quick else SEEDS)
    ]
    return [{"experiment": "between", "method": "HMC", **some}, *each]


def between_work(job: Job) -> Line:
    """Mean and standard deviation of f on the grid."""
    model, data = problem(job.get("seed", 0))
    if job["method"] == "HMC":
        reference = sampled(model, data, job["draws"], job["warmup"], job["leapfrog"])
        mixed, (mean, sd) = diagnose(functions(reference, GRID)), spread(reference, GRID, None)
        return {
            "mean": mean.tolist(),
            "sd": sd.tolist(),
            "rhat": mixed.rhat.tolist(),
            "ess": mixed.ess_bulk.tolist(),
        }
    posterior = approximated(model, data, FAMILIES[job["method"]], job["epochs"], POINTS, job["seed"])
    mean, sd = spread(posterior, GRID, job["many"])
    away = misfit(posterior, data, job["many"], NOISE)
    return {"mean": mean.tolist(), "sd": sd.tolist(), "misfit": away, "elbo": posterior.info["elbo"]}


def between_numbers(lines: Sequence[Line]) -> Numbers:
    """Of HMC (points,), of each family (seeds, points)."""
    x, y = problem(0)[1]
    numbers = {"x": array(GRID[:, 0]), "x_train": array(x[:, 0]), "y_train": array(y[:, 0])}
    for name in ("HMC", *FAMILIES):
        own = [line for line in lines if line["job"]["method"] == name]
        for key in [key for key in ("mean", "sd", "rhat", "ess", "misfit", "elbo") if own and key in own[0]]:
            values = np.array([line[key] for line in own])
            numbers[f"{name}_{key}"] = values[0] if name == "HMC" else values
    return numbers


def fitted(numbers: Numbers) -> list[str]:
    return [name for name in FAMILIES if f"{name}_sd" in numbers]


def places(numbers: Numbers) -> tuple[np.ndarray, np.ndarray]:
    """Where on the grid there are no points in between, and where there are points."""
    x = np.abs(numbers["x"])
    return x <= 0.4, (x >= 0.8) & (x <= 1.9)


def root_mean_square(sd: np.ndarray, where: np.ndarray) -> np.ndarray:
    return np.sqrt(np.square(sd[..., where]).mean(-1))


def between_checks(numbers: Numbers) -> Iterator[Expectation]:
    inside, on_data = places(numbers)
    hmc = {"gap": root_mean_square(numbers["HMC_sd"], inside), "data": root_mean_square(numbers["HMC_sd"], on_data)}
    points = len(numbers["x"])
    yield Expectation("HMC", "largest R-hat of f", float(numbers["HMC_rhat"].max()), points, high=1.05, says="mixed")
    yield Expectation("HMC", "smallest ESS of f", float(numbers["HMC_ess"].min()), points, low=200, says="mixed")
    yield Expectation("HMC", "sd of f in the gap", float(hmc["gap"]), int(inside.sum()))
    apart = float(hmc["gap"] / hmc["data"])
    yield Expectation("HMC", "sd of f in the gap over that on the data", apart, points, low=3, says="wide in between")
    ratio = {name: root_mean_square(numbers[f"{name}_sd"], inside) / hmc["gap"] for name in fitted(numbers)}
    for name in ratio:
        seeds, claim = len(ratio[name]), EXPECTED.get(name, "")
        metric = "sd of f in the gap over that of HMC"
        if name == "MeanField":
            says = "Bayes by Backprop is usually too certain: here by a factor of two or more"
            yield Expectation(name, metric, float(ratio[name].mean()), seeds, high=0.5, says=says)
        else:
            yield Expectation(name, metric, float(ratio[name].mean()), seeds)
        own = root_mean_square(numbers[f"{name}_sd"], on_data) / hmc["data"]
        yield Expectation(name, "sd of f on the data over that of HMC", float(own.mean()), seeds)
        yield Expectation(name, "ELBO, nats", float(numbers[f"{name}_elbo"].mean()), seeds)
        yield fits(name, float(numbers[f"{name}_misfit"].mean()), seeds)
        if name in HOLDS_MEAN_FIELD:
            higher = float((numbers[f"{name}_elbo"] - numbers["MeanField_elbo"]).mean())
            says = "mean field is one of this family: a lower bound means that training has not ended"
            yield Expectation(name, "ELBO less mean field's, nats", higher, seeds, low=0.0, says=says)
        if claim:
            closer = at_least(ratio[name] - ratio["MeanField"])
            metric = "that ratio less mean field's, less two standard errors"
            yield Expectation(name, metric, closer, seeds, low=0.0, says=claim)


def draw_between(numbers: Numbers) -> Figure:
    x, names = numbers["x"], fitted(numbers)
    with styled():
        figure, axes = canvas(1, 1 + len(names), 4.5 * (1 + len(names)), 3.6, share_x=True, share_y=True)
        figure.suptitle("Between two clusters: how uncertain, and how uncertain one should be", x=0.008, ha="left")
        low, high = (numbers["HMC_mean"] + sign * 2 * numbers["HMC_sd"] for sign in (-1, 1))
        for axis, name in zip(axes, ["HMC", *names], strict=True):
            mean, sd = numbers[f"{name}_mean"], numbers[f"{name}_sd"]
            if name != "HMC":
                mean, sd = mean[0], sd[0]
                for edge in (low, high):
                    axis.plot(x, edge, color=GREY, linewidth=0.9, linestyle="--")
            axis.fill_between(x, mean - 2 * sd, mean + 2 * sd, color=EPISTEMIC, alpha=0.2, linewidth=0)
            axis.plot(x, mean, color=EPISTEMIC)
            axis.plot(numbers["x_train"], numbers["y_train"], ".", color=INK, markersize=2.5)
            axis.set_title(name if name == "HMC" else f"{name} (dashed: HMC)")
            axis.set_ylim(-5, 5)
            axis.margins(x=0)
            axis.set_xlabel("x")
    return figure


def draw_ratios(numbers: Numbers) -> Figure:
    """One mark for each seed."""
    inside, _ = places(numbers)
    reference = root_mean_square(numbers["HMC_sd"], inside)
    with styled():
        figure, (axis,) = canvas(1, 1, 7.0, 3.0)
        axis.set_title("sd of f between the clusters, as a part of HMC's")
        names = fitted(numbers)
        for i, (name, colour) in enumerate(zip(names, CYCLE, strict=False)):
            own = root_mean_square(numbers[f"{name}_sd"], inside) / reference
            axis.plot(own, np.full(len(own), i), "o", color=colour, markersize=5, alpha=0.8)
        axis.axvline(1.0, color=INK, linewidth=1)
        axis.set(yticks=range(len(names)), yticklabels=names, xlim=(0, None), xlabel="sd / sd of HMC")
        axis.invert_yaxis()
    return figure
