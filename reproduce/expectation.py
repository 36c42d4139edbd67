"""What an experiment is expected to show, stated before it is run, as a row of a table that can be wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = dict[str, np.ndarray]


@dataclass(frozen=True)
class Expectation:
    """`ours` is expected in [low, high]; with neither bound it is told and nothing is claimed. `says`: the claim, and whose.

    `n`: what the number is made of (points, seeds, chains). `published`: the same number in a paper, where `mark` says how it was read.
    """

    row: str
    metric: str
    ours: float
    n: int
    low: float = -math.inf
    high: float = math.inf
    says: str = ""
    published: float | None = None
    mark: str = "own"

    def to_row(self, ids: Sequence[str], quick: bool) -> dict[str, Any]:
        """With `quick` nothing has been trained for long enough to be right or wrong."""
        bounds = [None if math.isinf(bound) else bound for bound in (self.low, self.high)]
        claims = bounds != [None, None]
        right = bool(self.low <= self.ours <= self.high) if claims and not quick else None
        kept = {"row": self.row, "metric": self.metric, "published": self.published, "mark": self.mark}
        said = {"bounds": bounds, "says": self.says} if claims else {}
        return {**kept, "ours": self.ours, "n": self.n, **said, "right": right, "checklist": list(ids)}


def show(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each row, and whether it came out as expected."""
    words = {True: "as expected", False: "NOT AS EXPECTED", None: ""}
    lines = []
    for row in rows:
        ends = ["" if bound is None else bound for bound in row.get("bounds", ())]
        limits = f"[{ends[0]}, {ends[1]}]" if ends else ""
        said = f"{limits:>14}  {words[row['right']]}".rstrip()
        lines.append(f"{row['row']:<34}{row['metric']:<62}{row['ours']:>10.4g}{said}")
    return "\n".join(lines)


def at_least(differences: Sequence[float] | np.ndarray) -> float:
    """What paired differences over seeds are at least: their mean less two standard errors; one alone says nothing of its error."""
    values = np.asarray(differences, dtype=np.float64)
    if len(values) < 2:
        return -math.inf
    return float(values.mean() - 2 * values.std(ddof=1) / math.sqrt(len(values)))


def at_most(differences: Sequence[float] | np.ndarray) -> float:
    """Their mean and two standard errors."""
    return -at_least(-np.asarray(differences, dtype=np.float64))
