"""Active learning on MNIST (Gal, Islam & Ghahramani, 2017): how many labels are needed if one may choose them?

Their network (two convolutions of 32 filters 4 by 4, pool, dropout 1/4, 128 units, dropout 1/2), 20 labels to begin with, two a class,
then 100 times the 10 images that an acquisition wants most of 2000 others, drawn anew each time, by 100 passes; trained anew each time in
batches of 128, Adam 1e-3, the 128 units under N(0, 1/5) (their weight decay 2.5 / N) and all else under N(0, 1), where they have none.
Tested on the official 10,000 images. Beside BALD the batch of ten that teaches most together (BatchBALD, Kirsch et al., 2019).

The paper's 50 epochs are 50 steps as long as there are no more than 128 labels, and 400 at the end. The reproduction whose numbers
are known has the same 50, but by the look of its code hands the trained network on from round to round. --epochs says how many here, or
several numbers one after another: rows of other than 50 say so.

    python reproduce/active_mnist.py --device cuda [--workers 6] [--epochs 50 200] [--candidates 2000] [--rounds 98] [--seeds 3]
                                     [--only BALD Random] [--budget SECONDS]

Each finished run is a line of active_mnist.rows.jsonl; one that the budget cut short goes on from its last round (active_mnist.runs).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from evidence import write
from expectation import Expectation, at_least, show
from resumable import Job, Line, OutOfTime, finish, options, watch
from torch import nn

from nescio import Model
from nescio.active import (
    BALD,
    Acquisition,
    BatchBALD,
    MaxEntropy,
    MeanStd,
    Random,
    VariationRatios,
    balanced,
    learn,
)
from nescio.data import mnist
from nescio.infer import VI, Method
from nescio.infer.families import NetDropout
from nescio.infer.schedule import Constant
from nescio.laws import Normal
from nescio.likelihoods import Categorical
from nescio.noise import Noise

ACQUISITIONS: dict[str, Acquisition] = {
    "BALD": BALD(),
    "VariationRatios": VariationRatios(),
    "MaxEntropy": MaxEntropy(),
    "MeanStd": MeanStd(),
    "Random": Random(),
    "BatchBALD": BatchBALD(configurations=10_000, shortlist=2000),
}
# error at 1000 labels, %; labels to 10 % and 5 % error; beside each how it was read
AT_1000 = {"Random": 4.66, "BALD": 1.80, "MaxEntropy": 1.74, "VariationRatios": 1.64}  # third party
TO_ERROR = {
    "BALD": (145, 335),
    "VariationRatios": (120, 295),
    "MaxEntropy": (165, 355),
    "MeanStd": (230, 695),
    "Random": (255, 835),
    "BatchBALD": (70, 200),
}  # memory
PAPER = 50  # epochs of a training
CLAIMS = {"BALD": (0.0, 1.8), "VariationRatios": (0.0, 1.7), "Random": (3.0, 5.7)}
BATCH, PASSES = 10, 100
PRIOR = {"7.weight": Normal(0.0, 5**-0.5), "*": Normal(0.0, 1.0)}
IDS = ("000-2",)


digits = cache(mnist)  # read once a process


def network() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 4), nn.ReLU(), nn.Conv2d(32, 32, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
        *(nn.Flatten(), nn.Linear(32 * 11 * 11, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)),
    )


def trained(n: int, epochs: int) -> Method:
    return 1 * VI(NetDropout(), epochs=epochs, lr=1e-3, batch_size=min(128, n), schedule=Constant())


def quick_batch(job: Job) -> bool:
    return bool(job["quick"]) and job["acquire"] == "BatchBALD"


def run(job: Job, until: float, device: str, runs: Path) -> Line | None:
    x, y, x_test, y_test = digits()
    rounds, epochs, passes = job["rounds"], job["epochs"], PASSES
    if job["quick"]:
        x, y, x_test, y_test, epochs, passes = x[:200], y[:200], x_test[:50], y_test[:50], 1, 3
    x, x_test = (t[:, None].float().to(device) / 255 for t in (x, x_test))
    y, y_test = y.long(), y_test.long().to(device)
    with Noise(job["seed"]).at("active").scope():
        net = network().to(device)

    name = f"{job['acquire']}-{job['seed']}-{job['batch']}-{job['candidates'] or 'all'}-{job['epochs']}" + (
        "-quick" if job["quick"] else ""
    )
    try:
        found = learn(
            Model(net, PRIOR, Categorical()),
            x,
            y,
            partial(trained, epochs=epochs),
            BatchBALD(10, 20) if quick_batch(job) else ACQUISITIONS[job["acquire"]],
            start=balanced(y, 2, job["seed"]),
            batch=job["batch"],
            rounds=rounds,
            test=(x_test, y_test),
            draws=passes,
            candidates=job["candidates"],
            seed=job["seed"],
            folder=runs / name,
            progress=partial(watch, until),
        )
    except OutOfTime:
        return None
    errors = [100 * (1 - r.scores["accuracy"]) for r in found.rounds]
    labels = [r.labels for r in found.rounds]
    needed = {f"labels to {limit}%": found.needed("accuracy", 1 - limit / 100) for limit in (10, 5)}
    return {"labels": labels, "errors": errors, "error at the end": errors[-1], **needed}


def table(found: Sequence[Line], full: bool) -> Iterator[Expectation]:
    for epochs in dict.fromkeys(line["job"]["epochs"] for line in found):
        yield from trained_for(epochs, [line for line in found if line["job"]["epochs"] == epochs], full)


def trained_for(epochs: int, found: Sequence[Line], full: bool) -> Iterator[Expectation]:
    ends: dict[str, dict[int, float]] = {}
    suffix = "" if epochs == PAPER else f", {epochs} epochs"
    for name in ACQUISITIONS:
        own = [line for line in found if line["job"]["acquire"] == name]
        if not own:
            continue
        last = [line["error at the end"] for line in own]
        ends[name] = {line["job"]["seed"]: line["error at the end"] for line in own}
        low, high = CLAIMS.get(name, (None, None))
        bounds = {} if low is None or not full else {"low": low, "high": high, "says": "Gal et al. (2017), figure 1"}
        said = {"published": AT_1000[name], "mark": "third party"} if name in AT_1000 else {}
        metric = f"error in % at {own[0]['labels'][-1]} labels"
        yield Expectation(name + suffix, metric, float(np.mean(last)), len(own), **bounds, **said)  # type: ignore[arg-type]
        for i, limit in enumerate((10, 5)):
            reached = [line[f"labels to {limit}%"] for line in own]
            if all(each is not None for each in reached):
                value = float(np.mean(reached))
                published = TO_ERROR[name][i]
                yield Expectation(
                    name + suffix, f"labels to {limit}% error", value, len(own), published=published, mark="memory"
                )
    for better, worse in (("BALD", "Random"), ("VariationRatios", "Random"), ("BatchBALD", "BALD")):
        both = sorted(ends.get(better, {}).keys() & ends.get(worse, {}).keys())
        if len(both) > 1:
            gain = at_least([ends[worse][seed] - ends[better][seed] for seed in both])
            bound = {"low": 0.0, "says": "chosen labels teach more"} if worse == "Random" else {}
            yield Expectation(better + suffix, f"error of {worse} less its own, less two se", gain, len(both), **bound)  # type: ignore[arg-type]


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=98, help="98 times 10 labels beyond the first 20 are 1000")
    parser.add_argument("--epochs", type=int, nargs="+", default=[PAPER], help="of each training")
    parser.add_argument("--candidates", type=int, default=2000, help="images, by lot, that are looked at in a round")
    parser.add_argument("--only", nargs="*", choices=list(ACQUISITIONS), default=list(ACQUISITIONS))
    given = parser.parse_args(arguments)
    if given.quick:
        given.rounds, given.seeds, given.workers = 1, 1, 1
    jobs = [
        {
            "acquire": name,
            "seed": seed,
            "rounds": given.rounds,
            "epochs": epochs,
            "batch": BATCH,
            "candidates": given.candidates,
            "quick": given.quick,
        }
        for epochs in given.epochs
        for seed in range(given.seeds)
        for name in given.only
    ]
    stem = "active_mnist" + (".quick" if given.quick else "")
    work = partial(run, device=given.device, runs=given.out / f"{stem}.runs")
    path = given.rows or given.out / f"{stem}.rows.jsonl"
    found = finish(jobs, work, path, given.device, given.workers, given.budget)
    if not found:
        return []
    rows = [e.to_row(IDS, given.quick) for e in table(found, full=given.rounds >= 98)]
    command = "python reproduce/active_mnist.py" + (
        " --quick"
        if given.quick
        else f" --rounds {given.rounds} --epochs {' '.join(map(str, given.epochs))} --candidates {given.candidates}"
    )
    seeds = sorted({line["job"]["seed"] for line in found})
    write("active_mnist", command, rows, seeds, given.quick, given.out, found[0]["made"])
    print(show(rows))
    return rows


if __name__ == "__main__":
    main()
