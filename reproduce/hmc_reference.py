"""A small full-batch HMC reference, and how near cheaper methods come to it (after Izmailov et al., 2021, on a small scale).

The first 160 MNIST training digits, averaged to 14 x 14 pixels in [0, 1]; a network 196-32-32-10 with swish units and N(0, 1/5) on every
parameter, as in the paper. The reference is two independent runs of several chains, all started by the prior; one run against the other
is the ceiling, which no method can be asked to exceed, and one chain against all others is what the paper calls HMC. Scores are on
the first 2000 test digits. Settings are the library's defaults or round numbers; three step sizes of SGHMC were tried, with
accuracies of 0.694, 0.698 and 0.698, and the smallest is used.

    python reproduce/hmc_reference.py [--quick] [--chains 4] [--workers 2] [--out reproduce/results]

The reference's probabilities are kept beside the table in hmc_reference.npz: `probs` (digits, classes), half precision.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from evidence import RESULTS, origin, write
from torch import Tensor, nn
from torch.distributions import Categorical as Classes

from nescio import Model, fit
from nescio.data import mnist
from nescio.diagnose import diagnose
from nescio.evaluation.agreement import closeness
from nescio.evaluation.metrics import accuracy, nll
from nescio.infer import HMC, MAP, MCLMC, SGHMC, Method
from nescio.laws import Normal
from nescio.likelihoods import Categorical
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior.draws import Draws
from nescio.posterior.mixing import functions
from nescio.predictive import Drawn

ROWS, DIGITS, LOOKED = 160, 2000, 100  # for training; to be predicted; of these, at which mixing is judged
HALVES = ("HMC, first half", "HMC, second half")


class Job(NamedTuple):
    name: str
    chains: int
    quick: bool


class Result(NamedTuple):
    name: str
    probs: np.ndarray  # (chains, digits, classes), the mean over the draws of each
    looked: np.ndarray  # (chains, draws, LOOKED x classes)
    info: dict[str, Any]


def method(job: Job) -> Method:
    n, quick = job.chains, job.quick
    steps = {"draws": 8, "warmup": 8} if quick else {"draws": 1500, "warmup": 500}
    if job.name in HALVES:
        return n * HMC(leapfrog=4 if quick else 100, step_size=0.01, **steps)
    thinned = {"draws": 8, "warmup": 8} if quick else {"draws": 200, "warmup": 2000, "thin": 50}
    return {
        "5 * MAP()": 5 * MAP(epochs=4 if quick else 1000, batch_size=ROWS),
        "SGHMC": n * SGHMC(step_size=1e-4, batch_size=ROWS // 2, **thinned),
        "MCLMC": n * MCLMC(**thinned),
    }[job.name]


JOBS = (*HALVES, "5 * MAP()", "SGHMC", "MCLMC")


def pixels(images: Tensor) -> Tensor:
    return nn.functional.avg_pool2d(images[:, None].float() / 255, 2).flatten(1)  # (digits, 196)


def sample(job: Job) -> Result:
    """One job, in a process of its own."""
    torch.set_num_threads(1)
    x_train, y_train, x_test, _ = mnist()
    x = pixels(x_test[: LOOKED if job.quick else DIGITS])
    with Noise(0).at("hmc reference").scope():
        net = mlp(196, 32, 32, 10, activation=nn.SiLU)
    model = Model(net, Normal(0.0, 0.2**0.5), Categorical())
    data = pixels(x_train[:ROWS]), y_train[:ROWS].long()
    posterior = fit(model, data, method(job), seed=JOBS.index(job.name))
    assert isinstance(posterior, Draws)
    each = [posterior.chains(slice(i, i + 1)).predict(x, draws=None).mean for i in range(len(posterior.theta))]
    looked = functions(posterior, x[:LOOKED]).float().numpy()
    return Result(job.name, torch.stack(each).numpy(), looked, posterior.info)


def predictive(probs: np.ndarray) -> Drawn:
    """(chains, digits, classes): chains count alike."""
    return Drawn(Classes(probs=torch.from_numpy(probs).double().mean(0, keepdim=True)))


def table(results: dict[str, Result], y: Tensor) -> list[dict[str, Any]]:
    first, second = (results[name] for name in HALVES)
    chains = np.concatenate([first.probs, second.probs])
    reference = predictive(chains)
    mixed = diagnose(np.concatenate([first.looked, second.looked]))
    halves = closeness(predictive(first.probs), predictive(second.probs))
    others = [np.delete(chains, i, 0) for i in range(len(chains))]
    singles = [closeness(predictive(chains[[i]]), predictive(rest)) for i, rest in enumerate(others)]
    seconds = sum(results[name].info["seconds"] for name in HALVES)
    found: dict[str, dict[str, float]] = {
        "HMC": {
            "accuracy": accuracy(reference, y),
            "nll": nll(reference, y),
            "R-hat, largest": float(mixed.rhat.max()),
            "R-hat, median": float(np.median(mixed.rhat)),
            "ESS, smallest": float(mixed.ess_bulk.min()),
            "seconds": seconds,
        },
        "HMC, one half against the other": {**halves._asdict()},
        "HMC, one chain against the others": {
            key: float(np.mean([getattr(one, key) for one in singles])) for key in halves._fields
        },
    }
    for name in JOBS[len(HALVES) :]:
        own = predictive(results[name].probs)
        scores = {"accuracy": accuracy(own, y), "nll": nll(own, y), **closeness(own, reference)._asdict()}
        found[name] = {**scores, "seconds": results[name].info["seconds"]}
    rows = []
    for name, scores in found.items():
        settings = results[name if name in results else HALVES[0]].info["method"]
        for metric, ours in scores.items():
            kept = {"row": name, "metric": metric, "published": None, "mark": "own", "ours": ours, "n": len(y)}
            rows.append({**kept, "settings": settings, "checklist": ["002-21"]})
    return rows


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few short chains")
    parser.add_argument("--chains", type=int, default=4, help="of each half, and of each sampler")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.quick:
        options.workers = 1
    jobs = [Job(name, 2 if options.quick else options.chains, options.quick) for name in JOBS]
    results = {}
    with get_context("spawn").Pool(options.workers) if options.workers > 1 else nullcontext() as pool:
        for done in pool.imap_unordered(sample, jobs) if pool else map(sample, jobs):
            results[done.name] = done
            print(f"{done.name}: {done.info['seconds']:.0f} s, mixing {done.info.get('mixing')}", flush=True)
    y = mnist()[3][: results[HALVES[0]].probs.shape[1]].long()
    rows = table(results, y)
    command = "python reproduce/hmc_reference.py" + (" --quick" if options.quick else "")
    path = write("hmc_reference", command, rows, list(range(len(JOBS))), options.quick, options.out, origin())
    probs = np.concatenate([results[name].probs for name in HALVES]).mean(0)
    np.savez_compressed(path.with_suffix(".npz"), probs=probs.astype(np.float16))
    for row in rows:
        print(f"{row['row']:<36}{row['metric']:<32}{row['ours']:>10.4f}")
    return rows


if __name__ == "__main__":
    main()
