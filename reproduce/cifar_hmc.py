"""CIFAR-10 against the published HMC posterior: how near do cheap methods come to it? (Izmailov et al., 2021, table 1.)

ResNet-20 with filter response norm and swish, prior N(0, 1/5) on every number, no augmentation. The reference is theirs: class
probabilities of the 10,000 test images (cifar10_reference of the data folder). Trained on all of CIFAR-10 where its files are at hand
(--cifar10, see cifar10_files.py), else on the 10,000 images of the data folder and scored on its 2,000. `agreement`: part of the images for
which both would answer the same; `TV`: mean total variation. A job is one network or one chain, several of which share a
GPU, products in bfloat16. A method's posterior is the average of its jobs, an SGD network one of the ensemble. `--epochs` is what a network
of the ensemble gets; samplers have four times as many, from a network of a tenth. Rates of SGD were tried twice, first by the accuracy of
test images after 12 epochs of 10,000, then by held-out training images, where 0.03 was best; steps of samplers by the latter, but only 1e-6
and 3e-6 at a friction of 0.1. Agreement was looked at for the number of networks of the ensemble only: after 12, 24 more were trained.
Published numbers stand beside ours, and only the nearest of all is judged by one: the kept reference (91.4 % right) is not the run of the
table (89.6 %).

    python reproduce/cifar_hmc.py --device cuda --cifar10 FOLDER [--epochs 28] [--workers 12] [--only SGHMC ensemble] [--seeds 36]

Each finished job is a line of cifar_hmc.rows.jsonl, and its probabilities are kept beside it; one that the budget or a kill cut short
goes on where it was (cifar_hmc.runs).
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from cifar10_files import read
from evidence import write
from expectation import Expectation, show
from resumable import Job, Line, OutOfTime, finish, options, watch
from torch import Tensor, nn
from torch import distributions as td

from nescio import Model, fit
from nescio.data import arrays, images
from nescio.evaluation import accuracy, agreement, nll, total_variation
from nescio.infer import MAP, SGHMC, SGLD, SWAG, VI, Cycles, Laplace, Method
from nescio.infer.families import BernoulliDropout, MeanField
from nescio.laws import Normal
from nescio.likelihoods import Categorical
from nescio.nets import FilterResponseNorm, resnet20
from nescio.noise import Noise
from nescio.posterior.draws import Draws
from nescio.posterior.gaussian import GaussianPosterior
from nescio.predictive import Drawn

BATCH, HEAD = 50, "net.13.*"
WHOLE = ("MFVI", "MC dropout", "Laplace")  # in single precision: weights that are distributions, and Jacobians
IDS = ("002-21", "002-23")
# accuracy, agreement, total variation and how the number was read (Izmailov et al., 2021, table 1; HMC: one chain against the others)
PUBLISHED = {
    "HMC": (89.64, 94.01, 0.074, "seed"),
    "SGD": (83.44, 85.48, 0.190, "memory"),
    "ensemble": (88.49, 91.52, 0.115, "memory"),
    "MFVI": (86.45, 88.75, 0.136, "seed"),
    "SGLD": (89.32, 91.54, 0.110, "seed"),
    "SGHMC": (89.38, 91.98, 0.109, "seed"),
    "cyclical SGHMC": (89.63, 92.67, 0.099, "seed"),
}


@final
class Autocast(nn.Module):
    """A network whose products are taken in bfloat16, on a GPU, if `half`."""

    def __init__(self, net: nn.Module, half: bool) -> None:
        super().__init__()
        self.net, self.half = net, half

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_cuda or not self.half:
            return self.net(x)
        with torch.autocast("cuda", torch.bfloat16):
            return self.net(x).float()


class Data(NamedTuple):
    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    reference: Tensor  # (test images, 10)


@cache
def load(folder: Path | None) -> Data:
    """Colours standardised by the training images."""
    reference = torch.from_numpy(arrays("cifar10_reference")["hmc_probs"])
    if folder is None:
        found = images("cifar10_subset")
        given = [found[key] for key in ("x_train", "y_train", "x_test", "y_test")]
        reference = reference[torch.from_numpy(found["idx_test"].astype(np.int64))]
    else:
        given = list(read(folder))
    x, y, x_test, y_test = (torch.from_numpy(each) for each in given)
    x, x_test = (t.permute(0, 3, 1, 2).float() / 255 for t in (x, x_test))
    mean, sd = x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True)
    x, x_test = (((t - mean) / sd).to(memory_format=torch.channels_last) for t in (x, x_test))
    return Data(x, y.long(), x_test, y_test.long(), reference)


def methods(epochs: int, steps: int, batch: int, scale: float = 1.0) -> dict[str, Callable[[], Method]]:
    """`steps`: of an epoch. Step sizes are of the sum over 50,000 images, for fewer images larger in proportion, and times `scale`."""
    n, part = steps * batch, lambda share: max(1, round(share * epochs))
    unit = scale * 50_000 / n
    sgd = partial(torch.optim.SGD, momentum=0.9, nesterov=True)
    whole, half, begin = (
        MAP(epochs=part(share), lr=0.03, batch_size=batch, optimizer=sgd) for share in (1, 1 / 2, 1 / 10)
    )

    def rising(t: float) -> float:
        """From a tenth to all in the first twentieth of a run: a trained network lies in a narrower place than draws do."""
        return 3e-6 * unit * min(1.0, 0.1 + 18 * t)

    walk: dict[str, Any] = {"draws": 3 * epochs, "warmup": epochs * steps, "thin": steps, "batch_size": batch}
    settle = SGHMC(step_size=rising, draws=1, warmup=part(1 / 10) * steps, batch_size=batch, friction=0.05)
    # four cycles, a mode each; a draw each half epoch in the last quarter of a cycle
    turns: dict[str, Any] = {"draws": 2 * epochs, "warmup": 0, "thin": max(1, steps // 2), "batch_size": batch}
    return {
        "cyclical SGHMC": lambda: (
            begin >> settle >> SGHMC(step_size=Cycles(6e-6 * unit, 4, 0.75), friction=0.05, **turns)
        ),
        "SGHMC": lambda: begin >> SGHMC(step_size=rising, friction=0.05, **walk),
        "ensemble": lambda: whole,
        "MFVI": lambda: half >> VI(MeanField(sd=0.01), epochs=epochs, lr=1e-3, batch_size=batch),
        "SGLD": lambda: begin >> SGLD(step_size=1e-6 * unit, **{**walk, "draws": epochs}),
        "MC dropout": lambda: VI(BernoulliDropout(0.05), epochs=epochs, lr=1e-3, batch_size=batch),
        "SWAG": lambda: half >> SWAG(epochs=max(2, part(1 / 2)), lr=0.01, batch_size=batch, every=max(1, steps // 2)),
        "Laplace": lambda: whole >> Laplace().on(HEAD),
    }


NAMES = tuple(methods(2, 1, 1))
JOBS = {"cyclical SGHMC": 3, "SGHMC": 3, "ensemble": 36, "MFVI": 1, "SGLD": 2, "MC dropout": 1, "SWAG": 3, "Laplace": 1}
AVERAGES = {"samplers and ensemble": ("ensemble", "SGHMC", "cyclical SGHMC"), "all averaged": NAMES}


def train(job: Job, until: float, device: str, folder: Path | None, kept: Path) -> Line | None:
    data = load(folder)
    if job["images"]:
        data = Data(*(t[: job["images"]] for t in data))
    batch = BATCH if not job["images"] else 5
    with Noise(job["seed"]).at("resnet").scope():
        net = Autocast(resnet20() if not job["images"] else tiny(), job["method"] not in WHOLE).to(device)
    model = Model(net, Normal(0.0, 5**-0.5), Categorical())
    method = methods(job["epochs"], len(data.x) // batch, batch, job["scale"])[job["method"]]()
    place, code = kept.with_suffix(".runs") / name_of(job), True if device != "cpu" else None
    try:
        posterior = fit(
            model,
            (data.x.to(device), data.y.to(device)),
            method,
            seed=job["seed"],
            progress=partial(watch, until),
            folder=place,
            compile=code,
        )
    except OutOfTime:
        return None
    if isinstance(posterior, Draws) and not bool(posterior.theta.isfinite().all()):
        raise ArithmeticError("the chain overflowed; take shorter steps: --scale 0.3")
    if isinstance(posterior, GaussianPosterior) and job["method"] == "Laplace":
        predictive = posterior.linearize().predict(data.x_test.to(device), draws=100)
    else:
        predictive = posterior.predict(data.x_test.to(device), draws=None if posterior.count() else 100)
    found = predictive.mean.detach().cpu().float()
    kept.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(kept / f"{name_of(job)}.npz", probs=found.numpy().astype(np.float16))
    scores = score(found, data)
    print(job["method"], {key: round(value, 4) for key, value in scores.items()}, flush=True)
    info = {key: posterior.info[key] for key in ("mixing", "compiled") if key in posterior.info}
    used = {"count": posterior.count(), "images_used": len(data.x)}
    shutil.rmtree(place)
    return scores | used | {"info": repr(info)[:500]}


def tiny() -> nn.Sequential:
    """With a head of the same name, for a quick run."""
    body = [nn.Conv2d(3, 2, 3, stride=4), FilterResponseNorm(2), nn.SiLU(), *(nn.Identity() for _ in range(8))]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 10))


def name_of(job: Job) -> str:
    return "-".join(str(job[key]) for key in ("method", "seed", "epochs", "images", "whole", "scale")).replace(" ", "_")


def score(probs: Tensor, data: Data) -> dict[str, float]:
    own, reference = (Drawn(td.Categorical(probs=p[None].double())) for p in (probs, data.reference))
    near = {"agreement": 100 * agreement(own, reference), "total variation": total_variation(own, reference)}
    return {"accuracy": 100 * accuracy(own, data.y_test), "nll": nll(own, data.y_test), **near}


def table(found: Sequence[Line], data: Data, kept: Path, whole: bool) -> Iterator[Expectation]:
    """Claims are of networks that have seen `whole` CIFAR-10, as the reference has."""
    metrics = ("accuracy", "agreement", "total variation")
    for metric, value in zip(metrics, PUBLISHED["HMC"][:3], strict=True):
        yield Expectation("HMC, one chain against the others", metric, value, 0, published=value, mark="seed")
    means: dict[tuple[str, str], float] = {}

    def rows(name: str, lines: Sequence[Line]) -> Iterator[Expectation]:
        """Of the average of these jobs, a method's all alike."""
        scores = score(mixed([probabilities(kept, line["job"]) for line in lines]), data)
        for metric, value in scores.items():
            means[name, metric] = value
            yield beside(name, metric, value, len(lines))

    for method in dict.fromkeys(line["job"]["method"] for line in found):
        own = [line for line in found if line["job"]["method"] == method]
        yield from rows(method, own)
        alone = "SGD" if method == "ensemble" else f"{method}, one alone"
        for metric in (*metrics, "nll") if len(own) > 1 else ():
            yield beside(alone, metric, float(np.mean([line[metric] for line in own])), len(own))
    for name, parts in AVERAGES.items():
        own = [line for line in found if line["job"]["method"] in parts]
        if len({line["job"]["method"] for line in own}) > 1:
            yield from rows(name, own)
    best = max(value for (_, metric), value in means.items() if metric == "agreement")
    least = min(value for (_, metric), value in means.items() if metric == "total variation")
    name, says = "the nearest of all", "as near as published SGHMC"
    near: dict[str, Any] = {"low": 92.0, "says": says} if whole else {}
    less: dict[str, Any] = {"high": 0.11, "says": says} if whole else {}
    yield Expectation(name, "agreement", best, len(found), **near, published=PUBLISHED["SGHMC"][1], mark="seed")
    yield Expectation(name, "total variation", least, len(found), **less, published=PUBLISHED["SGHMC"][2], mark="seed")
    for sampler in ("SGLD", "SGHMC", "cyclical SGHMC"):
        if (sampler, "agreement") in means and ("MFVI", "agreement") in means:
            gap = means[sampler, "agreement"] - means["MFVI", "agreement"]
            yield Expectation(
                sampler, "agreement beyond that of MFVI", gap, 1, low=0.0, says="samplers are nearer than VI"
            )


def beside(name: str, metric: str, value: float, n: int) -> Expectation:
    """With what was published of it."""
    order = ("accuracy", "agreement", "total variation")
    said = PUBLISHED.get(name) if metric in order else None
    extra: dict[str, Any] = {"published": said[order.index(metric)], "mark": said[3]} if said else {}
    return Expectation(name, metric, value, n, **extra)


def probabilities(kept: Path, job: Job) -> Tensor:
    return torch.from_numpy(np.load(kept / f"{name_of(job)}.npz")["probs"]).float()


def mixed(parts: Sequence[Tensor]) -> Tensor:
    """Of several posteriors, each as much as the others; what was kept as halves sums to one again."""
    mean = torch.stack(list(parts)).mean(0)
    return mean / mean.sum(-1, keepdim=True)


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--cifar10", type=Path, help="folder of the whole set, as cifar10_files.py makes it")
    parser.add_argument("--seeds", type=int, default=36, help="jobs of a method, at most")
    parser.add_argument("--epochs", type=int, default=28)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the samplers' step sizes")
    parser.add_argument("--only", nargs="*", choices=NAMES, default=NAMES)
    given = parser.parse_args(arguments)
    if given.quick:
        given.epochs, given.workers, given.seeds = 2, 1, 2
    small, whole = 20 if given.quick else 0, given.cifar10 is not None
    jobs = [
        {"method": name, "seed": seed, "epochs": given.epochs, "images": small, "whole": whole, "scale": given.scale}
        for seed in range(given.seeds)
        for name in NAMES
        if name in given.only and seed < JOBS[name]
    ]
    stem = "cifar_hmc" + (".quick" if given.quick else "")
    path, kept = given.rows or given.out / f"{stem}.rows.jsonl", given.out / f"{stem}.probs"
    work = partial(train, device=given.device, folder=given.cifar10, kept=kept)
    found = finish(jobs, work, path, given.device, given.workers, given.budget)
    if not found:
        return []
    data = load(given.cifar10)
    data = Data(*(t[:small] for t in data)) if small else data
    rows = [expected.to_row(IDS, given.quick) for expected in table(found, data, kept, whole)]
    told = f" --epochs {given.epochs} --scale {given.scale:g}" + (" --cifar10 FOLDER" if whole else "")
    command = "python reproduce/cifar_hmc.py" + (" --quick" if given.quick else told)
    write(
        "cifar_hmc",
        command,
        rows,
        sorted({line["job"]["seed"] for line in found}),
        given.quick,
        given.out,
        found[0]["made"],
    )
    print(show(rows))
    return rows


if __name__ == "__main__":
    main()
