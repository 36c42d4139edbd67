"""Tables of docs/uncertainty.md and docs/compression.md."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import kept
from kept import expectations, number, picture, table

NOT_YET = "Not run in full yet."
Columns = Mapping[str, tuple[str, int]]  # a pattern of metrics -> heading, digits after the point
PANELS = "rows of five panels: image, truth, prediction, aleatoric and epistemic uncertainty"


def grid(name: str, columns: Columns) -> str:
    """A line for each row of a result, published numbers in brackets; then what was expected."""
    if not (kept.RESULTS / f"{name}.json").exists():
        return NOT_YET
    found, lines = kept.kept(name), []
    for row in dict.fromkeys(row for row, _ in found):
        own = {metric: entry for (which, metric), entry in found.items() if which == row}
        cells = [
            next((cell(own[metric], digits) for metric in own if re.fullmatch(pattern, metric)), "")
            for pattern, (_, digits) in columns.items()
        ]
        if any(cells):
            lines.append((row, *cells))
    claims = any(entry.get("right") is not None for entry in found.values())
    whole = table(("", *(heading for heading, _ in columns.values())), lines)
    return f"{whole}\n\n{expectations(name)}" if claims else whole


def cell(entry: dict[str, Any], digits: int) -> str:
    said = f"({number(entry['published'], digits)})" if entry.get("published") is not None else ""
    return f"{number(entry['ours'], digits)} {said}".strip() if entry["n"] else said


def active() -> str:
    labels = {f"labels to {limit}% error": (f"labels to {limit}%", 0) for limit in (10, 5)}
    return grid("active_mnist", {r"error in % at \d+ labels": ("error % at the end", 2), **labels})


def outside_sets() -> str:
    by = {
        f"AUROC by {doubt} in %, mean over the sets": (f"AUROC %, {doubt}", 1)
        for doubt in ("entropy", "mutual information")
    }
    return grid(
        "ood_table", {**by, "accuracy": ("accuracy %", 2), "nll": ("NLL", 3), "prediction seconds": ("seconds", 2)}
    )


def outside_mnist() -> str:
    sets = {f"AUROC, {name}": (f"AUROC %, {name}", 1) for name in ("Fashion-MNIST", "notMNIST", "Omniglot", "outside")}
    sure = {"confidence, digits": ("confidence %, digits", 1), "confidence, outside": ("confidence %, outside", 1)}
    return grid("ood_mnist", {**sets, **sure, "accuracy": ("accuracy %", 2), "nll": ("NLL", 3)})


def cifar() -> str:
    columns = {
        "accuracy": ("accuracy %", 2),
        "agreement": ("agreement %", 2),
        "total variation": ("total variation", 3),
    }
    return grid("cifar_hmc", {**columns, "nll": ("NLL", 3)})


def segmentation() -> str:
    first: Columns = {"IoU": ("IoU %", 1), "pixel accuracy": ("accuracy %", 1), "nll": ("NLL", 3), "ECE": ("ECE", 3)}
    edges = {
        f"{kind}, boundaries over interiors": (f"{kind}, boundaries / interiors", 2)
        for kind in ("aleatoric", "epistemic")
    }
    unseen = {
        f"AUROC of the unseen class, {kind}": (f"AUROC of cars, unseen, {kind}", 3) for kind in ("epistemic", "total")
    }
    return (
        grid("segmentation", {**first, **edges, **unseen})
        + picture("segmentation", f"CamVid by dropout, {PANELS}")
        + picture("segmentation_unseen", f"CamVid by an ensemble that had no labels of cars, {PANELS}")
    )


def depth() -> str:
    columns = {
        f"{kind}, {where}": (f"{kind}, {where}", 3)
        for kind in ("rmse", "aleatoric", "epistemic")
        for where in ("labelled", "never labelled")
    }
    return grid("depth", columns) + picture("depth", f"distances to boundaries, {PANELS}")


def tasks() -> str:
    columns: Columns = {"IoU, test": ("IoU %", 1), "rmse of edges, test": ("rmse of edges", 3)}
    noise = {f"noise of {task}": (f"noise of {task}", 3) for task in ("seg", "edges")}
    return grid("multitask", {**columns, **noise}) + picture("multitask", f"edges beside labels, {PANELS}")


def bandit() -> str:
    return grid("bandit", {"regret": ("regret", 0), "regret a decision, last quarter": ("a decision, last quarter", 2)})


def explained() -> str:
    """By table and method: how many times the variance of all rows a quarter of them leaves."""
    if not (kept.RESULTS / "explained_away.json").exists():
        return NOT_YET
    found = kept.kept("explained_away")
    sets, methods = (list(dict.fromkeys(row.split(": ")[i] for row, _ in found)) for i in (0, 1))

    def ratio(name: str, method: str, kind: str) -> str:
        a, b = (found[f"{name}: {method}", f"{kind}, {part} of the rows"]["ours"] for part in ("0.25", "1"))
        return number(a / b, 2)

    lines = [
        (method, *(ratio(name, method, kind) for name in sets for kind in ("epistemic", "aleatoric")))
        for method in methods
    ]
    return table(("", *(f"{name}, {kind}" for name in sets for kind in ("epistemic", "aleatoric"))), lines)


def rates() -> str:
    path = kept.RESULTS / "compression.json"
    if not path.exists():
        return NOT_YET
    keys = ("error %", "error % before", "kept %", "weights / kept", "papers' bits x", "file x", "flops x")
    said = "published: error %, kept %, pruning x, bits x, maximum x"
    lines = [
        (
            r["row"],
            str(r["n"]),
            *(number(r[key]) for key in keys),
            r["architecture"],
            "-" if r[said] is None else ", ".join(map(str, r[said])),
        )
        for r in json.loads(path.read_text(encoding="utf-8"))["rows"]
    ]
    figures = [
        picture(f"compression_{net}_{what}", f"{net}, {what}")
        for net in ("lenet-300-100", "lenet-5-caffe", "vgg")
        for what in ("weights", "rates")
    ]
    return (
        table(("", "seeds", *keys, "architecture", said), lines)
        + "".join(figures)
        + picture("compression_pixels", "pixels that are read")
    )


def speed(device: str) -> str:
    path = kept.ROOT / "benchmarks" / "results" / f"compression_{device}.json"
    if not path.exists():
        return NOT_YET
    keys = ("large ms", "small ms", "speed-up", "flops x")
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return table(("", "batch", *keys), [(r["row"], str(r["batch"]), *(number(r[key]) for key in keys)) for r in rows])


def speed_cpu() -> str:
    return speed("cpu")


def speed_gpu() -> str:
    return speed("cuda")
