"""Samplers at a temperature T target p(θ|D)^(1/T): exact draws of that law in, one transition, exact draws out.

A regression, whose covariance is T times as large and whose mean stays; three logs of exponentials, of which each becomes the log of
T X with X ~ Gamma(1/T); and weights under a random scale, whose latents bring a Jacobian. ULA has a law of its own; the laws of SGLD and
SGHMC at a temperature are in tests/test_stochastic.py.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from chance import assert_gaussian_variance, assert_law, assert_mean
from scipy import linalg, stats
from targets import DOUBLE, Known, LogNormal, conjugate, correlated_gaussian, plain, skewed
from torch import Tensor

from nescio import fit
from nescio.infer import HMC, MALA, NUTS, ULA, AdjustedMCLMC, Metropolis
from nescio.infer.sampler import Sampler
from nescio.laws import Normal
from nescio.posterior.posterior import Ends

N = 20_000
TEMPERATURES = (0.25, 2.0)
KERNELS: dict[str, Sampler] = {  # steps in units of the narrowest direction: coarse, so that the accept step has work
    "HMC": HMC(draws=1, warmup=0, leapfrog=4, step_size=0.9),
    "NUTS": NUTS(draws=1, warmup=0, step_size=0.9, max_depth=5),
    "MALA": MALA(draws=1, warmup=0, step_size=0.9),
    "AdjustedMCLMC": AdjustedMCLMC(draws=1, warmup=0, step_size=2.0 * math.sqrt(3), length=4.0 * math.sqrt(3)),
    "Metropolis": Metropolis(draws=1, warmup=0, scale=1.5),
}


def scaled(sampler: Sampler, unit: float) -> Sampler:
    names = {"step_size", "length", "scale"} & set(vars(sampler))
    return replace(sampler, **{name: unit * getattr(sampler, name) for name in names})


def moved(sampler: Sampler, known: Known, before: Tensor, temperature: float) -> Tensor:
    """After one transition."""
    target, noise = known.target(temperature), known.model.noise(5, "tempered")
    state = sampler.init(target, Ends(before, {}), noise.at("init"))
    state, _ = sampler.step(target, state, target.batch(None), noise.at("step"))
    after = target.theta(sampler.point(state)[0])
    assert float((after - before).abs().mean()) > 0.01 * float(before.std()), "nothing moved"
    return after


def assert_white(x: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> None:
    """n draws of N(mean, covariance)."""
    white = linalg.solve_triangular(linalg.cholesky(covariance, lower=True), (x - mean).T, lower=True).T
    assert_mean(white, 0.0, 1.0)
    assert_gaussian_variance(white, 0.0, 1.0)
    for column in white.T:
        assert_law(column, stats.norm.cdf)


def check_gaussian(name: str, temperature: float) -> None:
    known, rng = conjugate(), np.random.default_rng(6)
    mean, covariance = np.asarray(known.mean), temperature * np.asarray(known.covariance)
    before = torch.as_tensor(rng.multivariate_normal(mean, covariance, N, method="cholesky"))
    sampler = scaled(KERNELS[name], math.sqrt(np.linalg.eigvalsh(covariance)[0]))
    assert_white(moved(sampler, known, before, temperature).numpy(), mean, covariance)


def check_skewed(name: str, temperature: float) -> None:
    law = stats.gamma(1 / temperature, scale=temperature)  # of e^w
    before = torch.as_tensor(np.log(law.rvs((N, 3), random_state=np.random.default_rng(7))))
    for column in moved(scaled(KERNELS[name], math.sqrt(temperature)), skewed(3), before, temperature).numpy().T:
        assert_law(column, lambda x: law.cdf(np.exp(x)))


def check_scale(name: str, temperature: float) -> None:
    """s = e^v, v ~ N(0, τ²), and two weights w ~ N(0, s²). The density is that of s and w: what turns it into one of v is not tempered.

    p(s)^(1/T) p(w | s)^(1/T):     w | s ~ N(0, T s²),     v ~ N(τ² (T - 1) (1 + 2), T τ²).
    """
    spread, rng = 0.5, np.random.default_rng(8)
    known = Known(*plain(2, Normal(0, LogNormal(0.0, spread).per("net"))), np.zeros(3), np.eye(3))
    centre = np.array([3 * spread**2 * (temperature - 1), 0.0, 0.0])
    covariance = temperature * np.diag([spread**2, 1.0, 1.0])

    def values(z: np.ndarray) -> np.ndarray:
        """(s, w) of (v, w / s)."""
        return np.column_stack([np.exp(z[:, 0]), np.exp(z[:, :1]) * z[:, 1:]])

    before = torch.as_tensor(values(rng.multivariate_normal(centre, covariance, N, method="cholesky")))
    after = moved(scaled(KERNELS[name], spread * math.sqrt(temperature)), known, before, temperature).numpy()
    assert_white(np.column_stack([np.log(after[:, 0]), after[:, 1:] / after[:, :1]]), centre, covariance)


def check_invariant(name: str, temperature: float) -> None:
    check_gaussian(name, temperature)
    check_skewed(name, temperature)
    check_scale(name, temperature)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("name", KERNELS)
def test_a_tempered_law_is_left_alone(name: str, temperature: float) -> None:
    check_invariant(name, temperature)


def check_langevin(temperature: float) -> None:
    """ULA on N(0, 1): from its own stationary variance T / (1 - h / 2T), five steps."""
    h, known = 0.3 * temperature, correlated_gaussian(1)
    variance = temperature / (1 - h / (2 * temperature))
    sampler, target, noise = ULA(draws=1, warmup=0, step_size=h), known.target(temperature), known.model.noise(7)
    start = torch.as_tensor(math.sqrt(variance) * np.random.default_rng(8).standard_normal((N, 1)), dtype=DOUBLE)
    state = sampler.init(target, Ends(start, {}), noise)
    for step in range(5):
        state, _ = sampler.step(target, state, target.batch(None), noise.at("step", step))
    assert_gaussian_variance(state.u, 0.0, variance)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_unadjusted_langevin_at_a_temperature(temperature: float) -> None:
    check_langevin(temperature)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_cold_start_at_a_temperature(temperature: float) -> None:
    """By `fit`, from the prior, with a warm-up: one draw of each of 1000 chains."""
    known = conjugate()
    posterior = fit(known.model, known.data, 1000 * HMC(draws=1, warmup=150, leapfrog=10), temperature=temperature)
    assert_white(posterior.ends().theta.numpy(), np.asarray(known.mean), temperature * np.asarray(known.covariance))
