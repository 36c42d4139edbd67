"""The concrete relaxation of a dropout mask, z = sigmoid((logit keep + logit u) / t) with u uniform: its density as t falls.

    p(z) = t a / (z (1 - z)) * r / (1 + a r)²,   r = ((1 - z) / z)^t,  a = keep / (1 - keep)   (Maddison et al., 2017)

At every temperature P(z > 1/2) = keep; as t -> 0 the mass goes to {0, 1} and z becomes the mask.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nescio.report.style import BLUE, CYCLE, ORANGE, PALE, Numbers, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EDGE = 0.05  # closer than this to 0 or 1 counts as there


def concrete_log_density(logit: np.ndarray, keep: float, temperature: float) -> np.ndarray:
    """log p(z) at z = sigmoid(logit): close to 0 and 1 a float cannot hold z itself."""
    s = temperature * logit - math.log(keep / (1 - keep))
    log_slope = -np.logaddexp(0, -logit) - np.logaddexp(0, logit)  # log z (1 - z)
    return math.log(temperature) - np.logaddexp(0, s) - np.logaddexp(0, -s) - log_slope


def concrete_below(z: float, keep: float, temperature: float) -> float:
    """P(Z < z)."""
    s = temperature * math.log(z / (1 - z)) - math.log(keep / (1 - keep))
    return 1 / (1 + math.exp(-s))


def concrete_data(
    keep: float = 0.7, temperatures: tuple[float, ...] = (2.0, 1.0, 0.5, 0.1), points: int = 301
) -> Numbers:
    """Densities on a grid that is even in logit z, and the mass near 0, in between and near 1."""
    logit = np.linspace(-12, 12, points)
    return {
        "keep": np.array(keep),
        "temperature": np.array(temperatures),
        "logit": logit,
        "z": 1 / (1 + np.exp(-logit)),
        "density": np.stack([np.exp(concrete_log_density(logit, keep, t)) for t in temperatures]),
        "near_zero": np.array([concrete_below(EDGE, keep, t) for t in temperatures]),
        "near_one": np.array([1 - concrete_below(1 - EDGE, keep, t) for t in temperatures]),
        "above_half": np.array([1 - concrete_below(0.5, keep, t) for t in temperatures]),
    }


def draw_concrete(numbers: Numbers) -> Figure:
    keep = float(numbers["keep"])
    with styled():
        figure, (left, right) = canvas(1, 2, 8.6, 3.8)
        figure.suptitle("As the temperature falls, a soft mask becomes a hard one", x=0.01, ha="left")
        for i, t in enumerate(numbers["temperature"]):
            left.plot(numbers["z"], numbers["density"][i], color=CYCLE[i], label=f"temperature {t:g}")
        left.set(xlabel="mask z", ylabel="density", ylim=(0, 4), xlim=(-0.02, 1.02), title=f"Density, keep = {keep:g}")
        left.legend(loc="upper center")
        rank = np.arange(len(numbers["temperature"]))
        middle = 1 - numbers["near_zero"] - numbers["near_one"]
        right.bar(rank, numbers["near_zero"], 0.7, color=ORANGE, label=f"z < {EDGE:g}: dropped")
        right.bar(rank, middle, 0.7, bottom=numbers["near_zero"], color=PALE, label="in between")
        right.bar(
            rank, numbers["near_one"], 0.7, bottom=1 - numbers["near_one"], color=BLUE, label=f"z > {1 - EDGE:g}: kept"
        )
        right.axhline(1 - keep, color="black", linewidth=1, linestyle="--", label=f"drop = {1 - keep:.2g}")
        right.set_xticks(rank, [f"{t:g}" for t in numbers["temperature"]])
        right.set(xlabel="temperature", ylabel="probability", ylim=(0, 1), title="Where the mass is")
        figure.legend(*right.get_legend_handles_labels(), loc="outside right center")
    return figure
