"""Several tasks weighed by their own noise (Kendall, Gal & Cipolla, 2018), on two real tasks: segmentation and edges.

One network with two heads on CamVid, labels of classes and the distance to their boundaries. The losses are weighed by the noise scales of
`MultiTask(seg=Categorical(Learned(1.)), edges=Gaussian(Learned(1.)))`, by equal weights, or by the best of a grid of fixed ones, chosen
on the validation images; beside them each task alone. The claim (Cityscapes: IoU 63.4 learned, 50.1 equal, 59.4 alone; from memory):
learned weights are better than equal ones, as good as a grid search, and the tasks help each other.

    python reproduce/multitask.py --device cuda [--epochs 120] [--seeds 3] [--only learned equal] [--budget SECONDS] [--quick] [--draw]

Each finished network is a line of multitask.rows.jsonl. All are MAP: what is compared are weights of losses.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from camvid import CLASSES, VOID, Scenes, camvid, distance, few, iou, panels, predicted
from evidence import write
from expectation import Expectation, at_least, show
from resumable import Job, Line, finish, options
from torch import Tensor

from nescio import Model, fit
from nescio.infer import MAP
from nescio.laws import Learned, Normal
from nescio.likelihoods import Categorical, Gaussian, Likelihood, Masked, MultiTask
from nescio.nets import segmenter
from nescio.noise import Noise

MISSING = -1.0
GRID = (0.1, 0.3, 3.0, 10.0)  # noise of the edges, in units of which 1 is the "equal" one; the labels keep theirs at 1
KINDS = ("learned", "equal", *(f"grid {g:g}" for g in GRID), "labels alone", "edges alone")
IDS = ("000-10",)
MEMBERS, SHOWN = 3, [20, 100, 180]  # of the figure


def likelihoods(kind: str) -> dict[str, Likelihood]:
    labels, edges = 1.0, 1.0
    if kind == "learned":
        labels, edges = Learned(1.0), Learned(1.0)  # type: ignore[assignment]
    elif kind.startswith("grid"):
        edges = float(kind.split()[1])
    found: dict[str, Likelihood] = {
        "seg": Masked(Categorical(labels, axis=-3), VOID),
        "edges": Masked(Gaussian(edges), MISSING),
    }
    alone = {"labels alone": ("seg",), "edges alone": ("edges",)}.get(kind, tuple(found))
    return {name: found[name] for name in alone}


def targets(scenes: Scenes, names: Sequence[str], device: str) -> dict[str, Tensor]:
    far = distance(scenes.y) / 2  # in units of two pixels, so that its spread is about 1
    both = {"seg": scenes.y, "edges": torch.where((scenes.y != VOID)[:, None], far, torch.tensor(MISSING))}
    return {name: both[name].to(device) for name in names}


def train(job: Job, until: float, device: str, kept: Path) -> Line:
    scenes, val, test, _ = camvid()
    width = 32
    if job["quick"]:
        scenes, val, test, width = few(scenes, 4), few(val, 2), few(test, 2), 2
    tasks = likelihoods(job["kind"])
    heads = {name: n for name, n in {"seg": CLASSES, "edges": 1}.items() if name in tasks}
    with Noise(job["seed"]).at("segmenter").scope():
        net = segmenter(3, heads, width=width, levels=3).to(device)
    model = Model(net, Normal(0.0, 1.0), MultiTask(**tasks))
    method = MAP(epochs=job["epochs"], lr=3e-3, batch_size=min(16, len(scenes.x)))
    posterior = fit(model, (scenes.x.to(device), targets(scenes, list(tasks), device)), method, seed=job["seed"])
    if job["kind"] == "learned" and job["seed"] == 0:  # a small ensemble for the figure
        few_ = fit(
            model, (scenes.x.to(device), targets(scenes, list(tasks), device)), MEMBERS * method, seed=job["seed"]
        )
        some = [i for i in SHOWN if i < len(test.x)] or [0]
        maps = predicted(few_, test.x[some].to(device), MEMBERS, "edges")
        own = Scenes(test.x[some], test.y[some], test.rgb[some])
        truth, guess = distance(own.y)[:, 0], 2 * maps["mean"][:, 0]
        doubt = {name: 4 * maps[name][:, 0] for name in ("aleatoric", "epistemic")}  # in pixels, squared
        kept.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(kept / "edges.npz", **panels(own, list(range(len(some))), doubt, truth, guess))  # type: ignore[arg-type]
    found: Line = {}
    for name, part in {"val": val, "test": test}.items():
        with torch.no_grad():
            f, numbers = posterior.functions(part.x.to(device), 1, 0)
        if "seg" in tasks:
            found[f"IoU, {name}"] = 100 * iou(f["seg"][0].argmax(1).cpu(), part.y)[0]
        if "edges" in tasks:
            known = (part.y != VOID)[:, None]
            gap = (2 * f["edges"][0].cpu() - distance(part.y))[known]
            found[f"rmse of edges, {name}"] = float(gap.square().mean().sqrt())
        found |= {f"noise of {key.partition('.')[0]}": float(value[0]) for key, value in numbers.items()}
    return found


def table(found: Sequence[Line]) -> Iterator[Expectation]:
    by: dict[str, dict[int, Line]] = {}
    for line in found:
        by.setdefault(line["job"]["kind"], {})[line["job"]["seed"]] = line
    for kind, own in by.items():
        for key in next(iter(own.values())):
            if key.startswith(("IoU", "rmse", "noise")):
                yield Expectation(kind, key, float(np.mean([line[key] for line in own.values()])), len(own))
    tried = [kind for kind in by if kind.startswith("grid") or kind == "equal"]
    if len(tried) > 1:
        best = max(tried, key=lambda kind: np.mean([line["IoU, val"] for line in by[kind].values()]))
        yield Expectation(f"{best}, best of the grid by IoU", "IoU, test", mean(by[best], "IoU, test"), len(by[best]))
        both = sorted(by[best].keys() & by.get("learned", {}).keys())
        if both:
            lost = [by[best][s]["IoU, test"] - by["learned"][s]["IoU, test"] for s in both]
            yield Expectation("learned", "IoU, test: lost to the best of the grid", float(np.mean(lost)), len(both))
    learned = by.get("learned", {})
    for other, key, sign, says in (
        ("equal", "IoU, test", 1, "learned weights beat equal ones"),
        ("labels alone", "IoU, test", 1, "edges help the labels"),
        ("edges alone", "rmse of edges, test", -1, "labels help the edges"),
    ):
        both = sorted(learned.keys() & by.get(other, {}).keys())
        if len(both) > 1:
            gain = at_least([sign * (learned[s][key] - by[other][s][key]) for s in both])
            yield Expectation(
                "learned", f"{key}: better than {other} by, less two se", gain, len(both), low=0.0, says=says
            )


def draw(kept: Path, out: Path) -> None:
    from nescio.report import save
    from nescio.report.figures.panels import draw_panels

    if (kept / "edges.npz").exists():
        numbers = dict(np.load(kept / "edges.npz"))
        alt = (
            "Rows of five panels, one street scene each: the image, the distance to the next boundary, its prediction by a network that"
            " also labels the pixels, the aleatoric uncertainty, the same everywhere, and the epistemic one, bright where it is high."
        )
        figure = draw_panels(numbers, "Two tasks: edges beside labels, weighed by their own noise", discrete=False)
        kinds = {key: numbers[key] for key in ("aleatoric", "epistemic")}
        save(figure, out / "multitask.svg", alt=alt, values=kinds, source="000-10: after Kendall et al. (2018)", seed=0)


def mean(own: dict[int, Line], key: str) -> float:
    return float(np.mean([line[key] for line in own.values()]))


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--only", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--draw", action="store_true", help="make the figure of the panels that are kept")
    parser.add_argument("--figures", type=Path, default=Path("docs/figures"))
    given = parser.parse_args(arguments)
    if given.quick:
        given.epochs, given.seeds, given.workers = 1, 2, 1
    jobs = [
        {"kind": kind, "seed": seed, "epochs": given.epochs, "quick": given.quick}
        for seed in range(given.seeds)
        for kind in given.only
    ]
    stem = "multitask" + (".quick" if given.quick else "")
    path, kept = given.rows or given.out / f"{stem}.rows.jsonl", given.out / f"{stem}.panels"
    work = partial(train, device=given.device, kept=kept)
    found = finish(jobs, work, path, given.device, given.workers, 0.0 if given.draw else given.budget)
    if given.draw:
        draw(kept, given.figures)
    if not found:
        return []
    rows = [expected.to_row(IDS, given.quick) for expected in table(found)]
    command = "python reproduce/multitask.py" + (" --quick" if given.quick else f" --epochs {given.epochs}")
    seeds = sorted({line["job"]["seed"] for line in found})
    write("multitask", command, rows, seeds, given.quick, given.out, found[0]["made"])
    print(show(rows))
    return rows


if __name__ == "__main__":
    main()
