"""Sampling and variational inference, both against an exact grid: how near, and after how long.

A logistic regression with two weights and twenty points: two numbers, whose posterior is correlated and a little skewed, on a grid of
801 by 801. It is said that chains are exact in the end and slow, and approximations fast and biased. Error: of the two means in posterior
standard deviations and of the two standard deviations relative to theirs, the largest of the four. Seconds are those of the processor.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from expectation import Expectation, Numbers, at_least, at_most
from resumable import Job, Line
from torch import Tensor, nn

from nescio import Model, fit
from nescio.infer import HMC, MAP, VI, Method
from nescio.infer.families import FullRank, MeanField
from nescio.laws import Normal
from nescio.likelihoods import Bernoulli
from nescio.noise import Noise
from nescio.report.style import CYCLE, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS, SCALE, SEEDS, CHAINS = 20, 2.0, 5, 4
EFFORTS = {"HMC": (10, 100, 1000), "MeanField": (100, 400, 1600), "FullRank": (100, 400, 1600)}  # draws; epochs


def points() -> tuple[Tensor, Tensor]:
    stream = Noise(0).at("grid")
    x = stream.at("x").normal(POINTS, 2) @ torch.tensor([[1.0, 0.8], [0.0, 0.6]])
    return x, (stream.at("y").uniform(POINTS, 1) < torch.sigmoid(x @ torch.tensor([[1.0], [1.0]]))).float()


@cache
def truth() -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations, by the grid."""
    x, y = (t.double() for t in points())
    axis = torch.linspace(-10, 12, 801, dtype=torch.float64)
    w = torch.cartesian_prod(axis, axis)
    signs = 2 * y[:, 0] - 1
    log_p = nn.functional.logsigmoid(signs[:, None] * (x @ w.mT)).sum(0) - 0.5 * w.square().sum(1) / SCALE**2
    p = torch.softmax(log_p, 0)
    mean = p @ w
    return mean.numpy(), (p @ (w - mean).square()).sqrt().numpy()


def method(job: Job) -> Method:
    effort = job["effort"]
    start = MAP(epochs=100, lr=0.1, batch_size=POINTS)
    if job["method"] == "HMC":
        return CHAINS * (start >> HMC(draws=effort, warmup=100, leapfrog=10))
    family = MeanField(sd=0.3) if job["method"] == "MeanField" else FullRank(sd=0.3)
    return start >> VI(family, epochs=effort, lr=0.02, samples=20, batch_size=POINTS)


def grid_jobs(quick: bool) -> list[Job]:
    efforts = dict.fromkeys(EFFORTS, (4, 8)) if quick else EFFORTS
    seeds = range(2 if quick else SEEDS)
    return [
        {"experiment": "grid", "method": name, "effort": effort, "seed": seed}
        for name, own in efforts.items()
        for effort in own
        for seed in seeds
    ]


def grid_work(job: Job) -> Line:
    with Noise(job["seed"]).at("grid").scope():
        net = nn.Linear(2, 1, bias=False)
    began = time.process_time()
    posterior = fit(Model(net, Normal(0.0, SCALE), Bernoulli()), points(), method(job), seed=job["seed"], compile=False)
    drawn = posterior.sample(CHAINS * job["effort"] if job["method"] == "HMC" else 20_000)["weight"][:, 0].double()
    seconds = time.process_time() - began
    mean, sd = truth()
    off = np.abs(drawn.mean(0).numpy() - mean) / sd, np.abs(drawn.std(0).numpy() / sd - 1)
    return {"error": float(np.max(off)), "narrow": float(np.min(drawn.std(0).numpy() / sd)), "cpu_seconds": seconds}


def grid_numbers(lines: Sequence[Line]) -> Numbers:
    """(seeds, efforts) for each method."""
    numbers: Numbers = {}
    for name in EFFORTS:
        own = {(line["job"]["effort"], line["job"]["seed"]): line for line in lines if line["job"]["method"] == name}
        efforts, seeds = sorted({e for e, _ in own}), sorted({s for _, s in own})
        numbers[f"{name}_effort"] = np.array(efforts)
        for key in ("error", "narrow", "cpu_seconds"):
            numbers[f"{name}_{key}"] = np.array([[own[e, s][key] for e in efforts] for s in seeds])
    return numbers


def grid_checks(numbers: Numbers) -> Iterator[Expectation]:
    for name in EFFORTS:
        error, seconds = numbers[f"{name}_error"], numbers[f"{name}_cpu_seconds"]
        seeds = len(error)
        for i, effort in enumerate(numbers[f"{name}_effort"]):
            unit = "draws a chain" if name == "HMC" else "epochs"
            yield Expectation(name, f"error after {effort} {unit}", float(error[:, i].mean()), seeds)
            yield Expectation(name, f"seconds of {effort} {unit}", float(seconds[:, i].mean()), seeds)
    hmc, mean_field, full = (numbers[f"{name}_error"][:, -1] for name in EFFORTS)
    says = "a chain is exact in the end"
    yield Expectation("HMC", "error at the end, and two se", at_most(hmc), len(hmc), high=0.1, says=says)
    fell = at_least(numbers["HMC_error"][:, 0] - hmc)
    yield Expectation("HMC", "error at first less that at the end, less two se", fell, len(hmc), low=0.0, says=says)
    says = "independent weights are too narrow where the posterior is correlated"
    narrow = at_most(numbers["MeanField_narrow"][:, -1])
    yield Expectation("MeanField", "narrowest sd over its own, and two se", narrow, len(full), high=0.9, says=says)
    says = "a full covariance removes most of that bias"
    less = at_least(mean_field - full)
    yield Expectation("FullRank", "error of mean field less its own, less two se", less, len(full), low=0.0, says=says)


def draw_grid(numbers: Numbers) -> Figure:
    with styled():
        figure, (axis,) = canvas(1, 1, 7.0, 4.0)
        axis.set_title("Error against time: chains and approximations, judged by an exact grid")
        for name, colour in zip(EFFORTS, CYCLE, strict=False):
            seconds, error = numbers[f"{name}_cpu_seconds"], numbers[f"{name}_error"]
            axis.plot(seconds.T, error.T, "o", color=colour, markersize=3, alpha=0.5)
            axis.plot(seconds.mean(0), np.exp(np.log(error).mean(0)), color=colour, label=name)
        axis.set(xscale="log", yscale="log", xlabel="seconds", ylabel="largest error of mean and sd")
        axis.legend(loc="lower left")
    return figure
