"""The tutorial's numbers, and ours beside them: means over seeds with standard errors.

Its ± may be a deviation over runs or an error of the mean, of a number of runs that is not said. `within` takes it for an error of the
mean; `within strictly` for a deviation over as many runs as ours. Either asks for two standard errors of the difference, and both sides
use the same 1000 test images, so their luck is no part of it (on 1000 others an accuracy of 90% has an error of 0.95 points).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

Line = dict[str, Any]
ACCURACY = {  # per cent, ±
    ("base", "naive"): (89.37, 0.32),
    ("MC dropout", "naive"): (90.07, 0.44),
    ("MC dropout", "MC"): (90.17, 0.23),
    ("concrete dropout", "naive"): (90.23, 0.21),
    ("concrete dropout", "MC"): (90.20, 0.32),
    ("variational dropout", "naive"): (88.77, 0.53),
    ("variational dropout", "MC"): (89.60, 0.56),
}
READINGS = {  # what one row of the tutorial may stand for; its number is beside each of them, and none is called the row
    "concrete dropout, temperature 0.1": "concrete dropout",
    "variational, per unit from 0.1": "variational dropout",
    "variational, per unit from 1": "variational dropout",
    "variational, per weight": "variational dropout",
}
LOG = {  # of one run, epochs 1 to 10
    "cent": (1.979612, 1.094547, 0.715212, 0.523885, 0.433346, 0.366523, 0.276434, 0.225711, 0.204144, 0.164487),
    "wd": (0.054315, 0.051379, 0.049918, 0.049172, 0.048822, 0.048710, 0.048749, 0.048887, 0.049059, 0.049250),
    "acc": (0.336, 0.686, 0.760, 0.831, 0.862, 0.891, 0.926, 0.936, 0.945, 0.950),
}


def row(name: str, metric: str, each: Sequence[float], ids: Sequence[str], published: Any = None) -> dict[str, Any]:
    """`each`: one number a seed. `published`: (number, ±), or (number, None) of a single run."""
    x = np.array(each, dtype=np.float64)
    mean, sd = float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else None
    se = None if sd is None else sd / math.sqrt(len(x))
    number, pm = published or (None, None)
    found: dict[str, Any] = {"within": None, "within strictly": None}
    if number is not None and se is not None and sd is not None:
        # a single run differs from our mean by a run's own deviation
        loose, strict = (pm, pm / math.sqrt(len(x))) if pm is not None else (sd, sd)
        found = {
            "within": bool(abs(mean - number) <= 2 * math.hypot(se, loose)),
            "within strictly": bool(abs(mean - number) <= 2 * math.hypot(se, strict)),
        }
    about = {"row": name, "metric": metric, "published": number, "published_pm": pm, "mark": "read"}
    return {**about, "ours": mean, "sd": sd, "se": se, "n": len(x), **found, "checklist": list(ids)}


def table(lines: Sequence[Line]) -> list[dict[str, Any]]:
    def key(line: Line) -> tuple[str, int, float]:
        return line["job"]["method"], line["job"]["n"], line["job"]["decay"]

    made = []
    least = min(line["job"]["n"] for line in lines)
    for (method, n, decay), group in groupby(sorted(lines, key=key), key):
        own = list(group)
        plain = n == least and decay == 1e-4  # the setting of the table
        name = method + ("" if n == least else f", N = {n}") + ("" if decay == 1e-4 else f", weight decay {decay:g}")
        made += [*accuracies(name, method, own, plain), *epochs(name, own, plain), *shown(name, own)]
    return made


def accuracies(name: str, method: str, own: Sequence[Line], plain: bool) -> Iterator[dict[str, Any]]:
    for kind in ("naive", "MC"):
        for test in ("tutorial", "official"):
            if any(f"{test}, {kind}" not in line for line in own):
                continue
            published = ACCURACY.get((READINGS.get(method, method), kind)) if plain and test == "tutorial" else None
            scores = [line[f"{test}, {kind}"] for line in own]
            label, ids = f"{test} test images, {kind}", ("003-11", "003-17")
            yield row(name, f"accuracy %, {label}", [100 * s["accuracy"] for s in scores], ids, published)
            yield row(name, f"nll, {label}", [s["nll"] for s in scores], ids)


def epochs(name: str, own: Sequence[Line], plain: bool) -> Iterator[dict[str, Any]]:
    """The training log."""
    logs = [line["log"] for line in own if "log" in line]
    for i in range(min(map(len, logs), default=0)):
        for metric, printed in LOG.items():
            published = (printed[i], None) if plain else None
            yield row(
                name, f"{metric}, epoch {i + 1}", [one[i][metric] for one in logs], ("003-8", "003-10"), published
            )


def shown(name: str, own: Sequence[Line]) -> Iterator[dict[str, Any]]:
    """What the tutorial shows as pictures: uncertainty, and the learned probabilities, here of keeping a unit."""
    for kind in ("real", "blended"):
        for metric in ("epistemic", "aleatoric", "spread"):
            if all(kind in line for line in own):
                yield row(name, f"{metric}, {kind} digits", [line[kind][metric] for line in own], ("003-12", "003-9"))
    kinds: dict[str, Callable[[float], float]] = {"rates": lambda p: 1 - p, "alphas": lambda a: a}
    for kind, turn in kinds.items():
        label, ids = ("keep", ("003-16",)) if kind == "rates" else ("alpha", ("003-18",))
        for weight in own[0].get(kind, {}):
            for which, at in {"5%": 1, "median": 10, "95%": 19}.items():
                each = [sorted(turn(q) for q in line[kind][weight])[at] for line in own]
                yield row(name, f"{label} before {weight}, {which} of units", each, ids)
