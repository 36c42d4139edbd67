"""From scores of splits to a table: means with standard errors, beside published ones and our own other methods.

Where a reference is known split by split the difference is paired. A verdict needs two standard errors of the difference, beyond
what rounding to two decimals may hide; splits share rows, so these errors are on the small side. Against a mean only, the
two errors are added as if independent, and nothing is said before all splits are there. Where the number of either side is censored
(uci_censored.py) there is no win: the verdict says so. To be worse than a censored number is worse still, and beside the numbers
that a method reproduces, which have the same grid, nothing is censored. Where a precision was also looked for freely, that NLL is set
beside, too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from uci_censored import in_scores
from uci_methods import METHODS
from uci_published import REFERENCES, SETS, Published, over_splits, splits

UNSEEN = "nll, splits not tried on"
FREED = "nll, free precision"
VALIDATED = "nll, cross-validated"
CHOSEN = ("rate", "precision", "free precision")
METRICS = (
    "nll",
    UNSEEN,
    FREED,
    VALIDATED,
    "rmse",
    "coverage",
    "coverage of 95%",
    "rhat",
    "rhat within chains",
    *CHOSEN,
    "seconds",
)
COMPARED = ("nll", "rmse")
Score = dict[str, Any]


def values(scores: Sequence[Score], name: str, metric: str, tried: int = 0) -> dict[int, float]:
    """By split; empty where some split lacks the metric."""
    own = [s for s in scores if s["set"] == name]
    if metric == UNSEEN:
        return {s["split"]: s["nll"] for s in own if s["split"] >= tried} if tried else {}
    return {s["split"]: s[metric] for s in own} if all(metric in s for s in own) else {}


def compare(
    ours: dict[int, float], other: Published, complete: bool, censored: bool, held: bool = False
) -> dict[str, Any]:
    """Lower is better. `complete`: ours are all splits that the reference has. `censored`: the other's number; `held`: ours is."""
    paired = other.each is not None
    x = np.array([ours[i] for i in sorted(ours)])
    if other.each is not None:
        gap = x - other.each[sorted(ours)]
        error = gap.std(ddof=1) / math.sqrt(len(gap)) if len(gap) > 1 else math.nan
    else:
        gap = x - other.value
        error = math.hypot(x.std(ddof=1) / math.sqrt(len(x)), other.se) if len(x) > 1 else math.nan
    difference = float(gap.mean())
    verdict = None
    if len(x) > 1 and (paired or complete):
        clear = abs(difference) - other.rounding > 2 * error
        verdict = "level" if not clear else "better" if difference < 0 else "worse"
        if held or (censored and verdict != "worse"):
            verdict = "censored"
    return {
        "value": other.value,
        "se": other.se,
        "difference": difference,
        "difference_se": None if math.isnan(error) else float(error),
        "paired": paired,
        "censored": censored or held,
        "verdict": verdict,
    }


def rows(method: str, gap: bool, scores: Sequence[Score], others: dict[str, Sequence[Score]]) -> list[dict[str, Any]]:
    """`others`: scores of other methods of ours on the same splits."""
    entry, table = METHODS[method], []
    for name in SETS:
        for metric in METRICS:
            ours = values(scores, name, metric, 0 if gap else entry.tried)
            if not ours:
                continue
            x, complete = np.array(list(ours.values())), len(ours) == splits(name, gap)
            beside, own, held = {}, None, metric == "nll" and in_scores(name, scores)
            for reference in () if gap else REFERENCES:
                # the splits not tried on are compared with the table of all splits, as far as the row itself goes
                found = reference.look(name, "nll" if metric == UNSEEN else metric)
                if found is not None and reference.label == entry.published:
                    own = found
                if found is not None and metric in COMPARED:
                    same = reference.label == entry.published
                    censored = metric == "nll" and name in reference.censored and not same
                    beside[reference.label] = compare(ours, found, complete, censored, held and not same)
            for label, other in others.items() if metric in COMPARED else ():
                censored = metric == "nll" and in_scores(name, other)
                freely = {f"{label}, precision freed": (FREED, False)} if metric == "nll" else {}
                for said, (key, end) in {label: (metric, censored), **freely}.items():
                    theirs = values(other, name, key)
                    if common := {i: v for i, v in ours.items() if i in theirs}:
                        beside[said] = compare(common, of_splits(theirs, list(common)), complete, end, held)
            mean, published = float(x.mean()), None if own is None else own.value
            table.append(
                {
                    "row": f"{name}, {entry.label}" + (", gap" if gap else ""),
                    "metric": metric,
                    "published": published,
                    "published_se": None if own is None else own.se,
                    "mark": "read",
                    "ours": mean,
                    "se": float(x.std(ddof=1) / math.sqrt(len(x))) if len(x) > 1 else None,
                    "n": len(x),
                    "checklist": list(entry.checklist),
                    "note": note(entry.published),
                    "censored": held,
                    "not_worse": None if own is None or not published else mean <= published + own.se,
                    "better": None if not published else mean < published,  # 0.00 has no digit to compare with
                    "beside": beside,
                }
            )
    return table


def of_splits(each: dict[int, float], wanted: list[int]) -> Published:
    """What another method of ours has scored on these splits."""
    own = np.full(max(wanted) + 1, math.nan)
    own[wanted] = [each[i] for i in wanted]
    mean = over_splits(own[wanted]) if len(wanted) > 1 else Published(each[wanted[0]], 0.0)
    return mean._replace(each=own, rounding=0.0)


def note(label: str | None) -> str:
    return next((r.note.split(";")[0] for r in REFERENCES if r.label == label), "no published one on this protocol")


def tally(table: Sequence[dict[str, Any]], metric: str) -> dict[str, Counter[str]]:
    """For each reference, on how many sets ours is better, level or worse, and on how many nothing may be said."""
    counts: dict[str, Counter[str]] = {}
    for row in table:
        for label, cell in row["beside"].items() if row["metric"] == metric else ():
            said = cell["verdict"] or ("censored" if cell["censored"] else "open")
            counts.setdefault(label, Counter())[said] += 1
    return counts


def show(table: Sequence[dict[str, Any]]) -> str:
    lines = []
    for metric in dict.fromkeys(row["metric"] for row in table):
        lines.append(f"\n{metric}: ours, then others with the difference (negative: ours is lower)")
        for row in table:
            if row["metric"] != metric:
                continue
            lines.append(f"  {row['row'].split(',')[0]:<10}{number(row['ours'], row['se'])}  of {row['n']}")
            for label, cell in row["beside"].items():
                difference = number(cell["difference"], cell["difference_se"])
                said = cell["verdict"] or ("censored" if cell["censored"] else "")
                pair = ", paired" if cell["paired"] else ""
                lines.append(f"    {label:<28}{number(cell['value'], cell['se'])}  {difference}{pair}  {said}")
        for label, counted in tally(table, metric).items():
            lines.append(f"  against {label}: " + ", ".join(f"{said} {n}" for said, n in sorted(counted.items())))
    return "\n".join(lines)


def number(value: float, se: float | None) -> str:
    digits = 5 if abs(value) < 0.02 and (se or 0) < 0.001 else 3
    return (f"{value:.{digits}f}" + ("" if se is None else f" ± {se:.{digits}f}")).rjust(18)
