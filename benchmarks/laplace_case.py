"""What benchmarks/laplace.py times: networks and data that both environments build alike, the clock and the memory. Needs torch only."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

SHAPES = {"mlp": (784,), "conv": (1, 28, 28)}


def network(name: str, seed: int = 0) -> nn.Module:
    """784-100-100-10, or a small convolutional net, with ReLU; weights as torch draws them."""
    torch.manual_seed(seed)
    if name == "mlp":
        layers = [nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10)]
    else:
        first, second = nn.Conv2d(1, 8, 5, stride=2, padding=2), nn.Conv2d(8, 16, 3, stride=2, padding=1)
        layers = [first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(784, 10)]
    return nn.Sequential(*layers).eval()


def data(name: str, points: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Standard normal inputs and labels of ten classes."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(points, *SHAPES[name], generator=draw), torch.randint(10, (points,), generator=draw)


def spec() -> dict[str, Any]:
    return json.loads(sys.argv[1])


def peak() -> int:
    """Most bytes that the process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def held() -> int:
    """Bytes that it holds now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def timed(job: Callable[[], Any], repeats: int) -> tuple[Any, list[float], list[float]]:
    """The last result, seconds by the clock, and seconds of the processor, which other processes disturb less."""
    result, seconds, busy = None, [], []
    for _ in range(repeats):
        began, worked = time.perf_counter(), time.process_time()
        result = job()
        seconds.append(time.perf_counter() - began)
        busy.append(time.process_time() - worked)
    return result, seconds, busy


def measure(
    fit: Callable[[int], Any],
    predict: Callable[[Any, Tensor], Tensor],
    x: Tensor,
    given: dict[str, Any],
    versions: dict[str, str],
) -> None:
    """Fit to so many points, then predict; seconds of each, and how far the process grew beyond what it held before."""
    if given["repeats"] > 1:
        predict(fit(64), x[:2])  # code that is loaded when first used
    before = held()
    posterior, *fits = timed(lambda: fit(given["points"]), given["repeats"])
    fit_bytes = peak() - before
    predict(posterior, x[:2])  # what is found out once
    variance, *predicts = timed(lambda: predict(posterior, x[: given["inputs"]]), given["repeats"])
    out = {"fit": fits, "predict": predicts, "fit_bytes": fit_bytes, "bytes": peak() - before, "versions": versions}
    print(json.dumps({**out, "variance": variance[:8].double().tolist()}), flush=True)
