"""The expensive tier (`make nightly`): fresh seeds, ten million draws, exact coverage. The seed is printed; a failing one becomes a test.

False alarms: at most 1e-6 a night (tests/chance.py). `NESCIO_SEED=...` repeats a night.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from chance import assert_law, assert_probability
from targets import conjugate
from test_laws import LAWS, MIXTURES, weights

pytestmark = pytest.mark.nightly

SEED = int(os.environ.get("NESCIO_SEED", "0")) or int.from_bytes(os.urandom(4), "big")
TENFOLD = 10_000_000


@pytest.fixture(scope="module", autouse=True)
def _say() -> None:
    print(f"NESCIO_SEED={SEED}")


@pytest.mark.parametrize("name", LAWS)
def test_ten_million_draws_of_each_law(name: str) -> None:
    law, truth = LAWS[name]
    assert_law(weights(law, TENFOLD, SEED), truth.cdf)


@pytest.mark.parametrize("name", MIXTURES)
def test_ten_million_draws_of_each_mixture(name: str) -> None:
    law, truth = MIXTURES[name]
    assert_law(weights(law, TENFOLD, SEED), truth.cdf)


def test_intervals_of_the_exact_posterior_cover_as_they_say() -> None:
    """One fresh prediction for each of 400 data sets and 100 points of truth each, drawn from the model itself: exact binomial.

    θ from the prior, data from θ, the exact posterior as 4000 draws, one new y: inside its 90% interval with probability 0.9,
    up to the Monte-Carlo error of the interval's ends, which moves the probability by less than 0.002 (checked by the limits).
    """
    inside = 0
    for i in range(400):
        known = conjugate(n=20, features=3, noise=0.5, scale=1.0, seed=(SEED + i) % 2**31)
        rng = np.random.default_rng(SEED + i)
        x, _ = known.data
        mean, covariance = known.mean, known.covariance
        truth = rng.multivariate_normal(mean, covariance)  # given the data, θ has this law
        fresh = torch.as_tensor(rng.standard_normal((1, x.shape[1])))
        outcome = float(fresh.numpy()[0] @ truth + 0.5 * rng.standard_normal())
        low, high = known.posterior(4000, rng).predict(fresh.to(x), draws=None).interval(0.9)
        inside += bool(low <= outcome <= high)
    assert_probability(inside, 400, 0.9)
