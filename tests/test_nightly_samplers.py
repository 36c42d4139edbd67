"""Samplers on data that they have never seen: Geweke's joint test and simulation-based calibration, every chain with data of its own.

Model: y = w·x + σ ε with w ~ N(0, I₂), σ ~ HalfNormal(1), six rows. θ is drawn from its prior and y from θ, so
- Geweke (2004): sweeps of [θ by one transition given y; y anew given θ] leave the joint law as it is: θ keeps its prior (DKW);
- SBC (Talts et al., 2018): the rank of θ among draws of its posterior is uniform (chi-square on 20 bins, and normal scores).
Both see what invariance on one data set cannot: a likelihood or a prior weighed wrongly. Nightly, with a fresh printed seed; a false alarm
once in 1e9 comparisons (tests/chance.py). Each is shown to fail on a planted fault.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from chance import ALPHA, M, assert_gaussian_variance, assert_law, assert_mean
from scipy import stats
from test_nightly import SEED
from torch import Tensor, nn

from nescio import Model
from nescio.batch import Batch
from nescio.data.source import source
from nescio.infer import HMC, MALA, NUTS, AdjustedMCLMC, Metropolis
from nescio.infer.sampler import Sampler
from nescio.laws import HalfNormal, Normal
from nescio.likelihoods import Gaussian
from nescio.posterior.posterior import Ends
from nescio.target import Target

pytestmark = pytest.mark.nightly

ROWS = 6
SAMPLERS = {
    "HMC": HMC(draws=1, warmup=0, leapfrog=4, step_size=0.2),
    "MALA": MALA(draws=1, warmup=0, step_size=0.3),
    "Metropolis": Metropolis(draws=1, warmup=0, scale=0.3),
    "NUTS": NUTS(draws=1, warmup=0, step_size=0.3, max_depth=4),
    "AdjustedMCLMC": AdjustedMCLMC(draws=1, warmup=0, step_size=0.3, length=1.2),
}


def model() -> tuple[Model, Tensor]:
    x = torch.linspace(-1, 1, ROWS, dtype=torch.float64)
    inputs = torch.stack([torch.ones_like(x), x], 1)
    return Model(nn.Linear(2, 1, bias=False).double(), Normal(0.0, 1.0), Gaussian(HalfNormal(1.0))), inputs


def from_prior(chains: int, rng: np.random.Generator) -> Tensor:
    """(chains, 3): two weights and σ, in the order of the flat vector."""
    return torch.as_tensor(np.concatenate([rng.standard_normal((chains, 2)), abs(rng.standard_normal((chains, 1)))], 1))


def observed(theta: Tensor, inputs: Tensor, rng: np.random.Generator, wrong_weight: float = 1.0) -> Batch:
    """New data for each chain, and all of them: weight 1."""
    noise = torch.as_tensor(rng.standard_normal((len(theta), ROWS, 1)))
    y = (theta[:, :2] @ inputs.mT)[:, :, None] + theta[:, 2, None, None] * noise
    return Batch(inputs.expand(len(theta), ROWS, 2), y, wrong_weight, own=True)


def bound() -> tuple[Target, Tensor]:
    net, inputs = model()
    return Target(net, source((inputs, torch.zeros(ROWS, 1, dtype=torch.float64)))), inputs


def check_geweke(name: str, chains: int = 10_000, sweeps: int = 40, wrong_weight: float = 1.0) -> None:
    rng = np.random.default_rng(SEED)
    target, inputs = bound()
    theta = from_prior(chains, rng)
    for sweep in range(sweeps):
        batch = observed(theta, inputs, rng, wrong_weight)
        theta = one_step(SAMPLERS[name], target, theta, batch, sweep)
    values = theta.numpy()
    for column in values[:, :2].T:
        assert_law(column, stats.norm.cdf)
    assert_law(values[:, 2], stats.halfnorm.cdf)


def one_step(sampler: Sampler, target: Target, theta: Tensor, batch: Batch, key: int) -> Tensor:
    """One transition; the state is made by hand, because `init` would evaluate shared data."""
    noise = target.model.noise(SEED, "sweep", key)
    state = sampler.init(target, Ends(theta, {}), noise.at("init"))
    u = target.u(theta)
    if hasattr(state, "gradient"):
        value, gradient = target.value_and_grad(u, batch)
        state = state._replace(u=u, log_density=value, gradient=gradient)
    else:
        state = state._replace(u=u, log_density=target.log_density(u, batch).detach())
    state, _ = sampler.step(target, state, batch, noise.at("step"))
    return target.theta(sampler.point(state)[0])


@pytest.mark.parametrize("name", SAMPLERS)
def test_geweke(name: str) -> None:
    check_geweke(name)


def test_geweke_sees_a_likelihood_counted_too_little() -> None:
    with pytest.raises(AssertionError):
        check_geweke("HMC", wrong_weight=0.7)


def check_sbc(name: str, simulations: int = 4000, draws: int = 99, thin: int = 4, wrong_weight: float = 1.0) -> None:
    """Ranks of θ among draws of its posterior, exact however slowly the chain mixes (Besag & Clifford, 1989).

    θ is an exact draw given y. Put it at a random place k of a stationary, reversible chain: k draws before it, the others behind,
    both made by running the kernel from θ. Rejected steps repeat values, so ties are broken by lot.
    """
    rng = np.random.default_rng(SEED + 1)
    target, inputs = bound()
    truth = from_prior(simulations, rng)
    batch = observed(truth, inputs, rng, wrong_weight)
    place = torch.as_tensor(rng.integers(0, draws + 1, (simulations, 1)))
    less, equal = torch.zeros(simulations, 3), torch.zeros(simulations, 3)
    for side, wanted in enumerate((place, draws - place)):
        theta = truth
        for draw in range(draws):
            for k in range(thin):
                theta = one_step(SAMPLERS[name], target, theta, batch, (1 + side) * 100_000 + draw * thin + k)
            counts = draw < wanted
            same = torch.isclose(theta, truth, rtol=1e-12, atol=0.0)  # exp(log σ) may be off by a bit
            less += (theta < truth) & ~same & counts
            equal += same & counts
    ranks = less.numpy() + np.floor(rng.random((simulations, 3)) * (equal.numpy() + 1))
    for column in ranks.T:
        counts = np.histogram(column, bins=20, range=(-0.5, draws + 0.5))[0]
        assert stats.chisquare(counts).pvalue > ALPHA / M
        scores = stats.norm.ppf((column + rng.random(simulations)) / (draws + 1))
        assert_mean(scores, 0.0, 1.0)
        assert_gaussian_variance(scores, 0.0, 1.0)


@pytest.mark.parametrize("name", SAMPLERS)
def test_simulation_based_calibration(name: str) -> None:
    check_sbc(name)


def test_calibration_sees_a_likelihood_counted_too_much() -> None:
    with pytest.raises(AssertionError):
        check_sbc("HMC", simulations=4000, wrong_weight=2.0)
