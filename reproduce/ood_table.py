"""Which method knows what it does not know? One table of out-of-distribution detection over all of them.

LeNet-5 trained on MNIST and shown Fashion-MNIST, notMNIST and Omniglot; ResNet-20 trained on 10,000 images of CIFAR-10 and shown classes of
Tiny-ImageNet. For every method and every score (max probability, entropy, mutual information, total variance, and the density of features)
AUROC, AUPR and FPR95, means over seeds; the intervals of each run are in its line. Beside it accuracy and NLL, the seconds of a
prediction (of a GPU that other processes use, too, if there are several workers), and sweeps of rotation, blur and noise (Ovadia et al.,
2019). `head, linearised` is the single pass without draws of weights; the other Laplace approximations are linearised, too, as weights of
all layers drawn under N(0, 1) are no network. Published numbers are of other sets outside: ood_mnist.py has them.

    python reproduce/ood_table.py --device cuda [--sets mnist cifar10] [--only ensemble dropout] [--seeds 3] [--budget SECONDS] [--quick]

Each finished posterior is a line of ood_table.rows.jsonl.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from evidence import write
from expectation import Expectation, show
from ood_scores import SETS, Sets, by_density, few, told_apart
from resumable import Job, Line, finish, options
from torch import Tensor, nn

from nescio import Model, Posterior, fit
from nescio.evaluation import blurred, nll, noisy, rotated, sweep
from nescio.infer import MAP, SGHMC, SGLD, SWAG, VI, Cycles, Laplace, Method
from nescio.infer.curvature import diag, full, kfac
from nescio.infer.families import (
    BernoulliDropout,
    ConcreteDropout,
    GaussianDropout,
    LowRank,
    MeanField,
    VariationalDropout,
)
from nescio.laws import LogUniform, Normal
from nescio.likelihoods import Categorical
from nescio.links import probit
from nescio.nets import lenet5, resnet20
from nescio.noise import Noise
from nescio.posterior.gaussian import GaussianPosterior

MEMBERS, DRAWS = 5, 50
BATCH = {"mnist": 256, "cifar10": 64}  # a ResNet needs its steps, and the pictures are few
SWEEPS = {
    "rotated by": (rotated, (0.0, 30.0, 60.0, 90.0)),
    "blurred by": (blurred, (0.0, 1.0, 2.0)),
    "noisy by": (noisy, (0.0, 0.3, 0.6)),
}
LINEARISED = ("head, linearised", "Laplace, diag", "Laplace, kfac")
IDS = ("001-3", "001-5", "000-7", "000-37")


def methods(epochs: int, n: int, batch: int, head: str) -> dict[str, Callable[[], Method]]:
    half, steps = max(1, epochs // 2), n // batch
    fast: dict[str, Any] = {"epochs": epochs, "lr": 1e-3, "batch_size": batch}
    map_ = MAP(**fast)
    chain: dict[str, Any] = {
        "draws": 20,
        "warmup": half * steps,
        "thin": max(1, half * steps // 20),
        "batch_size": batch,
    }
    cycles = {**chain, "warmup": 0, "thin": max(1, epochs * steps // 100)}
    return {
        "MAP": lambda: map_,
        "ensemble": lambda: MEMBERS * map_,
        "SGLD": lambda: map_ >> SGLD(step_size=0.02 / n, **chain),
        "SGHMC": lambda: map_ >> SGHMC(step_size=0.005 / n, **chain),
        "cyclical SGHMC": lambda: map_ >> SGHMC(step_size=Cycles(0.02 / n), **cycles),
        "mean field": lambda: map_ >> VI(MeanField(sd=0.02), **fast),
        "low rank": lambda: map_ >> VI(LowRank(), **fast).on(head),
        "dropout": lambda: VI(BernoulliDropout(0.1), **fast),
        "Gaussian dropout": lambda: VI(GaussianDropout(0.1), **fast),
        "concrete dropout": lambda: VI(ConcreteDropout(), **fast),
        "variational dropout": lambda: VI(VariationalDropout(), **fast),
        "SWAG": lambda: map_ >> SWAG(epochs=max(2, half), lr=0.01, batch_size=batch, every=max(1, half * steps // 40)),
        "MultiSWAG": lambda: (
            MEMBERS * (map_ >> SWAG(epochs=max(2, half), lr=0.01, batch_size=batch, every=max(1, half * steps // 40)))
        ),
        "Laplace, diag": lambda: map_ >> Laplace(diag, samples=1),
        "Laplace, kfac": lambda: map_ >> Laplace(kfac, samples=1),
        "head, linearised": lambda: map_ >> Laplace(full).on(head),
        "head, sampled": lambda: map_ >> Laplace(full).on(head),
    }


NAMES = tuple(methods(1, 1, 1, "*"))
ON_PICTURES = ("MAP", "ensemble", "SGHMC", "mean field", "dropout", "SWAG", "head, linearised")


def train(job: Job, until: float, device: str) -> Line:
    sets: Sets = SETS[job["set"]]()
    if job["quick"]:
        sets = few(sets, 40)
    mean, sd = sets.x.mean((0, 2, 3), keepdim=True), sets.x.std((0, 2, 3), keepdim=True)

    def ready(x: Tensor) -> Tensor:
        return ((x - mean) / sd).to(device)

    with Noise(job["seed"]).at("net").scope():
        net, head = network(job)
        net = net.to(device)
    law = LogUniform() if job["method"] == "variational dropout" else Normal(0.0, 1.0)
    model = Model(net, law, Categorical())
    batch = min(BATCH[job["set"]], len(sets.x))
    method = methods(job["epochs"], len(sets.x), batch, head)[job["method"]]()
    code = True if job["set"] == "cifar10" and device != "cpu" else None  # a residual network is worth a compiler
    posterior = fit(model, (ready(sets.x), sets.y.to(device)), method, seed=job["seed"], compile=code)
    if job["method"] in LINEARISED and isinstance(posterior, GaussianPosterior):
        posterior = posterior.linearize(probit)
    test, y = ready(sets.x_test[:5000]), sets.y_test[:5000].to(device)
    outside = {name: ready(x) for name, x in sets.outside.items()}
    found, own, seconds = told_apart(lambda x: posterior.predict(x, DRAWS), test, outside)
    if job["method"] == "MAP":
        features = partial(hidden, posterior, head)
        inside = sets._replace(x=ready(sets.x[:10_000]), y=sets.y[:10_000].to(device), outside=outside)
        found |= by_density(features, inside, test)
    found |= {"accuracy": 100 * float((own.mean.argmax(-1) == y).double().mean()), "nll": nll(own, y)}
    for name, (corruption, strengths) in SWEEPS.items() if job["set"] == "mnist" else ():
        spoiled = partial(spoil, corruption, mean.to(device), sd.to(device))
        for row in sweep(posterior, (test[:1000], y[:1000]), spoiled, strengths, draws=DRAWS):
            found |= {f"{name} {row.strength:g}: error": 100 * row.loss, f"{name} {row.strength:g}: nll": row.nll}
            found |= {f"{name} {row.strength:g}: entropy": row.total, f"{name} {row.strength:g}: AURC": row.aurc}
    return {**found, "prediction seconds": seconds}


def spoil(
    corruption: Callable[[Tensor, float], Tensor], mean: Tensor, sd: Tensor, x: Tensor, strength: float
) -> Tensor:
    """Standardised images, made worse in [0, 1]."""
    return (corruption(x * sd + mean, strength) - mean) / sd


def network(job: Job) -> tuple[nn.Module, str]:
    """And the pattern of its last layer."""
    if job["set"] == "mnist":
        return (lenet5(), "7.*") if not job["quick"] else (quick_net(1), "7.*")
    return (resnet20(), "13.*") if not job["quick"] else (quick_net(3), "7.*")


def quick_net(channels: int) -> nn.Sequential:
    body = [nn.Conv2d(channels, 2, 5, stride=4), nn.ReLU(), *(nn.Identity() for _ in range(3))]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8, 10))


def hidden(posterior: Posterior, head: str, x: Tensor) -> Tensor:
    """What goes into the last layer, at the posterior's point."""
    net = posterior.model.network.net
    body = nn.Sequential(*list(net)[: int(head.partition(".")[0])])  # type: ignore[call-overload]
    own = {name: value for name, value in posterior.point().items() if name in dict(body.named_parameters())}
    with torch.no_grad():
        return torch.cat([torch.func.functional_call(body, own, (part,)) for part in x.split(1000)])


def table(found: Sequence[Line]) -> Iterator[Expectation]:
    for which in dict.fromkeys(line["job"]["set"] for line in found):
        best: dict[str, dict[str, float]] = {"entropy": {}, "mutual information": {}}
        by_entropy = best["entropy"]
        for method in dict.fromkeys(line["job"]["method"] for line in found if line["job"]["set"] == which):
            own = [line for line in found if (line["job"]["set"], line["job"]["method"]) == (which, method)]
            keys = [
                key
                for key, value in own[0].items()
                if isinstance(value, float)
                and key != "seconds"
                and "AUROC " not in key
                and not (method == "MAP" and "mutual information" in key)  # of one network: rounding errors
            ]
            for key in keys:
                values = [line[key] for line in own if key in line]
                yield Expectation(f"{which}: {method}", key, float(np.mean(values)), len(values))
                if len(values) > 1:
                    yield Expectation(
                        f"{which}: {method}", f"{key}, sd over seeds", float(np.std(values, ddof=1)), len(values)
                    )
            for doubt, means in best.items():
                if method == "MAP" and doubt == "mutual information":
                    continue
                aurocs = [[line[key] for key in keys if key.endswith(f"{doubt}: AUROC")] for line in own]
                means[method] = 100 * float(np.mean(aurocs))
                yield Expectation(
                    f"{which}: {method}", f"AUROC by {doubt} in %, mean over the sets", means[method], len(own)
                )
        if {"MAP", "ensemble"} <= set(by_entropy):
            gain = by_entropy["ensemble"] - by_entropy["MAP"]
            yield Expectation(
                f"{which}: ensemble", "AUROC beyond that of one network", gain, 1, low=0.0, says="Ovadia et al. (2019)"
            )
        if {"head, linearised", "head, sampled"} <= set(by_entropy):
            name, says = f"{which}: head, linearised", "one pass tells nearly as much"
            for doubt, means in best.items():
                lost = means["head, sampled"] - means["head, linearised"]
                yield Expectation(name, f"AUROC in % lost by the single pass, {doubt}", lost, 1, high=1.0, says=says)
            spent = [np.mean(seconds(found, which, method)) for method in ("head, sampled", "head, linearised")]
            yield Expectation(name, "time of sampling over that of the single pass", float(spent[0] / spent[1]), 1)


def seconds(found: Sequence[Line], which: str, method: str) -> list[float]:
    own = [line for line in found if (line["job"]["set"], line["job"]["method"]) == (which, method)]
    return [line["prediction seconds"] for line in own]


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sets", nargs="*", choices=list(SETS), default=list(SETS))
    parser.add_argument("--only", nargs="*", choices=NAMES, default=NAMES)
    given = parser.parse_args(arguments)
    epochs = {"mnist": 12, "cifar10": 30}
    if given.quick:
        given.seeds, given.workers, epochs = 1, 1, {"mnist": 1, "cifar10": 1}
        given.sets, given.only = ["mnist"], ["MAP", "Laplace, kfac", "head, linearised", "head, sampled", "SWAG"]
    jobs = [
        {"set": which, "method": name, "seed": seed, "epochs": epochs[which], "quick": given.quick}
        for seed in range(given.seeds)
        for which in given.sets
        for name in given.only
        if which == "mnist" or name in ON_PICTURES
    ]
    path = given.rows or given.out / f"ood_table{'.quick' if given.quick else ''}.rows.jsonl"
    found = finish(jobs, partial(train, device=given.device), path, given.device, given.workers, given.budget)
    if not found:
        return []
    rows = [expected.to_row(IDS, given.quick) for expected in table(found)]
    command = "python reproduce/ood_table.py" + (" --quick" if given.quick else "")
    seeds = sorted({line["job"]["seed"] for line in found})
    write("ood_table", command, rows, seeds, given.quick, given.out, found[0]["made"])
    kept = [row for row in rows if "AUROC" in row["metric"] or row["metric"] in ("accuracy", "nll")]
    print(show(kept))
    return rows


if __name__ == "__main__":
    main()
