"""Draws from a flow: z ~ N(0, I), taken back."""

from __future__ import annotations

import torch
from torch import Tensor

from nescio.errors import InputError, UnsupportedError
from nescio.nets.flow import Flow
from nescio.posterior.posterior import Posterior, spread_evenly


def flow_back(posterior: Posterior, n: int, draws: int | None = None, seed: int = 0) -> Tensor:
    """n points of a flow's density, (n, size): at the posterior's point, or shared out over draws of the weights."""
    net = posterior.model.network.net
    if not isinstance(net, Flow):
        raise UnsupportedError("only a flow can be taken back", type(net).__name__, "use generate for a VAE")
    if n < 1:
        raise InputError("at least one point must be asked for", str(n), "use for instance flow_back(posterior, 100)")
    point = {name: x[None] for name, x in posterior.point().items()} if draws is None else posterior.sample(draws, seed)
    z = posterior.model.noise(seed, "flow").normal(n, net.size)
    own = {name: x for name, x in point.items() if not name.startswith(("likelihood.", "prior."))}
    parts = []
    for i, piece in enumerate(z.split(spread_evenly(n, draws or 1))):
        given = {name: x[i] for name, x in own.items()}
        with torch.no_grad():
            parts.append(posterior.model.network.call(given, {"x": piece, "back": True})["x"])
    return torch.cat(parts)
