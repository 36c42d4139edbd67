"""Bayesian LeNet: dropout after the convolutions, Monte-Carlo against standard (weight-averaged) prediction (Gal & Ghahramani, 2015).

Networks as in the authors' Caffe files: MNIST conv 20-50, fc 500; CIFAR-10 conv 192-192, fc 1000; 5x5 kernels, no ReLU after convolutions,
dropout of 1/2 unit by unit after each convolution, before its max-pool, and after the fc layer (`all`), after the fc layer alone (`fc`),
or nowhere. SGD with momentum 0.9, rate 0.01 (1 + 1e-4 i)^-0.75, weight decay 5e-4 as a Normal prior, batches of 64 (CIFAR 128),
Xavier weights. Theirs run for up to 1e7 (CIFAR 1e5) steps, ours for --steps; MNIST on all and on a sixteenth of the digits,
CIFAR-10 on the stratified 10,000 + 2,000 images of the data folder. Their results are figures, whose claim is
MC(all) < standard(fc) < none, with standard(all) bad: "dropout after convolutions does not work" is a wrong test rule.

    python reproduce/bayesian_lenet.py --device cuda [--workers 8] [--budget SECONDS] [--steps 20000] [--seeds 5]
                                       [--sets mnist cifar10] [--rows FILE] [--quick]

Each finished network is a line of bayesian_lenet.rows.jsonl in the --out folder (or of --rows) and is skipped by the next run; seeds are
the outer loop, so that a run that is cut short is whole as far as it goes. `--budget 0` makes the table of what is there.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, cast, final

import numpy as np
import torch
from evidence import write
from expectation import Expectation, at_least, show
from resumable import Job, Line, finish, options
from torch import Tensor, nn

from nescio import Model, fit
from nescio.data import images, mnist
from nescio.evaluation import accuracy, nll
from nescio.infer import MAP, VI
from nescio.infer.families import NetDropout, prior_scale
from nescio.laws import Normal
from nescio.likelihoods import Categorical
from nescio.noise import Noise
from nescio.posterior.variational import Variational

Data = tuple[Tensor, Tensor, Tensor, Tensor]
DECAY, DROP, PASSES, STEPS = 5e-4, 0.5, 50, 20_000
KINDS = ("all", "fc", "none")
SETS = {"mnist": (1, 16), "cifar10": (1,)}  # training on one in so many
WIDTHS = {"mnist": (1, 28, 20, 50, 500, 64), "cifar10": (3, 32, 192, 192, 1000, 128)}
IDS = ("004-4", "004-5")


@final
@dataclass(frozen=True)
class Inverse:
    """(1 + 1e-4 i)^-0.75 at step i of so many."""

    steps: int

    def __call__(self, t: float) -> float:
        return (1 + 1e-4 * t * self.steps) ** -0.75


def lenet(name: str, kind: str, seed: int) -> nn.Sequential:
    channels, size, first, second, hidden, _ = WIDTHS[name]
    side = ((size - 4) // 2 - 4) // 2
    after_convolution, after_fc = (DROP if kind == "all" else 0.0), (0.0 if kind == "none" else DROP)
    with Noise(seed).at("lenet").scope():
        net = nn.Sequential(
            *(nn.Conv2d(channels, first, 5), nn.Dropout(after_convolution), nn.MaxPool2d(2)),
            *(nn.Conv2d(first, second, 5), nn.Dropout(after_convolution), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(second * side * side, hidden), nn.ReLU(), nn.Dropout(after_fc)),
            nn.Linear(hidden, 10),
        )
        for layer in net:
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.constant_(cast("Tensor", layer.bias), 0.0)
    return net


@cache
def load(name: str) -> Data:
    """Images (n, channels, size, size) in [0, 1], those of CIFAR-10 less the mean colour of the training images; labels."""
    if name == "mnist":
        x, y, x_test, y_test = mnist()
        return x[:, None].float() / 255, y.long(), x_test[:, None].float() / 255, y_test.long()
    found = images("cifar10_subset")
    x, x_test = (torch.from_numpy(found[key]).permute(0, 3, 1, 2).float() / 255 for key in ("x_train", "x_test"))
    y, y_test = (torch.from_numpy(found[key]).long() for key in ("y_train", "y_test"))
    mean = x.mean((0, 2, 3), keepdim=True)
    return x - mean, y, x_test - mean, y_test


def train(job: Job, until: float, device: str) -> Line:
    """Errors in per cent and NLL, by averaged weights and by the mean over passes."""
    x, y, x_test, y_test = load(job["set"])
    own = Noise(job["seed"]).at("part", job["set"]).permutations(1, len(x))[0][: len(x) // job["one_in"]]
    passes = PASSES
    if job["steps"] < 100:  # quick
        own, x_test, y_test, passes = own[:16], x_test[:8], y_test[:8], 3
    x, y, x_test, y_test = (t.to(device) for t in (x[own], y[own], x_test, y_test))
    batch = min(WIDTHS[job["set"]][-1], len(x))
    epochs = max(1, round(job["steps"] * batch / len(x)))
    method = MAP if job["kind"] == "none" else partial(VI, NetDropout())
    trained = method(
        epochs=epochs,
        lr=0.01,
        batch_size=batch,
        optimizer=partial(torch.optim.SGD, momentum=0.9),
        schedule=Inverse(job["steps"]),
    )
    net = lenet(job["set"], job["kind"], job["seed"]).to(device)
    model = Model(net, Normal(0.0, prior_scale(DECAY, len(x))), Categorical())
    posterior = fit(model, (x, y), trained, seed=job["seed"])
    predicted = {"standard": posterior.predict(x_test)}
    if isinstance(posterior, Variational):
        predicted = {"standard": posterior.at_mean().predict(x_test), "MC": posterior.predict(x_test, draws=passes)}
    scores = {f"error, {rule}": 100 * (1 - accuracy(p, y_test)) for rule, p in predicted.items()}
    return scores | {f"nll, {rule}": nll(p, y_test) for rule, p in predicted.items()} | {"rows": len(x)}


def planned(sets: Sequence[str], seeds: int, steps: int) -> list[Job]:
    keys = [(name, one_in, kind) for name in sets for one_in in SETS[name] for kind in KINDS]
    return [
        {"set": name, "one_in": one_in, "kind": kind, "seed": seed, "steps": steps}
        for seed in range(seeds)
        for name, one_in, kind in keys
    ]


def table(found: Sequence[Line]) -> Iterator[Expectation]:
    """Means over seeds, and the claims as differences over the seeds that all have."""
    for name, one_in in sorted({(line["job"]["set"], line["job"]["one_in"]) for line in found}):
        label = name if one_in == 1 else f"{name}, 1/{one_in}"
        scores: dict[tuple[str, str], dict[int, float]] = {}
        for line in found:
            job = line["job"]
            if (job["set"], job["one_in"]) == (name, one_in):
                for key in [key for key in line if key.startswith(("error, ", "nll, "))]:
                    scores.setdefault((key, job["kind"]), {})[job["seed"]] = line[key]
        for (key, kind), values in scores.items():
            yield Expectation(f"{label}: {kind}", key, float(np.mean(list(values.values()))), len(values))
        for worse, says in {
            ("error, standard", "fc"): "MC with dropout everywhere has fewer errors than standard dropout after fc",
            ("error, standard", "none"): "... and than none at all",
            ("error, standard", "all"): "averaged weights are the wrong rule after convolutions",
        }.items():
            better, other = scores.get(("error, MC", "all"), {}), scores.get(worse, {})
            both = sorted(better.keys() & other.keys())
            if len(both) > 1:
                gain = at_least([other[seed] - better[seed] for seed in both])
                metric = f"error of {worse[1]}, standard, less that of all, MC, less two se"
                yield Expectation(f"{label}: all, MC", metric, gain, len(both), low=0.0, says=says)


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--sets", nargs="*", choices=list(SETS), default=list(SETS))
    given = parser.parse_args(arguments)
    if given.quick:
        given.steps, given.seeds, given.sets, given.workers = 3, 2, ["mnist"], 1
    path = given.rows or given.out / f"bayesian_lenet{'.quick' if given.quick else ''}.rows.jsonl"
    jobs, work = planned(given.sets, given.seeds, given.steps), partial(train, device=given.device)
    found = finish(jobs, work, path, given.device, given.workers, given.budget)
    if not found:
        return []
    rows = [expected.to_row(IDS, given.quick) for expected in table(found)]
    command = "python reproduce/bayesian_lenet.py" + (" --quick" if given.quick else f" --steps {given.steps}")
    seeds = sorted({line["job"]["seed"] for line in found})
    write("bayesian_lenet", command, rows, seeds, given.quick, given.out, found[0]["made"])
    print(show(rows))
    return rows


if __name__ == "__main__":
    main()
