"""Textbook pictures of sampling, each with checks of the numbers it is drawn from.

    python reproduce/textbook_posteriors.py [--quick] [--out docs/figures] [--results FOLDER] [NAME ...]

`paths` shows Metropolis, Langevin and Hamiltonian proposals on one curved density of two weights, `walks` the same on one weight;
`predictive` the posterior predictive of a small
network under w ~ N(0, σ² = 5), σ₀ ~ Gamma(1/2, 1); `modes` posteriors over two weights with draws on them. What an exact grid knows is
held to |z| <= 6.11, with independent chains as replicates (textbook_checks.py; about once in 1e9 by chance). Each figure is saved as SVG
with its values as CSV beside it, the checks as JSON. With --quick chains are too short to have mixed, and whether they have is left open.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from evidence import RESULTS, origin, write
from textbook_checks import Check, Numbers, modes_checks, paths_checks, predictive_checks

from nescio.report import save
from nescio.report.figures import modes, paths, predictive, walks

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Entry:
    """`quick`: arguments of the data function that make it fast."""

    ids: tuple[str, ...]
    source: str
    alt: str
    data: Callable[..., Numbers]
    draw: Callable[[Numbers], Figure]
    checks: Callable[[Numbers], Iterator[Check]]
    quick: dict[str, Any]
    interval: str = ""


REGIONS = "regions that hold 99, 90, 70, 40 and 15%"
FIGURES = {
    "paths": Entry(
        ("002-19", "002-20", "002-22"),
        "after Neal (2011)",
        "Three panels show a density bent like a banana. A random walk visits it in short and long hops; many of its proposals are "
        "refused beside the bend. Langevin steps are shorter and mostly accepted. Hamiltonian paths, drawn with their leapfrog "
        "points, curve along the bend from the start at its lower end up and over the top, and none is refused.",
        paths.paths_data,
        paths.draw_paths,
        paths_checks,
        {"looks": 40, "draws": 50, "many": 400, "steps": 500},
        REGIONS,
    ),
    "walks": Entry(
        ("002-19", "002-20", "002-22"),
        "after Neal (2011)",
        "Three panels show a density with two hills, the histogram of many chains on its exact curve, and below the way of one chain "
        "over its evaluations, downwards. A random walk shuffles about one hill and crosses now and then; Langevin steps lean uphill; "
        "Hamiltonian paths swing through the valley from hill to hill, and hardly one is refused.",
        walks.walks_data,
        walks.draw_walks,
        partial(paths_checks, figure="walks"),
        {"looks": 40, "many": 400, "steps": 500},
    ),
    "predictive": Entry(
        ("002-1",),
        "posterior predictive under w ~ N(0, σ² = 5), σ₀ ~ Gamma(1/2, 1) (Nalisnick, lecture)",
        "Functions that four chains have drawn pass through thirty points and agree there; in the gap between the points and beyond "
        "them they fan out, and the 90% band with them. Beside it the noise: its posterior is a hump about the true value 0.2, its "
        "prior a curve that falls from infinity at zero.",
        predictive.predictive_data,
        predictive.draw_predictive,
        predictive_checks,
        {"draws": 8, "warmup": 20, "leapfrog": 8},
        "90% central intervals",
    ),
    "modes": Entry(
        ("002-15", "002-18"),
        "symmetries of a posterior (Nalisnick, lecture)",
        "Three posteriors over two weights with the draws of six chains on them. Exchanged units: two modes mirrored in the diagonal. "
        "Changed signs: two modes mirrored in the origin; in both, most chains stay in one mode. Moved scale: one curved ridge that "
        "all chains share. Below, the histogram of one weight over 4000 chains lies on the exact curve.",
        modes.modes_data,
        modes.draw_modes,
        modes_checks,
        {"draws": 12, "many": 300, "warmup": 300},
        REGIONS,
    ),
}


def draw(name: str, folder: Path, quick: bool) -> list[dict[str, Any]]:
    """One figure into the folder; its checks."""
    entry = FIGURES[name]
    numbers = entry.data(**(entry.quick if quick else {}))
    source = f"{', '.join(entry.ids)}: {entry.source}"
    path = folder / f"{name}.svg"
    save(entry.draw(numbers), path, alt=entry.alt, values=numbers, interval=entry.interval, source=source, seed=0)
    return [check.to_row(entry.ids, quick) for check in entry.checks(numbers)]


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FIGURES)}; all if none is given")
    parser.add_argument("--quick", action="store_true", help="short chains: for a look, not for print")
    parser.add_argument("--out", type=Path, default=Path("docs/figures"), help="folder (default: docs/figures)")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder of the checks; not written for some names only"
    )
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in FIGURES]
    if unknown:
        parser.error(f"no figure {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    torch.set_num_threads(1)  # small networks: faster, and the same rounding whatever the machine
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in options.names or FIGURES:
        began = time.perf_counter()
        own = draw(name, options.out, options.quick)
        print(f"{name}  {time.perf_counter() - began:.1f} s", flush=True)
        for row in own:
            verdict = {True: "right", False: "WRONG", None: "open"}[row["right"]]
            print(f"  {row['row']:<20}{row['metric']:<76}{row['ours']:>10.3g}  {verdict}")
        rows += own
    if not options.names:
        command = "python reproduce/textbook_posteriors.py" + (" --quick" if options.quick else "")
        write("textbook_posteriors", command, rows, [0], options.quick, options.results, origin())
    return rows


if __name__ == "__main__":
    main()
