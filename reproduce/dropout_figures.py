"""What dropout learned and where it doubts, as pictures of finished jobs: `python reproduce/dropout_figures.py [--out docs/figures]`.

dropout_keeps: keep probabilities of concrete dropout at N = 1000 and 10,000. dropout_doubts: spread of the probability of the likeliest
class, real and blended digits. lenet_errors: dropout after all layers, after the last, or nowhere, by averaged weights and by draws.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from evidence import RESULTS

from nescio.report import save
from nescio.report.style import CYCLE, Numbers, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Line = dict[str, Any]
LAYERS = {"2.weight": "first", "4.weight": "second"}  # hidden units that are dropped
KINDS, RULES = ("all", "fc", "none"), ("standard", "MC")


def lines(name: str) -> list[Line]:
    return [json.loads(line) for line in (RESULTS / f"{name}.rows.jsonl").read_text(encoding="utf-8").splitlines()]


def keeps_data(found: Sequence[Line]) -> Numbers:
    """Quantiles over units, means over seeds."""
    numbers: Numbers = {"part of units": np.linspace(0, 1, 21)}
    for n in (1000, 10_000):
        own = [x for x in found if x["job"]["method"] == "concrete dropout" and x["job"]["n"] == n]
        for key, layer in LAYERS.items():
            numbers[f"{layer} layer, N = {n}"] = 1 - np.mean([x["rates"][key] for x in own], 0)[::-1]
    return numbers


def doubts_data(found: Sequence[Line]) -> Numbers:
    """Mean and standard error over seeds of the deviation over draws."""
    plain = [x for x in found if x["job"]["n"] == 1000 and x["job"]["decay"] == 1e-4]
    numbers: Numbers = {"method": np.array(["MC dropout", "concrete dropout"])}
    for kind in ("real", "blended"):
        each = [[x[kind]["spread"] for x in plain if x["job"]["method"] == name] for name in numbers["method"]]
        numbers[kind] = np.array([np.mean(x) for x in each])
        numbers[f"{kind}, se"] = np.array([np.std(x, ddof=1) / np.sqrt(len(x)) for x in each])
    return numbers


def errors_data(found: Sequence[Line]) -> Numbers:
    """Per cent, means over seeds; NaN where there is no such prediction."""
    sets = sorted({(x["job"]["set"], x["job"]["one_in"]) for x in found}, reverse=True)
    numbers: Numbers = {"set": np.array([name if k == 1 else f"{name}, 1/{k}" for name, k in sets])}
    for kind in KINDS:
        for rule in RULES if kind != "none" else RULES[:1]:
            own = [[x[f"error, {rule}"] for x in found if (x["job"]["set"], x["job"]["one_in"], x["job"]["kind"]) == (*key, kind)]
                   for key in sets]  # fmt: skip
            numbers[f"{kind}, {rule}"] = np.array([np.mean(x) for x in own])
    return numbers


def draw_keeps(numbers: Numbers) -> Figure:
    with styled():
        figure, (axes,) = canvas(1, 1, 6.4, 3.8)
        figure.suptitle("Learned probabilities to keep a unit", x=0.01, ha="left")
        for i, name in enumerate(key for key in numbers if "N =" in key):
            axes.plot(numbers["part of units"], numbers[name], color=CYCLE[i], label=name)
        axes.set(xlabel="part of the units below", ylabel="keep probability")
        axes.legend(loc="upper left")
    return figure


def draw_bars(numbers: Numbers, first: str, bars: Sequence[str], title: str, label: str, log: bool) -> Figure:
    with styled():
        figure, (axes,) = canvas(1, 1, 6.4, 3.8)
        figure.suptitle(title, x=0.01, ha="left")
        place, width = np.arange(len(numbers[first])), 0.8 / len(bars)
        for i, name in enumerate(bars):
            axes.bar(place + (i - (len(bars) - 1) / 2) * width, numbers[name], width, color=CYCLE[i], label=name)
        axes.set_xticks(place, [str(name) for name in numbers[first]])
        axes.set(ylabel=label, yscale="log" if log else "linear")
        axes.legend(loc="upper left" if log else "upper right")
    return figure


def flat(numbers: Numbers, first: str) -> Numbers:
    """A column for each bar: values of a figure are numbers."""
    columns = [name for name in numbers if name != first]
    return {f"{group}: {name}": numbers[name][[i]] for i, group in enumerate(numbers[first]) for name in columns}


def main(arguments: Sequence[str] | None = None) -> list[str]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS.parent.parent / "docs" / "figures")
    out = parser.parse_args(arguments).out
    out.mkdir(parents=True, exist_ok=True)
    tutorial, source = (
        lines("dropout_tutorial"),
        "after H. B. Lee, Implementation Tutorial: Bayesian Deep Learning (2019)",
    )
    keeps, doubts, errors = keeps_data(tutorial), doubts_data(tutorial), errors_data(lines("bayesian_lenet"))
    alt = "Quantiles of keep probabilities: nearly flat at one half with 1000 images, rising above it with 10,000."
    save(draw_keeps(keeps), out / "dropout_keeps.svg", alt=alt, values=keeps, source=source, seed=0)
    title, label = "How far draws differ on a digit", "deviation of a probability"
    figure = draw_bars(doubts, "method", ("real", "blended"), title, label, False)
    alt = "Bars: the probability of the likeliest class spreads nearly twice as far on blends of two digits as on real ones."
    save(figure, out / "dropout_doubts.svg", alt=alt, values=flat(doubts, "method"), source=source, seed=0)
    bars = [name for name in errors if name != "set"]
    figure = draw_bars(errors, "set", bars, "Dropout after which layers, and how it predicts", "test error, %", True)
    alt = "Bars of LeNet's test errors: draws with dropout after all layers are lowest, averaged weights of the same network are not."
    save(
        figure,
        out / "lenet_errors.svg",
        alt=alt,
        values=flat(errors, "set"),
        source="after Gal & Ghahramani (2015)",
        seed=0,
    )
    return ["dropout_keeps", "dropout_doubts", "lenet_errors"]


if __name__ == "__main__":
    print("\n".join(main()))
