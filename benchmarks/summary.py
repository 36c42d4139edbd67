"""From measurements to a table: medians over rounds, and ratios of what was measured in the same round."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

VECTORISED = ("numpyro", "blackjax")
JAX = (*VECTORISED, "numpyro-parallel")
Measured = dict[str, Any]  # {"round", "job", "library", "sampler", "chains", "draws", ...what the process printed}


def slope(measured: Measured) -> float:
    """Seconds per gradient and chain: what a longer run took more, by what it made more."""
    (t1, t2), (g1, g2) = measured["times"], measured["gradients"]
    return (t2 - t1) / (g2 - g1) / measured["chains"]


def setup(first: Measured, per_gradient: float) -> float:
    """Seconds of the first run that were not spent on gradients."""
    return first["first"] - per_gradient * first["first_gradients"] * first["chains"]


def spread(name: str, values: Iterable[float], digits: int) -> dict[str, Any]:
    """Median, least and most; None without a value."""
    kept = sorted(values)
    if not kept:
        return {name: None, f"{name}_least": None, f"{name}_most": None}
    numbers = (statistics.median(kept), kept[0], kept[-1])
    return dict(zip((name, f"{name}_least", f"{name}_most"), (round(x, digits) for x in numbers), strict=True))


def costs(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """A row for each library, sampler and number of chains. A slope that is not positive, by disturbance, is void."""
    rows = []
    for case in dict.fromkeys((m["library"], m["sampler"], m["chains"]) for m in measured):
        own = [m for m in measured if (m["library"], m["sampler"], m["chains"]) == case]
        steady = [m for m in own if m["job"] == "steady"]
        good = [m for m in steady if slope(m) > 0]
        typical = statistics.median(slope(m) for m in good) if good else 0.0
        last = steady[-1]
        rows.append(
            {
                "row": f"{case[0]} {case[1]}, {case[2]} {'chain' if case[2] == 1 else 'chains'}",
                "kind": "cost",
                **dict(zip(("library", "sampler", "chains"), case, strict=True)),
                **spread("us", (1e6 * slope(m) for m in good), 2),
                **spread("setup_s", (setup(m, typical) for m in steady), 2),
                **spread("cached_s", (setup(m, typical) for m in own if m["job"] == "first"), 2),
                **spread("total_s", (m["total"] for m in own if m["job"] == "short"), 2),
                **spread("import_s", (m["imported"] for m in own), 2),
                "gradients_per_draw": round(last["gradients"][1] / last["draws"][1], 2),
                "acceptance": last["acceptance"],
                "compiled": last["compiled"],
                "n": len(good),
                "void": len(steady) - len(good),
            }
        )
    return rows


def ratios(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """nescio / the fastest JAX peer of the round, of all and of the vectorised ones, and Pyro / nescio, for each sampler."""
    cost = {
        (m["sampler"], m["chains"], m["round"], m["library"]): slope(m)
        for m in measured
        if m["job"] == "steady" and slope(m) > 0
    }
    rounds = sorted({m["round"] for m in measured})
    rows = []
    for sampler, chains in dict.fromkeys((m["sampler"], m["chains"]) for m in measured if m["library"] == "nescio"):
        at = [{name: cost.get((sampler, chains, r, name)) for name in ("nescio", "pyro", *JAX)} for r in rounds]
        fastest, vectorised = ([least(own, peers) for own in at] for peers in (JAX, VECTORISED))
        ours = [own["nescio"] for own in at]
        pairs = {
            "nescio / fastest JAX peer": zip(ours, fastest, strict=True),
            "nescio / fastest vectorised JAX peer": zip(ours, vectorised, strict=True),
            "Pyro / nescio": zip((own["pyro"] for own in at), ours, strict=True),
        }
        for name, values in pairs.items():
            each = [a / b for a, b in values if a and b]
            if each:
                head = {"row": f"{name}, {sampler}, {chains} chains", "kind": "ratio", "ratio_of": name}
                head |= {"sampler": sampler, "chains": chains, "n": len(each)}
                rows.append({**head, **spread("ratio", each, 3), "rounds": [round(x, 3) for x in each]})
    return rows


def least(cost: dict[str, float | None], names: Sequence[str]) -> float | None:
    return min((x for name in names if (x := cost[name])), default=None)


def show(rows: Sequence[dict[str, Any]]) -> str:
    def number(x: float | None) -> str:
        return "-" if x is None else f"{x:.1f}" if x < 100 else f"{x:.0f}"

    head = f"{'':<28}{'us / gradient / chain':>28}{'set-up s':>10}{'cached':>8}{'200 draws s':>13}{'compiled':>10}"
    lines = [head]
    for row in rows:
        if row["kind"] == "cost":
            cost = f"{number(row['us'])} ({number(row['us_least'])} ... {number(row['us_most'])})"
            rest = [number(row[name]) for name in ("setup_s", "cached_s", "total_s")]
            compiled = {True: "yes", False: "no"}.get(row["compiled"], "failed")
            lines.append(f"{row['row']:<28}{cost:>28}{rest[0]:>10}{rest[1]:>8}{rest[2]:>13}{compiled:>10}")
    for row in rows:
        if row["kind"] == "ratio":
            lines.append(f"{row['row']:<48}{row['ratio']:>8.2f} ({row['ratio_least']:.2f} ... {row['ratio_most']:.2f})")
    return "\n".join(lines)
