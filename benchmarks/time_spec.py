"""What a process of benchmarks/posterior_time.py is told, and what it answers. Needs the standard library only."""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

from child import confine


class Spec(NamedTuple):
    """`start` is an .npz with "theta" (chains, weights), or None for the library's own start. Draws are written to `out`."""

    problem: str
    widths: tuple[int, ...]
    chains: int
    warmup: int
    draws: int
    thin: int
    epochs: int
    energy_variance: float
    start: str | None
    out: str
    seed: int
    threads: int
    launched: float


def read() -> Spec:
    values: dict[str, Any] = json.loads(sys.argv[1])
    values["widths"] = tuple(values["widths"])
    spec = Spec(**values)
    confine(spec.threads)
    return spec


def answer(spec: Spec, fitted: float, log_density: list[float], facts: dict[str, Any]) -> None:
    """`fitted`: time.time() when the draws were there. The rest of the process is not counted."""
    print(json.dumps({"seconds": fitted - spec.launched, "log_density": log_density, **facts}), flush=True)
