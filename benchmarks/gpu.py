"""On a GPU: HMC with many chains beside JAX, and the gradient of a ResNet-20 over all its images.

Chains: the net 13-50-1 with tanh, 455 rows, prior N(0, 1), Gaussian noise 0.5, float32. nescio through `fit(C * HMC(...))`; JAX as a
trajectory of leapfrog steps with its accept step, jit(vmap(scan)), matrix products at highest precision: the least that a JAX
sampler can take. nescio's path length is random with the same mean. Microseconds per leapfrog step of all chains, compiling left out;
rounds take turns. Memory is the largest allocation of nescio's run divided by the chains.
ResNet-20 with filter response norm: the log density and its gradient over 10,000 images of 32 by 32 in one call of
`Target.value_and_grad`, bf16 autocast, in TFLOP/s of the 2.45e12 multiplications and additions that a gradient takes.

    python benchmarks/gpu.py [--quick] [--chains 64 1024 8192] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reproduce"))
from evidence import origin, write

from nescio import Model, fit
from nescio.data.source import source
from nescio.infer import HMC
from nescio.laws import Normal
from nescio.likelihoods import Categorical, Gaussian
from nescio.nets import mlp, resnet20
from nescio.target import Target

RESULTS = Path(__file__).resolve().parent / "results"
LEAPFROGS, STEP, NOISE = 20, 1e-3, 0.5
FLOP_PER_IMAGE = 2.45e12 / 10_000  # of a gradient: forward, and twice as much backward


def nescio_run(x: Tensor, y: Tensor, chains: int, device: str) -> Callable[[int], float]:
    model = Model(mlp(13, 50, 1, activation=nn.Tanh), Normal(0, 1), Gaussian(NOISE))

    def run(steps: int) -> float:
        """Seconds per leapfrog, between the first report of the running sampler, when all is compiled, and the last."""
        told: list[tuple[float, int]] = []
        method = HMC(leapfrog=2 * LEAPFROGS - 1, step_size=STEP, warmup=0, draws=1, thin=steps)
        posterior = fit(
            model,
            (x, y),
            chains * method,
            device=device,
            compile=True,
            progress=lambda p: told.append((time.perf_counter(), p.done)),
        )
        assert posterior.info["compiled"] is True, posterior.info["compiled"]
        (began, first), (ended, last) = told[0], told[-1]
        return (ended - began) / (posterior.info["gradients"] * (last - first) / 1000)

    return run


def jax_run(x: Tensor, y: Tensor, chains: int, device: str) -> Callable[[int], float] | None:
    """The same arithmetic by hand: a chain of trajectories, each as one scan."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return None
    inputs, outputs = jnp.asarray(x.numpy()), jnp.asarray(y.numpy())

    def log_density(u: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            hidden = jnp.tanh(inputs @ u[:650].reshape(50, 13).T + u[650:700])
            f = hidden @ u[700:750].reshape(1, 50).T + u[750:]
        return -0.5 * (u**2).sum() - 0.5 * ((outputs - f) ** 2).sum() / NOISE**2

    gradient = jax.vmap(jax.value_and_grad(log_density))

    def trajectory(u: Any, key: Any) -> Any:
        momentum, coin = jax.random.split(key)
        p = jax.random.normal(momentum, u.shape)
        value, slope = gradient(u)

        def leap(carry: Any, _: Any) -> Any:
            v, q, g, _ = carry
            q = q + 0.5 * STEP * g
            v = v + STEP * q
            now, g = gradient(v)
            return (v, q + 0.5 * STEP * g, g, now), None

        (v, q, _, now), _ = jax.lax.scan(leap, (u, p, slope, value), None, length=LEAPFROGS)
        change = now - value - 0.5 * (q**2 - p**2).sum(1)
        took = jnp.log(jax.random.uniform(coin, change.shape)) < change
        return jnp.where(took[:, None], v, u)

    step = jax.jit(trajectory)
    start = jax.random.normal(jax.random.key(0), (chains, 751))

    def run(steps: int) -> float:
        u = jax.block_until_ready(step(start, jax.random.key(2)))
        keys = list(jax.random.split(jax.random.key(1), steps))
        began = time.perf_counter()
        for key in keys:
            u = step(u, key)
        jax.block_until_ready(u)
        return (time.perf_counter() - began) / steps / (LEAPFROGS + 1)  # each trajectory evaluates its start, too

    return run


LIBRARIES = {"nescio": nescio_run, "jax": jax_run}


def many_chains(counts: Sequence[int], rounds: int, device: str, quick: bool) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    x, y = torch.randn(455, 13), torch.randn(455, 1)
    rows = []
    for chains in counts:
        steps = 20 if quick else max(60, min(1000, 500_000 // chains))
        found: dict[str, list[float]] = {}
        memory = None
        runs = {name: make(x, y, chains, device) for name, make in LIBRARIES.items() if not (quick and name == "jax")}
        for _ in range(rounds):
            for name, run in runs.items():
                if run is None:
                    continue
                if name == "nescio" and device != "cpu":
                    torch.cuda.reset_peak_memory_stats()
                found.setdefault(name, []).append(run(steps))
                if name == "nescio" and device != "cpu":
                    memory = torch.cuda.max_memory_allocated() / chains
        for name, values in found.items():
            ratio = [a / b for a, b in zip(values, found.get("jax", []), strict=False)]
            rows.append(
                {
                    "row": f"{name} HMC, {chains} chains",
                    "metric": "us per leapfrog of all chains",
                    "ours": 1e6 * statistics.median(values),
                    "rounds": [1e6 * v for v in values],
                    "ratio_to_jax": statistics.median(ratio) if ratio else None,
                    "bytes_per_chain": memory if name == "nescio" else None,
                    "version": sys.modules[{"nescio": "torch"}.get(name, name)].__version__,
                }
            )
            print(json.dumps(rows[-1]), flush=True)
    return rows


class Autocast(nn.Module):
    """A network whose products are taken in bfloat16."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            return self.net(x).float()


def residual(images: int, device: str, repeats: int) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    x = torch.randn(images, 3, 32, 32).to(memory_format=torch.channels_last)
    y = torch.randint(0, 10, (images,))
    model = Model(Autocast(resnet20()), Normal(0, 5**-0.5), Categorical()).to(device)
    target = replace(Target(model, source((x, y)).to(torch.device(device))), code={})
    u, batch = target.u(model.prior.at(model.network.weights(), model.noise(0))[None]), target.batch(None)
    began = time.perf_counter()
    target.value_and_grad(u, batch)
    compiling = time.perf_counter() - began
    assert target.code is not None
    (note,) = [code.note for code in target.code.values()]
    seconds = []
    for _ in range(repeats):
        if device != "cpu":
            torch.cuda.synchronize()
        began = time.perf_counter()
        target.value_and_grad(u, batch)
        if device != "cpu":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    row = {
        "row": f"ResNet-20-FRN gradient, {images} images",
        "metric": "TFLOP/s",
        "ours": FLOP_PER_IMAGE * images / statistics.median(seconds) / 1e12,
        "milliseconds": 1e3 * statistics.median(seconds),
        "compile_seconds": compiling,
        "note": note,
    }
    print(json.dumps(row), flush=True)
    return [row]


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few chains and images on the CPU")
    parser.add_argument("--chains", type=int, nargs="*", default=[64, 1024, 8192])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.quick:
        rows = many_chains([2], 1, "cpu", True) + residual(2, "cpu", 1)
    else:
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # the memory is shared with torch here
        rows = residual(10_000, "cuda", 20) + many_chains(options.chains, options.rounds, "cuda", False)
    made = origin() if options.quick else {**origin(), "machine": torch.cuda.get_device_name()}
    write("gpu", "python benchmarks/gpu.py", rows, [0], options.quick, options.out, made)
    return rows


if __name__ == "__main__":
    main()
