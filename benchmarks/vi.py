"""Variational inference beside plain networks and its peers, on the CPU.

training step: one step of Bayes by Backprop under mean field, 784-400-400-10, batch 128, float32, one thread, torch's fused Adam, as a
multiple of a step of the same network without distributions; small training step: the same of a network for a table, 13-50-50-2, batch
32. Every measurement is a fresh process in which plain and Bayesian steps take turns; libraries take turns within a round, every other
round in reverse. nescio: all that `fit` does at a step; compiled as in long runs, and not.

prediction: MC dropout, 784-500-500-10, 100 passes over 10,000 inputs, as a multiple of the matrix products that it cannot do without.
benchmarks/README.md says more.

    make peers
    python benchmarks/vi.py [--quick] [--rounds 5] [--libraries nescio torchbnn] [--workloads prediction] [--peers PYTHON]

Rows of some workloads or libraries only take the places of those in the kept table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from launch import launch
from record import PEERS, RESULTS, join, load

NETWORKS = {"training step": ([784, 400, 400, 10], 128), "small training step": ([13, 50, 50, 2], 32)}  # and the batch
PREDICTED, INPUTS, PASSES = [784, 500, 500, 10], 10_000, 100
PREDICTIONS = ("nescio, BernoulliDropout", "nescio, NetDropout", "by hand, passes in training mode")
OURS = (
    "nescio",
    "nescio, not compiled",
    "by hand, weights drawn",
    "by hand, outputs drawn",
)  # need no other environment
LIBRARIES = (*OURS, "bayesian-torch", "bayesian-torch flipout", "torchbnn", "BLiTZ")


def once(rows: Path | None, python: str, script: str, spec: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A measurement, or what the rows file has of it; one that is made is appended there."""
    kept = [json.loads(line) for line in rows.read_text().splitlines()] if rows is not None and rows.exists() else []
    for line in kept:
        if line["spec"] == {"script": script, **spec}:
            return line["got"]
    got = launch(python, script, spec, folder)
    if rows is not None:
        with rows.open("a") as file:
            file.write(json.dumps({"spec": {"script": script, **spec}, "got": got}) + "\n")
    return got


def training_step(workload: str, options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Rows with the milliseconds of a step and its ratio to the plain step of the same process."""
    widths, batch = NETWORKS[workload]
    measured: dict[str, list[dict[str, Any]]] = {name: [] for name in options.libraries}
    for turn in range(options.rounds):
        for name in options.libraries[::-1] if turn % 2 else options.libraries:
            python = sys.executable if name in OURS else str(options.peers)
            spec = {"library": name, "widths": widths, "batch": batch, "threads": options.threads, "seed": turn}
            spec |= {"steps": options.steps, "blocks": options.blocks}
            got = once(options.rows, python, "steps.py", spec, folder)
            if not got["finite"]:
                raise RuntimeError(f"{name}: the loss is not finite")
            measured[name].append(got)
            plain, own = (1000 * statistics.median(got[kind]) for kind in ("plain", "library"))
            print(f"round {turn}: {name}: {own:.2f} ms, plain {plain:.2f} ms", flush=True)
    return [step_row(workload, name, each) for name, each in measured.items()]


def step_row(workload: str, name: str, each: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the blocks of a process; of these, median, least and most over the rounds."""
    plain, own = ([1000 * statistics.median(m[kind]) for m in each] for kind in ("plain", "library"))
    ratios = [b / a for a, b in zip(plain, own, strict=True)]
    row = {"row": f"{workload}, {name}", "workload": workload, "library": name, "n": len(each)}
    for key, values in (("ms", own), ("plain_ms", plain), ("ratio", ratios)):
        row |= {key: round(statistics.median(values), 3)}
        row |= {f"{key}_least": round(min(values), 3), f"{key}_most": round(max(values), 3)}
    return {**row, "versions": each[0]["versions"], "torch": each[0]["torch"]}


def prediction(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Rows with the seconds of a prediction and its ratio to the limit of the same process."""
    measured: dict[str, list[dict[str, Any]]] = {name: [] for name in PREDICTIONS}
    for turn in range(options.rounds):
        for name in PREDICTIONS[::-1] if turn % 2 else PREDICTIONS:
            spec = {"library": name, "widths": PREDICTED, "inputs": options.inputs, "passes": options.passes}
            spec |= {"threads": options.threads, "seed": turn}
            got = once(options.rows, sys.executable, "passes.py", spec, folder)
            if not got["finite"]:
                raise RuntimeError(f"{name}: what is predicted is no probability")
            measured[name].append(got)
            print(f"round {turn}: {name}: {got['seconds']:.2f} s, limit {got['limit']:.2f} s", flush=True)
    return [prediction_row(name, each) for name, each in measured.items()]


def prediction_row(name: str, each: Sequence[dict[str, Any]]) -> dict[str, Any]:
    row = {"row": f"prediction, {name}", "workload": "prediction", "library": name, "n": len(each)}
    ratios = [m["seconds"] / m["limit"] for m in each]
    for key, values in (
        ("ms", [1000 * m["seconds"] for m in each]),
        ("plain_ms", [1000 * m["limit"] for m in each]),
        ("ratio", ratios),
        ("memory_mb", [m["memory"] / 2**20 for m in each]),
    ):
        row |= {key: round(statistics.median(values), 3)}
        row |= {f"{key}_least": round(min(values), 3), f"{key}_most": round(max(values), 3)}
    return {**row, "torch": each[0]["torch"]}


Workload = Callable[[argparse.Namespace, Path], list[dict[str, Any]]]
WORKLOADS: dict[str, Workload] = {name: partial(training_step, name) for name in NETWORKS} | {"prediction": prediction}


def show(rows: Sequence[dict[str, Any]]) -> str:
    lines = [f"{'':<46}{'ms':>10}{'plain ms':>10}{'ratio':>8}"]
    for row in rows:
        spread = f"({row['ratio_least']:.2f} ... {row['ratio_most']:.2f})"
        lines.append(f"{row['row']:<46}{row['ms']:>10.2f}{row['plain_ms']:>10.2f}{row['ratio']:>8.2f} {spread}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="no peers, nothing compiled, two steps each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="in a block")
    parser.add_argument("--blocks", type=int, default=15, help="in a process")
    parser.add_argument("--inputs", type=int, default=INPUTS, help="of a prediction")
    parser.add_argument("--passes", type=int, default=PASSES, help="of a prediction")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--libraries", nargs="*", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--workloads", nargs="*", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--peers", type=Path, default=PEERS, help="the python of the peers' environment")
    parser.add_argument("--rows", type=Path, help="finished measurements, read and appended to: to go on later")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.steps, options.blocks, options.libraries = 1, 2, 1, list(OURS[1:])
        options.inputs, options.passes = 100, 3
    if set(options.libraries) - set(OURS) and not options.peers.exists():
        parser.error(f"no peers at {options.peers}: run `make peers`, or give --peers, or --libraries nescio")
    before = load()
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for name in options.workloads for row in WORKLOADS[name](options, Path(folder))]
    peers = {name: v for row in rows for name, v in row.get("versions", {}).items()}
    settings = {"networks": NETWORKS, "rounds": options.rounds, "steps": options.steps}
    settings |= {"predicted": PREDICTED, "inputs": options.inputs, "passes": options.passes}
    settings |= {"blocks": options.blocks, "threads": options.threads, "load_before": before, "load_after": load()}
    command = "python benchmarks/vi.py" + (" --quick" if options.quick else "")
    path = join("vi", command, rows, range(options.rounds), options.quick, options.out, peers, settings)
    print(f"{show(rows)}\nwritten to {path.name}")
    return rows


if __name__ == "__main__":
    main()
