"""Predictions for a table: each test point with its interval and the truth, and where its uncertainty comes from.

Variances add, standard deviations do not, so the lower panel shows the standard deviation as a bar whose colours divide it in the
proportion of the variances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from nescio.errors import InputError
from nescio.predictive import Predictive
from nescio.report.figures.arrays import array, column
from nescio.report.style import ALEATORIC, EPISTEMIC, GREY, INK, MISS, Numbers, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def intervals_data(predictive: Predictive, y: Tensor, level: float = 0.9, most: int = 100) -> Numbers:
    """Sorted by predicted mean, at most so many points, evenly spread in that order; `coverage` and `points` are of all."""
    low, high = (column(bound, "a prediction") for bound in predictive.interval(level))
    mean, truth = column(predictive.mean, "a prediction"), column(y, "y")
    if len(mean) != len(truth):
        raise InputError(
            "y must have one row for each prediction", f"{len(truth)} for {len(mean)}", "predict at the rows of y"
        )
    epistemic, aleatoric = array(predictive.epistemic).reshape(-1), array(predictive.aleatoric).reshape(-1)
    missed = (truth < low) | (truth > high)
    order = np.argsort(mean, kind="stable")
    kept = order[np.linspace(0, len(order) - 1, min(most, len(order))).round().astype(int)]
    total = epistemic + aleatoric
    return {
        "mean": mean[kept],
        "low": low[kept],
        "high": high[kept],
        "truth": truth[kept],
        "missed": missed[kept],
        "sd": np.sqrt(total)[kept],
        "epistemic_share": (epistemic / np.maximum(total, np.finfo(float).tiny))[kept],
        "coverage": np.array(1 - missed.mean()),
        "points": np.array(len(truth)),
        "level": np.array(level),
    }


def draw_intervals(numbers: Numbers, title: str, unit: str) -> Figure:
    n = len(numbers["mean"])
    rank, missed, level = np.arange(1, n + 1), numbers["missed"].astype(bool), float(numbers["level"])
    points = int(numbers["points"])
    caught = round(float(numbers["coverage"]) * points)
    with styled():
        figure, (top, bottom) = canvas(2, 1, 8.0, 5.6, heights=(2.4, 1.0), share_x=True)
        figure.suptitle(title, x=0.012, ha="left")
        line = max(1.0, min(5.0, 220 / n))
        for mask, colour, name in (
            (~missed, EPISTEMIC, f"{level:.0%} interval that holds the truth"),
            (missed, MISS, f"{level:.0%} interval that misses it"),
        ):
            label = f"{name} ({mask.mean():.0%})" if n == points else name
            top.vlines(
                rank[mask], numbers["low"][mask], numbers["high"][mask], colour, linewidth=line, alpha=0.4, label=label
            )
        top.plot(rank, numbers["mean"], "_", color=INK, markersize=4 + line, markeredgewidth=1, label="predicted mean")
        top.plot(rank[~missed], numbers["truth"][~missed], "o", color=INK, markersize=3, label="truth")
        top.plot(rank[missed], numbers["truth"][missed], "X", color=MISS, markersize=6, label="truth, missed")
        top.set_ylabel(unit)
        top.set_title(f"{caught} of {points} true values lie in their {level:.0%} interval ({caught / points:.0%})")
        top.legend(loc="upper left", ncols=2)
        top.margins(x=0.01, y=0.22)
        epistemic = numbers["sd"] * numbers["epistemic_share"]
        width = 0.9
        bottom.bar(rank, epistemic, width, color=EPISTEMIC, label="epistemic: more data would remove it")
        rest = numbers["sd"] - epistemic
        bottom.bar(rank, rest, width, bottom=epistemic, color=ALEATORIC, label="aleatoric: noise that stays")
        bottom.set_title("Where the uncertainty comes from")
        bottom.set_ylabel(f"sd ({unit})")
        bottom.set_ylim(0, 1.45 * float(numbers["sd"].max()))
        bottom.legend(loc="upper left", ncols=2)
        shown = "" if n == points else f", {n} of {points} shown"
        bottom.set_xlabel(
            f"test points, sorted by prediction{shown}; colours divide the bar as the variances do", color=GREY
        )
    return figure
