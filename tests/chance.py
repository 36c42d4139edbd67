"""Statistical assertions with a declared false-alarm rate.

The whole suite may raise a false alarm with probability at most ALPHA = 1e-6 per run with fresh seeds. It makes at most M = 1000 scalar
comparisons, so each has ALPHA / M: |z| <= 6.11. In CI seeds are fixed, so a test that passes once always passes; the rates say
what a *new* seed would do. Null laws are exact where one is known (Gaussian mean, chi-square, binomial, DKW), else the normal
approximation of a mean with n large enough for its skewness. `power(n)` is the fault that is seen almost surely.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

ALPHA = 1e-6
M = 1000
Z = float(stats.norm.isf(ALPHA / M / 2))  # 6.11


def power(n: int) -> float:
    """A shift of the mean of n draws, in standard deviations, that is missed with probability at most 1e-6."""
    return (Z + float(stats.norm.isf(1e-6))) / math.sqrt(n)


def assert_mean(draws: object, mean: object, sd: object = None) -> None:
    """n independent draws (first axis) have this mean; sd known, or estimated from them."""
    x = np.asarray(draws, dtype=np.float64)
    spread = np.std(x, axis=0, ddof=1) if sd is None else np.asarray(sd, dtype=np.float64)
    z = (x.mean(0) - np.asarray(mean)) / (spread / math.sqrt(len(x)))
    assert np.all(np.isfinite(z)), "draws or sd are not finite"
    assert np.abs(z).max() <= Z, f"mean off by |z| = {np.abs(z).max():.2f} > {Z:.2f} at {np.abs(z).argmax()}"


def assert_gaussian_variance(draws: object, mean: object, variance: object) -> None:
    """The sum of squares about a known mean is variance * chi-square(n), exactly, for Gaussian draws."""
    x = np.asarray(draws, dtype=np.float64)
    ratio = ((x - np.asarray(mean)) ** 2).sum(0) / np.asarray(variance)
    tail = ALPHA / M / 2
    low, high = stats.chi2.isf(1 - tail, len(x)), stats.chi2.isf(tail, len(x))
    assert np.all((ratio >= low) & (ratio <= high)), (
        f"variance ratio {ratio / len(x)} outside [{low / len(x)}, {high / len(x)}]"
    )


def assert_law(draws: object, cdf: object) -> None:
    """Dvoretzky-Kiefer-Wolfowitz: sup |F_n - F| <= sqrt(ln(2 M / alpha) / 2n). One-dimensional draws; cdf: array -> array."""
    x = np.sort(np.asarray(draws, dtype=np.float64))
    n = len(x)
    f = np.asarray(cdf(x))  # type: ignore[operator]
    gap = max(np.max(np.arange(1, n + 1) / n - f), np.max(f - np.arange(n) / n))
    limit = math.sqrt(math.log(2 * M / ALPHA) / (2 * n))
    assert gap <= limit, f"distribution off by {gap:.5f} > {limit:.5f}"


def assert_probability(hits: int, n: int, p: float) -> None:
    """Exact binomial."""
    tail = ALPHA / M / 2
    low, high = stats.binom.isf(1 - tail, n, p), stats.binom.isf(tail, n, p)
    assert low <= hits <= high, f"{hits} of {n} outside [{low}, {high}] for p = {p}"
