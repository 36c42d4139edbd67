"""What a method costs: passes over the data that its gradients make, seconds, and the most memory it held."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nescio.comparison.by_rows import ByRows
from nescio.data.source import source
from nescio.infer.iterative import Iterative
from nescio.infer.method import Method, On, Repeat, Then

STATUS = Path("/proc/self/statm")


def passes(method: Method, data: Any, info: dict[str, Any]) -> float | None:
    """Gradients over all rows, summed over chains. Of optimisers as many as they made, of samplers as planned; None if unknown."""
    match method:
        case Repeat(method=inner, n=n):
            own = passes(inner, data, info)
            return None if own is None else n * own
        case On(method=inner):
            return passes(inner, data, info)
        case Then(first=first, second=second):
            parts = passes(first, data, info.get("before", {})), passes(second, data, info)
            return None if None in parts else parts[0] + parts[1]  # type: ignore[operator]
        case ByRows(of=of):
            return passes(of(source(data).size), data, info)
        case Iterative():
            rows = source(data)
            per_epoch = -(-rows.size // method.batch(rows))
            steps = info["epochs"] * per_epoch if isinstance(info.get("epochs"), int) else method.steps(per_epoch)
            return steps * max(method.gradients(), 1.0) / per_epoch
    return None


@dataclass
class Peak:
    """Bytes above what was held before."""

    bytes: int | None = None


@contextmanager
def watched(device: torch.device) -> Iterator[Peak]:
    """The most memory inside: torch's own count on a GPU, else looked up twenty times a second where the system tells."""
    peak = Peak()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield peak
        peak.bytes = torch.cuda.max_memory_allocated(device) - before
        return
    if not STATUS.exists():
        yield peak
        return
    done, start = threading.Event(), resident()
    peak.bytes = 0

    def look() -> None:
        while not done.wait(0.05):
            peak.bytes = max(peak.bytes or 0, resident() - start)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
        peak.bytes = max(peak.bytes or 0, resident() - start)


def resident() -> int:
    return int(STATUS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
