"""The tables of benchmarks/posterior_time.py, and the scores of draws, whoever made them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from problem import Problem, pose, standardised

from nescio import Model
from nescio.data import load_uci
from nescio.diagnose import diagnose
from nescio.errors import FileError
from nescio.evaluation import nll
from nescio.laws import Normal
from nescio.likelihoods import Heteroscedastic
from nescio.nets import mlp
from nescio.posterior import Draws

POINTS = 50  # held-out points at which effective draws are counted
KINDS = ("min", "median", "within")  # counts of effective draws: benchmarks/README.md says what they are


def network(widths: tuple[int, ...]) -> Model:
    return Model(mlp(*widths), Normal(0.0, 1.0), Heteroscedastic())


class Table(NamedTuple):
    problem: Problem
    widths: tuple[int, ...]
    x_test: torch.Tensor
    y_test: torch.Tensor
    scale: float  # of the target: densities in its own units are smaller by its logarithm


def load_table(name: str) -> Table:
    try:
        x, y, x_test, y_test = (t.numpy() for t in load_uci(name, 0))
        origin = f"{name}, split 0"
    except FileError:
        random = np.random.default_rng(2)
        x, x_test = random.standard_normal((277, 6)), random.standard_normal((31, 6))
        y, y_test = (np.sin(a[:, :1]) + 0.1 * random.standard_normal((len(a), 1)) for a in (x, x_test))
        origin = "random rows"
    widths = (x.shape[1], 16, 16, 2)
    held_x, held_y = (torch.from_numpy(standardised(a, b)).float() for a, b in ((x_test, x), (y_test, y)))
    problem = pose(standardised(x, x), standardised(y, y), origin, widths, 1)
    return Table(problem, widths, held_x, held_y, float(y.std()))


def score(table: Table, theta: np.ndarray) -> dict[str, Any]:
    """Of draws (chains, draws, weights), whoever made them."""
    model, draws = network(table.widths), torch.from_numpy(theta)
    few = table.x_test[:POINTS]
    f = model.observed(model.named(draws.flatten(0, 1)), few).mean  # (draws, points, 1)
    f = f.reshape(*draws.shape[:2], len(few))
    verdict = diagnose(f)
    # chains that sit in different modes count, each for itself; one that never moved has no ESS and counts nothing
    within = np.stack([np.nan_to_num(diagnose(chain[None]).ess_bulk) for chain in f]).sum(0)
    posterior = Draws(model, draws, torch.zeros(draws.shape[:2]), {}, {})
    lppd = -nll(posterior.predict(table.x_test, draws=None), table.y_test) - math.log(table.scale)
    scores = {
        "ess_min": float(verdict.ess_bulk.min()),
        "ess_median": float(np.median(verdict.ess_bulk)),
        "ess_within": float(np.median(within)),
        "rhat_max": float(verdict.rhat.max()),
        "lppd": lppd,
    }
    finite = {name: value if math.isfinite(value) else None for name, value in scores.items()}
    return {**finite, "draws": theta.shape[0] * theta.shape[1]}


def per_draw(seconds: float, scores: dict[str, Any]) -> dict[str, float | None]:
    """Seconds per effective draw, by each count of them; None where there is none."""
    counts = {kind: scores[f"ess_{kind}"] for kind in KINDS}
    return {f"s_per_{kind}": seconds / count if count else None for kind, count in counts.items()}


def medians(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a table and side: medians over the seeds, with the least and the most seconds per effective draw of each kind."""
    out = []
    for label in dict.fromkeys(row["row"] for row in rows):
        own = [row for row in rows if row["row"] == label]
        middle = {}
        for key in own[0]:
            values = [row[key] for row in own if isinstance(row[key], float)]
            middle |= {key: statistics.median(values)} if values else {}
        ends = {}
        for key in (f"s_per_{kind}" for kind in KINDS):
            per = [row[key] for row in own if row[key] is not None]
            ends |= {f"{key}_least": min(per, default=None), f"{key}_most": max(per, default=None)}
        out.append({**own[0], **middle, "n": len(own), **ends})
    return out


COLUMNS = (
    *(("seconds", "seconds", 1), ("ESS min", "ess_min", 0), ("median", "ess_median", 0), ("within", "ess_within", 0)),
    *(("s / ESS min", "s_per_min", 3), ("median", "s_per_median", 3), ("within", "s_per_within", 3)),
    *(("R-hat", "rhat_max", 3), ("LPPD", "lppd", 3), ("diverged", "divergences", 0)),
)  # title, key, digits


def show(rows: Sequence[dict[str, Any]], head: bool = True) -> str:
    lines = [f"{'':<50}" + "".join(f"{title:>12}" for title, _, _ in COLUMNS)] if head else []
    for row in rows:
        shown = ("-" if row[key] is None else f"{row[key]:.{digits}f}" for _, key, digits in COLUMNS)
        lines.append(f"{row['row']:<50}" + "".join(f"{number:>12}" for number in shown))
    return "\n".join(lines)
