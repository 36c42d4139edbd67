"""Where the uncertainty of each row comes from: what more data would teach against noise that stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nescio.predictive import Predictive
from nescio.report.figures.arrays import array
from nescio.report.style import Numbers, canvas, headed, styled
from nescio.report.theme import LIGHT, Theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKED = 10


def parts_data(predictive: Predictive) -> Numbers:
    """For numbers standard deviations, for classes nats; `marked`: the ten rows with the largest epistemic part."""
    epistemic, aleatoric = (
        array(part).reshape(len(part), -1).mean(1) for part in (predictive.epistemic, predictive.aleatoric)
    )
    if predictive.probabilities is None:
        epistemic, aleatoric = np.sqrt(epistemic), np.sqrt(aleatoric)
    marked = np.zeros(len(epistemic))
    marked[np.argsort(-epistemic, kind="stable")[:MARKED]] = 1
    classes = np.array(float(predictive.probabilities is not None))
    return {"aleatoric": aleatoric, "epistemic": epistemic, "marked": marked, "nats": classes}


def draw_parts(numbers: Numbers, title: str, unit: str, theme: Theme = LIGHT) -> Figure:
    with styled(theme):
        figure, (axes,) = canvas(1, 1, 5.6, 4.6)
        text = "Above the line not knowing outweighs noise: more rows like these would help.\nBelow it they would not help much."
        headed(figure, title, text, theme)
        marked = numbers["marked"] > 0
        x, y = numbers["aleatoric"], numbers["epistemic"]
        top = 1.08 * max(float(x.max()), float(y.max()), 1e-12)
        axes.plot([0, top], [0, top], color=theme.grey, linewidth=1)
        axes.plot(x[~marked], y[~marked], "o", color=theme.grey, markersize=3.5, alpha=0.7)
        axes.plot(
            x[marked], y[marked], "D", color=theme.blue, markersize=5, label="the ten rows that data would help most"
        )
        axes.set(xlabel=f"aleatoric: noise that stays ({unit})", ylabel=f"epistemic: what data would teach ({unit})")
        axes.set(xlim=(0, 1.08 * max(float(x.max()), 1e-12)), ylim=(0, 1.25 * max(float(y.max()), 1e-12)))
        axes.legend(loc="upper left")
    return figure
