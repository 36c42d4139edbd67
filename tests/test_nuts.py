"""NUTS: against a recursive tree, exact from exact draws, from a cold start, and its own claims one by one.

Statistics have the false-alarm rate of chance.py; tests/faults_nuts.py shows what each check is able to see.
"""

from __future__ import annotations

from pathlib import Path

import faults_nuts as checks
import numpy as np
import pytest
import torch
from chance import assert_gaussian_variance, assert_law, assert_mean, likely, within
from check_method import check_method
from scipy import stats
from targets import DOUBLE, conjugate, correlated_gaussian, grid, grid_log_joint, truth_linear

from nescio import InputError, fit
from nescio.infer import MAP, nuts
from nescio.infer.adapt import Dense, Diagonal
from nescio.infer.nuts import NUTS
from nescio.infer.tree import LEAVES
from nescio.posterior import Draws


def test_contract() -> None:
    check_method(NUTS(draws=3, warmup=5, max_depth=3))


def test_same_as_recursion() -> None:
    checks.check_reference()


def test_same_where_nothing_is_written_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """The move that a GPU has: every tensor anew."""
    known, ones = correlated_gaussian(3), torch.ones(3, dtype=DOUBLE)
    monkeypatch.setattr(nuts, "leaf", nuts.leaf_anew)
    checks.compare(known.target(), known.exact_draws(9, np.random.default_rng(0)), 0.3, Diagonal(ones), np.eye(3), 6)


def test_more_coins_are_a_new_tensor() -> None:
    """What a GPU has recorded copies an argument anew only if it is another tensor."""
    counts, fates = torch.tensor([[0, 64], [0, 3]]), torch.zeros(2, 2, 6 + LEAVES, dtype=DOUBLE)
    here = [counts, torch.tensor([False, True]), *[torch.empty(0)] * 4, fates]
    new = nuts.tossed(here, ~here[1], torch.tensor([4, 1]), 5, [checks.NOISE])
    assert not bool(fates.any()) and not bool(new[1].any()) and not bool(new[0, 1].any())
    assert torch.equal(new[0, 0, 5:-1], checks.NOISE.at("leaf", 1).uniform(5, LEAVES)[4])


def test_chains_keep_their_fixed_weights() -> None:
    checks.check_fixed_rest()


def test_ends_where_the_orbit_turns() -> None:
    checks.check_depth()


def test_max_depth() -> None:
    checks.check_max_depth()


def test_turning_by_hand() -> None:
    checks.check_turned()


def test_divergence() -> None:
    checks.check_divergence()


def test_a_chain_does_not_see_its_neighbours() -> None:
    """Two chains that end early beside one that goes on: the same as beside one that ends at once, for the same noise."""
    known = correlated_gaussian(2)
    theta = known.exact_draws(3, np.random.default_rng(0))
    method = NUTS(step_size=0.05, warmup=0)
    state, (info,) = checks.run(known.target(), theta, method, times=1)
    moved = theta.clone()
    moved[2] = 1e4  # so far out that it takes all 1023 leaves
    other, (beside,) = checks.run(known.target(), moved, method, times=1)
    assert info.depth[2] != beside.depth[2], "the third chain was meant to differ"
    torch.testing.assert_close(state.u[:2], other.u[:2], rtol=1e-9, atol=1e-12)
    assert torch.equal(info.leapfrogs[:2], beside.leapfrogs[:2])


# ---- exact from exact draws ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0.3, 0.6, 0.9])
def test_gaussian_is_left_alone(size: float) -> None:
    checks.check_gaussian(size)


@pytest.mark.parametrize("size", [0.3, 0.8, 1.5])
def test_skewed_is_left_alone(size: float) -> None:
    checks.check_skewed(size)


@pytest.mark.parametrize("size", [0.05, 0.08, 0.13])
def test_conjugate_is_left_alone(size: float) -> None:
    known = conjugate()
    checks.invariant(known, checks.whiten(known), size, 20_000)


def test_metrics_leave_it_alone() -> None:
    """Whatever the inverse mass, right or wrong."""
    known = correlated_gaussian(3)
    wrong = torch.tensor([[2.0, -0.5, 0.3], [-0.5, 1.0, 0.2], [0.3, 0.2, 9.0]], dtype=DOUBLE)
    for metric in (Dense(wrong), Dense(torch.as_tensor(known.covariance)), Diagonal(wrong.diagonal())):
        checks.invariant(known, checks.whiten(known), 0.7, 20_000, metric)


def test_reference_posterior_is_left_alone(truth: Path) -> None:
    """Regression with an unknown noise scale: a constrained latent, so a Jacobian. Gaussian given σ, nearly so with it."""
    known = truth_linear(truth / "linear" / "sblrc-blr")
    n, target = 20_000, known.target()
    theta, again = (known.exact_draws(n, np.random.default_rng(seed)) for seed in (0, 1))
    metric = Diagonal(target.u(again).var(0))
    state, (info,) = checks.run(target, theta, NUTS(step_size=0.3, warmup=0), metric, times=1)
    after = target.theta(state.u).numpy()
    assert float((state.u - target.u(theta)).abs().div(metric.root).mean()) > 0.1
    sd = np.sqrt(np.diag(known.covariance))
    assert_mean(after, known.mean, sd)
    for got, want in zip(after.T, again.numpy().T, strict=True):
        likely(stats.ks_2samp(got, want, method="asymp").pvalue, "law")


# ---- from a cold start ---------------------------------------------------------------------------------------------------


def test_cold_start_on_regression() -> None:
    """1000 chains from the prior, one draw each: means by z, sums of squares by chi-square."""
    known = conjugate()
    posterior = fit(known.model, known.data, 1000 * NUTS(draws=1, warmup=60))
    assert isinstance(posterior, Draws)
    theta = posterior.theta[:, 0].numpy()
    assert_mean(theta, known.mean, np.sqrt(np.diag(known.covariance)))
    assert_gaussian_variance(checks.whiten(known)(theta), 0.0, 1.0)
    assert posterior.info["divergences"] == 0 and posterior.info["at_max_depth"] == 0


def test_cold_start_on_a_net() -> None:
    """The net of two weights against its grid, by DKW."""
    known = grid()
    posterior = fit(known.model, known.data, 1000 * NUTS(draws=1, warmup=60))
    assert isinstance(posterior, Draws)
    axis = np.linspace(-7, 9, 1201)
    x, y = (t.numpy()[:, 0] for t in known.data)
    density = np.exp(grid_log_joint(axis[None, :], axis[:, None], x, y))  # (b, a)
    for column, marginal in zip(posterior.theta[:, 0].numpy().T, (density.sum(1), density.sum(0)), strict=True):
        below = (np.cumsum(marginal) - 0.5 * marginal) / marginal.sum()
        assert_law(column, lambda v, below=below: np.interp(v, axis, below))


@pytest.mark.parametrize("dense", [False, True])
def test_adaptation(dense: bool) -> None:
    """The acceptance comes to its goal, by z over 256 chains with 0.03 of slack; the metric to the covariance."""
    known, method = correlated_gaussian(3, 0.8 if dense else 0.0), NUTS(draws=20, warmup=300, dense=dense)
    target = known.target()
    theta = known.exact_draws(256, np.random.default_rng(4)) + 5
    state, infos = checks.run(target, theta, method, times=320)
    accept = torch.stack([i.acceptance for i in infos[300:]]).mean(0).numpy()
    within(max(abs(accept.mean() - 0.8) - 0.03, 0) / (accept.std() / 16))
    metric = state.metric
    if isinstance(metric, Dense):
        got, want = metric.covariance.numpy(), known.covariance
    else:
        assert isinstance(metric, Diagonal)
        got, want = metric.variance.numpy(), np.diag(known.covariance)
    # 6.1 sds of the worst entry, so a rate of 1e-9, if a chain's 120 steps in the last window are worth 23 independent draws
    np.testing.assert_allclose(got, want, rtol=0.15)
    assert len({i.step_size for i in infos[300:]}) == 1, "the step size moves after the warm-up"


# ---- the rest ------------------------------------------------------------------------------------------------------------


def test_goes_on_from_other_methods_and_on_parts() -> None:
    known = conjugate()
    method = 3 * MAP(epochs=5) >> NUTS(draws=4, warmup=4).on("weight")
    posterior = fit(known.model, known.data, method)
    assert isinstance(posterior, Draws) and posterior.theta.shape == (3, 4, 3)


def test_says_what_it_did() -> None:
    known = conjugate()
    info = fit(known.model, known.data, 2 * NUTS(draws=5, warmup=0, step_size=1e-4, max_depth=2)).info
    assert info["at_max_depth"] == 10 and info["depth"] == 2 and info["gradients"] == 15 and info["acceptance"] > 0.9


@pytest.mark.parametrize("wrong", [{"step_size": 0.0}, {"acceptance": 1.0}, {"max_depth": 0}, {"draws": 0}])
def test_refuses(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        NUTS(**wrong)  # type: ignore[arg-type]
