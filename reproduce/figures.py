"""Draws the figures that explain the core: `python reproduce/figures.py [--quick] [--out FOLDER] [NAME ...]`.

Each is computed by the library, saved as SVG with its values as CSV beside it, and says which published idea it shows and which
rows of docs/checklist.md it answers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nescio import Model, fit
from nescio.infer import HMC, MAP
from nescio.laws import HalfCauchy, Normal
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior import Draws
from nescio.posterior.mixing import functions
from nescio.report import figures, save

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Entry:
    """`quick`: arguments of the data function that make it fast; the other ones are its defaults."""

    ids: str
    source: str
    alt: str
    data: Callable[..., dict[str, np.ndarray]]
    draw: Callable[[Any], Figure]
    quick: dict[str, Any] = field(default_factory=dict)
    interval: str = ""
    seed: int | None = 0


@cache
def bump(draws: int, warmup: int, leapfrog: int) -> tuple[Tensor, Tensor]:
    """Two tanh units for a bump that needs both: eight modes that are one function. Values (chains, draws, 3), divergences."""
    x, noise = torch.linspace(-3, 3, 40)[:, None], Noise(3)
    y = torch.tanh(2 * (x + 1)) - torch.tanh(2 * (x - 1.5)) + 0.4 * noise.at("y").normal(40, 1)
    with noise.at("net").scope():
        model = Model(mlp(1, 2, 1, activation=nn.Tanh), Normal(0, 1), Gaussian(0.4))
    method = MAP(epochs=300, lr=0.05, batch_size=40) >> HMC(
        draws=draws, warmup=warmup, leapfrog=leapfrog, acceptance=0.9
    )
    posterior = fit(model, (x, y), 4 * method, seed=3)
    assert isinstance(posterior, Draws)
    predicted = functions(posterior, torch.tensor([[-1.5], [2.0]]))
    return torch.cat([predicted, posterior.theta[..., :1]], -1), posterior.trace["divergent"]


QUANTITIES = ("prediction at x = −1.5", "prediction at x = 2", "weight of a hidden unit")
MIXED = "Predictions have mixed, weights have not"
FEW = {"draws": 60, "warmup": 60, "leapfrog": 5}


def chains_over_time(draws: int = 1000, warmup: int = 500, leapfrog: int = 40) -> dict[str, np.ndarray]:
    return figures.trace_data(*bump(draws, warmup, leapfrog))


def ranks_of_chains(draws: int = 1000, warmup: int = 500, leapfrog: int = 40) -> dict[str, np.ndarray]:
    return figures.ranks_data(bump(draws, warmup, leapfrog)[0])


@cache
def funnel(draws: int = 1000, warmup: int = 500, leapfrog: int = 10) -> dict[str, np.ndarray]:
    """Ten weights under one random scale, three rows: HMC on scale and weights apart, and, by `.on`, on the weights themselves."""
    noise = Noise(0)
    x = noise.at("x").normal(3, 10)
    y = x[:, :1] + noise.at("y").normal(3, 1)
    with noise.at("net").scope():
        model = Model(nn.Linear(10, 1, bias=False), Normal(0, HalfCauchy(1.0).per("layer")), Gaussian(1.0))
    method, energies = HMC(draws=draws, warmup=warmup, leapfrog=leapfrog), []
    for one in (method, method.on("*")):
        posterior = fit(model, (x, y), 4 * one)
        assert isinstance(posterior, Draws)
        energies.append(posterior.trace["energy"])
    return figures.energy_data(*energies)


FIGURES = {
    "weights": Entry(
        "000-1",
        "after Blundell et al. (2015), fig. 1",
        "Two drawings of one small network. On the left each edge carries a number, the weight at the mode of the posterior. On the "
        "right each edge carries a small bell curve, some narrow and some broad.",
        figures.weights_data,
        figures.draw_weights,
        {"epochs": 200},
    ),
    "blocks": Entry(
        "002-3, 002-12",
        "priors per weight, per layer, joint (Nalisnick, lecture); group scales (Louizos et al., 2017)",
        "Five heat maps of what a prior says about pairs of weights. Independent weights: only the diagonal. One prior a layer: two "
        "square blocks. One joint prior: a band that crosses from one layer to the next. A scale for each filter and for each LSTM "
        "gate: four square blocks in the correlation of log size.",
        figures.blocks_data,
        figures.draw_blocks,
        {"draws": 500},
    ),
    "ellipses": Entry(
        "002-24",
        "after Blei et al. (2017), fig. 1",
        "A long tilted ellipse, the distribution p of two correlated weights. The factorised approximation q is a smaller, untilted "
        "ellipse inside it; the full one lies exactly on it. A third panel compares the marginal densities.",
        figures.ellipses_data,
        figures.draw_ellipses,
        interval="regions that hold 90%",
        seed=None,
    ),
    "laplace": Entry(
        "002-27",
        "after Immer et al. (2021)",
        "Three panels. Steps climb a skewed log posterior to its mode; a parabola with the same curvature touches it there; the normal "
        "density that results matches the peak but misses the long right tail.",
        figures.laplace_data,
        figures.draw_laplace,
        seed=None,
    ),
    "concrete": Entry(
        "003-14",
        "concrete distribution: Maddison et al. (2017), Gal et al. (2017)",
        "Densities of a soft dropout mask at temperatures 2, 1, 0.5 and 0.1: from one hump in the middle to two spikes at 0 and 1. Bars "
        "show that the mass near 0 and near 1 grows towards the drop and keep probabilities.",
        figures.concrete_data,
        figures.draw_concrete,
        seed=None,
    ),
    "priors": Entry(
        "000-32 ... 000-35, 002-8, 002-9",
        "spike-and-slab, lasso, horseshoe (Carvalho et al., 2009), Student-t (Neal, 1996)",
        "Three panels for six priors. Near zero the horseshoe, the log-uniform and spike-and-slab rise to a spike. In the tails the "
        "horseshoe, log-uniform and Student-t fall slowly. The pull of the normal grows with the weight, that of Laplace is constant, "
        "that of the heavy-tailed ones fades.",
        figures.priors_data,
        figures.draw_priors,
        seed=None,
    ),
    "widths": Entry(
        "002-5, 002-10",
        "after Neal (1996), ch. 2",
        "Functions drawn from the prior of networks with 10, 100 and 1000 hidden units. With normal weights they become even wiggles. "
        "With Cauchy weights they keep large jumps at every width.",
        figures.widths_data,
        figures.draw_widths,
        {"draws": 10, "points": 151},
    ),
    "functions": Entry(
        "003-5",
        "dropout draws: Gal & Ghahramani (2016)",
        "Smooth functions drawn from a prior; smooth functions drawn by dropout, which run side by side; and, as a "
        "warning, jagged curves from a fresh mask at every point.",
        figures.functions_data,
        figures.draw_functions,
        {"epochs": 200},
    ),
    "trace": Entry(
        "002-18",
        "chains of HMC; ranks: Vehtari et al. (2021)",
        "Four chains over a thousand draws. Two predictions: the chains overlap and their ranks are even. A weight: two chains stay "
        "above zero and two below, and their ranks leave the band.",
        chains_over_time,
        partial(figures.draw_trace, names=QUANTITIES, title=MIXED),
        FEW,
        seed=3,
    ),
    "ranks": Entry(
        "002-18",
        "after Vehtari et al. (2021)",
        "Rank histograms of four chains. For two predictions all bars end in a grey band about the same height. For a weight each chain "
        "has tall bars on one half and none on the other.",
        ranks_of_chains,
        partial(figures.draw_ranks, names=QUANTITIES, title=MIXED),
        FEW,
        interval="band: 99% for all bars of a quantity",
        seed=3,
    ),
    "energy": Entry(
        "002-18",
        "E-BFMI: Betancourt (2016)",
        "Densities of energies and of their changes. Non-centred, the two curves are equally wide and E-BFMI is near 1 in all chains. "
        "Centred, the changes are much narrower and E-BFMI is 0.2 or less.",
        funnel,
        partial(
            figures.draw_energy,
            names=("scale and weights apart (non-centred)", "weights under their scale (centred): a funnel"),
            title="In a funnel, energies hardly change from draw to draw",
        ),
        FEW,
    ),
}


def draw(name: str, folder: Path, quick: bool) -> Path:
    """One figure into the folder; its path."""
    entry = FIGURES[name]
    numbers = entry.data(**(entry.quick if quick else {}))
    path = folder / f"{name}.svg"
    source = f"{entry.ids}: {entry.source}"
    save(
        entry.draw(numbers),
        path,
        alt=entry.alt,
        values=numbers,
        interval=entry.interval,
        source=source,
        seed=entry.seed,
    )
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the figures that explain the core.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FIGURES)}; all if none is given")
    parser.add_argument("--quick", action="store_true", help="fewer draws: for a look, not for print")
    parser.add_argument("--out", type=Path, default=Path("docs/figures"), help="folder (default: docs/figures)")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in FIGURES]
    if unknown:
        parser.error(f"no figure {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    torch.set_num_threads(1)  # small networks: faster, and the same rounding whatever the machine
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or FIGURES:
        began = time.perf_counter()
        path = draw(name, options.out, options.quick)
        print(f"{path}  {path.stat().st_size / 1000:.0f} kB  {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
