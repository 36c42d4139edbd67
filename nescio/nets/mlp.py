"""Fully connected networks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from torch import nn

from nescio.errors import InputError
from nescio.nets.sizes import require_sizes


class Hidden(NamedTuple):
    widths: tuple[int, ...]
    activation: type[nn.Module]


# to begin with on a table: where the target is a number (chosen by benchmarks/defaults.py), and where it is a class
NUMBERS = Hidden((16, 16), nn.Tanh)
CLASSES = Hidden((50,), nn.ReLU)


def mlp(*widths: int, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers from width to width with an activation between them: mlp(13, 50, 1) is Linear, ReLU, Linear."""
    if len(widths) < 2:
        raise InputError(
            "mlp needs at least two widths, inputs and outputs", f"widths {widths}", "call it as in mlp(13, 50, 1)"
        )
    require_sizes(*((f"width {i} of mlp", width) for i, width in enumerate(widths)))
    layers: list[nn.Module] = []
    for width_in, width_out in pairwise(widths):
        layers += [nn.Linear(width_in, width_out), activation()]
    return nn.Sequential(*layers[:-1])  # no activation after the last Linear


def lenet_300_100(inputs: int = 784, classes: int = 10) -> nn.Sequential:
    """LeNet-300-100 (LeCun et al., 1998): the input is flattened, then 300 and 100 hidden ReLU units."""
    require_sizes(("inputs", inputs), ("classes", classes))
    return nn.Sequential(nn.Flatten(), *mlp(inputs, 300, 100, classes))
