"""The fair benchmark, in pieces: standard methods on the suites of nescio.comparison, one finished fit a line, several at a time.

    python benchmarks/suites.py uci [--splits 3] [--workers 8] [--device cuda] [--budget SECONDS] [--methods 'deep ensemble' ...]
                                    [--out FOLDER] [--quick]

Lines are kept in suite_<name>.scores.jsonl, each with where it was made, and skipped the next time; the table is suite_<name>.json, and is
printed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from record import RESULTS, evidence, processor

from nescio.comparison import SUITES, Comparison, Row, Task, compare_tasks, standard_methods, suite


def moved(task: Task, device: str) -> Task:
    """Model, rows and strange rows on a device."""
    if device == "cpu":
        return task
    pairs = [tuple(t.to(device) for t in pair) for pair in (task.data, task.test)]
    outside = None if task.outside is None else task.outside.to(device)
    return Task(task.name, task.model.to(device), pairs[0], pairs[1], task.split, outside)  # type: ignore[arg-type]


def run(name: str, place: int, method: str, quick: bool, device: str, until: float) -> dict[str, Any] | None:
    """One method on one task, in a process of its own; nothing if it is too late to begin."""
    if time.time() >= until:
        return None
    torch.set_num_threads(1)
    task = moved(suite(name)[place], device)
    row = compare_tasks([task], {method: standard_methods(quick)[method]}).rows[0]
    return {
        "method": row.method,
        "task": row.task,
        "split": row.split,
        "seed": row.seed,
        "values": row.values,
        "failed": row.failed,
        "made": origin(device),
    }


def origin(device: str) -> dict[str, Any]:
    found = {**evidence().origin(), "processor": processor()}
    return found if device == "cpu" else found | {"machine": f"{found['machine']}, {torch.cuda.get_device_name()}"}


def main(arguments: list[str] | None = None) -> Comparison:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=list(SUITES))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--budget", type=float, default=math.inf)
    parser.add_argument("--methods", nargs="*", default=list(standard_methods()))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"suite_{given.suite}{'.quick' if given.quick else ''}.scores.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(line["task"], line["split"], line["method"]) for line in lines}
    until = time.time() + given.budget
    splits = 1 if given.quick else given.splits
    tasks = [(i, task) for i, task in enumerate(suite(given.suite)) if task.split < splits]
    jobs = [(i, m) for i, task in tasks for m in given.methods if (task.name, task.split, m) not in done]
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(run, given.suite, i, m, given.quick, given.device, until) for i, m in jobs]
        for future in as_completed(waiting):
            line = future.result()
            if line is not None:
                lines.append(line)
                with open(path, "a") as stream:
                    stream.write(json.dumps(line) + "\n")
    table = Comparison(tuple(Row(**{key: x for key, x in line.items() if key != "made"}) for line in lines))
    if lines:
        print(table.text())
        finish(table, given, lines[0].get("made") or origin(given.device))
    return table


def finish(table: Comparison, given: argparse.Namespace, made: dict[str, Any]) -> None:
    rows = []
    for task in table.tasks:
        for method, values in table.summary(task).items():
            for metric, (mean, sd) in values.items():
                n = sum(r.method == method and r.task == task and not r.failed for r in table.rows)
                row = {"row": f"{task}, {method}", "metric": metric, "published": None, "mark": "own", "ours": mean}
                rows.append({**row, "sd": None if math.isnan(sd) else sd, "n": n, "checklist": ["000-37"]})
    settings = {"device": given.device, "ranks": table.ranks()}
    command = f"python benchmarks/suites.py {given.suite} --splits {given.splits} --device {given.device}"
    seeds = sorted({row.split for row in table.rows})
    evidence().write(
        f"suite_{given.suite}", command, rows, seeds, given.quick, given.out, {**made, "settings": settings}
    )


if __name__ == "__main__":
    sys.exit(0 if main().rows is not None else 1)
