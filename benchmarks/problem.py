"""What every library is given: the data, the layout of the weights, where chains start, and the density in plain numpy.

The numpy density is the arbiter: a library whose log density differs from it at the same weights has not solved the same problem.
All networks are fully connected, all weights have the prior N(0, 1), weights are one flat vector: matrix (out, in) and bias, layer
by layer. This file needs numpy only, so that the peers' environment can read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

AGREE = 1e-3  # relative, of log densities at the same weights
LEAST = 1e-6  # nescio.likelihoods.gaussian.LEAST: what Heteroscedastic adds to the softplus


class Problem(NamedTuple):
    x: np.ndarray  # (rows, inputs), standardised, float32
    y: np.ndarray  # (rows, 1)
    probes: np.ndarray  # (5, weights): where densities are compared
    starts: np.ndarray  # (chains at most, weights): draws from the prior
    origin: str  # which data these are

    def save(self, path: Path) -> None:
        np.savez(path, **self._asdict())

    @staticmethod
    def load(path: str) -> Problem:
        with np.load(path, allow_pickle=False) as file:
            x, y, probes, starts, origin = (file[name] for name in Problem._fields)
        return Problem(x, y, probes, starts, str(origin))


def pose(x: np.ndarray, y: np.ndarray, origin: str, widths: Sequence[int], chains: int) -> Problem:
    """A problem with probes and starts; probes are smaller than prior draws, where predictions are of the size of the data."""
    random = np.random.default_rng(0)
    dim = size(widths)
    probes, starts = 0.3 * random.standard_normal((5, dim)), random.standard_normal((chains, dim))
    x, y, probes, starts = (a.astype(np.float32) for a in (x, y, probes, starts))
    return Problem(x, y, probes, starts, origin)


def size(widths: Sequence[int]) -> int:
    return sum((a + 1) * b for a, b in pairwise(widths))


def outputs(w: Any, x: Any, widths: Sequence[int], activation: Callable[[Any], Any]) -> Any:
    """The network at one flat vector of weights, for numpy and jax alike. (rows, outputs)"""
    at = 0
    for layer, (a, b) in enumerate(pairwise(widths)):
        x = x @ w[at : at + a * b].reshape(b, a).T + w[at + a * b : at + (a + 1) * b]
        at += (a + 1) * b
        x = activation(x) if layer < len(widths) - 2 else x
    return x


def standardised(x: np.ndarray, by: np.ndarray) -> np.ndarray:
    """By the mean and the standard deviation of the rows of `by`; columns that do not vary are only centred."""
    scale = by.std(0)
    return (x - by.mean(0)) / np.where(scale > 0, scale, 1.0)


# ---- the arbiter ------------------------------------------------------------------------------------------------------


def log_normal(x: Any, mean: Any, sd: Any) -> np.ndarray:
    return -0.5 * ((x - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)


def homoscedastic(w: np.ndarray, problem: Problem, widths: Sequence[int], noise: float) -> float:
    """log N(w; 0, 1) + Σ log N(y; f(x), noise²) of a tanh network, in double precision."""
    w, x, y = (np.asarray(a, np.float64) for a in (w, problem.x, problem.y))
    return float(log_normal(w, 0.0, 1.0).sum() + log_normal(y, outputs(w, x, widths, np.tanh), noise).sum())


def heteroscedastic(w: np.ndarray, problem: Problem, widths: Sequence[int]) -> float:
    """log N(w; 0, 1) + Σ log N(y; m(x), (LEAST + softplus(s(x)))²) of a ReLU network with outputs m and s."""
    w, x, y = (np.asarray(a, np.float64) for a in (w, problem.x, problem.y))
    f = outputs(w, x, widths, lambda h: np.maximum(h, 0.0))
    return float(log_normal(w, 0.0, 1.0).sum() + log_normal(y, f[:, :1], LEAST + np.logaddexp(f[:, 1:], 0.0)).sum())


def check_density(who: str, got: Sequence[float], arbiter: Sequence[float]) -> None:
    """The comparison is void unless every library has the same log density, constants included."""
    for mine, truth in zip(got, arbiter, strict=True):
        assert abs(mine - truth) <= AGREE * abs(truth), f"{who}: log density {mine}, not {truth}: another problem"
