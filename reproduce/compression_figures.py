"""Figures of the compression table: weights before and after, scores, sparsity per layer, error against rate, pixels that survive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nescio.report import save
from nescio.report.style import BLUE, CYCLE, GREY, ORANGE, Numbers, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Line = dict[str, Any]
NAMES = {"sparse-vd": "sparse variational dropout", "normal-jeffreys": "normal-Jeffreys", "horseshoe": "horseshoe"}
EDGES = np.linspace(-0.5, 0.5, 101)
SOURCE = "after Louizos, Ullrich & Welling (2017) and Molchanov et al. (2017)"
TEN = 1e-1  # least count that a logarithmic axis shows


def first(lines: Sequence[Line], net: str) -> dict[str, Line]:
    """Of each prior the first seed."""
    found: dict[str, Line] = {}
    for line in lines:
        if line["job"]["net"] == net:
            found.setdefault(line["job"]["kind"], line)
    return {kind: found[kind] for kind in NAMES if kind in found}


def weights_data(lines: Sequence[Line], net: str) -> Numbers:
    """Counts of weights in bins of their values: means before, what is stored after."""
    numbers: Numbers = {"weight": (EDGES[1:] + EDGES[:-1]) / 2}
    for kind, line in first(lines, net).items():
        numbers[f"{kind} before"] = np.array(line["weights"])
        numbers[f"{kind} after"] = np.array(line["variants"]["weights"]["weights"])
    return numbers


def scores_data(lines: Sequence[Line], net: str) -> Numbers:
    """Counts in bins of what is thresholded: log signal to noise, minus log α of a group, log of its scale."""
    numbers: Numbers = {}
    for kind, line in first(lines, net).items():
        edges = np.array(line["scores"]["edges"])
        numbers[f"{kind} score"] = (edges[1:] + edges[:-1]) / 2
        numbers[f"{kind} count"] = np.array(line["scores"]["counts"])
        least = line["variants"]["weights"]["least scores"][0]
        least = np.log(max(least, 1e-9)) if kind == "sparse-vd" else least
        numbers[f"{kind} least"] = np.full(len(edges) - 1, max(least, edges[0]))
    return numbers


def layers_data(lines: Sequence[Line], net: str) -> Numbers:
    """Per cent of each tensor's weights that are kept."""
    numbers: Numbers = {}
    for kind, line in first(lines, net).items():
        kept = {name: 100 * k / n for name, (k, n) in line["variants"]["weights"]["layers"].items() if "weight" in name}
        numbers[kind] = np.array(list(kept.values()))
    return numbers


def rates_data(lines: Sequence[Line], net: str) -> Numbers:
    """The curve of one network, and the files of all seeds."""
    numbers: Numbers = {}
    for kind, line in first(lines, net).items():
        for key in ("rate", "error"):
            numbers[f"{kind} {key}"] = np.array([point[key] for point in line["curve"]])
    for kind in NAMES:
        own = [
            v
            for line in lines
            if (line["job"]["net"], line["job"]["kind"]) == (net, kind)
            for v in line["variants"].values()
        ]
        for key in ("rate", "error") if own else ():
            numbers[f"{kind} file {key}"] = np.array([v[key] for v in own])
    return numbers


def pixels_data(lines: Sequence[Line]) -> Numbers:
    """28 x 28: one where a pixel is read."""
    numbers: Numbers = {}
    for kind, line in first(lines, "lenet-300-100").items():
        variant = line["variants"].get("groups") or line["variants"]["weights"]
        image = np.zeros(784)
        image[variant.get("pixels", range(784))] = 1
        numbers[kind] = image
    return numbers


def draw_histograms(weights: Numbers, scores: Numbers, net: str) -> Figure:
    kinds = [kind for kind in NAMES if f"{kind} before" in weights]
    with styled():
        figure, axes = canvas(2, len(kinds), 3.2 * len(kinds), 5.4)
        figure.suptitle(f"{net}: weights and what is thresholded", x=0.01, ha="left")
        for i, kind in enumerate(kinds):
            top, low = axes[i], axes[len(kinds) + i]
            top.step(weights["weight"], weights[f"{kind} before"] + TEN, where="mid", color=GREY, label="before")
            top.step(weights["weight"], weights[f"{kind} after"] + TEN, where="mid", color=BLUE, label="after")
            top.set(yscale="log", xlabel="weight", ylabel="count" if i == 0 else "", title=NAMES[kind])
            low.step(scores[f"{kind} score"], scores[f"{kind} count"] + TEN, where="mid", color=GREY)
            low.axvline(scores[f"{kind} least"][0], color=ORANGE, label="kept from here")
            low.set(yscale="log", xlabel="score", ylabel="weights" if i == 0 else "")
        axes[0].legend(loc="upper left")
        axes[len(kinds)].legend(loc="upper left")
    return figure


def draw_rates(numbers: Numbers, layers: Numbers, net: str) -> Figure:
    kinds = [kind for kind in NAMES if f"{kind} rate" in numbers]
    with styled():
        figure, (left, right) = canvas(1, 2, 8.4, 3.8)
        figure.suptitle(f"{net}: error against the size of the file, and what is kept", x=0.01, ha="left")
        for i, kind in enumerate(kinds):
            left.plot(numbers[f"{kind} rate"], numbers[f"{kind} error"], color=CYCLE[i], marker=".", label=NAMES[kind])
            left.plot(numbers[f"{kind} file rate"], numbers[f"{kind} file error"], "x", color=CYCLE[i])
            n = len(layers[kind])
            right.bar(np.arange(n) + 0.27 * (i - 1), layers[kind], width=0.25, color=CYCLE[i])
        left.set(xscale="log", yscale="log", xlabel="times smaller on disk", ylabel="test error, %")
        left.legend(loc="upper left")
        right.set(yscale="log", xlabel="layer", ylabel="weights kept, %")
        right.set_xticks(range(len(next(iter(layers.values())))))
    return figure


def draw_pixels(numbers: Numbers) -> Figure:
    with styled():
        figure, axes = canvas(1, len(numbers), 2.4 * len(numbers), 2.9)
        figure.suptitle("Pixels that LeNet-300-100 still reads", x=0.01, ha="left")
        for ax, (kind, image) in zip(axes, numbers.items(), strict=True):
            ax.imshow(image.reshape(28, 28), cmap="gray_r", vmin=0, vmax=1)
            ax.set(title=f"{NAMES[kind]}\n{int(image.sum())} of 784", xticks=[], yticks=[])
    return figure


def draw(lines: Sequence[Line], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for net in dict.fromkeys(line["job"]["net"] for line in lines):
        weights, scores = weights_data(lines, net), scores_data(lines, net)
        figure = draw_histograms(weights, scores, net)
        alt = f"{net}: histograms of weights before and after compression, and of the scores that are thresholded."
        save(
            figure,
            folder / f"compression_{net}_weights.svg",
            alt=alt,
            values={**weights, **scores},
            source=SOURCE,
            seed=0,
        )
        rates, layers = rates_data(lines, net), layers_data(lines, net)
        alt = f"{net}: test error against how many times smaller the file is, and the per cent of weights kept in each layer."
        save(
            draw_rates(rates, layers, net),
            folder / f"compression_{net}_rates.svg",
            alt=alt,
            values={**rates, **layers},
            source=SOURCE,
        )
    if any(line["job"]["net"] == "lenet-300-100" for line in lines):
        pixels = pixels_data(lines)
        alt = "The pixels of an image that the compressed LeNet-300-100 reads, dark, for each prior."
        save(draw_pixels(pixels), folder / "compression_pixels.svg", alt=alt, values=pixels, source=SOURCE, seed=0)
