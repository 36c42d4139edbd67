"""Training a VAE through `fit`, beside the same training in a plain torch loop.

784-500-500-20 and back, ContinuousBernoulli pixels, batch 128, float32, torch's fused Adam on both sides, prior N(0, 1) on the decoder
(weight decay 1/N in the plain loop). Blocks of plain and of our steps take turns in one process, on the same rows; a step of ours is all
that `fit` does at one: keyed noise, choice of rows, gradient, trace. Compiled: as in runs of 5000 steps (eleven epochs of 60,000 images)
and more without being asked; making the code takes seconds, once, and is left out. `ratio` is the median over blocks.

    python benchmarks/vae.py [--quick] [--device cuda] [--threads 2] [--blocks 15] [--steps 20]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from record import RESULTS, keep, load
from torch import Tensor, nn
from torch.nn import functional as F

from nescio import Model
from nescio.data.source import source
from nescio.infer import MAP
from nescio.infer.begin import from_network
from nescio.infer.method import Start
from nescio.laws import Normal
from nescio.likelihoods import ContinuousBernoulli, Latent
from nescio.likelihoods.tilted import TiltedUniform
from nescio.nets import VAE, vae
from nescio.noise import Noise
from nescio.target import Target

IMAGES, LIMIT = 60_000, 1.10
Step = Callable[[int], Tensor]  # the number of the step -> the loss


def rows_of(step: int, order: Tensor, batch: int) -> Tensor:
    start = step * batch % (order.shape[-1] - batch + 1)
    return order[..., start : start + batch]


def plain(net: VAE, x: Tensor, batch: int, order: Tensor) -> Step:
    """As one would write it."""
    decay = {"params": net.decoder.parameters(), "weight_decay": 1 / len(x)}
    adam = torch.optim.Adam([decay, {"params": net.encoder.parameters()}], lr=1e-3, fused=True)

    def step(i: int) -> Tensor:
        image = x[rows_of(i, order, batch)]
        adam.zero_grad()
        h = net.encoder.body(image)  # type: ignore[operator]
        mean, sd = net.encoder.mean(h), F.softplus(net.encoder.scale(h)) + 1e-6  # type: ignore[operator]
        logits = net.decoder(mean + sd * torch.randn_like(mean))
        kl = 0.5 * (mean.square() + sd.square() - 2 * sd.log() - 1).sum(1)
        loss = (kl - TiltedUniform(logits).log_prob(image).sum(1)).mean()
        loss.backward()
        adam.step()
        return loss.detach()

    return step


def ours(net: nn.Module, x: Tensor, batch: int, order: Tensor, compiled: bool) -> Step:
    """What `fit` does at every step."""
    method = MAP(lr=1e-3, optimizer=partial(torch.optim.Adam, fused=True))
    model = Model(net, Normal(0, 1), Latent(ContinuousBernoulli()))
    noise = model.noise(0)
    ends = from_network(model, Start(), noise)
    target = Target(model, source((x, x)), centred=True).free(method.moves(model.prior), ends.theta)
    state = method.init(target, ends, noise)
    target = replace(target, code={}) if compiled else target

    def step(i: int) -> Tensor:
        nonlocal state
        now = target.batch(rows_of(i, order, batch)[None])._replace(part=0.5, closes=False)
        state, _ = method.step(target, state, now, noise.at("step", i))
        return state.epoch[:, 0]

    step(0)
    notes = [code.note for code in (target.code or {}).values() if code.note]
    if notes:
        raise RuntimeError(f"not compiled: {notes[0]}")
    return step


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    device = torch.device(options.device)
    noise = Noise(0, ("vae",), device)
    x = noise.at("x").uniform(options.images, 784)
    order = noise.at("order").permutations(1, options.images)[0]
    with Noise(0, ("net",)).scope():
        nets = [vae(784, options.hidden, 20).to(device) for _ in range(3)]
    given = (x, options.batch, order)
    steps = {"plain": plain(nets[0], *given), "not compiled": ours(nets[1], *given, False)}
    if not options.quick:
        steps["compiled"] = ours(nets[2], *given, True)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    finite = True
    for block in range(options.blocks + 1):
        for name in list(steps)[:: -1 if block % 2 else 1]:
            wait(device)
            began = time.perf_counter()
            for i in range(options.steps):
                loss = steps[name](block * options.steps + i)
            wait(device)
            if block:  # the first is warm-up
                seconds[name].append((time.perf_counter() - began) / options.steps)
            finite &= bool(loss.isfinite().all())
    if not finite:
        raise RuntimeError("the loss is not finite")
    return [row(name, seconds[name], seconds["plain"], options) for name in steps if name != "plain"]


def row(name: str, own: list[float], peer: list[float], options: argparse.Namespace) -> dict[str, Any]:
    ratios = [b / a for a, b in zip(peer, own, strict=True)]
    ms, plain_ms, ratio = 1000 * statistics.median(own), 1000 * statistics.median(peer), statistics.median(ratios)
    per_epoch = -(-IMAGES // options.batch)
    found = {"row": f"VAE training, {options.device}, {name}", "peer": "plain torch loop", "n": len(ratios)}
    found |= {"ms": round(ms, 3), "plain_ms": round(plain_ms, 3), "ratio": round(ratio, 3), "limit": LIMIT}
    found |= {"ratio_least": round(min(ratios), 3), "ratio_most": round(max(ratios), 3), "within": ratio <= LIMIT}
    found |= {"s_per_epoch": round(ms * per_epoch / 1000, 3)}
    return {**found, "plain_s_per_epoch": round(plain_ms * per_epoch / 1000, 3)}


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small network, two steps: for a test, not for a result")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--steps", type=int, default=20, help="in a block")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--images", type=int, default=12_800)
    parser.add_argument("--hidden", type=int, default=500)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.quick:
        options.blocks, options.steps, options.images, options.hidden = 1, 2, 256, 20
    threads = torch.get_num_threads()
    torch.set_num_threads(options.threads)
    before = load()
    try:
        rows = measure(options)
    finally:
        torch.set_num_threads(threads)
    settings = {name: getattr(options, name) for name in ("device", "threads", "blocks", "steps", "batch", "hidden")}
    settings |= {"load_before": before, "load_after": load()}
    if options.device != "cpu":
        settings["device"] = torch.cuda.get_device_name()
    table = "vae" if options.device == "cpu" else "vae_gpu"
    command = f"python benchmarks/vae.py --device {options.device} --threads {options.threads}"
    path = keep(table, command, rows, [0], options.quick, options.out, {}, settings)
    for row in rows:
        print(f"{row['row']}: {row['ms']} ms a step, plain {row['plain_ms']} ms, ratio {row['ratio']}")
        print(f"{row['s_per_epoch']} s an epoch of {IMAGES} images. Written to {path.name}")
    return rows


if __name__ == "__main__":
    main()
