"""What chance alone does to a counted part: exact bounds of the binomial law."""

from __future__ import annotations

import numpy as np
import torch


def binomial_band(n: int, p: np.ndarray, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Parts low <= k / n <= high such that k ~ Binomial(n, p) leaves either side with probability at most rate / 2."""
    k = torch.arange(n + 1, dtype=torch.float64)
    ways = torch.lgamma(torch.tensor(n + 1.0, dtype=torch.float64)) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
    low, high = np.empty(len(p)), np.empty(len(p))
    for i, each in enumerate(p):
        inside = torch.tensor(min(max(float(each), 1e-12), 1 - 1e-12), dtype=torch.float64)
        mass = torch.softmax(ways + k * inside.log() + (n - k) * torch.log1p(-inside), 0)
        low[i] = float(k[mass.cumsum(0) > rate / 2][0]) / n
        high[i] = float(k[mass.flip(0).cumsum(0).flip(0) > rate / 2][-1]) / n
    return low, high
