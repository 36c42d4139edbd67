"""Published test errors on MNIST, and ours beside them.

Those of the public reproduction were read; the paper's are from memory and decide nothing. "Not above" asks whether ours is at most the
number that was read, plus two binomial errors of 10,000 images (on one seed there is no other).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

Line = dict[str, Any]
KINDS = {
    "plain": "plain network",
    "dropout": "dropout",
    "gaussian": "MeanField, Gaussian",
    "mixture": "MeanField, mixture",
    "matrix": "MatrixNormal, Gaussian",
    "flow": "MultiplicativeFlow, Gaussian",
}
READ = {("plain", 1200): 1.58, ("dropout", 1200): 1.37, ("gaussian", 1200): 2.60, ("mixture", 1200): 2.38}
BEST = 2.28  # the best of its Bayes by Backprop, under a Laplace prior
PAPER = {
    "plain": {400: 1.83, 800: 1.84, 1200: 1.88},
    "dropout": {400: 1.51, 800: 1.33, 1200: 1.36},
    "gaussian": {400: 1.82, 800: 1.99, 1200: 2.04},
    "mixture": {400: 1.36, 800: 1.34, 1200: 1.32},
}


def settings(line: Line) -> tuple[Any, ...]:
    keys = ("units", "epochs", "inclusion", "slab", "spike", "sd", "lr")
    return (line["job"]["kind"], *(line["job"].get(key, -1.0) for key in keys))


def table(lines: Sequence[Line]) -> list[dict[str, Any]]:
    rows = []
    for _, group in groupby(sorted(lines, key=settings), settings):
        own = list(group)
        job = own[0]["job"]
        kind, units = job["kind"], job["units"]
        name = f"{KINDS[kind]}, {units} units, {job['epochs']} epochs"
        widths = [value for line in own for key, value in line["sd"].items() if key.endswith("weight")]
        for metric in ("naive", "MC", "nll"):
            x = np.array([line[metric] for line in own])
            errors, mean = metric != "nll", float(x.mean())
            published = READ.get((kind, units)) if errors and not job["validation"] else None
            bound = None if published is None else published + 2 * math.sqrt(published * (100 - published) / 1e4)
            rows.append(
                {
                    "row": name,
                    "metric": f"error %, {metric}" if errors else "nll",
                    "published": published,
                    "mark": "read",
                    "paper, from memory": PAPER.get(kind, {}).get(units) if errors and not job["validation"] else None,
                    "ours": mean,
                    "se": float(x.std(ddof=1) / math.sqrt(len(x))) if len(x) > 1 else None,
                    "n": len(x),
                    "not above": None if bound is None else mean <= bound,
                    "at most the best read": mean <= BEST
                    if published is not None and kind in ("gaussian", "mixture")
                    else None,
                    "mean sd": float(np.mean(widths)) if widths else math.nan,
                    "settings": {key: value for key, value in job.items() if key not in ("kind", "seed")},
                    "seconds": float(np.mean([line["seconds"] for line in own])),
                    "checklist": ["000-30"] if kind in ("matrix", "flow") else ["000-23", "000-26", "000-27"],
                }
            )
    return rows
