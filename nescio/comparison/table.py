"""The result of a comparison: every run as a row, means with spreads, ranks; as text, JSON and HTML."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, final

import numpy as np

LOWER = ("nll", "rmse", "crps", "brier", "ece", "total variation")  # better when lower
ORDER = (
    *("nll", "rmse", "accuracy", "crps", "brier", "coverage", "ece", "agreement", "total variation", "OOD AUROC"),
    *("passes", "seconds", "peak MB"),
)
CEILING = "the reference's own ceiling"
PERCENT = ("accuracy", "coverage", "agreement")


@final
@dataclass(frozen=True)
class Row:
    """One method, one task, one seed. `failed`: why there are no values."""

    method: str
    task: str
    split: int
    seed: int
    values: dict[str, float]
    failed: str = ""
    reference: bool = False


@final
@dataclass(frozen=True)
class Comparison:
    """`ceilings`: for each task what the reference reaches against itself; no method can be asked for more. `without`: why a task
    has no ceiling. `left`: fits not begun.
    """

    rows: tuple[Row, ...]
    reference: str | None = None
    ceilings: dict[str, dict[str, float]] = field(default_factory=dict)
    left: int = 0
    without: dict[str, str] = field(default_factory=dict)

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(row.method for row in self.rows))

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(row.task for row in self.rows))

    def columns(self) -> list[str]:
        present = {name for row in self.rows for name in row.values}
        return [name for name in ORDER if name in present]

    def summary(self, task: str | None = None) -> dict[str, dict[str, tuple[float, float]]]:
        """method -> score -> (mean, standard deviation) over splits and seeds, of one task or of all."""
        told: dict[str, dict[str, tuple[float, float]]] = {}
        for method in self.methods:
            mine = [r for r in self.rows if r.method == method and not r.failed and task in (None, r.task)]
            told[method] = {}
            for name in self.columns():
                values = np.array([r.values[name] for r in mine if name in r.values])
                if len(values):
                    told[method][name] = (
                        float(values.mean()),
                        float(values.std(ddof=1)) if len(values) > 1 else math.nan,
                    )
        return told

    def ranks(self, score: str = "nll") -> dict[str, float]:
        """method -> mean rank over all runs, 1 is best; ties share, and what failed comes last."""
        places: dict[str, list[float]] = {method: [] for method in self.methods}
        runs = dict.fromkeys((r.task, r.split, r.seed) for r in self.rows)
        for run in runs:
            own = {r.method: r for r in self.rows if (r.task, r.split, r.seed) == run}
            sign = 1.0 if score in LOWER else -1.0
            values = {m: sign * r.values.get(score, sign * math.inf) for m, r in own.items()}
            for method, value in values.items():
                better = sum(v < value for v in values.values())
                same = sum(v == value for v in values.values())
                places[method].append(better + (same + 1) / 2)
        return {method: float(np.mean(each)) for method, each in places.items()}

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Head and lines, task by task, best rank first."""
        columns, ranks = self.columns(), self.ranks()
        several = len(self.tasks) > 1
        failed = any(row.failed for row in self.rows) or bool(self.without)
        head = [*(["task"] if several else []), "method", "mean rank", *columns, *(["note"] if failed else [])]
        lines = []
        for task in self.tasks:
            told = self.summary(task)
            for method in sorted(self.methods, key=lambda m: ranks[m]):
                cells = [shown(name, told[method].get(name)) for name in columns]
                why = next((r.failed for r in self.rows if r.method == method and r.task == task and r.failed), "")
                note = [f"could not: {why}" if why else ""] if failed else []
                lines.append([*([task] if several else []), method, f"{ranks[method]:.1f}", *cells, *note])
            first = [task] if several else []
            limit = [c for key, c in self.ceilings.items() if key.rsplit(" ", 1)[0] == task]
            reason = next((why for key, why in self.without.items() if key.rsplit(" ", 1)[0] == task), "")
            if limit:
                mean = {name: (float(np.mean([c[name] for c in limit])), math.nan) for name in limit[0]}
                cells = [shown(name, mean.get(name)) for name in columns]
                note = [f"not on every split: {reason}" if reason else ""] if failed else []
                lines.append([*first, CEILING, "", *cells, *note])
            elif reason:
                lines.append([*first, CEILING, "", *(shown(name, None) for name in columns), f"none: {reason}"])
        return head, lines

    def text(self) -> str:
        head, lines = self.table()
        widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
        return "\n".join(
            "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in [head, *lines]
        )

    def to_json(self) -> str:
        head, lines = self.table()
        state: dict[str, Any] = {
            "reference": self.reference,
            "seeds": sorted({row.seed for row in self.rows}),
            "runs": len({(row.task, row.split, row.seed) for row in self.rows}),
            "left": self.left,
            "columns": head[head.index("method") + 1 :],
            "table": [
                {"method": line[head.index("method")], "cells": line[head.index("method") + 1 :]} for line in lines
            ],
            "ranks": self.ranks(),
            "ceilings": self.ceilings,
            "without a ceiling": self.without,
            "rows": [asdict(row) for row in self.rows],
        }
        return json.dumps(clean(state), indent=1) + "\n"

    def html(self) -> str:
        """A <table>, for a page."""
        head, lines = self.table()

        def row(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = "\n".join(row(line, "td") for line in lines)
        return f"<table>\n<thead>{row(head, 'th')}</thead>\n<tbody>\n{body}\n</tbody>\n</table>\n"


def shown(name: str, entry: tuple[float, float] | None) -> str:
    if entry is None or math.isnan(entry[0]):
        return "–"
    value, spread = entry
    form = "{:.1%}" if name in PERCENT else "{:.0f}" if name in ("passes", "peak MB") else "{:.3g}"
    return form.format(value) + ("" if math.isnan(spread) else " ± " + form.format(spread))


def clean(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, dict):
        return {key: clean(x) for key, x in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
