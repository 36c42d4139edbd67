"""More data: the posterior narrows, that of MC dropout does not.

The posterior of MC dropout may not concentrate in the limit of many points (Osband, 2016). The rate p is fixed, and so is the law of
the masks: only the means that they multiply can answer to the data. The spread of f where there are data is taken for growing
numbers of points from one sequence; a regular posterior narrows as N to the power -1/2. Found: so it is; and concrete
dropout, which learns its rates and was expected to narrow, does not in the steps that it has here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import torch
from expectation import Expectation, Numbers
from resumable import Job, Line
from torch import Tensor, nn
from vi_between import SHORT, approximated, fits, misfit, sampled, spread

from nescio import Model
from nescio.diagnose import diagnose
from nescio.infer.families import BernoulliDropout, ConcreteDropout, Family, MeanField
from nescio.laws import Normal
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior.mixing import functions
from nescio.report.style import CYCLE, GREY, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOISE, WIDTH, DROP, BATCH, SEEDS = 0.2, 20, 0.1, 30, 3
SIZES = (30, 100, 300, 1000, 3000)
FAMILIES: dict[str, Family] = {
    "MC dropout": BernoulliDropout({"0.*": 0.0, "*": DROP}),
    "concrete dropout": ConcreteDropout({"0.*": 0.0, "*": DROP}),
    "MeanField": MeanField(),
}
METHODS = ("HMC", *FAMILIES)
INSIDE = torch.linspace(-1.8, 1.8, 37)[:, None]


def points(n: int) -> tuple[Tensor, Tensor]:
    """The first n of one sequence: y = sin(2x) + N(0, NOISE²), x uniform on [-2, 2]."""
    stream = Noise(0).at("concentration")
    x = 4 * stream.at("x").uniform(max(SIZES), 1) - 2
    y = torch.sin(2 * x) + NOISE * stream.at("y").normal(max(SIZES), 1)
    return x[:n], y[:n]


def problem(seed: int) -> Model:
    with Noise(seed).at("concentration").scope():
        net = mlp(1, WIDTH, 1, activation=nn.Tanh)
    return Model(net, {"0.*": Normal(0.0, 2.0), "*": Normal(0.0, 1.0)}, Gaussian(NOISE))


def concentration_jobs(quick: bool) -> list[Job]:
    sizes, steps, seeds, many = ((30, 60), 4, 2, 20) if quick else (SIZES, 5000, SEEDS, 1000)
    some = SHORT if quick else {"draws": 500, "warmup": 500, "leapfrog": 200}
    jobs: list[Job] = [{"experiment": "concentration", "method": "HMC", "points": n, **some} for n in reversed(sizes)]
    for name, n, seed in product(FAMILIES, reversed(sizes), range(seeds)):
        own = {"method": name, "points": n, "seed": seed, "steps": steps, "many": many}
        jobs.append({"experiment": "concentration", **own})
    return jobs


def concentration_work(job: Job) -> Line:
    """Root mean square over the range of the data of the standard deviation of f."""
    n = job["points"]
    data = points(n)
    if job["method"] == "HMC":
        reference = sampled(problem(0), data, job["draws"], job["warmup"], job["leapfrog"])
        rhat = float(diagnose(functions(reference, INSIDE)).rhat.max())
        return {"sd": whole(spread(reference, INSIDE, None)[1]), "rhat": rhat}
    epochs = max(1, job["steps"] * BATCH // n)
    posterior = approximated(problem(job["seed"]), data, FAMILIES[job["method"]], epochs, BATCH, job["seed"])
    away = misfit(posterior, data, job["many"], NOISE)
    return {"sd": whole(spread(posterior, INSIDE, job["many"])[1]), "misfit": away}


def whole(sd: np.ndarray) -> float:
    return float(np.sqrt(np.square(sd).mean()))


def concentration_numbers(lines: Sequence[Line]) -> Numbers:
    """(sizes,) by HMC, (seeds, sizes) by families."""
    of = {(line["job"]["method"], line["job"]["points"], line["job"].get("seed")): line for line in lines}
    sizes, seeds = sorted({n for _, n, _ in of}), sorted({seed for _, _, seed in of if seed is not None})
    numbers = {"N": np.array(sizes)}
    for key, name in {"sd": "HMC", "rhat": "HMC_rhat"}.items():
        numbers[name] = np.array([of["HMC", n, None][key] for n in sizes])
    for name in FAMILIES:
        for key, label in {"sd": name, "misfit": f"{name}_misfit"}.items():
            numbers[label] = np.array([[of[name, n, seed][key] for n in sizes] for seed in seeds])
    return numbers


def slope(n: np.ndarray, sd: np.ndarray) -> float:
    """Of log sd over log N, by least squares; over seeds their mean."""
    log_sd = np.log(sd).reshape(-1, len(n)).mean(0)
    return float(np.polyfit(np.log(n), log_sd, 1)[0])


def concentration_checks(numbers: Numbers) -> Iterator[Expectation]:
    n, seeds = numbers["N"], len(numbers["MeanField"])
    rhat = float(numbers["HMC_rhat"].max())
    yield Expectation("HMC", "largest R-hat of f over all N", rhat, len(n), high=1.05, says="mixed")
    metric = "slope of log sd of f over log N"
    says = "a regular posterior narrows as 1 / sqrt N"
    yield Expectation("HMC", metric, slope(n, numbers["HMC"]), 1, -0.65, -0.35, says)
    says = "mean field narrows, too"
    yield Expectation("MeanField", metric, slope(n, numbers["MeanField"]), seeds, -0.65, -0.3, says)
    says = "dropout need not concentrate as N grows (Osband, 2016)"
    yield Expectation("MC dropout", metric, slope(n, numbers["MC dropout"]), seeds, -0.15, 0.15, says)
    last = float(numbers["MC dropout"][:, -1].mean() / numbers["HMC"][-1])
    says = "so at the largest N it is much wider than the posterior"
    yield Expectation("MC dropout", "sd of f at the largest N over that of HMC", last, seeds, low=3, says=says)
    says = "with a learned rate it narrows faster than with a fixed one (Gal et al., 2017)"
    faster = slope(n, numbers["concrete dropout"]) - slope(n, numbers["MC dropout"])
    yield Expectation("concrete dropout", "that slope less MC dropout's", faster, seeds, high=-0.1, says=says)
    yield Expectation("concrete dropout", metric, slope(n, numbers["concrete dropout"]), seeds)
    for name in FAMILIES:
        yield fits(f"{name}, at the worst N", float(numbers[f"{name}_misfit"].mean(0).max()), seeds)
    for name in METHODS:
        for size, sd in zip(n, numbers[name].reshape(-1, len(n)).mean(0), strict=True):
            yield Expectation(name, f"sd of f at N = {size}", float(sd), 1 if name == "HMC" else seeds)


def draw_concentration(numbers: Numbers) -> Figure:
    n = numbers["N"]
    with styled():
        figure, (axis,) = canvas(1, 1, 7.0, 4.2)
        axis.set_title("More data: HMC and mean field narrow, dropout at a fixed rate does not")
        for name, colour in zip(METHODS, CYCLE, strict=False):
            sd = numbers[name].reshape(-1, len(n))
            axis.plot(n, np.exp(np.log(sd).mean(0)), "o-", color=colour, markersize=4, label=name)
        first = numbers["HMC"][0]
        axis.plot(n, first * (n / n[0]) ** -0.5, color=GREY, linewidth=1, linestyle="--", label="1 / sqrt N")
        axis.set(xscale="log", yscale="log", xlabel="points", ylabel="sd of f where there are points")
        axis.legend(loc="lower left")
    return figure
