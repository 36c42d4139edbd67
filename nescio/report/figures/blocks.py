"""What a prior says of two weights at once: covariance of draws from priors per weight, per layer and joint, and from group scales.

Under a group scale the weights are uncorrelated and yet not independent: they are large together. That shows in the correlation
of log |w|: with w = s z, s half-Cauchy and z normal, Var log s = π²/4 and Var log |z| = π²/8, so it is 2/3 within a group, and 0
across.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from nescio.laws import Correlated, HalfCauchy, Law, Normal, Site
from nescio.laws.prior import Prior
from nescio.laws.site import sites
from nescio.noise import Noise
from nescio.report.figures.arrays import array
from nescio.report.style import GREY, INK, Numbers, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EULER = 0.5772156649015329
TITLES = {
    "weight": "one prior per weight",
    "layer": "one per layer",
    "joint": "one for all weights",
    "filter": "one scale per filter",
    "gate": "one scale per LSTM gate",
}
PARTS = {  # what the lines separate
    "weight": ("layer 1", "layer 2"),
    "layer": ("layer 1", "layer 2"),
    "joint": ("layer 1", "layer 2"),
    "filter": ("f1", "f2", "f3", "f4"),
    "gate": ("in", "forget", "cell", "out"),
}


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))


def lstm_gates() -> nn.Module:
    """The weights of an LSTM cell on (input, state), one matrix for each gate."""
    return nn.ModuleDict({name: nn.Linear(3, 2, bias=False) for name in ("enter", "forget", "cell", "leave")})


def equal(size: int, correlation: float = 0.6) -> Tensor:
    return (1 - correlation) * torch.eye(size, dtype=torch.float64) + correlation


def fading(size: int, length: float = 5.0) -> Tensor:
    i = torch.arange(size, dtype=torch.float64)
    return torch.exp(-(i[:, None] - i).abs() / length)


def whole_layer(site: Site) -> Tensor:
    return equal(site.size)


def cases() -> dict[str, tuple[nn.Module, Law]]:
    scale = HalfCauchy(1.0)
    return {
        "weight": (two_layers(), Normal(0, 1)),
        "layer": (two_layers(), Correlated(whole_layer)),
        "joint": (two_layers(), Correlated(fading(20)).per("net")),
        "filter": (nn.Conv2d(1, 4, (2, 3), bias=False), Normal(0, scale.per("output"))),
        "gate": (lstm_gates(), Normal(0, scale.per("layer"))),
    }


def theory(name: str) -> Tensor:
    """The covariance of the weights, or the correlation of log |w| under a group scale."""
    if name == "weight":
        return torch.eye(20, dtype=torch.float64)
    if name == "layer":
        return torch.block_diag(equal(12), equal(8))
    if name == "joint":
        return fading(20)
    return torch.block_diag(*[equal(6, 2 / 3)] * 4)


def blocks_data(draws: int = 4000, seed: int = 0) -> Numbers:
    """For each prior: `name` the matrix from draws, `name_theory`, and `name_error`, the standard error of each entry."""
    numbers: Numbers = {}
    for name, (net, law) in cases().items():
        prior = Prior(law, sites(net), {}).double()
        noise = Noise(seed, dtype=torch.float64).at("blocks", name)
        flat = []
        for i in range(draws):
            params = prior.params(prior.split(prior.draw(noise.at(i))))
            flat.append(torch.cat([w.reshape(-1) for w in params.values()]))
        w = torch.stack(flat)  # (draws, weights)
        if name in ("filter", "gate"):
            # log |w| with its mean and its variance known, so that every product below is a draw with a known mean
            mean = (math.log(0.5) - EULER) / 2  # E log |z|; E log s is 0
            w = (w.abs().log() - mean) / (math.pi * math.sqrt(3 / 8))
        products = w[:, :, None] * w[:, None, :]  # (draws, weights, weights)
        numbers[name] = array(products.mean(0))
        numbers[f"{name}_theory"] = array(theory(name))
        numbers[f"{name}_error"] = array(products.std(0) / math.sqrt(draws))
    return numbers


def draw_blocks(numbers: Numbers) -> Figure:
    with styled():
        figure, axes = canvas(1, 5, 11.0, 3.3)
        figure.suptitle("What a prior says of two weights at once", x=0.008, ha="left")
        image = None
        for one, (name, title) in zip(axes, TITLES.items(), strict=True):
            matrix, parts = numbers[name], PARTS[name]
            n = len(matrix)
            image = one.imshow(matrix, cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
            cuts = [0, 12, 20] if len(parts) == 2 else list(range(0, n + 1, n // 4))
            one.hlines([c - 0.5 for c in cuts[1:-1]], -0.5, n - 0.5, INK, linewidth=0.6)
            one.vlines([c - 0.5 for c in cuts[1:-1]], -0.5, n - 0.5, INK, linewidth=0.6)
            middles = (np.array(cuts[1:]) + np.array(cuts[:-1]) - 1) / 2
            one.set_xticks(middles, parts, fontsize=7)
            one.set_yticks(middles, parts, fontsize=7, rotation=90, va="center")
            one.tick_params(length=0)
            one.set_title(title, fontsize=9)
            grouped = name in ("filter", "gate")
            one.set_xlabel("correlation of log |w|" if grouped else "covariance of w", fontsize=8, color=GREY)
        assert image is not None
        figure.colorbar(image, ax=axes, shrink=0.7, aspect=14, pad=0.01, ticks=[-1, 0, 1])
    return figure
