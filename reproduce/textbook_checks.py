"""What the textbook pictures claim, as numbers with bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nescio.report.figures.modes import CASES, CHAINS
from nescio.report.figures.paths import TITLES
from nescio.report.figures.predictive import NOISE

Numbers = dict[str, np.ndarray]
Z, ROUNDING = 6.11, 1e-9


@dataclass(frozen=True)
class Check:
    """`ours` must lie in [low, high]. `mixing`: it says nothing of chains that are too short."""

    row: str
    metric: str
    ours: float
    low: float
    high: float
    n: int
    mixing: bool = False

    def to_row(self, ids: Sequence[str], quick: bool) -> dict[str, Any]:
        right = None if quick and self.mixing else bool(self.low <= self.ours <= self.high)
        kept = {"row": self.row, "metric": self.metric, "published": None, "mark": "exact", "ours": self.ours}
        bounds = [None if np.isinf(x) else x for x in (self.low, self.high)]
        return {**kept, "bounds": bounds, "n": self.n, "right": right, "checklist": list(ids)}


def largest(x: np.ndarray) -> float:
    return float(np.abs(x).max())


def paths_checks(numbers: Numbers, figure: str = "paths") -> Iterator[Check]:
    for name in TITLES:
        z, gap, steps = numbers[f"{name}_z"], float(numbers[f"{name}_mismatch"]), len(numbers[f"{name}_took"])
        yield Check(
            f"{figure}, {name}", "largest |z| of moments against quadrature", largest(z), 0, Z, int(numbers["many"])
        )
        yield Check(
            f"{figure}, {name}", "distance of a state from its proposal or the one before", gap, 0, ROUNDING, steps
        )


def predictive_checks(numbers: Numbers) -> Iterator[Check]:
    x, sd, points = numbers["x"], numbers["sd"], len(numbers["x"])
    known = np.interp(numbers["x_train"], x, sd)
    off = min(float(sd[np.abs(x).argmin()]), float(sd[0]), float(sd[-1])) / float(np.median(known))
    low, high = numbers["noise_interval"]
    rows = (
        ("largest R-hat of f", float(numbers["rhat"].max()), 0, 1.01, points),
        ("smallest ESS of f", float(numbers["ess"].min()), 400, np.inf, points),
        ("largest |z| of E[1 + u dlog p/du] = 0", largest(numbers["identity_z"]), 0, Z, len(numbers["identity_z"])),
        ("part of the draws that diverged", float(numbers["divergences"]) / int(numbers["draws"]), 0, 0.01, 1),
        ("sd of f off the data, in the gap and at both ends, over the median on them", off, 3, np.inf, 3),
        ("lower end of 99.9% of the noise, true noise 0.2", float(low), 0, NOISE, 1),
        ("upper end of 99.9% of the noise, true noise 0.2", float(high), NOISE, np.inf, 1),
    )
    for metric, ours, least, most, n in rows:
        yield Check("predictive", metric, ours, least, most, n, mixing=True)


def modes_checks(numbers: Numbers) -> Iterator[Check]:
    for name in CASES:
        z, (weights, functions) = numbers[f"{name}_z"], numbers[f"{name}_rhat"]
        apart = (1.2, np.inf) if name != "scale" else (0, 1.05)  # a ridge is one piece
        yield Check(
            f"modes, {name}",
            "largest |z| of moments against quadrature",
            largest(z),
            0,
            Z,
            int(numbers["many"]),
            mixing=True,
        )
        gap = float(numbers[f"{name}_mirrored"])
        yield Check(
            f"modes, {name}", "change of log density under the symmetry", gap, 0, ROUNDING, int(numbers["many"])
        )
        divergences = float(numbers[f"{name}_divergences"])
        yield Check(f"modes, {name}", "divergences", divergences, 0, 0, CHAINS, mixing=True)
        yield Check(f"modes, {name}", "R-hat of the function", float(functions), 0, 1.01, CHAINS, mixing=True)
        yield Check(f"modes, {name}", "R-hat of the weights", float(weights), *apart, CHAINS, mixing=True)
