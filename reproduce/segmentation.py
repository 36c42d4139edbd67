"""Segmentation of CamVid with both parts of the uncertainty at every pixel (Kendall & Gal, 2017, after figure 1).

A small encoder and decoder on frames of 80 by 60 pixels, 367 for training and 233 for testing, by dropout, mean-field VI, an ensemble and
a Laplace approximation of the last layer, all under N(0, 1 / fan-in): under N(0, 1) two million weights cost mean field more than the
labels of all pixels can pay. What the figure says, as numbers: the aleatoric part is high at the boundaries of things; where the doubt is
small, answers are right (precision falls as recall rises); and a class that was left out of training (cars: their pixels are unlabelled)
has a high epistemic part, by which its pixels are found. The published IoU (67.1 to 67.5, 360 by 480, DenseNet) is of another size and not
comparable.

    python reproduce/segmentation.py --device cuda [--epochs 120] [--seeds 3] [--only dropout] [--budget SECONDS] [--quick] [--draw]

Each finished posterior is a line of segmentation.rows.jsonl. The first of each kind leaves its panels beside it, and --draw makes the
figures of them (docs/figures/segmentation.svg), without training anything.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from camvid import CLASSES, VOID, boundaries, camvid, few, iou, panels, predicted
from evidence import write
from expectation import Expectation, show
from resumable import Job, Line, finish, options
from torch import distributions as td

from nescio import Model, fit
from nescio.evaluation import risk_coverage, separation
from nescio.evaluation.calibration import reliability
from nescio.infer import MAP, VI, Laplace, Method
from nescio.infer.curvature import full
from nescio.infer.families import MeanField, NetDropout
from nescio.laws import Normal, fan_in
from nescio.likelihoods import Categorical, Masked
from nescio.nets import segmenter
from nescio.noise import Noise
from nescio.predictive import Drawn

CAR, MEMBERS, DROP = 8, 5, 0.2
IDS = ("000-6", "001-9", "001-3")
SHOWN = [20, 100, 180]  # test images of the figure
RECALLS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)  # parts of the pixels that are answered, the least doubtful first


def methods(epochs: int, batch: int) -> dict[str, Callable[[], Method]]:
    common: dict[str, Any] = {"epochs": epochs, "lr": 3e-3, "batch_size": batch}
    return {
        "dropout": lambda: VI(NetDropout(), **common),
        "mean field": lambda: (
            MAP(**common) >> VI(MeanField(sd=0.01), **{**common, "lr": 1e-3, "epochs": max(1, epochs // 2)})
        ),
        "ensemble": lambda: MEMBERS * MAP(**common),
        "Laplace": lambda: MAP(**common) >> Laplace(full, samples=8).on("heads.*"),
    }


NAMES = tuple(methods(1, 1))


def train(job: Job, until: float, device: str, kept: Path) -> Line:
    scenes, _, test, _ = camvid()
    width, draws = 32, 50
    if job["quick"]:
        scenes, test, width, draws = few(scenes, 4), few(test, 2), 2, 2
    y = scenes.y.clone()
    if job["without"] is not None:
        y[y == job["without"]] = VOID
    labelled = (y != VOID).flatten(1).any(1)  # an image without labels is no data
    with Noise(job["seed"]).at("segmenter").scope():
        net = segmenter(3, CLASSES, width=width, levels=3, drop=DROP if job["method"] == "dropout" else 0.0).to(device)
    convolutions = {name: Normal(0.0, fan_in) for name in ("*.0.weight", "*.3.weight")}
    prior = {**convolutions, "*": Normal(0.0, 1.0)}
    model = Model(net, prior, Masked(Categorical(axis=-3), VOID))
    method = methods(job["epochs"], min(16, int(labelled.sum())))[job["method"]]()
    posterior = fit(model, (scenes.x[labelled].to(device), y[labelled].to(device)), method, seed=job["seed"])
    maps = predicted(posterior, test.x.to(device), draws)
    guess = maps["mean"].argmax(-1)
    if job["seed"] == 0:
        some = [i for i in SHOWN if i < len(test.x)] or [0]
        kept.mkdir(parents=True, exist_ok=True)
        name = f"{job['method']}{'' if job['without'] is None else '-without'}".replace(" ", "_")
        np.savez_compressed(kept / f"{name}.npz", **panels(test, some, maps, test.y, guess))  # type: ignore[arg-type]
    return scored(maps, guess, test.y, job["without"])


def scored(maps: dict[str, torch.Tensor], guess: torch.Tensor, y: torch.Tensor, without: int | None) -> Line:
    known, edge = y != VOID, boundaries(y)
    total = maps["aleatoric"] + maps["epistemic"]
    if without is not None:
        own, rest = maps["epistemic"][y == without], maps["epistemic"][known & (y != without)]
        lost = total[y == without]
        if not len(own):
            return {"unseen pixels": 0}
        cut = {"unseen pixels": len(own), "epistemic, unseen": float(own.mean()), "epistemic, seen": float(rest.mean())}
        told = {
            "epistemic": separation(rest, own, resamples=0),
            "total": separation(total[known & (y != without)], lost, resamples=0),
        }
        return cut | {f"AUROC of the unseen class, {name}": found.auroc.value for name, found in told.items()}
    wrong = (guess != y).double()
    flat = Drawn(td.Categorical(probs=maps["mean"][known][None].double()))
    doubtful = risk_coverage(total[known], wrong[known])
    half = int(0.5 * len(doubtful.risk))
    return {
        "IoU": 100 * iou(guess, y)[0],
        "pixel accuracy": 100 * float(1 - wrong[known].mean()),
        "nll": -float(maps["mean"][known].gather(-1, y[known][:, None]).clamp_min(1e-12).log().mean()),
        "ECE": reliability(flat, y[known]).ece,
        "AURC": doubtful.aurc,
        "error of the surer half, %": 100 * float(doubtful.risk[half]),
        **{f"precision at recall {r:g}": 1 - float(doubtful.risk[int(r * len(doubtful.risk)) - 1]) for r in RECALLS},
        "aleatoric, boundaries over interiors": float(
            maps["aleatoric"][edge & known].mean() / maps["aleatoric"][~edge & known].mean()
        ),
        "epistemic, boundaries over interiors": float(
            maps["epistemic"][edge & known].mean() / maps["epistemic"][~edge & known].mean()
        ),
    }


def table(found: Sequence[Line]) -> Iterator[Expectation]:
    for method in NAMES:
        own = [line for line in found if line["job"]["method"] == method]
        keys = dict.fromkeys(
            key for line in own for key, value in line.items() if isinstance(value, float) and key != "seconds"
        )
        for key in keys:
            values = [line[key] for line in own if key in line]
            says: dict[str, Any] = {}
            if key == "aleatoric, boundaries over interiors":
                says = {"low": 1.5, "says": "aleatoric uncertainty is on boundaries (Kendall & Gal, 2017, figure 1)"}
            if key == "AUROC of the unseen class, epistemic":
                says = {"low": 0.5, "says": "epistemic uncertainty is on what was not seen in training"}
            yield Expectation(method, key, float(np.mean(values)), len(values), **says)
        errors = [100 - line["pixel accuracy"] for line in own if "pixel accuracy" in line]
        if errors:
            sure = float(np.mean([line["error of the surer half, %"] for line in own if "AURC" in line]))
            yield Expectation(
                method,
                "error of the surer half over that of all",
                sure / float(np.mean(errors)),
                len(errors),
                high=0.5,
                says="precision falls as recall rises (figure 2)",
            )


def draw(kept: Path, out: Path) -> None:
    from nescio.report import save
    from nescio.report.figures.panels import draw_panels

    for name, title in {"dropout": "segmentation", "ensemble-without": "segmentation_unseen"}.items():
        if (kept / f"{name}.npz").exists():
            numbers = dict(np.load(kept / f"{name}.npz"))
            alt = (
                "Rows of five panels, one street scene each: the image, the labels, the predicted labels, the aleatoric uncertainty, bright"
                f" where it is high, and the epistemic uncertainty, likewise.{' Training had no labels of cars.' * ('unseen' in title)}"
            )
            figure = draw_panels(numbers, "What is there, and how sure is it?", discrete=True)
            kinds = {key: numbers[key] for key in ("aleatoric", "epistemic")}
            save(
                figure,
                out / f"{title}.svg",
                alt=alt,
                values=kinds,
                source="000-6, 001-9: after Kendall & Gal (2017)",
                seed=0,
            )


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--only", nargs="*", choices=NAMES, default=NAMES)
    parser.add_argument("--draw", action="store_true", help="make the figures of the panels that are kept")
    parser.add_argument("--figures", type=Path, default=Path("docs/figures"))
    given = parser.parse_args(arguments)
    if given.quick:
        given.epochs, given.seeds, given.workers = 1, 1, 1
    jobs = [
        {"method": name, "without": without, "seed": seed, "epochs": given.epochs, "quick": given.quick}
        for seed in range(given.seeds)
        for name in given.only
        for without in (None, CAR)
    ]
    stem = "segmentation" + (".quick" if given.quick else "")
    path, kept = given.rows or given.out / f"{stem}.rows.jsonl", given.out / f"{stem}.panels"
    work = partial(train, device=given.device, kept=kept)
    found = finish(jobs, work, path, given.device, given.workers, 0.0 if given.draw else given.budget)
    if given.draw:
        draw(kept, given.figures)
    if not found:
        return []
    rows = [expected.to_row(IDS, given.quick) for expected in table(found)]
    command = "python reproduce/segmentation.py" + (" --quick" if given.quick else f" --epochs {given.epochs}")
    seeds = sorted({line["job"]["seed"] for line in found})
    write("segmentation", command, rows, seeds, given.quick, given.out, found[0]["made"])
    print(show(rows))
    return rows


if __name__ == "__main__":
    main()
