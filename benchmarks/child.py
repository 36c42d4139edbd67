"""The measuring process: it is given one JSON argument and prints one JSON line. Needs numpy only.

first   seconds of the first run, of `draws[0]` draws: code is compiled here, if it is
again   seconds of the same run once more
times   seconds of a run of draws[0] and of one of draws[1], after each length has been run once
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple


class Spec(NamedTuple):
    """One measurement. `job`: "steady" for a slope, "cold" for set-up from nothing, "cached" for set-up where code is on the disk,
    "short" for a user's first short run."""

    job: str
    library: str
    sampler: str
    chains: int
    draws: tuple[int, int]
    seed: int
    problem: str  # path of the .npz
    launched: float  # time.time() just before the process was started
    threads: int
    leapfrogs: int  # on average, of an HMC draw
    step_size: float  # of HMC and NUTS; MCLMC, whose velocity is a unit vector, has the same step times √weights
    depth: int  # the deepest tree of NUTS
    noise: float
    hidden: int
    compile: bool  # whether nescio is told to; a user's short run is left to its own judgement
    processor: bool = False  # times are those of the processor, not of the wall: for a machine that is not idle


class Ran(NamedTuple):
    """What a run made."""

    gradients: float  # of a chain, on average over chains
    acceptance: float | None = None
    compiled: bool | str = True  # or why not


Run = Callable[[int], Ran]  # of so many draws a chain


def confine(threads: int) -> None:
    """Hold the process to so many cores: thread pools of every library are sized by them."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def read() -> Spec:
    values: dict[str, Any] = json.loads(sys.argv[1])
    values["draws"] = tuple(values["draws"])
    spec = Spec(**values)
    confine(spec.threads)
    return spec


def measure(spec: Spec, run: Run, density: Callable[[], list[float]], versions: dict[str, str]) -> None:
    """Do the job and print it. `density`: log densities at the problem's probes."""
    out: dict[str, Any] = {"imported": time.time() - spec.launched, "versions": versions}
    small, large = spec.draws
    clock = time.process_time if spec.processor else time.perf_counter
    first, ran = timed(run, small, time.perf_counter)  # compilers are other processes
    out |= {"first": first, "total": time.time() - spec.launched, "compiled": ran.compiled}
    if spec.job in ("cold", "cached"):
        out["again"], _ = timed(run, small, time.perf_counter)
    elif spec.job == "steady":
        run(large)
        (t1, ran1), (t2, ran2) = timed(run, small, clock), timed(run, large, clock)
        out |= {"times": [t1, t2], "gradients": [ran1.gradients, ran2.gradients], "acceptance": ran2.acceptance}
        out["log_density"] = density()
    print(json.dumps(out), flush=True)


def timed(run: Run, draws: int, clock: Callable[[], float]) -> tuple[float, Ran]:
    began = clock()
    ran = run(draws)
    return clock() - began, ran
