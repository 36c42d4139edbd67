"""The method to begin with, when nothing speaks for another.

Microcanonical ensembles where network and data are small enough for some ten thousand gradients over all rows: on UCI regression they
have a lower NLL than deep ensembles of the same network on all nine sets (docs/choose-a-method.md). How far they step and for how long
was chosen on five tables (benchmarks/defaults.py). Deep ensembles beyond, and where batch norm ties examples together; Metropolis where
latents are discrete, for nothing else can move those.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from nescio.data.source import source
from nescio.infer.map import MAP
from nescio.infer.mclmc import MCLMC
from nescio.infer.method import Method
from nescio.infer.metropolis import Metropolis
from nescio.model import Model

MOST_LATENTS, MOST_ROWS = 20_000, 20_000
ROW_VISITS = 2_000_000  # of a member of an ensemble: 100 epochs of 20,000 rows, fewer epochs of more


def default(model: Model, data: Any) -> Method:
    """`fit(model, data, default(model, data))`."""
    given = source(data)
    if any(variable.discrete for variable in model.prior.variables):
        return 4 * Metropolis()
    x, _ = given.rows(torch.arange(min(2, given.size)))
    tied = any(
        isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training for m in model.network.training_net.modules()
    )
    small = 2 <= model.dim <= MOST_LATENTS and given.size <= MOST_ROWS
    if small and not tied and model.network.vectorises(x):
        return 8 * (MAP(hold_out=0.1, patience=50) >> MCLMC(energy_variance=0.03, warmup=5000, draws=100, thin=40))
    return 5 * MAP(epochs=max(10, min(100, ROW_VISITS // given.size)), hold_out=0.1)
