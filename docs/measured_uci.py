"""The UCI part of docs/choose-a-method.md: our methods beside each other and beside published ones, standard and gap splits."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "reproduce" / "results"
MARK = "†"
OURS = {"microcanonical": "`8 * (MAP() >> MCLMC())`", "ensembles": "`5 * MAP()`"}
NINE = {
    "ensembles": OURS["ensembles"],
    "microcanonical": OURS["microcanonical"],
    "dropout": "MC dropout",
    "laplace": "linearised Laplace",
    "mean_field": "`MAP() >> VI(MeanField())`",
    "matrix_normal": "`MAP() >> VI(MatrixNormal())`",
    "flow": "`MAP() >> VI(MultiplicativeFlow())`",
}
CENSORED = (
    f"{MARK} censored: in more than half of the splits the search took the largest precision of its grid, and no NLL can be "
    "below what that precision allows; a wider grid may well have given less, so to be lower than such a number is no win."
)
Entry = dict[str, Any]


def state(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"uci_{name}.json").read_text(encoding="utf-8"))


def entries(name: str, metric: str) -> dict[str, Entry]:
    """By set."""
    return {row["row"].split(", ")[0]: row for row in state(name)["rows"] if row["metric"] == metric}


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join([f"| {' | '.join(head)} |", "|---|" + "---|" * (len(head) - 1), *map(line, lines)])


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def number(value: float, se: float, printed: bool) -> str:
    """Two digits after the point, as printed; of our own small numbers as many as the error leaves."""
    digits = 2 if printed or abs(value) >= 0.1 else max(2, -math.floor(math.log10(se)))
    return f"{value:.{digits}f} ± {se:.{digits}f}"


def own(entry: Entry) -> str:
    return number(entry["ours"], entry["se"], False) + marked(entry)


def theirs(cell: Entry) -> str:
    return number(cell["value"], cell["se"], not cell["paired"]) + marked(cell)


def bold(value: float, best: bool) -> str:
    return f"**{value:.2f}**" if best else f"{value:.2f}"


def marked(entry: Entry) -> str:
    return f" {MARK}" if entry["censored"] else ""


def nine_tables() -> str:
    """Every method of `reproduce/uci.py` that was run in full; the lowest of a set is bold."""
    done = {name: heading for name, heading in NINE.items() if (RESULTS / f"uci_{name}.json").exists()}
    found = {heading: entries(name, "nll") for name, heading in done.items()}
    lines = []
    for name in next(iter(found.values())):
        each = [scores.get(name) for scores in found.values()]
        best = min(entry["ours"] for entry in each if entry is not None)
        lines.append((name, *("" if e is None else bold(e["ours"], e["ours"] == best) + marked(e) for e in each)))
    return (
        "Nine tables, the splits of the literature (`reproduce/uci.py --method ...`), mean NLL over all splits; the lowest is "
        "bold. One hidden layer of 50 units each (protein 100), but a noise for each row in ensembles, samplers and variational "
        "inference, and one noise for all in MC dropout, whose rate and precision come from a grid search, and in Laplace, whose "
        "scales and noise come from the evidence; microcanonical ensembles with the settings that were chosen on held-out tenths of "
        f"training parts (the script has them), not those that `MCLMC()` has by itself:\n\n{table(('NLL', *found), lines)}\n\n{CENSORED}"
    )


def beside_published() -> str:
    """Microcanonical and deep ensembles beside PBP, MC dropout and deep ensembles as published, standard splits."""
    sources = state("microcanonical")["references"]
    told = "; ".join(f"{label}: {said['source']} ({said['note']})" for label, said in sources.items())
    tables = [published("NLL", "nll", list(sources)), published("RMSE", "rmse", list(sources))]
    return "\n\n".join(
        (
            "Beside published numbers on the same splits (`reproduce/uci.py --method microcanonical`, and `ensembles`; mean ± "
            "standard error; the first two columns are ours):",
            *tables,
            CENSORED,
            "The target of wine is whole numbers, which have no density: narrow densities on them lower the NLL there without "
            "knowing more.",
            counted("microcanonical"),
            f"Where the published numbers are from: {told}.",
        )
    )


def published(heading: str, metric: str, labels: Sequence[str]) -> str:
    found = [entries(name, metric) for name in OURS]
    shown = [label for label in labels if any(label in entry["beside"] for entry in found[0].values())]
    lines = [
        (name, *(own(scores[name]) for scores in found), *(theirs(entry["beside"][label]) for label in shown))
        for name, entry in found[0].items()
    ]
    return table((heading, *OURS.values(), *shown), lines)


def counted(name: str) -> str:
    """On how many sets microcanonical ensembles are better than, level with or worse than each other that has all of them."""
    found = {heading: entries(name, metric) for heading, metric in (("NLL", "nll"), ("RMSE", "rmse"))}
    labels = dict.fromkeys(label for own in found.values() for entry in own.values() for label in entry["beside"])
    lines = [(label, *(verdicts(own, label) for own in found.values())) for label in labels]
    said = "Microcanonical ensembles beside each, on so many sets (better or worse: by two standard errors of the difference):"
    return f"{said}\n\n{table(('', *found), [cells for cells in lines if any(cells[1:])])}"


def verdicts(found: dict[str, Entry], label: str) -> str:
    each = [entry["beside"][label]["verdict"] or "open" for entry in found.values() if label in entry["beside"]]
    return ", ".join(f"{said} {n}" for said, n in sorted(Counter(each).items())) if len(each) == len(found) else ""


def gap_tables() -> str:
    """What was run on the gap splits; nothing published was made on these very rows."""
    shown = {**OURS, "laplace": NINE["laplace"]}
    nll, rmse = ([entries(f"{name}_gap", metric) for name in shown] for metric in ("nll", "rmse"))
    lines = [(name, *(own(scores[name]) for scores in (*nll, *rmse))) for name in nll[0]]
    head = [f"{metric}, {said}" for metric in ("NLL", "RMSE") for said in shown.values()]
    return "\n\n".join(
        (
            "The gap splits of the same tables, where the test rows lie between the training rows (`reproduce/uci.py --gap`, mean "
            "± standard error over one split a feature). All of it is ours: no number of PBP, MC dropout or deep ensembles that "
            "was published on these very splits is at hand.",
            table(("gap", *head), lines),
            counted("microcanonical_gap"),
        )
    )
