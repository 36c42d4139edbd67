"""The posterior predictive of a small network with a prior on everything, by Hamiltonian Monte Carlo.

    w ~ N(0, σ² = 5),   σ₀ ~ Gamma(1/2, 1),   y ~ N(f(x; W₁, W₂, W₃), σ₀²)        (Nalisnick, lecture)

The lecture shows neither its data nor its widths: here two layers of eight tanh units, and thirty points with a gap between them. What the
sampler gives is checked without knowing the answer: R-hat and ESS of the predictions over the whole range, and E[1 + u ∂log p/∂u] = 0,
which holds for every unconstrained latent u of any posterior (integrate by parts).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from nescio.data.source import source
from nescio.data.toys import gap
from nescio.diagnose import diagnose, mcse_mean
from nescio.infer import HMC, MAP, fit
from nescio.laws import Gamma, Normal
from nescio.likelihoods import Gaussian
from nescio.model import Model
from nescio.nets.mlp import mlp
from nescio.noise import Noise
from nescio.posterior.draws import Draws
from nescio.posterior.mixing import functions
from nescio.predictive import Drawn
from nescio.report.figures.arrays import array
from nescio.report.style import ALEATORIC, CYCLE, EPISTEMIC, GREY, INK, Numbers, canvas, styled
from nescio.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHAINS, WIDTH, POINTS, NOISE, LEVEL = 4, 8, 30, 0.2, 0.9
SHOWN = 3  # functions of each chain
ENDS, MOST_NOISE = 3.5, 0.5


def lecture(seed: int = 0) -> tuple[Model, tuple[Tensor, Tensor]]:
    x, y = gap(POINTS, NOISE, seed)
    with Noise(seed).at("predictive").scope():
        net = mlp(1, WIDTH, WIDTH, 1, activation=nn.Tanh).double()
    return Model(net, Normal(0.0, math.sqrt(5.0)), Gaussian(Gamma(0.5, 1.0))), (x.double(), y.double())


def predictive_data(draws: int = 1500, warmup: int = 600, leapfrog: int = 768, seed: int = 0) -> Numbers:
    """Bands are central intervals: of f, and of y."""
    model, data = lecture(seed)
    start = CHAINS * MAP(epochs=300, lr=0.02, batch_size=POINTS)
    posterior = fit(
        model, data, start >> HMC(draws=draws, warmup=warmup, leapfrog=leapfrog, acceptance=0.95), seed=seed
    )
    assert isinstance(posterior, Draws)
    x = torch.linspace(-ENDS, ENDS, 211, dtype=torch.float64)[:, None]
    f = functions(posterior, x)  # (chains, draws, points)
    predicted = posterior.predict(x, draws=None)
    assert isinstance(predicted, Drawn)
    outside, inside = (1 - LEVEL) / 2, (1 + LEVEL) / 2
    noise = posterior.sample(CHAINS * draws)["likelihood.noise"]
    mixed = diagnose(f, divergent=posterior.info["divergences"])
    return {
        "x": array(x[:, 0]),
        "mean": array(f.mean((0, 1))),
        "sd": array(f.flatten(0, 1).std(0)),
        "f_low": array(f.flatten(0, 1).quantile(outside, 0)),
        "f_high": array(f.flatten(0, 1).quantile(inside, 0)),
        "low": array(predicted.quantile(outside)[:, 0]),
        "high": array(predicted.quantile(inside)[:, 0]),
        "functions": array(f[:, :: max(1, draws // SHOWN)][:, :SHOWN].flatten(0, 1)),  # chain by chain
        "x_train": array(data[0][:, 0]),
        "y_train": array(data[1][:, 0]),
        "noise_heights": np.histogram(array(noise), 50, (0, MOST_NOISE), density=True)[0],
        "noise_interval": array(noise.quantile(torch.tensor([0.0005, 0.9995], dtype=torch.float64))),
        "rhat": mixed.rhat,
        "ess": np.minimum(mixed.ess_bulk, mixed.ess_tail),
        "divergences": np.array(posterior.info["divergences"]),
        "draws": np.array(CHAINS * draws),
        "identity_z": identity_z(Target(model, source(data)), posterior),
    }


def identity_z(target: Target, posterior: Draws) -> np.ndarray:
    """The mean of 1 + u ∂log p/∂u for each latent, in Monte Carlo standard errors. (dim,)"""
    each = []
    for theta in posterior.theta:  # (draws, dim): a chain
        u = target.u(theta)
        each.append(1 + u * target.value_and_grad(u, target.batch(None))[1])
    found = torch.stack(each)
    return array(found.mean((0, 1))) / mcse_mean(found)


def draw_predictive(numbers: Numbers) -> Figure:
    x, colours = numbers["x"], np.repeat(CYCLE[:CHAINS], SHOWN)
    with styled():
        figure, (left, right) = canvas(1, 2, 10.0, 4.5, widths=(3.0, 1.0))
        figure.suptitle("The posterior predictive: wide where there are no data", x=0.008, ha="left")
        outer = left.fill_between(x, numbers["low"], numbers["f_low"], color=ALEATORIC, alpha=0.5, linewidth=0)
        left.fill_between(x, numbers["f_high"], numbers["high"], color=ALEATORIC, alpha=0.5, linewidth=0)
        inner = left.fill_between(x, numbers["f_low"], numbers["f_high"], color=EPISTEMIC, alpha=0.16, linewidth=0)
        lines = [left.plot(x, f, color=c, linewidth=0.8)[0] for f, c in zip(numbers["functions"], colours, strict=True)]
        (mean,) = left.plot(x, numbers["mean"], color=INK, linewidth=2.2)
        (data,) = left.plot(numbers["x_train"], numbers["y_train"], "o", color=INK, markersize=3.5)
        legend = {"data": data, "mean": mean, "draws of f, a colour for each chain": lines[-1]}
        legend |= {f"{LEVEL:.0%} of f": inner, f"{LEVEL:.0%} of y": outer}
        left.legend(list(legend.values()), list(legend), loc="upper left", ncols=5, columnspacing=1.2, handlelength=1.4)
        left.set(xlabel="x", ylabel="y", ylim=(-6.5, 8.0))
        left.margins(x=0)
        edges = np.linspace(0, MOST_NOISE, len(numbers["noise_heights"]) + 1)
        right.stairs(numbers["noise_heights"], edges, fill=True, color=ALEATORIC, alpha=0.5)
        grid = np.linspace(1e-3, MOST_NOISE, 200)
        right.plot(grid, grid**-0.5 * np.exp(-grid) / math.sqrt(math.pi), color=GREY, linestyle="--")
        right.axvline(NOISE, color=INK, linewidth=1)
        top = float(numbers["noise_heights"].max())
        right.set(xlabel="noise $\\sigma_0$", yticks=[], xlim=(0, MOST_NOISE), ylim=(0, 1.25 * top), title="The noise")
        right.spines["left"].set_visible(False)
        right.text(0.27, 0.1 * top, "prior Gamma(1/2, 1)", fontsize=7.5, color=GREY)
        right.text(NOISE + 0.01, 1.17 * top, "that made the data", fontsize=7.5, color=INK)
    return figure
