"""Jobs that can be interrupted and shared out: each finished one is a JSON line, and is skipped by the next run.

A job is a flat dictionary of plain settings, which its line keeps under "job"; what does not change the answer (a device, a folder) is
no part of it. Files of several machines are merged by putting them one behind the other.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from evidence import RESULTS, origin

Job = dict[str, Any]
Line = dict[str, Any]
Work = Callable[[Job, float], Line | None]  # given when it should be over; None from one that can go on later


class OutOfTime(Exception):
    """The budget is spent; the folder of the run has what was done."""


def watch(until: float, _: Any) -> None:
    """For `progress`, bound to a time."""
    if time.time() >= until:
        raise OutOfTime


def options(parser: argparse.ArgumentParser) -> None:
    """Those that all of these scripts have."""
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1, help="processes, which may share a GPU")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds after which no job is started")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--rows", type=Path, help="finished jobs, read and appended to")
    parser.add_argument("--quick", action="store_true", help="toy size, in seconds")


def read(path: Path) -> list[Line]:
    """What earlier runs left; a line that a kill cut short is not counted."""
    kept = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            kept.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return kept


def append(path: Path, line: Line) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cut = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
    with path.open("a") as file:
        file.write(("\n" if cut else "") + json.dumps(line) + "\n")


def one(job: Job, work: Work, device: str, until: float) -> Line | None:
    """The line of a job; nothing if it is too late to begin, or became so."""
    if time.time() >= until:
        return None
    torch.set_num_threads(1)  # processes share the cores; on a GPU nothing is lost
    began = time.perf_counter()
    line = work(job, until)
    if line is None:
        return None
    made = origin()
    if device != "cpu":
        made["machine"] += f", {torch.cuda.get_device_name()}"
    return {"job": job, **line, "seconds": round(time.perf_counter() - began, 2), "made": made}


def finish(jobs: Sequence[Job], work: Work, path: Path, device: str, workers: int, budget: float) -> list[Line]:
    """The lines of all jobs that are done, now or before, in their order. `work`: a function of a module, for it goes to processes."""
    until = time.time() + budget
    lines = read(path)
    todo = [job for job in jobs if all(line["job"] != job for line in lines)]
    call = partial(one, work=work, device=device, until=until)
    with get_context("spawn").Pool(workers) if workers > 1 and todo else nullcontext() as pool:
        for line in pool.imap_unordered(call, todo) if pool else map(call, todo):
            if line is not None:
                lines.append(line)
                append(path, line)
                print(f"{line['job']}: {line['seconds']} s", flush=True)
    found = [next((line for line in lines if line["job"] == job), None) for job in jobs]
    done = [line for line in found if line is not None]
    print(f"{len(jobs) - len(done)} of {len(jobs)} jobs left")
    return done
