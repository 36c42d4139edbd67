"""R-hat and effective sample size of chains as they stand: Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), Geyer (1992).

Here x is (quantities, chains, draws) in float64 and finite; what is done to the draws before (splitting, ranks, folding) is in
`columns.py`. Quantities in which no chain moves give NaN.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def split(x: Tensor) -> Tensor:
    """The first and the last half of each chain as two chains; the middle draw of an odd number is left out."""
    half = x.shape[-1] // 2
    return torch.cat([x[..., :half], x[..., x.shape[-1] - half :]], dim=-2)


def moves(x: Tensor) -> Tensor:
    """Which chains take more than one value: (quantities, chains). Exact, where a variance would be left with rounding."""
    return x.amax(-1) > x.amin(-1)


def rhat(x: Tensor) -> Tensor:
    """sqrt((n-1)/n + var(chain means) / mean(chain variances))."""
    n = x.shape[-1]
    if x.shape[-2] < 2:
        return x.new_full(x.shape[:1], math.nan)
    value = ((n - 1) / n + x.mean(-1).var(-1) / x.var(-1).mean(-1)).sqrt()
    return torch.where(moves(x).any(-1), value, math.nan)


def ess(x: Tensor) -> Tensor:
    """Number of independent draws whose mean would be as exact: S / tau with tau from Geyer's initial monotone sequence."""
    rho = correlations(x)  # (quantities, lags)
    draws = x.shape[-2] * x.shape[-1]
    # the last pair that is looked at is never kept; the lags after it are averages of two or three products
    pairs = rho[:, : 2 * max((x.shape[-1] - 1) // 2, 1)].unflatten(-1, (-1, 2)).sum(-1)
    kept = initial_positive(pairs)
    total = torch.where(kept, monotone(pairs), 0.0).sum(-1)
    first_dropped = rho.gather(-1, 2 * kept.sum(-1, keepdim=True)).squeeze(-1)  # its even lag
    tau = -1 + 2 * total + first_dropped.clamp(min=0)
    value = draws / tau.clamp(min=least_tau(draws))
    return torch.where(moves(x).any(-1), value, math.nan)


def least_tau(draws: int) -> float:
    """Antithetic chains may beat independent draws, but not without bound."""
    return 1 / math.log10(draws)


def correlations(x: Tensor) -> Tensor:
    """rho_t = 1 - (W - a_t) / V: chains that disagree in their means are correlated at every lag."""
    n = x.shape[-1]
    a = autocovariance(x)
    within = a[:, :1] * n / (n - 1)
    total = a[:, :1] + between(x)
    rho = 1 - (within - a) / total
    rho[:, 0] = 1.0
    return rho


def between(x: Tensor) -> Tensor:
    """Variance of the chain means; one chain alone has none."""
    means = x.mean(-1)
    return means.var(-1, keepdim=True) if x.shape[-2] > 1 else torch.zeros_like(means)


def autocovariance(x: Tensor) -> Tensor:
    """Divisor n at every lag, averaged over chains: (quantities, draws). One inverse transform serves all chains."""
    n = x.shape[-1]
    padded = smooth(2 * n)
    spectrum = torch.fft.rfft(x - x.mean(-1, keepdim=True), n=padded)
    power = (spectrum.real.square() + spectrum.imag.square()).mean(-2)
    return torch.fft.irfft(power, n=padded)[:, :n] / n


def smooth(least: int) -> int:
    """The least 2^i 3^j 5^k that is not below: lengths at which the transform is fast."""
    best = 1 << (least - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            rest = -(-least // three)
            best = min(best, three << (rest - 1).bit_length())
            three *= 3
        five *= 5
    return best


def initial_positive(pairs: Tensor) -> Tensor:
    """The pairs before the first one that is not positive."""
    kept = (pairs > 0).cumprod(-1).bool()
    kept[:, -1] = False
    return kept


def monotone(pairs: Tensor) -> Tensor:
    return pairs.cummin(-1).values
