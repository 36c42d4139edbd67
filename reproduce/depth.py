"""Depth-like regression on CamVid, with labels missing where a sensor would not reach (Kendall & Gal, 2017; the remark on Make3D).

The map of camvid.py, its noise predicted pixel by pixel, by dropout and by an ensemble. As Make3D has no labels beyond 70 m, here the sky
and all that is further than 6 pixels from a boundary have none in training. The claim: there the epistemic part dominates, compared with
pixels that have labels; the aleatoric part does not know about it. Trained on a quarter, a half and all of the images, each time a stretch
of the drive, for neighbouring frames repeat each other, the epistemic part falls and the aleatoric part stays (table 3 there: 7.73,
4.38, 2.78 against 0.5 throughout, from memory). A fifth of the images tells when to stop: a network that goes on takes the noise for the
signal, the sooner the fewer images it has. Of dropout at a fixed rate no fall is claimed.

    python reproduce/depth.py --device cuda [--epochs 120] [--seeds 3] [--only ensemble] [--budget SECONDS] [--quick] [--draw]

Each finished posterior is a line of depth.rows.jsonl; --draw makes docs/figures/depth.svg of what the first ones left.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from camvid import FAR, SKY, VOID, camvid, distance, few, panels, predicted
from evidence import write
from expectation import Expectation, show
from resumable import Job, Line, finish, options
from torch import Tensor, nn

from nescio import Model, fit
from nescio.evaluation.detection import auroc
from nescio.infer import MAP, VI, Method
from nescio.infer.families import NetDropout
from nescio.laws import Normal, fan_in
from nescio.likelihoods import Heteroscedastic, Masked
from nescio.nets import segmenter
from nescio.noise import Noise

MISSING, REACH = -1.0, 6.0
MEMBERS, DROP, HELD = 5, 0.2, 0.2
PARTS = (0.25, 0.5, 1.0)
IDS = ("000-11", "000-3", "000-4")
PRIOR = {**{name: Normal(0.0, fan_in) for name in ("*.0.weight", "*.3.weight")}, "*": Normal(0.0, 1.0)}
SHOWN = [20, 100, 180]


@final
class ChannelsLast(nn.Module):
    """(n, 2, h, w) to (n, h, w, 2): a mean and a raw scale for every pixel."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).movedim(1, -1)


def methods(epochs: int, batch: int) -> dict[str, Callable[[], Method]]:
    common: dict[str, Any] = {
        "epochs": epochs,
        "lr": 3e-3,
        "batch_size": batch,
        "hold_out": HELD,
        "patience": max(2, epochs // 3),
    }
    return {"dropout": lambda: VI(NetDropout(), **common), "ensemble": lambda: MEMBERS * MAP(**common)}


NAMES = tuple(methods(1, 1))


def labelled(y: Tensor) -> tuple[Tensor, Tensor]:
    """The map (n, h, w, 1), and where it has labels in training."""
    depth = distance(y).movedim(1, -1)
    known = (y != VOID) & (y != SKY) & (depth[..., 0] <= REACH)
    return depth, known[..., None]


def train(job: Job, until: float, device: str, kept: Path) -> Line:
    scenes, _, test, _ = camvid()
    width, draws = 32, 50
    if job["quick"]:
        scenes, test, width, draws = few(scenes, 8), few(test, 2), 2, 2
    count, first = len(scenes.x), int(Noise(job["seed"]).at("part").integers(0, len(scenes.x), 1))
    order = (first + torch.arange(max(4, round(job["part"] * count)))) % count
    x, y = scenes.x[order], scenes.y[order]
    depth, known = labelled(y)
    target = torch.where(known, depth, torch.tensor(MISSING))
    has = known.flatten(1).any(1)
    with Noise(job["seed"]).at("segmenter").scope():
        net = segmenter(3, 2, width=width, levels=3, drop=DROP if job["method"] == "dropout" else 0.0)
        net = ChannelsLast(net).to(device)
    model = Model(
        net,
        PRIOR,
        Masked(Heteroscedastic(loc=3.0, scale=2.0), MISSING),
    )
    # as many steps whatever the part: what is compared is data, not training
    epochs = max(1, round(job["epochs"] / job["part"]))
    method = methods(epochs, min(16, int((1 - HELD) * int(has.sum()))))[job["method"]]()
    posterior = fit(model, (x[has].to(device), target[has].to(device)), method, seed=job["seed"])
    maps = predicted(posterior, test.x.to(device), draws)
    truth, near = labelled(test.y)
    if job["seed"] == 0 and job["part"] == 1.0:
        some = [i for i in SHOWN if i < len(test.x)] or [0]
        kept.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(kept / f"{job['method']}.npz", **panels(test, some, maps, truth, maps["mean"]))  # type: ignore[arg-type]
    far = ~near & (test.y != VOID)[..., None]
    error = (maps["mean"] - truth).square()
    found = {
        "rmse, labelled": float(error[near].mean().sqrt()),
        "rmse, never labelled": float(error[far].mean().sqrt()),
    }
    total = maps["epistemic"] + maps["aleatoric"]
    found["squared error over variance, labelled"] = float(error[near].mean() / total[near].mean())
    for kind in ("aleatoric", "epistemic"):
        found[f"AUROC of never labelled pixels, {kind}"] = auroc(maps[kind][near], maps[kind][far]).value
    sky = (test.y == SKY)[..., None]
    for name, where in {"labelled": near, "never labelled": far, "sky": sky}.items():
        if not where.any():
            continue
        share = maps["epistemic"][where] / (maps["epistemic"][where] + maps["aleatoric"][where])
        found |= {f"epistemic share, {name}": float(share.mean())}
        found |= {f"{kind}, {name}": float(maps[kind][where].mean()) for kind in ("aleatoric", "epistemic")}
    return found


def table(found: Sequence[Line]) -> Iterator[Expectation]:
    for method in NAMES:
        for part in PARTS:
            own = [line for line in found if (line["job"]["method"], line["job"]["part"]) == (method, part)]
            for key in own[0] if own else ():
                if isinstance(own[0][key], float) and key != "seconds":
                    yield Expectation(
                        f"{method}, {part:g} of the images", key, float(np.mean([line[key] for line in own])), len(own)
                    )
        whole = [line for line in found if (line["job"]["method"], line["job"]["part"]) == (method, 1.0)]
        if whole:
            ratio = np.mean(
                [line["epistemic share, never labelled"] / line["epistemic share, labelled"] for line in whole]
            )
            says = "no labels, no knowledge: epistemic uncertainty where labels are missing (Make3D beyond 70 m)"
            yield Expectation(
                method, "epistemic share, never labelled over labelled", float(ratio), len(whole), low=1.2, says=says
            )
            told = [line["AUROC of never labelled pixels, epistemic"] for line in whole]
            yield Expectation(
                method,
                "AUROC of never labelled pixels, epistemic",
                float(np.mean(told)),
                len(whole),
                low=0.5,
                says=says,
            )
        pairs = [
            (a, b)
            for a in found
            for b in found
            if a["job"]["method"] == b["job"]["method"] == method and a["job"]["seed"] == b["job"]["seed"]
            if (a["job"]["part"], b["job"]["part"]) == (0.25, 1.0)
        ]
        if pairs and method == "ensemble":
            for kind, low, high, says in (
                ("epistemic", 1.2, np.inf, "more data explain it away"),
                ("aleatoric", 0.5, 1.5, "more data leave it as it is"),
            ):
                falls = float(np.mean([a[f"{kind}, labelled"] / b[f"{kind}, labelled"] for a, b in pairs]))
                yield Expectation(
                    method, f"{kind}, a quarter over all images", falls, len(pairs), low=low, high=high, says=says
                )


def draw(kept: Path, out: Path) -> None:
    from nescio.report import save
    from nescio.report.figures.panels import draw_panels

    if (kept / "ensemble.npz").exists():
        numbers = dict(np.load(kept / "ensemble.npz"))
        alt = (
            f"Rows of five panels, one street scene each: the image, the distance to the next boundary (at most {FAR:g} pixels), the"
            " prediction, its aleatoric and its epistemic uncertainty, bright where they are high. In the sky and on wide surfaces"
            " training had no labels."
        )
        figure = draw_panels(numbers, "No labels in the sky, nor far from a boundary", discrete=False)
        kinds = {key: numbers[key] for key in ("aleatoric", "epistemic")}
        save(figure, out / "depth.svg", alt=alt, values=kinds, source="000-11: after Kendall & Gal (2017)", seed=0)


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--only", nargs="*", choices=NAMES, default=NAMES)
    parser.add_argument("--draw", action="store_true", help="make the figure of the panels that are kept")
    parser.add_argument("--figures", type=Path, default=Path("docs/figures"))
    given = parser.parse_args(arguments)
    if given.quick:
        given.epochs, given.seeds, given.workers = 1, 1, 1
    jobs = [
        {"method": name, "part": part, "seed": seed, "epochs": given.epochs, "held": HELD, "quick": given.quick}
        for seed in range(given.seeds)
        for name in given.only
        for part in reversed(PARTS)
    ]
    stem = "depth" + (".quick" if given.quick else "")
    path, kept = given.rows or given.out / f"{stem}.rows.jsonl", given.out / f"{stem}.panels"
    work = partial(train, device=given.device, kept=kept)
    found = finish(jobs, work, path, given.device, given.workers, 0.0 if given.draw else given.budget)
    if given.draw:
        draw(kept, given.figures)
    if not found:
        return []
    rows = [expected.to_row(IDS, given.quick) for expected in table(found)]
    command = "python reproduce/depth.py" + (" --quick" if given.quick else f" --epochs {given.epochs}")
    write(
        "depth",
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
