"""What rank histograms rest on: ranks with ties broken at random, thinning, equal bins, and the law of a count if chains agree."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from nescio.diagnose import ess_raw
from nescio.noise import Noise


def ranks(x: np.ndarray, noise: Noise) -> np.ndarray:
    """From 0, among all draws of all chains, (chains, draws); ties in random order."""
    flat = x.ravel()
    order = np.lexsort((noise.uniform(len(flat)).numpy(), flat))
    found = np.empty(len(flat), dtype=np.int64)
    found[order] = np.arange(len(flat))
    return found.reshape(x.shape)


def stride(x: np.ndarray) -> int:
    """Every how many-th draw is about independent of the one before: within chains, whatever the others do. (chains, draws)"""
    place = ranks(x, Noise(0)).astype(np.float64)
    moving = x.max(1) > x.min(1)
    each = ess_raw(place[moving].T[None]) if moving.any() else np.array([])  # one chain of many quantities
    each = each[~np.isnan(each)]
    typical = float(np.median(each)) if len(each) else float(x.shape[1])
    return int(min(max(round(x.shape[1] / typical), 1), x.shape[1] // 2))


def bound(total: int, size: int, draws: int, tail: float) -> tuple[float, float]:
    """Hypergeometric: of `total` ranks `size` are in the bin, and `draws` belong to the chain. Beyond either bound lies `tail` at most."""
    k = torch.arange(max(0, draws + size - total), min(draws, size) + 1, dtype=torch.float64)

    def ways(n: float | Tensor, of: Tensor) -> Tensor:
        n = torch.as_tensor(n, dtype=torch.float64)
        return torch.lgamma(n + 1) - torch.lgamma(of + 1) - torch.lgamma(n - of + 1)

    mass = torch.softmax(ways(size, k) + ways(total - size, draws - k), 0)
    below = mass.cumsum(0)  # P(K <= k)
    above = mass.flip(0).cumsum(0).flip(0)  # P(K >= k)
    low = k[below > tail][0]  # P(K < low) <= tail
    high = k[above > tail][-1]
    return float(low), float(high)


def even(chains: int, draws: int, most: int) -> tuple[int, int]:
    """(draws, bins), so that bins are equal: not many fewer than `most`, and as few draws as can be left out."""
    lost = {n: draws % (n // math.gcd(n, chains)) for n in range(most, max(1, 2 * most // 3 - 1), -1)}
    n = min(lost, key=lambda n: lost[n])  # the first of them is the largest
    return draws - lost[n], n
