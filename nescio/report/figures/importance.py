"""Which inputs matter: how much worse predictions get when one column is shuffled over the rows (Breiman, 2001).

The loss is the absolute error of the mean, or one minus the probability of the true class. Bars are means over shuffles and rows, with two
standard errors over the rows. A column that others can stand in for looks unimportant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nescio.noise import Noise
from nescio.predictive import Predictive
from nescio.report.style import Numbers, canvas, headed, styled
from nescio.report.theme import LIGHT, Theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHUFFLES = 5
MOST = 15  # columns that are drawn


def importance_data(
    predict: Callable[[Tensor], Predictive], x: Tensor, y: Tensor, groups: Mapping[str, Sequence[int]], seed: int = 0
) -> Numbers:
    """`groups`: the columns of x that belong to one column of the table. In the order of the groups."""
    before = losses(predict(x), y)
    mean, se = [], []
    for number, places in enumerate(groups.values()):
        harm = torch.zeros_like(before)
        for order in Noise(seed).at("importance", number).permutations(SHUFFLES, len(x)):
            mixed = x.clone()
            mixed[:, list(places)] = x[order][:, list(places)]
            harm += (losses(predict(mixed), y) - before) / SHUFFLES
        mean.append(float(harm.mean()))
        se.append(float(harm.std() / len(harm) ** 0.5) if len(harm) > 1 else float("nan"))
    return {"harm": np.array(mean), "se": np.array(se)}


def losses(predictive: Predictive, y: Tensor) -> Tensor:
    """(rows,) float64."""
    found = predictive.probabilities
    if found is None:
        return (predictive.mean - y).abs().double().reshape(len(y), -1).mean(1)
    truth = found.gather(-1, y.long()[..., None])
    return (1 - truth).double().reshape(len(y), -1).mean(1)


def draw_importance(numbers: Numbers, names: Sequence[str], title: str, unit: str, theme: Theme = LIGHT) -> Figure:
    order = np.argsort(-numbers["harm"], kind="stable")[:MOST][::-1]
    harm, se = numbers["harm"][order], np.nan_to_num(numbers["se"][order])
    with styled(theme):
        figure, (axes,) = canvas(1, 1, 5.6, 1.5 + 0.3 * len(order))
        headed(
            figure,
            title,
            "How much larger the error gets when a column is shuffled; whiskers: two standard errors.",
            theme,
        )
        sure = harm > 2 * se
        place = np.arange(len(order))
        axes.barh(place[sure], harm[sure], color=theme.blue)
        axes.barh(place[~sure], harm[~sure], color=theme.pale)
        axes.errorbar(harm, place, xerr=2 * se, fmt="none", ecolor=theme.ink, elinewidth=1)
        axes.set_yticks(place, [shorten(names[i]) for i in order])
        axes.axvline(0, color=theme.grey, linewidth=1)
        axes.set_xlabel(f"added error ({unit})")
    return figure


def shorten(name: str) -> str:
    return name if len(name) <= 26 else name[:24] + "…"
