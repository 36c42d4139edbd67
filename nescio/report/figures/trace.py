"""Chains over time: a few quantities against the draw, each chain in its colour, and beside them the ranks of every chain.

Look at predictions first: hidden units can be exchanged, and weights that never mix may belong to functions that do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nescio.diagnose import ess_bulk, ess_tail
from nescio.diagnose.problems import ESS, RHAT
from nescio.errors import InputError
from nescio.report.figures.arrays import array, expect_names
from nescio.report.figures.ranks import draw_band, outside, quantities, ranks_data, told, unclear
from nescio.report.style import Numbers, canvas, headed, styled
from nescio.report.theme import LIGHT, Theme

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_POINTS = 400  # of a line; of longer chains every so many-th draw is shown


def trace_data(values: Any, divergent: Any = None, bins: int = 20, rate: float = 0.01, seed: int = 0) -> Numbers:
    """Of values (chains, draws, quantities), and of `divergent` (chains, draws): what `ranks_data` gives, and the lines."""
    x = quantities(values)
    draws = x.shape[1]
    step = -(-draws // MOST_POINTS)
    at = np.arange(0, draws, step)
    marked = np.zeros(x.shape[:2], dtype=bool) if divergent is None else array(divergent) > 0
    if marked.shape != x.shape[:2]:
        raise InputError(
            "divergent must be (chains, draws) as the values", f"shape {marked.shape}", "pass posterior.trace[...]"
        )
    return {
        **ranks_data(x, bins, rate, seed),
        "draw": at.astype(np.float64),
        "line": x[:, at].transpose(2, 0, 1),  # (quantities, chains, shown)
        "divergent": np.logical_or.reduceat(marked, at, axis=1).astype(np.float64),  # none of those between is lost
        "ess_bulk": ess_bulk(x),
        "ess_tail": ess_tail(x),
    }


def draw_trace(numbers: Numbers, names: Sequence[str], title: str, theme: Theme = LIGHT) -> Figure:
    rows, chains = numbers["line"].shape[:2]
    expect_names(names, rows, "quantity")
    colours = [theme.cycle[c % len(theme.cycle)] for c in range(chains)]
    with styled(theme):
        figure, axes = canvas(rows, 2, 9.0, 1.75 * rows + 1.3, widths=(2.6, 1.0))
        good = (
            "Good: lines of all colours cover the same stretch, without trend or plateau; on the right, steps stay in the "
            f"grey band ({1 - float(numbers['rate']):.0%} if chains agree).\n"
            f"R-hat below {RHAT} and effective sample sizes of {ESS} or more; what is not so is marked."
        )
        headed(figure, title, good, theme)
        for q in range(rows):
            left, right = axes[2 * q : 2 * q + 2]
            for c in range(chains):
                left.plot(numbers["draw"], numbers["line"][q, c], color=colours[c], linewidth=0.7, alpha=0.75)
            draw_divergences(left, numbers, theme)
            draw_steps(right, numbers, q, colours, theme)
            rhat, bulk, tail = (float(numbers[name][q]) for name in ("rhat", "ess_bulk", "ess_tail"))
            fine = rhat < RHAT and min(bulk, tail) >= ESS
            summed = f"{told(rhat)}   ESS {bulk:.0f} bulk, {tail:.0f} tail"
            left.set_title(names[q])
            left.set_title(
                summed, loc="right", fontsize=8.5, fontweight="normal", color=theme.ink if fine else theme.miss
            )
            left.margins(x=0.005)
            if q + 1 < rows:
                left.tick_params(labelbottom=False)
        if numbers["divergent"].any():
            note = f"| {int(numbers['divergent'].sum())} divergent: none is good"
            place = {"xy": (1, 0), "xycoords": "axes fraction", "xytext": (0, -22), "textcoords": "offset points"}
            axes[-2].annotate(note, **place, ha="right", va="top", fontsize=8, color=theme.miss)
        axes[-2].set_xlabel("draw")
        for c in range(min(chains, 8)):
            at = (0.988 - 0.062 * (min(chains, 8) - 1 - c), 1 - 0.14 / figure.get_figheight())
            figure.text(
                *at, f"chain {c + 1}", color=colours[c], fontsize=8, fontweight="bold", ha="right", va="top"
            ).set_in_layout(False)
        axes[-1].set_xlabel("low  ←  rank among all chains  →  high", fontsize=8, color=theme.grey)
        axes[1].set_title("ranks of each chain", fontweight="normal", fontsize=8.5)
    return figure


def draw_divergences(axes: Axes, numbers: Numbers, theme: Theme) -> None:
    at = numbers["draw"][numbers["divergent"].any(0)]
    if len(at):
        axes.plot(at, np.full(len(at), 0.02), "|", color=theme.miss, markersize=7, transform=axes.get_xaxis_transform())


def draw_steps(axes: Axes, numbers: Numbers, quantity: int, colours: Sequence[str], theme: Theme) -> None:
    """The rank histograms of all chains as steps over one another."""
    edges = draw_band(axes, numbers, quantity, theme)
    n = len(edges) - 1
    counts, wrong = numbers["counts"][quantity, :, :n], outside(numbers)[quantity, :, :n]
    for c, colour in enumerate(colours):
        axes.stairs(counts[c], edges, baseline=None, color=colour, linewidth=1.3, alpha=0.9)
    top = max(float(counts.max()), float(numbers["high"][quantity, :n].max()))
    axes.set(xlim=(0, 1), ylim=(0, 1.25 * top), xticks=[], yticks=[])
    axes.spines["left"].set_visible(False)
    word, colour = (
        (f"{wrong.sum()} of {wrong.size} outside", theme.miss) if wrong.any() else ("all in the band", theme.grey)
    )
    if unclear(numbers)[quantity]:
        word, colour = "too few independent draws to tell", theme.miss
    axes.annotate(word, (0.98, 0.97), xycoords="axes fraction", ha="right", va="top", fontsize=7.5, color=colour)
