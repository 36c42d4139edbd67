"""Many trainings, each a line of a file: what is there is not run again, and after a budget nothing new begins.

Files of several machines are merged by putting them one behind the other.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from evidence import RESULTS, origin

Line = dict[str, Any]


def options(description: str | None) -> argparse.ArgumentParser:
    """The options that such scripts have in common."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few steps: for a test, not for a result")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no training is started")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the table and of the lines")
    return parser


def made(device: str) -> Line:
    """Where a number comes from."""
    where = origin()
    if device != "cpu":
        where["machine"] += f", {torch.cuda.get_device_name()}"
    return where


def lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def done(jobs: Sequence[Line], path: Path, run: Callable[[Line], Line], budget: float, device: str) -> list[Line]:
    """The line of each job that is finished, in the order of the jobs. A job is a dictionary of settings, and its line repeats them."""
    until, found = time.time() + budget, lines(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for job in jobs:
        if any(of(job, line) for line in found) or time.time() >= until:
            continue
        began = time.perf_counter()
        scores = run(job)
        line = {**job, **scores, "seconds": round(time.perf_counter() - began, 2), "made": made(device)}
        found.append(line)
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print("  ".join(f"{key} {value}" for key, value in line.items() if key != "made"), flush=True)
    return list(first_of_each(jobs, found))


def of(job: Line, line: Line) -> bool:
    return all(line.get(key) == value for key, value in job.items())


def first_of_each(jobs: Sequence[Line], found: Sequence[Line]) -> Iterator[Line]:
    for job in jobs:
        line = next((line for line in found if of(job, line)), None)
        if line is not None:
            yield line
