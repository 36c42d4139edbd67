"""Predictions over one input: data, mean, drawn functions, and the interval split into what is not known and what is noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nescio.predictive import Drawn, Predictive
from nescio.report.figures.arrays import array, column, half_width
from nescio.report.style import ALEATORIC, EPISTEMIC, INK, Numbers, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FUNCTIONS = 12  # drawn functions that are shown


def bands_data(x: Any, predictive: Predictive, level: float = 0.9) -> Numbers:
    """Sorted by x. Inner band: mean ± z sd with the epistemic variance; outer band: with the total one."""
    where = column(x, "x")
    order = np.argsort(where, kind="stable")
    mean = column(predictive.mean, "a prediction")[order]
    epistemic, total = (np.sqrt(array(v).reshape(-1)[order]) for v in (predictive.epistemic, predictive.total))
    z = half_width(level)
    functions = np.zeros((0, len(where)))
    if isinstance(predictive, Drawn):
        means = array(predictive.draws.mean).reshape(-1, len(where))  # (draws, points): one network over the whole grid
        chosen = np.linspace(0, len(means) - 1, min(FUNCTIONS, len(means))).round().astype(int)
        functions = means[chosen][:, order]
    return {
        "x": where[order],
        "mean": mean,
        "epistemic_low": mean - z * epistemic,
        "epistemic_high": mean + z * epistemic,
        "low": mean - z * total,
        "high": mean + z * total,
        "functions": functions,
        "level": np.array(level),
    }


def draw_bands(numbers: Numbers, x_train: Any, y_train: Any, title: str) -> Figure:
    level = float(numbers["level"])
    z, x = half_width(level), numbers["x"]
    with styled():
        figure, (axes,) = canvas(1, 1, 8.0, 4.8)
        figure.suptitle(title, x=0.012, ha="left")
        low, high = numbers["epistemic_low"], numbers["epistemic_high"]
        outer = axes.fill_between(x, numbers["low"], low, color=ALEATORIC, alpha=0.35, linewidth=0)
        axes.fill_between(x, high, numbers["high"], color=ALEATORIC, alpha=0.35, linewidth=0)
        inner = axes.fill_between(x, low, high, color=EPISTEMIC, alpha=0.35, linewidth=0)
        lines = axes.plot(x, numbers["functions"].T, color=EPISTEMIC, linewidth=0.6, alpha=0.7)
        mean = axes.plot(x, numbers["mean"], color=INK, linewidth=2)
        data = axes.plot(column(x_train, "x"), column(y_train, "y"), "o", color=INK, markersize=3.5)
        legend = {
            "data": data[0],
            "mean of the predictions": mean[0],
            f"epistemic: mean ± {z:.2f} sd, from not knowing the weights": inner,
            f"total: mean ± {z:.2f} sd, with noise ({level:.0%} if normal)": outer,
        } | ({"functions that are still possible": lines[0]} if lines else {})
        axes.set_xlabel("x")
        axes.set_ylabel("y")
        axes.margins(x=0)
        axes.legend(
            list(legend.values()),
            list(legend),
            loc="upper left",
            bbox_to_anchor=(-0.08, -0.13),
            ncols=2,
            columnspacing=1.5,
        )
    return figure
