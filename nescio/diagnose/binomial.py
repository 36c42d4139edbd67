"""Bounds on a rate from counts, exact: Clopper & Pearson (1934)."""

from __future__ import annotations

import math

import torch


def clopper_pearson(hits: int, n: int, tail: float) -> float:
    """The probability p at which `hits` or fewer of n have probability `tail`: an upper bound that holds with 1 - tail."""
    low, high = hits / n, 1.0
    for _ in range(60 if hits < n else 0):
        p = (low + high) / 2
        low, high = (p, high) if at_most(hits, n, p) > tail else (low, p)
    return high


def at_most(hits: int, n: int, p: float) -> float:
    """The probability of so many hits, or fewer, in n trials."""
    if hits >= n:
        return 1.0
    k = torch.arange(hits + 1, dtype=torch.float64)
    ways = math.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
    return float((ways + k * math.log(p) + (n - k) * math.log1p(-p)).logsumexp(0).exp()) if p < 1 else 0.0
