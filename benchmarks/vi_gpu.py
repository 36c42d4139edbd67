"""A variational step on a GPU, recorded as one CUDA graph and not, beside a step of the plain network.

784-400-400-10, batch 128, float32, torch's fused Adam. Blocks of steps take turns in one process on the same rows; a block ends when
the GPU is done. `recorded`: as `fit` takes them in runs of 200 steps and more; the recording, less than a second, is left out. `ratio`:
to the plain network's step, which launches its kernels one by one, too; medians over blocks.

    python benchmarks/vi_gpu.py [--device cuda] [--blocks 15] [--steps 50] [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from record import RESULTS, keep, load
from torch import Tensor
from torch.nn import functional as F

from nescio import Model
from nescio.families import BernoulliDropout, ConcreteDropout, Family, MeanField, MultiplicativeFlow
from nescio.infer import VI
from nescio.infer.elbo_graph import RecordedELBO
from nescio.laws import Normal
from nescio.likelihoods import Categorical
from nescio.nets import mlp
from nescio.noise import Noise

WIDTHS, BATCH, ROWS = (784, 400, 400, 10), 128, 6400
FAMILIES: tuple[Family, ...] = (MeanField(), BernoulliDropout(0.5), ConcreteDropout(0.2), MultiplicativeFlow())
Step = Callable[[Tensor, Tensor], Any]


def network(device: str) -> Step:
    net = mlp(*WIDTHS).to(device)
    adam = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)

    def step(x: Tensor, y: Tensor) -> None:
        adam.zero_grad()
        F.cross_entropy(net(x), y).backward()
        adam.step()

    return step


def variational(family: Family, data: tuple[Tensor, Tensor], recorded: bool) -> Step:
    model = Model(mlp(*WIDTHS), Normal(0.0, 0.1), Categorical()).to(data[0].device)
    _, loss = VI(family).objective(model, data)
    adam = torch.optim.Adam(list(loss.parameters()), lr=1e-3, fused=True)
    code = RecordedELBO(loss) if recorded else loss

    def step(x: Tensor, y: Tensor) -> None:
        adam.zero_grad()
        code.estimate(x, y)
        adam.step()
        if isinstance(code, RecordedELBO) and code.note is not None:
            raise RuntimeError(f"{family!r} was not recorded: {code.note}")

    return step


def measured(steps: dict[str, Step], data: tuple[Tensor, Tensor], blocks: int, count: int) -> dict[str, float]:
    """Milliseconds of a step."""
    x, y = data
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for block in range(blocks + 1):  # the first is for setting up
        for name, step in steps.items():
            began = time.perf_counter()
            for i in range(count):
                start = i * BATCH % (ROWS - BATCH + 1)
                step(x[start : start + BATCH], y[start : start + BATCH])
            if x.is_cuda:
                torch.cuda.synchronize()
            if block:
                seconds[name].append((time.perf_counter() - began) / count)
    return {name: 1000 * statistics.median(each) for name, each in seconds.items()}


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--steps", type=int, default=50, help="in a block")
    parser.add_argument("--quick", action="store_true", help="on the CPU, where nothing is recorded; two steps")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.quick:
        options.device, options.blocks, options.steps = "cpu", 1, 2
    if not options.quick and not torch.cuda.is_available():
        raise SystemExit("vi_gpu.py: recording needs a GPU; none was found; --quick runs without one")
    before, device = load(), torch.device(options.device)
    data = Noise(0).at("x").normal(ROWS, WIDTHS[0]).to(device), Noise(0).at("y").integers(0, 10, ROWS).to(device)
    steps = {"plain network": network(options.device)}
    for family in FAMILIES:
        for recorded in (True, False) if device.type == "cuda" else (False,):
            name = f"{type(family).__name__}, {'recorded' if recorded else 'plain'}"
            steps[name] = variational(family, data, recorded)
    with Noise(0, device=device).scope():
        found = measured(steps, data, options.blocks, options.steps)
    first = found["plain network"]
    rows = [{"row": name, "ms": round(ms, 4), "ratio": round(ms / first, 3)} for name, ms in found.items()]
    for row in rows:
        print(f"{row['row']:<34}{row['ms']:>9.3f} ms{row['ratio']:>8.2f}")
    settings = {"widths": WIDTHS, "batch": BATCH, "blocks": options.blocks, "steps": options.steps}
    settings |= {"device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu", "load": [before, load()]}
    keep(
        "vi_gpu",
        f"python benchmarks/vi_gpu.py --device {options.device}",
        rows,
        [0],
        options.quick,
        options.out,
        {},
        settings,
    )
    return rows


if __name__ == "__main__":
    main()
