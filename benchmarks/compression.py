"""The "50x speed-up" of compressed networks, measured: the small dense network against the large one, same device, batch 1 and 8192.

The claim is of a CPU against a sparse GPU kernel; here both run where they are asked to. Networks: LeNet-300-100 and LeNet-5-Caffe beside
the architectures that the paper publishes (Louizos, Ullrich & Welling, 2017), and beside every file of reproduce/compression.py in --files;
its VGG-like network beside the architectures that its table has of it (batch 1 and 256).

    python benchmarks/compression.py [--device cuda] [--files FOLDER] [--threads 1] [--out FOLDER] [--quick]

Milliseconds are the shortest of many calls (a GPU's to the end of its work); the two networks take turns. FLOPs: twice the multiplications.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from record import HERE, RESULTS, keep, load
from torch import nn

from nescio import Model
from nescio.compression import flops, load_compressed, seconds
from nescio.compression.modules import Picked
from nescio.laws import Normal
from nescio.likelihoods import Categorical
from nescio.nets import lenet5, lenet_300_100
from nescio.noise import Noise

BATCHES = {28: (1, 8192), 32: (1, 256)}  # by the side of an image
FOUND = HERE.parent / "reproduce" / "results" / "compression.rows.jsonl"
POOLED = (1, 3, 5)  # convolutions of the VGG-like network that a pool follows


def picked(total: int, kept: int, outputs: int) -> nn.Module:
    index = Noise(0).at("pick", total, kept).permutations(1, total)[0][:kept].sort().values
    return Picked(index, outputs, True)


def lenet_300_100_of(pixels: int, first: int, second: int) -> nn.Module:
    """The inputs of the three layers, as the paper writes architectures."""
    layers = [picked(784, pixels, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(), nn.Linear(second, 10)]
    return nn.Sequential(nn.Flatten(), *layers)


def lenet5_of(filters: int, more: int, features: int, units: int) -> nn.Module:
    body = [nn.Conv2d(1, filters, 5), nn.MaxPool2d(2), nn.Conv2d(filters, more, 5), nn.MaxPool2d(2), nn.Flatten()]
    head = [picked(more * 16, min(features, more * 16), units), nn.ReLU(), nn.Linear(units, 10)]
    return nn.Sequential(*body, *head)


def vgg_of(*layers: Sequence[int]) -> nn.Module:
    """(inputs, outputs) of six convolutions and two linear layers."""
    body: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(layers[:6]):
        body += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
        body += [nn.MaxPool2d(2)] if i in POOLED else []
    total, (kept, units) = 16 * layers[5][1], layers[6]
    head = nn.Linear(total, units) if kept == total else picked(total, kept, units)
    return nn.Sequential(*body, nn.Flatten(), head, nn.ReLU(), nn.Linear(*layers[7]))


def found() -> Iterator[tuple[str, nn.Module, nn.Module]]:
    """The VGG-like network by log-uniform priors, first seed, as the papers' thresholds and a promise leave it."""
    whole = [(3, 64), (64, 64), (64, 128), (128, 128), (128, 256), (256, 256), (4096, 256), (256, 10)]
    for line in map(json.loads, FOUND.read_text().splitlines() if FOUND.exists() else []):
        job = line["job"]
        if (job["net"], job["seed"]) == ("vgg", 0) and job["kind"] != "horseshoe":
            for name in ("papers", "groups") if "groups" in line["variants"] else ("papers",):
                yield (
                    f"found: vgg, {job['kind']}, {name}",
                    vgg_of(*whole),
                    vgg_of(*line["variants"][name]["architecture"]),
                )


PUBLISHED = {
    "lenet-300-100, sparse variational dropout, 512-114-72": lambda: lenet_300_100_of(512, 114, 72),
    "lenet-300-100, normal-Jeffreys, 278-98-13": lambda: lenet_300_100_of(278, 98, 13),
    "lenet-300-100, horseshoe, 311-86-14": lambda: lenet_300_100_of(311, 86, 14),
    "lenet-5-caffe, normal-Jeffreys, 8-13-88-13": lambda: lenet5_of(8, 13, 88, 13),
    "lenet-5-caffe, horseshoe, 5-10-76-16": lambda: lenet5_of(5, 10, 76, 16),
}


def networks(files: Path | None) -> Iterator[tuple[str, nn.Module, nn.Module]]:
    """(name, large, small)."""
    large = {"lenet-300-100": lenet_300_100, "lenet-5-caffe": lenet5}
    for name, make in PUBLISHED.items():
        yield f"published: {name}", large[name.split(",")[0]](), make()
    yield from found()
    for path in sorted(files.glob("*.nscz")) if files is not None else []:
        kind = next((kind for kind in large if path.name.startswith(kind)), None)
        if kind is not None and ".quick" not in path.name:
            net = large[kind]()
            yield f"file: {path.stem}", net, load_compressed(path, Model(net, Normal(0.0, 1.0), Categorical())).net


def measured(name: str, large: nn.Module, small: nn.Module, device: str, quick: bool) -> list[dict[str, Any]]:
    large, small, least = large.eval().to(device), small.eval().to(device), 0.01 if quick else 0.5
    first = next(m for m in large.modules() if isinstance(m, (nn.Linear, nn.Conv2d)))
    channels, side = (3, 32) if isinstance(first, nn.Conv2d) and first.in_channels == 3 else (1, 28)
    rows = []
    for batch in (1, 64) if quick else BATCHES[side]:
        x = torch.zeros(batch, channels, side, side, device=device)
        turns = [(seconds(large, x, least), seconds(small, x, least)) for _ in range(1 if quick else 3)]
        a, b = (1000 * min(turn[i] for turn in turns) for i in (0, 1))
        ratio = flops(large, x) / flops(small, x)
        rows.append({"row": name, "batch": batch, "large ms": a, "small ms": b, "speed-up": a / b, "flops x": ratio})
    return rows


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--files", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    rows, busy = [], load()
    for name, large, small in networks(given.files):
        for row in measured(name, large, small, given.device, given.quick):
            rows.append(row)
            print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
    where = given.device if given.device == "cpu" else torch.cuda.get_device_name()
    settings = {"device": where, "threads": given.threads, "load before": busy}
    table = f"compression_{given.device.split(':')[0]}"
    keep(
        table,
        f"python benchmarks/compression.py --device {given.device}",
        rows,
        [0],
        given.quick,
        given.out,
        {},
        settings,
    )
    return rows


if __name__ == "__main__":
    main()
