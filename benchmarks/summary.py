"""From measurements to a table: medians over rounds, and ratios of what was measured in the same round."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

VECTORISED = ("numpyro", "blackjax")
JAX = (*VECTORISED, "numpyro-parallel")
TORCH = {"pyro": "Pyro", "posteriors": "posteriors"}
Measured = dict[str, Any]  # {"round", "job", "library", "sampler", "chains", "draws", ...what the process printed}


def slope(measured: Measured) -> float:
    """Seconds per gradient and chain: what a longer run took more, by what it made more."""
    (t1, t2), (g1, g2) = measured["times"], measured["gradients"]
    return (t2 - t1) / (g2 - g1) / measured["chains"]


def setup(measured: Measured) -> float:
    """Seconds of the first run that the same run does not take again."""
    return measured["first"] - measured["again"]


def spread(name: str, values: Iterable[float], digits: int) -> dict[str, Any]:
    """Median, least and most; None without a value."""
    kept = sorted(values)
    if not kept:
        return {name: None, f"{name}_least": None, f"{name}_most": None}
    numbers = (statistics.median(kept), kept[0], kept[-1])
    return dict(zip((name, f"{name}_least", f"{name}_most"), (round(x, digits) for x in numbers), strict=True))


def costs(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """What a gradient costs, for each library, sampler and number of chains. A slope that is not positive, by disturbance, is void."""
    rows = []
    for head, steady in grouped(measured, "steady"):
        good, last = [m for m in steady if slope(m) > 0], steady[-1]
        rows.append(
            {
                **head,
                "kind": "cost",
                **spread("us", (1e6 * slope(m) for m in good), 2),
                "gradients_per_draw": round(last["gradients"][1] / last["draws"][1], 2),
                "acceptance": last["acceptance"],
                "compiled": last["compiled"],
                "n": len(good),
                "void": len(steady) - len(good),
            }
        )
    return rows


def starts(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """What comes before the first gradient, and all of a short run. `compiled`: whether the short run was."""
    rows = []
    for head, own in grouped(measured, "cold", "cached", "short"):
        of = {job: [m for m in own if m["job"] == job] for job in ("cold", "cached", "short")}
        rows.append(
            {
                **head,
                "row": f"{head['row']}, start",
                "kind": "start",
                **spread("setup_s", map(setup, of["cold"]), 2),
                **spread("cached_s", map(setup, of["cached"]), 2),
                **spread("total_s", (m["total"] for m in of["short"]), 2),
                **spread("import_s", (m["imported"] for m in own), 2),
                "compiled": of["short"][-1]["compiled"] if of["short"] else None,
                "n": len(of["cold"]),
            }
        )
    return rows


def grouped(measured: Sequence[Measured], *jobs: str) -> Iterable[tuple[dict[str, Any], list[Measured]]]:
    """The measurements of these jobs by library, sampler and number of chains, with what a row of them begins with."""
    names, own = ("library", "sampler", "chains"), [m for m in measured if m["job"] in jobs]
    for case in dict.fromkeys(tuple(m[name] for name in names) for m in own):
        label = f"{case[0]} {case[1]}, {case[2]} {'chain' if case[2] == 1 else 'chains'}"
        head = {"row": label, **dict(zip(names, case, strict=True))}
        yield head, [m for m in own if tuple(m[name] for name in names) == case]


def ratios(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """nescio / the fastest JAX peer of the round, of all and of the vectorised ones, and Pyro and posteriors / nescio, for each sampler."""
    cost = {
        (m["sampler"], m["chains"], m["round"], m["library"]): slope(m)
        for m in measured
        if m["job"] == "steady" and slope(m) > 0
    }
    rounds = sorted({m["round"] for m in measured})
    rows = []
    for sampler, chains in dict.fromkeys((m["sampler"], m["chains"]) for m in measured if m["library"] == "nescio"):
        at = [{name: cost.get((sampler, chains, r, name)) for name in ("nescio", *TORCH, *JAX)} for r in rounds]
        fastest, vectorised = ([least(own, peers) for own in at] for peers in (JAX, VECTORISED))
        ours = [own["nescio"] for own in at]
        pairs = {
            "nescio / fastest JAX peer": zip(ours, fastest, strict=True),
            "nescio / fastest vectorised JAX peer": zip(ours, vectorised, strict=True),
        }
        for name, said in TORCH.items():
            pairs[f"{said} / nescio"] = zip([own[name] for own in at], ours, strict=True)
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

    compiled = {True: "yes", False: "no", None: "-"}
    lines = [f"{'':<38}{'us / gradient / chain':>28}{'compiled':>10}"]
    for row in (row for row in rows if row["kind"] == "cost"):
        cost = f"{number(row['us'])} ({number(row['us_least'])} ... {number(row['us_most'])})"
        lines.append(f"{row['row']:<38}{cost:>28}{compiled.get(row['compiled'], 'failed'):>10}")
    lines.append(f"{'':<38}{'set-up s':>10}{'cached':>8}{'200 draws s':>13}{'compiled':>10}")
    for row in (row for row in rows if row["kind"] == "start"):
        each = [number(row[name]) for name in ("setup_s", "cached_s", "total_s")]
        said = compiled.get(row["compiled"], "failed")
        lines.append(f"{row['row']:<38}{each[0]:>10}{each[1]:>8}{each[2]:>13}{said:>10}")
    for row in (row for row in rows if row["kind"] == "ratio"):
        lines.append(f"{row['row']:<48}{row['ratio']:>8.2f} ({row['ratio_least']:.2f} ... {row['ratio_most']:.2f})")
    return "\n".join(lines)
