"""Bayesian compression: error beside rate, on disk (Molchanov et al., 2017; Louizos, Ullrich & Welling, 2017).

LeNet-300-100 and LeNet-5-Caffe on MNIST and a VGG-like network on 10,000 images of CIFAR-10, under

    sparse-vd          log-uniform for each weight, q = N(θ, αθ²)
    normal-jeffreys    log-uniform scales of groups: the inputs of linear maps, the filters of convolutions
    horseshoe          half-Cauchy scales of the same groups, and of each layer

each compressed in several ways: `papers` by log α > 3 for each weight, > -3 for a group's scale; `groups`, and `weights` within them, by a
promise of at most 0.2 % of accuracy on held-out training images; rounded by steps or a codebook. Every rate is that of a file, written and
read back, whose network is scored on the test images. Beside it the accountings of the papers: weights kept, and bits by their rule.

    python reproduce/compression.py [--device cuda] [--workers 6] [--budget SECONDS] [--nets ...] [--kinds ...] [--seeds 3] [--epochs 60]
                                    [--rows FILE] [--files FOLDER] [--figures FOLDER] [--quick]

Each finished training is a line of compression.rows.jsonl; `--budget 0` makes the table of what is there.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from compression_setup import KINDS, NETS, Data, data, trained
from compression_table import table
from evidence import write
from resumable import Job, Line, finish, options
from torch import Tensor, nn

from nescio.compression import (
    Codebook,
    Compressed,
    GroupLogAlpha,
    GroupScale,
    LogAlpha,
    Precision,
    Promised,
    Rule,
    SignalToNoise,
    Steps,
    compress,
    flops,
    load_compressed,
    moments,
)
from nescio.posterior import Variational

LOSS = 0.002  # of accuracy on the held-out images
PARTS = (0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 0.005)  # of the weights, along the curve of error against rate
EDGES = torch.linspace(-0.5, 0.5, 101)  # of the histograms of weights


def variants(kind: str, given: Data) -> dict[str, tuple[Sequence[Rule], Precision, bool]]:
    """Rules, rounding, and whether the spread is kept."""
    promise = Promised(given.held.x, given.held.y, LOSS)
    each = SignalToNoise(promise)
    if kind == "sparse-vd":
        return {
            "papers": ([LogAlpha(3.0)], Steps(), False),
            "weights": ([each], Steps(), False),
            "weights, codebook": ([each], Codebook(16), False),
            "weights, posterior": ([each], Steps(), True),
        }
    group = GroupLogAlpha(promise) if kind == "normal-jeffreys" else GroupScale(promise)
    papers = {"papers": ([GroupLogAlpha(-3.0)], Steps(), False)} if kind == "normal-jeffreys" else {}
    return papers | {
        "groups": ([group], Steps(), False),
        "weights": ([group, each], Steps(), False),
        "weights, codebook": ([group, each], Codebook(16), False),
        "weights, posterior": ([group, each], Steps(), True),
    }


def error(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """Per cent."""
    with torch.no_grad():
        wrong = sum(int((net(a).argmax(-1) != b).sum()) for a, b in zip(x.split(1000), y.split(1000), strict=True))
    return 100 * wrong / len(y)


def score(job: Job, until: float, device: str, files: Path | None) -> Line:
    given = data(job["net"], job["quick"]).to(device)
    posterior, elbo = trained(job, given, device)
    mean = posterior.at_mean().predict(given.test.x).mean.argmax(-1)
    drawn = posterior.predict(given.test.x, 20).mean.argmax(-1)
    found: dict[str, Any] = {
        "elbo": elbo,
        "error, mean": 100 * float((mean != given.test.y).double().mean()),
        "error, 20 draws": 100 * float((drawn != given.test.y).double().mean()),
        "variants": {},
    }
    whole = posterior.model.network.net
    found["parameters"] = sum(p.numel() for p in whole.parameters())
    found["flops"] = flops(whole, given.test.x[:1])
    found |= pictured(posterior, given, job["kind"])
    for name, (rules, precision, spread) in variants(job["kind"], given).items():
        small = compress(posterior, given.test.x[:2], rules, precision, spread)
        found["variants"][name] = told(small, posterior, given, job, name, files)
    return found


def pictured(posterior: Variational, given: Data, kind: str) -> dict[str, Any]:
    """For the figures: histograms of weights, scores of groups, and error against the rate of a file."""
    own = moments(posterior)
    weights = torch.cat([m.flatten().float().cpu() for m in own.mean.values() if m.dim() > 1])
    rule = SignalToNoise() if kind == "sparse-vd" else GroupLogAlpha() if kind == "normal-jeffreys" else GroupScale()
    scores = {n: s for n, s in rule.scores(posterior, own).items() if s.dim() > 1}
    score = torch.cat([s.flatten().float().cpu() for s in scores.values()])
    score = score.clamp_min(1e-6).log() if kind == "sparse-vd" else score
    curve = []
    for part in PARTS:
        least = float(
            score.double().quantile(1 - part)
            if len(score) < 2**24
            else score[:: len(score) // 2**23].quantile(1 - part)
        )
        raw = math.exp(least) if kind == "sparse-vd" else least
        chosen = (
            SignalToNoise(raw)
            if kind == "sparse-vd"
            else GroupLogAlpha(-raw)
            if kind == "normal-jeffreys"
            else GroupScale(raw)
        )
        small = compress(posterior, given.test.x[:2], chosen)
        curve.append({"part": part, "rate": small.rate, "error": error(small.net, given.test.x, given.test.y)})
    edges = torch.linspace(
        float(score.quantile(0.001) if len(score) < 2**24 else score.min()), float(score.max()) + 1e-6, 81
    )
    return {
        "weights": torch.histogram(weights, EDGES).hist.tolist(),
        "scores": {"edges": edges.tolist(), "counts": torch.histogram(score, edges).hist.tolist()},
        "curve": curve,
    }


def told(small: Compressed, posterior: Variational, given: Data, job: Job, name: str, files: Path | None) -> Line:
    """What the file holds and how well its network does, read back from the disk."""
    file = f"{job['net']}-{job['kind']}-{job['seed']}-{name.replace(', ', '-')}{'.quick' if job['quick'] else ''}.nscz"
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) if files is None else files
        folder.mkdir(parents=True, exist_ok=True)
        small.save(folder / file)
        again = load_compressed(folder / file, posterior.model)
        size = (folder / file).stat().st_size
    line = {
        "error": error(again.net, given.test.x, given.test.y),
        "bytes": size,
        "claimed": small.bytes,
        "rate": small.rate,
        "kept": sum(k for k, _ in again.kept().values()),
        "dense": sum(p.numel() for p in again.net.parameters()),
        "layers": again.kept(),
        "architecture": list(again.architecture().values()),
        "bits": again.bits(),
        "papers' bits": papers_bits(again, posterior),
        "flops": flops(again.net, given.test.x[:1]),
        "least scores": small.info["least_scores"],
    }
    after = torch.cat([p.detach().flatten().float().cpu() for p in again.net.parameters() if p.dim() > 1])
    line["weights"] = torch.histogram(after[after != 0], EDGES).hist.tolist()
    if again.held.spreads:
        drawn = again.predict(given.test.x, 20).mean.argmax(-1)
        line["error, 20 draws"] = 100 * float((drawn != given.test.y).double().mean())
    pick = again.held.picks.get("1")
    if job["net"] == "lenet-300-100" and pick is not None:
        line["pixels"] = pick[0].tolist()
    return line


def papers_bits(small: Compressed, posterior: Variational) -> float:
    """The rate by the authors' accounting: for the weights of each layer one width, by the narrowest posterior in it (their code).

    A significand of t bits with 2^-t about twice the variance, a sign, and an exponent that reaches the largest weight; no index, no bias.
    """
    large = {n: p for n, p in posterior.model.network.net.named_parameters() if p.dim() > 1}
    sd, total = moments(posterior).sd, 0.0
    for name, p in small.net.named_parameters():
        if p.dim() < 2:
            continue
        kept = sd[name][sd[name] > 0]
        narrow = 2 * float(kept.double().square().min()) if len(kept) else 1.0
        digits = sum(narrow < 0.5 * 2.0 ** (1 - t) for t in range(1, 24))
        top = float(p.detach().abs().max())
        exponent = math.ceil(math.log2(math.log2(top + 1) + 1) + 1)
        total += p.numel() * (digits + exponent + 1)
    return 32 * sum(p.numel() for p in large.values()) / total


def planned(given: argparse.Namespace) -> list[Job]:
    common = {"epochs": given.epochs, "batch": 256, "warmup": 0.5, "quick": given.quick}
    found = product(range(given.seeds), given.nets, given.kinds)
    return [{"net": net, "kind": kind, "seed": seed, "lr": KINDS[kind], **common} for seed, net, kind in found]


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--nets", nargs="*", choices=NETS, default=list(NETS))
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--files", type=Path, help="folder that keeps the compressed files")
    parser.add_argument("--figures", type=Path)
    given = parser.parse_args(arguments)
    if given.quick:
        given.epochs, given.seeds = 1, 1
    path = given.rows or given.out / f"compression{'.quick' if given.quick else ''}.rows.jsonl"
    work = partial(score, device=given.device, files=given.files)
    lines = finish(planned(given), work, path, given.device, given.workers, given.budget)
    if not lines:
        return []
    rows = table(lines)
    command = f"python reproduce/compression.py --epochs {given.epochs}" + (" --quick" if given.quick else "")
    write("compression", command, rows, range(given.seeds), given.quick, given.out, lines[0]["made"])
    if given.figures is not None:
        from compression_figures import draw

        draw(lines, given.figures)
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items() if value is not None))
    return rows


if __name__ == "__main__":
    main()
