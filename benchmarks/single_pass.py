"""What an uncertainty costs in one pass: a compiled posterior against the deterministic network, in the same process and in turn.

    python benchmarks/single_pass.py [--device cuda] [--batch 1 64 256] [--code] [--out FOLDER] [--quick]

LeNet-5 on 28 x 28 and ResNet-20 (batch norm, ReLU) on 32 x 32 images, random ones: a pass costs the same whatever they show. `last layer`:
Laplace(kfac) of the last layer, exact; `moments`: all weights, Laplace(diag); `factored`: variances as products of rows and columns.
`--code`: both sides through torch.compile as well, which fuses what is elementwise; moments are exported first, for it cannot read the
rules by which they go, and that a call of what was exported takes longer is counted against them. A measurement is the median over rounds
of the ratio of medians within a round. On a CPU one thread and its own time, which other processes lengthen little; memory that either
side gives back stays with the process, as in a server, so that pages are not what is measured. On a GPU wall time. The network is as torch
makes it; ours lays images out by channels, which it may do within.
Goals: last layer at most 1.3, moments at most 2.5.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from record import RESULTS, keep, load
from torch import Tensor, nn

from nescio import Model
from nescio.laws import Normal
from nescio.likelihoods import Categorical
from nescio.linalg import Blocks, Diag, Kron
from nescio.nets import lenet5, resnet20
from nescio.noise import Noise
from nescio.posterior import GaussianPosterior

MMAP, TRIM, LARGE = -3, -1, 32 * 2**20  # of malloc.h; more than that cannot be asked for
GOALS = {"last layer": 1.3, "moments": 2.5, "moments, factored": 2.5}
EXPORTED = ("moments", "moments, factored")
Pass = Callable[[Tensor], Any]


def keep_memory() -> None:
    """Ask glibc not to hand memory back; elsewhere nothing happens."""
    tell = getattr(ctypes.CDLL(None), "mallopt", None)
    if tell is not None:
        tell(MMAP, LARGE)
        tell(TRIM, 2**31 - 1)


def network(name: str) -> tuple[nn.Module, tuple[int, ...], str]:
    """The network, the shape of an image, the name of the last layer."""
    with Noise(0).scope():
        if name == "LeNet":
            return lenet5().eval(), (1, 28, 28), "7"
        return resnet20(norm=nn.BatchNorm2d, activation=nn.ReLU).eval(), (3, 32, 32), "13"


def posteriors(net: nn.Module, head: str, device: str) -> dict[str, GaussianPosterior]:
    """Gaussians around the network's own weights of the form that Laplace gives; their size does not change the cost."""
    model = Model(net.to(device), Normal(0.0, 1.0), Categorical())
    theta = model.prior.at(model.network.weights(), model.noise(0, "start"))
    statistics_ = model.network.statistics()
    names = [name for name, _ in net.named_parameters()]
    sizes = {name: p.numel() for name, p in net.named_parameters()}
    first = sum(sizes[name] for name in names if not name.startswith(f"{head}."))
    layer = net.get_submodule(head)
    assert isinstance(layer, nn.Linear)
    outputs, inputs = layer.out_features, layer.in_features + 1
    weight = torch.arange(first, first + outputs * (inputs - 1)).view(outputs, -1)
    table = torch.cat([weight, torch.arange(first + weight.numel(), first + weight.numel() + outputs)[:, None]], 1)
    place = (table - first).reshape(-1).to(device)
    eyes = [torch.eye(n, dtype=torch.float64, device=device) * 0.1 for n in (outputs, inputs)]
    slots = torch.arange(first, first + outputs * inputs, device=device)
    every = torch.arange(model.dim, device=device)
    variances = 1e-4 * (0.5 + torch.rand(model.dim, dtype=torch.float64, device=device))
    return {
        "last layer": GaussianPosterior(model, theta, slots, Blocks((Kron(*eyes),), (place,)), statistics_, {}),
        "moments": GaussianPosterior(model, theta, every, Diag(variances), statistics_, {}),
    }


def measured(plain: Pass, other: Pass, x: Tensor, rounds: int, repeats: int) -> dict[str, float]:
    """Milliseconds of both and their ratio."""
    cuda = x.is_cuda
    clock = time.perf_counter if cuda else time.process_time
    took: dict[str, list[float]] = {"plain": [], "other": []}

    def median(function: Pass) -> float:
        each = []
        for _ in range(repeats):
            if cuda:
                torch.cuda.synchronize()
            began = clock()
            function(x)
            if cuda:
                torch.cuda.synchronize()
            each.append(clock() - began)
        return statistics.median(each)

    with torch.no_grad():
        for function in (plain, other, plain, other):  # warm, and compiled
            function(x)
        for _ in range(rounds):
            took["plain"].append(median(plain))
            took["other"].append(median(other))
    ratios = [b / a for a, b in zip(took["plain"], took["other"], strict=True)]
    return {
        "plain_ms": 1e3 * statistics.median(took["plain"]),
        "ms": 1e3 * statistics.median(took["other"]),
        "ratio": statistics.median(ratios),
        "ratio_least": min(ratios),
        "ratio_most": max(ratios),
    }


def rows_of(
    name: str, batches: Sequence[int], code: bool, device: str, rounds: int, repeats: int
) -> list[dict[str, Any]]:
    net, shape, head = network(name)
    found, rows = posteriors(net, head, device), []
    example = torch.zeros(2, *shape, device=device)
    modules = {
        "last layer": found["last layer"].compile(example),
        "moments": found["moments"].compile(example),
        "moments, factored": found["moments"].compile(example, factored=True),
    }
    plain = torch.compile(net) if code else net
    for kind, module in modules.items():
        other = module if not code else torch.compile(flat(module, example) if kind in EXPORTED else module)
        for batch in batches:
            x = Noise(1).normal(batch, *shape).to(device)
            took = measured(plain, other, x, rounds, repeats)
            row = {"net": name, "pass": kind, "batch": batch, "compiled": code, "device": device, **took}
            rows.append(row | {"goal": GOALS[kind], "met": took["ratio"] <= GOALS[kind]})
            print(line(rows[-1]), flush=True)
    return rows


def flat(module: nn.Module, example: Tensor) -> nn.Module:
    """What torch.export makes of it: one straight list of operations, which torch.compile can fuse."""
    rows = {0: torch.export.Dim("rows", min=1)}
    return torch.export.export(module, (example,), dynamic_shapes=(rows,)).module()


def line(row: dict[str, Any]) -> str:
    spread = f"({row['ratio_least']:.2f} ... {row['ratio_most']:.2f})"
    told = f"{row['net']:<10}{row['pass']:<20}{row['batch']:>6}{'code' if row['compiled'] else 'eager':>7}"
    times = f"{row['plain_ms']:>10.3f} ms{row['ms']:>10.3f} ms{row['ratio']:>7.2f} {spread:<18}"
    return f"{told}{times} goal {row['goal']}{'' if row['met'] else '  NOT MET'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 64, 256])
    parser.add_argument("--nets", nargs="*", choices=["LeNet", "ResNet-20"], default=["LeNet", "ResNet-20"])
    parser.add_argument("--code", action="store_true", help="through torch.compile as well")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    batches, rounds, repeats, nets = chosen.batch, 7, 15, chosen.nets
    if chosen.quick:
        batches, rounds, repeats, nets = [4], 1, 2, ["LeNet"]
    before = load()
    rows = []
    for code in (False, True) if chosen.code else (False,):
        for name in nets:
            rows += rows_of(name, batches, code, chosen.device, rounds, repeats)
    settings = {"rounds": rounds, "repeats": repeats, "threads": 1, "load": [before, load()]}
    if chosen.device != "cpu":
        settings["gpu"] = torch.cuda.get_device_name()
    keep("single_pass", "python benchmarks/single_pass.py", rows, [0], chosen.quick, chosen.out, {}, settings)


if __name__ == "__main__":
    main()
