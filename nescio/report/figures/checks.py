"""Before and after: what the model would have produced by its prior alone, what it produces now, and what was observed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from nescio.predictive import Predictive
from nescio.report.figures.arrays import array
from nescio.report.style import Numbers, canvas, headed, styled
from nescio.report.theme import LIGHT, Theme

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

BINS = 30
SAMPLES = 50


def checks_data(prior: Predictive, posterior: Predictive, y: Tensor, classes: int = 0, seed: int = 0) -> Numbers:
    """Shares of replicated outcomes in bins of a number, or of classes; the prior's part beyond the bins is `outside`."""
    if classes:
        shares = {
            name: array(found).reshape(-1, found.shape[-1]).mean(0)
            for name, found in (("prior", prior.probabilities), ("posterior", posterior.probabilities))
            if found is not None
        }
        seen = np.bincount(array(y).astype(int).reshape(-1), minlength=classes) / y.numel()
        return {"observed": seen, **shares, "outside": np.array(0.0)}
    seen = array(y).reshape(-1)
    width = float(seen.max() - seen.min()) or 1.0
    edges = np.linspace(seen.min() - 0.5 * width, seen.max() + 0.5 * width, BINS + 1)
    drawn = {"prior": array(prior.sample(SAMPLES, seed)), "posterior": array(posterior.sample(SAMPLES, seed))}
    counted = {name: np.histogram(values, edges)[0] / values.size for name, values in drawn.items()}
    return {
        "edge": edges,
        "observed": np.histogram(seen, edges)[0] / len(seen),
        **counted,
        "outside": np.array(1 - counted["prior"].sum()),
    }


def draw_checks(numbers: Numbers, title: str, unit: str, classes: Sequence[str] = (), theme: Theme = LIGHT) -> Figure:
    with styled(theme):
        figure, (axes,) = canvas(1, 1, 5.6, 4.0)
        text = "Good: blue follows the grey area.\nThe prior (orange) should be wider than what was observed, not elsewhere."
        headed(figure, title, text, theme)
        if classes:
            place = np.arange(len(classes))
            axes.bar(place, numbers["observed"], 0.8, color=theme.pale, label="observed")
            axes.plot(
                place, numbers["prior"], "_", color=theme.orange, markersize=16, markeredgewidth=2, label="prior alone"
            )
            axes.plot(place, numbers["posterior"], "o", color=theme.blue, markersize=5, label="now")
            axes.set_xticks(place, [name[:12] for name in classes], rotation=30 if len(classes) > 5 else 0)
            axes.set_ylabel("share of the rows")
        else:
            edges = numbers["edge"]
            axes.stairs(numbers["observed"], edges, fill=True, color=theme.pale, label="observed")
            axes.stairs(numbers["prior"], edges, color=theme.orange, linewidth=1.6, label="prior alone")
            axes.stairs(numbers["posterior"], edges, color=theme.blue, linewidth=2, label="now")
            axes.set(xlabel=unit, ylabel="share")
        axes.set_ylim(0, 1.35 * max(float(numbers[name].max()) for name in ("observed", "prior", "posterior")))
        axes.legend(loc="upper right", ncols=3)
    return figure
