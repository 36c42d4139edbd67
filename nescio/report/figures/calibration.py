"""Is the stated certainty true? For numbers: how often intervals of each level hold the truth, and where in its law the truth falls.
For classes: how often answers of each probability are right. Grey bands hold what chance alone would give a perfect model.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from nescio.evaluation import ece, pit, reliability
from nescio.predictive import Predictive
from nescio.report.figures.arrays import array, column
from nescio.report.figures.binomial import binomial_band
from nescio.report.style import Numbers, canvas, headed, styled
from nescio.report.theme import LIGHT, Theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVELS = np.linspace(0.05, 0.95, 19)
BINS = 10


def coverage_data(predictive: Predictive, y: Tensor) -> Numbers:
    """Part of the truths inside the central interval of each level, and a histogram of the PIT; either band holds all with 95%."""
    u = column(pit(predictive, y), "the transform")
    inside = np.array([(np.abs(u - 0.5) <= level / 2).mean() for level in LEVELS])
    around = math.sqrt(math.log(2 / 0.05) / (2 * len(u)))  # Dvoretzky, Kiefer & Wolfowitz: all levels at once
    low, high = np.clip(LEVELS - around, 0, 1), np.clip(LEVELS + around, 0, 1)
    counts, _ = np.histogram(u, bins=BINS, range=(0, 1))
    bar_low, bar_high = binomial_band(len(u), np.full(BINS, 1 / BINS), 0.05 / BINS)
    return {
        "level": LEVELS,
        "held": inside,
        "low": low,
        "high": high,
        "pit": counts.astype(np.float64),
        "pit_low": bar_low * len(u),
        "pit_high": bar_high * len(u),
        "points": np.array(float(len(u))),
    }


def draw_coverage(numbers: Numbers, title: str, theme: Theme = LIGHT) -> Figure:
    with styled(theme):
        figure, (left, right) = canvas(1, 2, 7.2, 3.9)
        good = (
            "Good: the line follows the diagonal and bars are level, both inside the grey band (95% if all is right)."
        )
        headed(figure, title, good, theme)
        left.fill_between(numbers["level"], numbers["low"], numbers["high"], color=theme.pale, linewidth=0)
        left.plot([0, 1], [0, 1], color=theme.grey, linewidth=1)
        out = (numbers["held"] < numbers["low"]) | (numbers["held"] > numbers["high"])
        left.plot(numbers["level"], numbers["held"], "o-", color=theme.blue, markersize=3.5)
        left.plot(numbers["level"][out], numbers["held"][out], "X", color=theme.miss, markersize=6)
        left.set(
            xlabel="stated probability of the interval", ylabel="part that holds the truth", xlim=(0, 1), ylim=(0, 1)
        )
        edges = np.linspace(0, 1, BINS + 1)
        middle = (edges[1:] + edges[:-1]) / 2
        wrong = (numbers["pit"] < numbers["pit_low"]) | (numbers["pit"] > numbers["pit_high"])
        right.fill_between([0, 1], numbers["pit_low"][0], numbers["pit_high"][0], color=theme.pale, linewidth=0)
        for mask, colour in ((~wrong, theme.blue), (wrong, theme.miss)):
            right.bar(middle[mask], numbers["pit"][mask], 0.9 / BINS, color=colour, alpha=0.85)
        right.set(xlabel="where in its distribution the truth fell", ylabel="rows", xlim=(0, 1))
        right.set_ylim(0, 1.15 * max(numbers["pit"].max(), numbers["pit_high"].max()))
    return figure


def reliability_data(predictive: Predictive, y: Tensor) -> Numbers:
    """Of the most probable class, in ten bins of its probability; the band is that of a perfect model with these answers."""
    found = reliability(predictive, y, BINS)
    stated, right, count = (array(part) for part in found[:3])
    low, high = np.full(BINS, np.nan), np.full(BINS, np.nan)
    filled = np.flatnonzero(count)
    for i in filled:  # all bins at once
        low[i], high[i] = (bound[0] for bound in binomial_band(int(count[i]), stated[i : i + 1], 0.05 / len(filled)))
    return {
        "stated": stated,
        "right": right,
        "count": count,
        "low": low,
        "high": high,
        "ece": np.array(ece(predictive, y)),
    }


def draw_reliability(numbers: Numbers, title: str, theme: Theme = LIGHT) -> Figure:
    with styled(theme):
        figure, (top, bottom) = canvas(2, 1, 5.6, 5.0, heights=(3.0, 1.0), share_x=True)
        good = f"Good: dots on the diagonal, within their bars. Mean gap (ECE) {float(numbers['ece']):.3f}."
        headed(figure, title, good, theme)
        kept = numbers["count"] > 0
        stated, right = numbers["stated"][kept], numbers["right"][kept]
        low, high = numbers["low"][kept], numbers["high"][kept]
        wrong = (right < low) | (right > high)
        top.plot([0, 1], [0, 1], color=theme.grey, linewidth=1)
        top.vlines(stated, low, high, color=theme.pale, linewidth=7)
        top.plot(stated[~wrong], right[~wrong], "o", color=theme.blue, markersize=5)
        top.plot(stated[wrong], right[wrong], "X", color=theme.miss, markersize=7)
        top.set(ylabel="part that was right", xlim=(0, 1), ylim=(0, 1.02))
        bottom.bar(stated, numbers["count"][kept], 0.07, color=theme.blue, alpha=0.85)
        bottom.set(xlabel="stated probability of the answer", ylabel="answers")
    return figure
