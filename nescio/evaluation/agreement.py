"""How near is one posterior to another, in predictions? Agreement and total variation as in Izmailov et al. (2021).

    agreement = mean_i 1[argmax_c p_i = argmax_c q_i]         TV = mean_i ½ Σ_c |p_ic - q_ic|

A reference is itself only a set of draws: `ceiling` scores one half of its chains against the other, and no method can be asked
to do better than that. One chain has no ceiling: its two ends depend on each other, and agree where both are wrong.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from nescio.errors import InputError
from nescio.posterior.draws import Draws
from nescio.posterior.posterior import Posterior
from nescio.predictive import Predictive


class Closeness(NamedTuple):
    agreement: float  # part of the points at which both would choose the same class; higher is nearer
    total_variation: float  # mean distance of the class probabilities; lower is nearer


def agreement(p: Predictive, q: Predictive) -> float:
    a, b = probabilities(p, q)
    return float((a.argmax(-1) == b.argmax(-1)).double().mean())


def total_variation(p: Predictive, q: Predictive) -> float:
    a, b = probabilities(p, q)
    return float(0.5 * (a - b).abs().sum(-1).double().mean())


def closeness(p: Predictive, q: Predictive) -> Closeness:
    return Closeness(agreement(p, q), total_variation(p, q))


def ceiling(reference: Posterior, x: Any) -> Closeness:
    """The reference against itself: the first half of its chains against the second."""
    first, second = halves(reference)
    return closeness(first.predict(x, draws=None), second.predict(x, draws=None))


def halves(reference: Posterior) -> tuple[Draws, Draws]:
    """Two independent parts of its chains; of an odd number the second has one more."""
    chains = len(reference.theta) if isinstance(reference, Draws) else 0
    if not isinstance(reference, Draws) or chains < 2:
        got = "1 chain" if chains else f"none in a {type(reference).__name__}"
        must = "a ceiling needs two independent halves of a reference, so at least two chains"
        raise InputError(must, got, "run the reference as 4 * HMC()")
    return reference.chains(slice(0, chains // 2)), reference.chains(slice(chains // 2, chains))


def probabilities(p: Predictive, q: Predictive) -> tuple[Tensor, Tensor]:
    a, b = p.mean, q.mean
    if a.shape != b.shape or a.dim() < 2 or not bool(((a >= 0) & (a <= 1)).all()):
        got = f"shapes {tuple(a.shape)} and {tuple(b.shape)}"
        raise InputError("two predictives of classes at the same points", got, "predict both at the same x")
    if a.shape[-1] == 1:  # yes and no are two classes
        a, b = (torch.cat([1 - x, x], -1) for x in (a, b))
    return a, b
