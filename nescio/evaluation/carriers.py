"""Which layers and inputs carry the uncertainty: weight uncertainty for debugging.

    layers   the variance of the outputs when one layer alone is drawn and all others stay at the posterior's point, and each layer's share
             of it; beside it how much narrower the weights are than under the prior. A layer as wide as its prior has learned nothing.
    inputs   how much the epistemic part falls when a column takes its mean: large for the columns whose values are unfamiliar

Layers are exchanged one by one, which means something within one mode: for an ensemble look at its members.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from nescio.errors import InputError
from nescio.model import sort
from nescio.noise import Noise
from nescio.posterior.posterior import Posterior


class Layer(NamedTuple):
    name: str
    weights: int
    sd: float  # root mean square over its weights
    prior_sd: float  # the same under the prior; NaN without a proper one
    signal_to_noise: float  # median |mean| / sd
    variance: float  # of the outputs, mean over points, when only this layer is drawn
    share: float  # of the sum over layers


class Input(NamedTuple):
    column: int
    falls: float  # mean fall of the epistemic part when the column takes its mean
    share: float  # of the epistemic part


def layers(posterior: Posterior, x: Tensor, draws: int = 100, seed: int = 0) -> list[Layer]:
    """One row a module that holds parameters."""
    model = posterior.model
    drawn, _ = sort(posterior.sample(draws, seed), model.likelihood)
    point, _ = sort(posterior.point(), model.likelihood)
    before = prior_draws(posterior, draws, seed)
    names = [name for name, p in model.network.net.named_parameters() if p.requires_grad]
    rows = []
    for layer in dict.fromkeys(name.rpartition(".")[0] for name in names):
        own = [name for name in names if name.rpartition(".")[0] == layer]
        still = {name: value.expand(draws, *value.shape) for name, value in point.items()}
        with torch.no_grad():
            f = model.network.outputs({**still, **{name: drawn[name] for name in own}}, x)
        variance = sum(float(t.var(0, correction=0).mean()) for t in tree_flatten(f)[0])
        flat, wide = (torch.cat([d[name].flatten(1) for name in own], 1) for d in (drawn, before or drawn))
        sd = flat.std(0, correction=0)
        prior_sd = float(wide.var(0).mean().sqrt()) if before else float("nan")
        ratio = float((flat.mean(0).abs() / sd.clamp_min(1e-30)).median())
        rows.append(Layer(layer, flat.shape[1], float(sd.square().mean().sqrt()), prior_sd, ratio, variance, 0.0))
    total = sum(row.variance for row in rows) or 1.0
    return [row._replace(share=row.variance / total) for row in rows]


def inputs(posterior: Posterior, x: Tensor, draws: int = 100, seed: int = 0) -> list[Input]:
    """One row a column of x, (points, columns)."""
    if not isinstance(x, Tensor) or x.dim() != 2:
        got = str(tuple(x.shape)) if isinstance(x, Tensor) else type(x).__name__
        raise InputError("inputs are compared column by column", got, "give a table (points, columns)")
    whole = float(posterior.predict(x, draws, seed).epistemic.mean())
    rows = []
    for column in range(x.shape[1]):
        plain = x.clone()
        plain[:, column] = x[:, column].mean()
        falls = whole - float(posterior.predict(plain, draws, seed).epistemic.mean())
        rows.append(Input(column, falls, falls / whole if whole > 0 else 0.0))
    return rows


def prior_draws(posterior: Posterior, draws: int, seed: int) -> dict[str, Tensor]:
    """Draws of the parameters under the prior; nothing where it is improper."""
    model = posterior.model
    noise = Noise(seed, ("carriers",), model.network.like.device, model.network.like.dtype)
    try:
        theta = torch.stack([model.prior.draw(noise.at(i)) for i in range(draws)])
    except (TypeError, ValueError):  # an improper law says that it cannot be drawn from
        return {}
    return model.named(theta)
