"""What steps begin with: the network's own weights, and how many rows a step sees."""

from __future__ import annotations

import torch

from nescio.data.source import Source
from nescio.errors import InputError
from nescio.infer.method import Start
from nescio.model import Model
from nescio.noise import Noise
from nescio.posterior.posterior import Ends

LARGEST_BATCH = 128


def minibatch(wanted: int | None, source: Source) -> int:
    """What was asked for; else what the loader asked for; else a sixteenth of the rows, between 16 and 128."""
    if wanted is None:
        return min(source.batch_size or sixteenth(source.size), source.size)
    if not 1 <= wanted <= source.size:
        raise InputError(f"batch_size must lie in 1 ... {source.size}, the number of rows", str(wanted), "leave it out")
    return wanted


def sixteenth(rows: int) -> int:
    return min(LARGEST_BATCH, max(16, rows // 16))  # small data need many steps, too


def from_network(model: Model, start: Start, noise: Noise) -> Ends:
    """Optimisers start at the network's own weights; replicas re-run the module's own initialisation."""
    network = model.network
    thetas, buffers = [], []
    for chain in range(start.chains):
        own = noise.at("start", chain)
        weights, statistics = network.restarted(own) if start.restart else (network.weights(), network.statistics())
        thetas.append(model.prior.at(weights, own))
        buffers.append(statistics)
    return Ends(torch.stack(thetas), {name: torch.stack([b[name] for b in buffers]) for name in buffers[0]})
