"""Atmospheric CO2 at Mauna Loa, extrapolated (Gal & Ghahramani, 2016, fig. 2, and the demo with it): does uncertainty grow off the data?

Their data as they stored them: 272 standardised points, to be continued from 1.73 to 3.73, more than half as far again as the data are
wide. Their networks: four hidden layers of 1024 units, dropout after each and none on the input, ReLU at 0.1, tanh at 0.1 and 0.2,
with weight decay 1e-6, 5e-7 and none (here a very wide prior). They took a million steps of SGD with batches of 200; here it is Adam,
a hundredth of the steps, on the whole set. Beside them an ensemble of plain ReLU networks of the same size, under the prior of the
dropout network and for as many epochs as that trains before it drops anything, and HMC on a small
one, two hidden layers of 20, ReLU and tanh. Their results are figures; what these show is written down as expectations.
What came out otherwise: tanh at a rate of 0.2 and without a prior to speak of goes on growing off the data; chains of HMC stay in modes of
their own (R-hat of f over 2), so its bands are those of a few modes. Under a prior of scale 1/√fan_in on each weight, which came first,
the ensemble's modes were no function at all: three million weights gain more by shrinking than 272 points can pay for.

    python reproduce/co2.py [--device cuda] [--workers 6] [--budget SECONDS] [--only "HMC, ReLU" ...] [--epochs 10000] [--width 1024]
                            [--rows FILE] [--figures docs/figures] [--quick]

The data are in timeseries_toy1d.npz of the data folder ($NESCIO_DATA). Each finished method is a line of co2.rows.jsonl in the --out
folder (or of --rows) and is skipped by the next run; the table is made when all are there, and with --figures (which needs
matplotlib) it is drawn.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from evidence import write
from expectation import Expectation, Numbers, show
from resumable import Job, Line, finish, options
from torch import Tensor, nn
from vi_between import CHAINS, spread

from nescio import Model, Posterior, fit
from nescio.data import arrays
from nescio.diagnose import diagnose
from nescio.infer import HMC, MAP, VI
from nescio.infer.families import BernoulliDropout, prior_scale
from nescio.laws import Normal
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior.draws import Draws
from nescio.posterior.mixing import functions
from nescio.report import save
from nescio.report.figures.arrays import array
from nescio.report.style import EPISTEMIC, GREY, INK, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOISE, LAYERS, MEMBERS, WIDEST = 0.2, 4, 5, 100.0
ON_DATA, JUST_OFF, FAR = (-1.7, 1.7), (2.2, 2.7), (3.2, 3.7)
IDS = ("000-21",)
ALT = (
    "Six panels of the CO2 curve, which ends at a dashed line, and its continuation with bands of one and two standard deviations. "
    "Bands of ReLU networks open with the distance from the data; those of tanh networks do not."
)


class Case(NamedTuple):
    activation: type[nn.Module]
    drop: float = 0.0
    decay: float = 0.0


DROPOUT = {
    "MC dropout 0.1, ReLU": Case(nn.ReLU, 0.1, 1e-6),
    "MC dropout 0.1, tanh": Case(nn.Tanh, 0.1, 5e-7),
    "MC dropout 0.2, tanh": Case(nn.Tanh, 0.2),
}
OTHERS = {"ensemble, ReLU": Case(nn.ReLU, 0.0, 1e-6), "HMC, ReLU": Case(nn.ReLU), "HMC, tanh": Case(nn.Tanh)}
METHODS = (*DROPOUT, *OTHERS)


def co2(device: str) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """The training points, and where to look: over the data and on to the end of their test points."""
    found = arrays("timeseries_toy1d")
    x, y = (torch.from_numpy(found[f"gal_co2_{name}_train"]).float().to(device) for name in ("x", "y"))
    return (x, y), torch.linspace(float(x.min()), float(found["gal_co2_x_test"].max()), 200)[:, None].to(device)


def network(widths: Sequence[int], activation: type[nn.Module], device: str) -> nn.Module:
    with Noise(0).at("co2").scope():
        return mlp(1, *widths, 1, activation=activation).to(device)


def dropout(case: Case, data: tuple[Tensor, Tensor], epochs: int, width: int) -> Posterior:
    rows = len(data[0])
    scale = prior_scale(case.decay, rows, case.drop, NOISE**-2) if case.decay else WIDEST
    net = network([width] * LAYERS, case.activation, data[0].device.type)
    family = BernoulliDropout({"0.*": 0.0, "*": case.drop})
    method = MAP(epochs=epochs // 4, lr=1e-3, batch_size=rows) >> VI(family, epochs=epochs, lr=1e-3, batch_size=rows)
    return fit(Model(net, Normal(0.0, scale), Gaussian(NOISE)), data, method)


def ensemble(case: Case, data: tuple[Tensor, Tensor], epochs: int, width: int) -> Posterior:
    net, rows = network([width] * LAYERS, case.activation, data[0].device.type), len(data[0])
    model = Model(net, Normal(0.0, prior_scale(case.decay, rows, case.drop, NOISE**-2)), Gaussian(NOISE))
    return fit(model, data, MEMBERS * MAP(epochs=epochs // 4, lr=1e-3, batch_size=rows))


def sampled(case: Case, data: tuple[Tensor, Tensor], quick: bool) -> Draws:
    """On the CPU: a network too small for a GPU."""
    data = data[0].cpu(), data[1].cpu()
    prior = {"0.*": Normal(0.0, 3.0), "*.weight": Normal(0.0, 2 * 20**-0.5), "*": Normal(0.0, 1.0)}
    model = Model(network([20, 20], case.activation, "cpu"), prior, Gaussian(NOISE))
    start = CHAINS * MAP(epochs=5 if quick else 1000, lr=0.02, batch_size=len(data[0]))
    sampler = HMC(draws=8, warmup=8, leapfrog=4) if quick else HMC(draws=1000, warmup=500, leapfrog=400)
    posterior = fit(model, data, start >> sampler)
    assert isinstance(posterior, Draws)
    return posterior


def score(job: Job, until: float, device: str) -> Line:
    """Mean and standard deviation of f where to look, and the error of the mean on the points."""
    data, x = co2(device)
    name, quick = job["method"], job["quick"]
    case, line = (DROPOUT | OTHERS)[name], {}
    if name.startswith("HMC"):
        posterior: Posterior = sampled(case, data, quick)
        assert isinstance(posterior, Draws)
        mean, sd = spread(posterior, x.cpu(), None)
        line["rhat"] = diagnose(functions(posterior, x.cpu())).rhat.tolist()
    else:
        posterior = (dropout if case.drop else ensemble)(case, data, job["epochs"], job["width"])
        mean, sd = spread(posterior, x, (20 if quick else 1000) if case.drop else None)
    away = np.interp(array(data[0][:, 0]), array(x[:, 0]), mean) - array(data[1][:, 0])
    return {**line, "mean": mean.tolist(), "sd": sd.tolist(), "rmse": float(np.sqrt(np.square(away).mean()))}


def planned(epochs: int, width: int, quick: bool) -> list[Job]:
    """What is sampled has a network of its own."""
    trained = {"epochs": epochs, "width": width}
    return [{"method": m, **({} if m.startswith("HMC") else trained), "quick": quick} for m in METHODS]


def co2_data(lines: Sequence[Line]) -> Numbers:
    """Of all methods."""
    data, x = co2("cpu")
    numbers = {"x": array(x[:, 0]), "x_train": array(data[0][:, 0]), "y_train": array(data[1][:, 0])}
    for line in lines:
        for key in [key for key in ("mean", "sd", "rmse", "rhat") if key in line]:
            numbers[f"{line['job']['method']}, {key}"] = np.array(line[key])
    return numbers


def co2_checks(numbers: Numbers) -> Iterator[Expectation]:
    x = numbers["x"]
    on_data, near, far = ((x >= low) & (x <= high) for low, high in (ON_DATA, JUST_OFF, FAR))
    for name in METHODS:
        sd = numbers[f"{name}, sd"]
        grown, further = float(sd[far].mean() / sd[on_data].mean()), float(sd[far].mean() / sd[near].mean())
        relu = name.endswith("ReLU")
        says = "ReLU: uncertainty grows away from the data" if relu else "tanh: it saturates"
        metric, n = "sd of f two units off the data over that on them", int(far.sum())
        if relu:
            yield Expectation(name, metric, grown, n, low=2, says=says)
        else:
            yield Expectation(name, metric, grown, n)
        low, high = (1.3, math.inf) if relu else (-math.inf, 1.2)
        yield Expectation(
            name, "sd of f two units off the data over that half a unit off", further, n, low=low, high=high, says=says
        )
        yield Expectation(
            name, "rmse of the mean on the data", float(numbers[f"{name}, rmse"]), len(numbers["x_train"])
        )
        if f"{name}, rhat" in numbers:
            rhat = float(numbers[f"{name}, rhat"].max())
            yield Expectation(name, "largest R-hat of f", rhat, len(x), high=1.05, says="mixed")


def draw_co2(numbers: Numbers) -> Figure:
    x = numbers["x"]
    with styled():
        figure, axes = canvas(2, 3, 12.0, 6.0, share_x=True, share_y=True)
        figure.suptitle("CO2 at Mauna Loa, continued", x=0.008, ha="left")
        for axis, name in zip(axes, METHODS, strict=True):
            mean, sd = (numbers[f"{name}, {what}"] for what in ("mean", "sd"))
            for k in (1, 2):
                axis.fill_between(x, mean - k * sd, mean + k * sd, color=EPISTEMIC, alpha=0.18, linewidth=0)
            axis.plot(numbers["x_train"], numbers["y_train"], color=INK, linewidth=0.8)
            axis.plot(x, mean, color=EPISTEMIC, linewidth=1)
            axis.axvline(float(numbers["x_train"].max()), color=GREY, linewidth=1, linestyle="--")
            axis.set(title=name, ylim=(-4, 8))
            axis.margins(x=0)
    return figure


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--epochs", type=int, default=10_000)
    parser.add_argument("--width", type=int, default=1024, help="units of each hidden layer")
    parser.add_argument("--only", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument("--figures", type=Path, help="folder, for instance docs/figures")
    given = parser.parse_args(arguments)
    if given.quick:
        given.epochs, given.width, given.workers = 4, 16, 1
    jobs = planned(given.epochs, given.width, given.quick)
    path = given.rows or given.out / f"co2{'.quick' if given.quick else ''}.rows.jsonl"
    work, chosen = partial(score, device=given.device), [job for job in jobs if job["method"] in given.only]
    finish(chosen, work, path, given.device, given.workers, given.budget)
    lines = finish(jobs, work, path, given.device, 1, 0.0)
    if len(lines) < len(jobs):
        return []
    numbers = co2_data(lines)
    if given.figures is not None:
        given.figures.mkdir(parents=True, exist_ok=True)
        source, bands = "000-21: after Gal & Ghahramani (2016), fig. 2", "bands: mean ± 1 and 2 sd of f"
        target = given.figures / "co2.svg"
        save(draw_co2(numbers), target, alt=ALT, values=numbers, interval=bands, source=source, seed=0)
    rows = [expected.to_row(IDS, given.quick) for expected in co2_checks(numbers)]
    sizes = f" --epochs {given.epochs} --width {given.width}"
    command = "python reproduce/co2.py" + (" --quick" if given.quick else sizes)
    write("co2", command, rows, [0], given.quick, given.out, lines[0]["made"])
    print(show(rows))
    return rows


if __name__ == "__main__":
    main()
