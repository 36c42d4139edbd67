"""All numbers of a report's figures, from a posterior and rows that it has not seen: one pure function, nothing drawn, nothing written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.distributions import Normal

from nescio.data import Encoding
from nescio.errors import UnsupportedError
from nescio.likelihoods import Bernoulli
from nescio.posterior import Draws, Posterior
from nescio.posterior.mixing import functions
from nescio.predictive import Drawn, Predictive
from nescio.report.figures.calibration import coverage_data, reliability_data
from nescio.report.figures.checks import checks_data
from nescio.report.figures.importance import importance_data
from nescio.report.figures.intervals import intervals_data
from nescio.report.figures.parts import parts_data
from nescio.report.figures.selective import selective_data
from nescio.report.figures.trace import trace_data
from nescio.report.style import Numbers
from nescio.runs import Given, Run

MOST_ROWS = 2000  # that are looked at
SHUFFLED = 300  # rows on which the importance of inputs is measured
DRAWS = 200
TRACED = 4  # predictions whose chains are shown


@final
@dataclass(frozen=True, eq=False)
class Judged:
    """The rows that a report speaks of, and what is predicted for them."""

    x: Tensor
    y: Tensor
    predictive: Predictive
    held_out: bool
    index: Tensor  # which of the held-out (or training) rows these are


def judged(run: Run, posterior: Posterior, given: Given) -> Judged:
    """Held-out rows; where there are none those of training, which flatter."""
    held = given.held_out > 0
    x, y = (given.test_x, given.test_y) if held else (given.x, given.y)
    index = torch.linspace(0, len(y) - 1, min(len(y), MOST_ROWS)).round().long()
    labels = run.inputs.labels(y[index], isinstance(posterior.model.likelihood, Bernoulli))
    predictive = posterior.predict(x[index], draws=DRAWS)
    if run.inputs.classes:
        return Judged(x[index], labels, predictive, held, index)
    return Judged(x[index], labels[:, :1], first(predictive), held, index)


def first(predictive: Predictive) -> Predictive:
    """The first output: figures show one."""
    if predictive.mean.shape[1:] == (1,):
        return predictive
    draws = predictive.draws if isinstance(predictive, Drawn) else None
    if not isinstance(draws, Normal):
        raise UnsupportedError("a report of several targets needs Gaussian noise", str(draws), "fit them one by one")
    return Drawn(Normal(draws.loc[..., :1], draws.scale[..., :1], validate_args=False))


def plot_data(run: Run, posterior: Posterior, given: Given) -> dict[str, Numbers]:
    """Figure -> its numbers. Which figures there are depends on the target, the data and the method."""
    rows = judged(run, posterior, given)
    found: dict[str, Numbers] = {}
    if run.inputs.classes:
        found["reliability"] = reliability_data(rows.predictive, rows.y)
    else:
        found["intervals"] = intervals_data(rows.predictive, rows.y)
        found["coverage"] = coverage_data(rows.predictive, rows.y)
    found["parts"] = parts_data(rows.predictive)
    if run.inputs.encoding is not None and len(groups(run.inputs.encoding)) > 1:
        some = slice(None, SHUFFLED)

        def predict(x: Tensor) -> Predictive:
            return (lambda p: p if run.inputs.classes else first(p))(posterior.predict(x, draws=100))

        found["importance"] = importance_data(predict, rows.x[some], rows.y[some], groups(run.inputs.encoding))
    if len(rows.y) > 1:
        found["selective"] = selective_data(rows.predictive, rows.y)
    prior = prior_predictive(run, posterior, rows.x)
    if prior is not None:
        found["checks"] = checks_data(prior, rows.predictive, rows.y, len(run.inputs.classes))
    if isinstance(posterior, Draws) and posterior.theta.shape[0] > 1 and posterior.theta.shape[1] >= 20:
        values = functions(posterior, traced(rows.x))
        found["trace"] = trace_data(values[:, :, :TRACED], posterior.trace.get("divergent"))
    return found


def traced(x: Tensor) -> Tensor:
    return x[torch.linspace(0, len(x) - 1, min(len(x), TRACED)).round().long()]


def prior_predictive(run: Run, posterior: Posterior, x: Tensor) -> Predictive | None:
    """None where the prior is improper, and cannot be drawn from."""
    try:
        found = posterior.model.prior_predictive(x, draws=100)
    except UnsupportedError:
        return None
    return found if run.inputs.classes else first(found)


def groups(encoding: Encoding) -> dict[str, list[int]]:
    """Columns of the table -> the inputs they became."""
    found: dict[str, list[int]] = {}
    place = 0
    for spec in encoding.inputs:
        count = len(spec.titles())
        found[spec.name] = list(range(place, place + count))
        place += count
    return found
