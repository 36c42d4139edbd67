"""Statistical assertions with a declared false-alarm rate.

The whole suite may raise a false alarm with probability at most ALPHA = 1e-6 per run with fresh seeds. It makes at most M = 10 000 scalar
comparisons, so each has ALPHA / M: |z| <= 6.47. In CI seeds are fixed, so a test that passes once always passes; the rates say
what a *new* seed would do. Null laws are exact where one is known (Gaussian mean, chi-square, binomial, DKW), else the normal
approximation of a mean with n large enough for its skewness. `power(n)` is the fault that is seen almost surely.

What is asserted here is counted, an array by its elements, and under planted faults, too; the end of a run says how many there were
(tally.py).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

ALPHA = 1e-6
M = 10_000
Z = float(stats.norm.isf(ALPHA / M / 2))  # 6.47

made: list[int] = []  # comparisons, by assertion; tally.py takes them


def power(n: int) -> float:
    """A shift of the mean of n draws, in standard deviations, that is missed with probability at most 1e-6."""
    return (Z + float(stats.norm.isf(1e-6))) / math.sqrt(n)


def counted(numbers: object) -> np.ndarray:
    x = np.asarray(numbers, dtype=np.float64)
    made.append(x.size)
    return x


def within(z: object, what: str = "statistic") -> None:
    """Every |z| is finite and at most Z."""
    x = np.abs(counted(z))
    assert np.all(np.isfinite(x)), f"{what} is not finite"
    where = np.unravel_index(x.argmax(), x.shape)
    assert x.max() <= Z, f"{what} off by |z| = {x.max():.2f} > {Z:.2f} at {[int(i) for i in where]}"


def between(value: object, law: Any, what: str = "statistic") -> None:
    """Every value lies between the two tails of a law of scipy that are ALPHA / M together."""
    x, tail = counted(value), ALPHA / M / 2
    low, high = law.isf(1 - tail), law.isf(tail)
    assert x.min() >= low, f"{what} too small: {x.min():.6g} < {low:.6g}"
    assert x.max() <= high, f"{what} too large: {x.max():.6g} > {high:.6g}"


def likely(p: object, what: str = "p-value") -> None:
    """Every p-value is above ALPHA / M: for what has one side, or a test of scipy's."""
    x = counted(p)
    assert x.min() > ALPHA / M, f"{what} off: p = {x.min():.2g} at {x.argmin()}"


def assert_mean(draws: object, mean: object, sd: object = None) -> None:
    """n independent draws (first axis) have this mean; sd known, or estimated from them."""
    x = np.asarray(draws, dtype=np.float64)
    spread = np.std(x, axis=0, ddof=1) if sd is None else np.asarray(sd, dtype=np.float64)
    within((x.mean(0) - np.asarray(mean)) / (spread / math.sqrt(len(x))), "mean")


def assert_gaussian_variance(draws: object, mean: object, variance: object) -> None:
    """The sum of squares about a known mean is variance * chi-square(n), exactly, for Gaussian draws."""
    x = np.asarray(draws, dtype=np.float64)
    ratio = ((x - np.asarray(mean)) ** 2).mean(0) / np.asarray(variance)
    between(ratio, stats.chi2(len(x), scale=1 / len(x)), "variance ratio")


def assert_law(draws: object, cdf: object) -> None:
    """Dvoretzky-Kiefer-Wolfowitz: sup |F_n - F| <= sqrt(ln(2 M / alpha) / 2n). One-dimensional draws; cdf: array -> array."""
    x = np.sort(np.asarray(draws, dtype=np.float64))
    n = len(x)
    f = np.asarray(cdf(x))  # type: ignore[operator]
    gap = counted(max(np.max(np.arange(1, n + 1) / n - f), np.max(f - np.arange(n) / n)))
    limit = math.sqrt(math.log(2 * M / ALPHA) / (2 * n))
    assert gap <= limit, f"distribution off by {gap:.5f} > {limit:.5f}"


def assert_probability(hits: int, n: int, p: float) -> None:
    """Exact binomial."""
    between(hits, stats.binom(n, p), f"hits of {n} for p = {p}")
