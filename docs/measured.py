"""The measured part of docs/choose-a-method.md, from the kept results; nothing is entered by hand.

python docs/measured.py        # writes it anew; `make scoreboard` does so, too
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from measured_uci import beside_published, gap_tables, nine_tables

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "choose-a-method.md"
BEGIN, END = "<!-- measured: python docs/measured.py -->", "<!-- end -->"
SUITES = {
    "toy": "one dimension with a gap, 50 rows",
    "uci": "bundled tables",
    "digits": "1437 digits of 8 x 8 pixels",
    "gap": "tables with a gap",
    "mnist": "6000 digits",
}
NOTES = {
    "mnist": "Under N(0, 1) on all weights of LeNet a sampler's networks are certain of everything, the wrong answers among them "
    "([gotchas](gotchas.md)); the prior of a suite is the same for every method."
}


def section() -> str:
    """Markdown between the two marks."""
    return (
        "\n\n".join(
            [
                *(against_hmc(), nine_tables(), beside_published(), gap_tables(), beside_others()),
                *(text for name in SUITES if (text := of_suite(name))),
            ]
        )
        + "\n"
    )


def rows(path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """row -> metric -> entry."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for entry in json.loads(path.read_text(encoding="utf-8"))["rows"]:
        found.setdefault(entry["row"], {})[entry["metric"]] = entry
    return found


def against_hmc() -> str:
    """How near cheaper methods come to a long run of HMC, below what it reaches against itself."""
    metrics = {"accuracy": "accuracy", "nll": "NLL", "agreement": "agreement", "total_variation": "total variation"}
    lines = [
        "How near cheaper methods come to a long run of HMC (196-32-32-10, 160 digits to learn from, 2000 to be judged by; "
        "`reproduce/hmc_reference.py`, seconds of one busy core). What HMC reaches against itself is the ceiling: two independent "
        "halves of its chains, one against the other. A single chain against the others, the column of HMC in the literature, is a "
        "lower bar:",
        "",
        f"| | {' | '.join(metrics.values())} | seconds |",
        "|---|" + "---|" * (len(metrics) + 1),
    ]
    for name, entries in rows(ROOT / "reproduce" / "results" / "hmc_reference.json").items():
        cells = [f"{entries[m]['ours']:.3f}" if m in entries else "" for m in metrics]
        seconds = f"{entries['seconds']['ours']:.0f}" if "seconds" in entries else ""
        lines.append(f"| {name if ',' in name else f'`{name}`'} | {' | '.join(cells)} | {seconds} |")
    return "\n".join(lines)


def beside_others() -> str:
    """What `nescio fit` does without options beside what others would use on a table."""
    found = rows(ROOT / "benchmarks" / "results" / "tables.json")
    tables, libraries = (list(dict.fromkeys(row.split(", ")[i] for row in found)) for i in (0, 1))
    lines = [
        "The default on the bundled tables beside scikit-learn's gradient boosting and Gaussian process, NGBoost and bde, none of them "
        f"tuned (`benchmarks/tables.py`, mean over {found[f'{tables[0]}, nescio']['nll']['n']} splits; seconds of one core):",
        "",
        f"| NLL / coverage of 90% intervals / seconds | {' | '.join(tables)} | coverage over all rows |",
        "|---|" + "---|" * (len(tables) + 1),
    ]
    scores = (ROOT / "benchmarks" / "results" / "tables.scores.jsonl").read_text(encoding="utf-8").splitlines()
    for library in libraries:
        fits = [line for line in map(json.loads, scores) if line["library"] == library]
        whole = sum(line["coverage"] * line["rows"] for line in fits) / sum(line["rows"] for line in fits)
        own = [found.get(f"{name}, {library}", {}) for name in tables]
        cells = [
            f"{e['nll']['ours']:.2f} / {100 * e['coverage']['ours']:.0f}% / {e['seconds']['ours']:.0f}" if e else ""
            for e in own
        ]
        lines.append(f"| {library.replace('_', ' ')} | {' | '.join(cells)} | {100 * whole:.1f}% |")
    lines += [
        "",
        "Network, sampler, activation and prior were chosen in turn on five other tables (`benchmarks/defaults.py`; the last two when the "
        "first two had met these; mean rank in NLL: "
        + "; ".join(f"{stage} {ranked(stage)}" for stage in ("network", "sampler", "activation", "prior"))
        + ").",
        "",
        "Means of NLL hide single rows, far outside every interval, that weigh as much as all others. The target of wine is whole numbers, "
        "which have no density: there the NLL of everybody is that of the step around the number, a probability, lest narrow densities on "
        "whole numbers win without knowing more. That rule was made after a first look, when bde had such densities. Rows of the other "
        "three tables are, but for those of nescio, older than those of wine.",
    ]
    return "\n".join(lines)


def ranked(stage: str) -> str:
    found = rows(ROOT / "benchmarks" / "results" / "defaults.json")
    ranks = {
        r.removeprefix(f"{stage}, "): e["mean rank in nll"]["ours"] for r, e in found.items() if r.startswith(stage)
    }
    return ", ".join(f"{name} {rank:.1f}" for name, rank in sorted(ranks.items(), key=lambda pair: pair[1]))


def of_suite(name: str) -> str:
    """Held-out NLL of the standard methods on a suite of `nescio bench`; nothing where it has not been run."""
    path = ROOT / "benchmarks" / "results" / f"suite_{name}.json"
    if not path.exists():
        return ""
    found, ranks = rows(path), json.loads(path.read_text(encoding="utf-8"))["settings"]["ranks"]
    tasks = sorted({row.split(", ")[0] for row in found})
    many = max(entry["nll"]["n"] for entry in found.values() if "nll" in entry)
    lines = [
        f"`nescio bench {name}`, {SUITES[name]}: held-out NLL, mean over {many} split{'s' * (many > 1)} (`benchmarks/suites.py {name}`):",
        "",
        f"| | {' | '.join(tasks)} | mean rank | passes over the data |",
        "|---|" + "---|" * (len(tasks) + 2),
    ]
    for method, rank in sorted(ranks.items(), key=lambda pair: pair[1]):
        entries = [found.get(f"{task}, {method}", {}) for task in tasks]
        cells = [f"{e['nll']['ours']:.2f}" if "nll" in e else "" for e in entries]
        passes = [e["passes"]["ours"] for e in entries if "passes" in e]
        cost = f"{sum(passes) / len(passes):.0f}" if passes else "one more than training"
        least = min(e["nll"]["n"] for e in entries if "nll" in e)
        fewer = f" ({least} splits)" * (least < many)
        lines.append(f"| {method}{fewer} | {' | '.join(cells)} | {rank:.1f} | {cost} |")
    return "\n".join([*lines, *(["", NOTES[name]] if name in NOTES else [])])


def rewritten(text: str) -> str:
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{section()}{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
