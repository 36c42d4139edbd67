"""The kinds of generative model, by what they say of the density of the data (after Goodfellow, 2016), and where each stands here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nescio.report.style import BLUE, GREY, PALE, Numbers, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# name, depth, height, what it says, whether the library has it
NODES: dict[str, tuple[int, float, str, bool]] = {
    "generative model": (0, 3.0, "p(x), or a way to draw from it", True),
    "density": (1, 4.25, "log p(x) is a number", True),
    "no density": (1, 1.0, "draws only", False),
    "exact": (2, 5.5, "", True),
    "approximate": (2, 3.0, "", True),
    "implicit": (2, 1.0, "", False),
    "flows": (3, 6.0, "change of variables: flow(...), Flowing()", True),
    "autoregressive": (3, 5.2, "one pixel given those before", False),
    "variational": (3, 3.6, "a bound: vae, cvae, m2, Latent(...)", True),
    "Markov chains": (3, 2.4, "energies, diffusions", False),
    "adversarial": (3, 1.0, "a critic in the place of a density", False),
}
EDGES = (
    ("generative model", "density"),
    ("generative model", "no density"),
    ("density", "exact"),
    ("density", "approximate"),
    ("no density", "implicit"),
    ("exact", "flows"),
    ("exact", "autoregressive"),
    ("approximate", "variational"),
    ("approximate", "Markov chains"),
    ("implicit", "adversarial"),
)


def kinds_data() -> Numbers:
    """Places of the nodes, edges as pairs of them, and which the library has."""
    names = list(NODES)
    return {
        "depth": np.array([NODES[n][0] for n in names]),
        "height": np.array([NODES[n][1] for n in names]),
        "here": np.array([NODES[n][3] for n in names]),
        "edge": np.array([[names.index(a), names.index(b)] for a, b in EDGES]).T,
    }


def draw_kinds(numbers: Numbers) -> Figure:
    with styled():
        figure, (axes,) = canvas(1, 1, 9.0, 4.6)
        figure.suptitle("Kinds of generative model", x=0.012, ha="left")
        x, y = 2.1 * numbers["depth"], numbers["height"]
        for a, b in numbers["edge"].T:
            axes.plot([x[a] + 0.75, x[b] - 0.75], [y[a], y[b]], color=PALE, zorder=1)
        for i, (name, (_, _, said, _)) in enumerate(NODES.items()):
            here = bool(numbers["here"][i])
            box = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": BLUE if here else GREY}
            axes.text(x[i], y[i], name, ha="center", va="center", color=BLUE if here else GREY, bbox=box, zorder=2)
            if said:
                axes.text(x[i], y[i] - 0.36, said, ha="center", va="top", fontsize=7, color=GREY, zorder=2)
        axes.text(-0.8, 0.1, "blue: in this library", fontsize=8, color=BLUE)
        axes.set(xlim=(-1.0, 7.7), ylim=(0, 6.5))
        axes.axis("off")
    return figure
