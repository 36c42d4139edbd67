"""Test error against epoch, and histograms of trained weights: pure functions of finished jobs, and drawings of what they return."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from mnist_bbb_table import KINDS

from nescio.report import save
from nescio.report.style import CYCLE, Numbers, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Line = dict[str, Any]


def largest(lines: Sequence[Line]) -> dict[str, Line]:
    """Of each kind the widest network, the first of those."""
    found: dict[str, Line] = {}
    for line in sorted(lines, key=lambda line: -line["job"]["units"]):
        found.setdefault(line["job"]["kind"], line)
    return {kind: found[kind] for kind in KINDS if kind in found}


def curves_data(lines: Sequence[Line]) -> Numbers:
    """Per cent after each epoch: the prediction that each method stands for, by draws where weights are random."""
    chosen = largest(lines)
    curves = {kind: [e["naive" if kind == "plain" else "MC"] for e in line["curve"]] for kind, line in chosen.items()}
    most = max(len(curve) for curve in curves.values())
    padded = {kind: np.pad(np.array(c), (0, most - len(c)), constant_values=np.nan) for kind, c in curves.items()}
    return {"epoch": np.arange(1, most + 1), **padded}


def histogram_data(lines: Sequence[Line], edges: np.ndarray) -> Numbers:
    """Densities of all weights: of a draw where they are Gaussian, of the values elsewhere."""
    width = np.diff(edges)
    found = {}
    for kind, line in largest(lines).items():
        which = "means" if kind in ("plain", "dropout") else "draw"
        found[kind] = np.array(line["histogram"][which]) / width
    return {"weight": (edges[1:] + edges[:-1]) / 2, **found}


def draw_lines(numbers: Numbers, x: str, x_label: str, y_label: str, title: str, log: bool) -> Figure:
    with styled():
        figure, (axes,) = canvas(1, 1, 6.4, 3.8)
        figure.suptitle(title, x=0.01, ha="left")
        for i, kind in enumerate(kind for kind in KINDS if kind in numbers):
            axes.plot(numbers[x], numbers[kind], color=CYCLE[i], label=KINDS[kind])
        axes.set(xlabel=x_label, ylabel=y_label, yscale="log" if log else "linear")
        axes.legend(loc="upper right")
    return figure


def draw(lines: Sequence[Line], edges: np.ndarray, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    curves, weights = curves_data(lines), histogram_data(lines, edges)
    units = max(line["job"]["units"] for line in lines)
    source, seed = "after Blundell et al. (2015), figs. 2 and 3", lines[0]["job"]["seed"]
    figure = draw_lines(curves, "epoch", "epoch", "test error, %", f"Error on MNIST, two layers of {units}", False)
    alt = "Four curves of test error against epoch: a plain network, dropout, and Bayes by Backprop under two priors."
    save(figure, folder / "mnist_errors.svg", alt=alt, values=curves, source=source, seed=seed)
    figure = draw_lines(weights, "weight", "weight", "density", f"Trained weights, two layers of {units}", True)
    alt = "Four histograms of trained weights as lines: a plain network, dropout, and a draw of Bayes by Backprop under two priors."
    save(figure, folder / "mnist_weights.svg", alt=alt, values=weights, source=source, seed=seed)
