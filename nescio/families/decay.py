r"""Weight decay, prior and model precision of a dropout network, each from the others.

A network that is trained with `nn.Dropout(p)` before its layers and torch's weight_decay λ' minimises, per observation,

    1/N Σ_n -log p(y_n | x_n, W) / τ + ½ λ' ‖E W‖²

where τ = 1 for a loss that is a mean negative log likelihood (cross-entropy), and the precision 1 / σ² of the noise for ½ (y - f)². That
is the ELBO of BernoulliDropout(p) under Normal(0, s) with λ' = 1 / (N τ (1 - p) s²). Biases have no dropout: p = 0.

The papers write the same of M = E W / (1 - p), without the ½: λ = (1 - p) l² / 2Nτ for λ ‖M‖², with the length scale l = 1 / s. A small l
means large weights and functions that vary fast.
"""

from __future__ import annotations

import math

from nescio.errors import InputError


def weight_decay(scale: float, n: int, p: float = 0.0, precision: float = 1.0) -> float:
    """torch's weight_decay, of a loss that is a mean over n observations, for the prior Normal(0, scale)."""
    check(p, {"scale": scale, "n": n, "precision": precision})
    return 1 / (n * precision * (1 - p) * scale**2)


def prior_scale(weight_decay: float, n: int, p: float = 0.0, precision: float = 1.0) -> float:
    """The standard deviation of the Normal prior that torch's weight_decay stands for."""
    check(p, {"weight_decay": weight_decay, "n": n, "precision": precision})
    return 1 / math.sqrt(n * precision * (1 - p) * weight_decay)


def model_precision(penalty: float, length_scale: float, p: float, n: int) -> float:
    """τ = l² (1 - p) / 2Nλ, where 1/N Σ ½ (y - f)² + λ ‖M‖² is minimised. p: the probability to drop."""
    check(p, {"penalty": penalty, "length_scale": length_scale, "n": n})
    return length_scale**2 * (1 - p) / (2 * n * penalty)


def papers_penalty(precision: float, length_scale: float, p: float, n: int) -> float:
    """λ = l² (1 - p) / 2Nτ, of ‖M‖²."""
    check(p, {"precision": precision, "length_scale": length_scale, "n": n})
    return length_scale**2 * (1 - p) / (2 * n * precision)


def check(p: float, positive: dict[str, float]) -> None:
    if not 0 <= p < 1:
        raise InputError("p is the probability to drop, in [0, 1)", str(p), "a survival rate of 0.9 is p = 0.1")
    for name, number in positive.items():
        if not 0 < number < math.inf:
            raise InputError(f"{name} must be positive", str(number), "check the order of the arguments")
