"""Draws the figures that explain the core: `python reproduce/figures.py [--quick] [--out FOLDER] [NAME ...]`.

Each is computed by the library, saved as SVG with its values as CSV beside it, and says which published idea it shows and which
rows of docs/checklist.md it answers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

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
