"""What is gained by saying "I do not know": the error of the rows that are answered, when the most doubtful ones are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from nescio.evaluation import losses, max_probability, of_points, risk_coverage, total_variance
from nescio.predictive import Predictive
from nescio.report.figures.arrays import array
from nescio.report.style import Numbers, canvas, headed, styled
from nescio.report.theme import LIGHT, Theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def selective_data(predictive: Predictive, y: Tensor) -> Numbers:
    """Risk by the model's doubt, by the best order there is, and without any; for numbers the root of the mean squared error."""
    classes = predictive.probabilities is not None
    doubt = of_points(max_probability(predictive) if classes else total_variance(predictive))
    loss = of_points(losses(predictive, y))
    found, best = risk_coverage(doubt, loss), risk_coverage(loss, loss)
    curves = {
        "risk": array(found.risk),
        "best": array(best.risk),
        "all": np.full(len(loss), float(loss.double().mean())),
    }
    if not classes:
        curves = {name: np.sqrt(values) for name, values in curves.items()}
    return {"coverage": array(found.coverage), **curves, "aurc": np.array(found.aurc), "excess": np.array(found.excess)}


def draw_selective(numbers: Numbers, title: str, unit: str, theme: Theme = LIGHT) -> Figure:
    with styled(theme):
        figure, (axes,) = canvas(1, 1, 5.6, 4.2)
        headed(
            figure,
            title,
            "Good: the blue line falls to the left, towards the dotted one: doubt finds the errors.",
            theme,
        )
        axes.plot(numbers["coverage"], numbers["all"], color=theme.grey, linewidth=1, label="answers chosen blindly")
        axes.plot(
            numbers["coverage"], numbers["best"], ":", color=theme.ink, linewidth=1.2, label="if every error were known"
        )
        axes.plot(
            numbers["coverage"], numbers["risk"], color=theme.blue, linewidth=2, label="least doubtful rows first"
        )
        axes.set(xlabel="part of the rows that is answered", ylabel=f"error of the answers ({unit})", xlim=(0, 1))
        axes.set_ylim(0, 1.3 * max(float(numbers["all"].max()), float(numbers["risk"].max()), 1e-12))
        axes.legend(loc="upper left", fontsize=7.5)
    return figure
