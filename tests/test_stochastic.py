"""Samplers on minibatches have the law of their own recursion: gradient noise, preconditioner and temperature included.

On a regression with known noise and a Normal prior a step is affine in what it starts from, given its batch:
    z → A z + c + N(0, Q),     z = u for SGLD and (u, v) for SGHMC,     A = 1 - h G Λ and so on (`given`).
Five rows in batches of two: an epoch is one of 30 ways to lay the rows into batches of 1, 2 and 2. So the law after an epoch and a step
is a mixture of 150 Gaussians with equal weights, and all of it is computed; batches of an epoch are a partition, hence dependent, and
that is in it. Chains start in the Gaussian that has the stationary mean and covariance of whole epochs. What they reach goes through the
mixture's distribution function to normal scores, whose mean, variance and law are exact nulls (tests/chance.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise, permutations, product
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from chance import assert_gaussian_variance, assert_law, assert_mean
from scipy import linalg, special, stats
from targets import DOUBLE, linear
from torch import Tensor

from nescio.data.source import source
from nescio.infer import SGHMC, SGLD, RMSprop
from nescio.infer.method import Run, Start
from nescio.laws import Normal
from nescio.likelihoods import Gaussian
from nescio.noise import Noise
from nescio.posterior.posterior import Ends
from nescio.target import Target

N = 40_000
ROWS, BATCH, SD, SCALE = 5, 2, 1.0, 1.5
EPS, SQUARES = 0.2, (0.09, 0.64)  # of the preconditioner, whose memory is frozen: G = 1 / (eps + √squares) = (2, 1)
Stochastic = SGLD | SGHMC
Rows = tuple[int, ...]


class Affine(NamedTuple):
    """z → a z + c + N(0, q)."""

    a: np.ndarray
    c: np.ndarray
    q: np.ndarray

    def then(self, after: Affine) -> Affine:
        a, c, q = after
        return Affine(a @ self.a, a @ self.c + c, a @ self.q @ a.T + q)


class Problem(NamedTuple):
    """Rows y = x u + N(0, SD²), a Normal prior and a temperature."""

    x: np.ndarray
    y: np.ndarray
    temperature: float = 1.0

    @property
    def dim(self) -> int:
        return self.x.shape[1]

    def target(self) -> Target:
        model = linear(self.dim, Normal(0, SCALE), Gaussian(SD))
        return Target(model, source((torch.as_tensor(self.x), torch.as_tensor(self.y)[:, None])), self.temperature)

    def gradient(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Λ, β of β - Λ u, the gradient by these rows."""
        x, y, weight = self.x[list(rows)], self.y[list(rows)], ROWS / len(rows) / SD**2
        return (weight * x.T @ x + np.eye(self.dim) / SCALE**2) / self.temperature, weight * x.T @ y / self.temperature

    def given(self, sampler: Stochastic, rows: Rows) -> Affine:
        """A step on these rows."""
        slope, offset = self.gradient(rows)
        scale = np.ones(self.dim) if sampler.precondition is None else 1 / (EPS + np.sqrt(SQUARES))
        h, one, g = sampler.size(0.0), np.eye(self.dim), np.diag(scale)
        if isinstance(sampler, SGLD):
            return Affine(one - h * g @ slope, h * g @ offset, 2 * h * g)
        keep, push, kick = (1 - sampler.friction) * one, h * g @ slope, h * g @ offset
        noise = 2 * sampler.friction * h * np.block([[g, g], [g, g]])
        return Affine(np.block([[one - push, keep], [-push, keep]]), np.concatenate([kick, kick]), noise)

    def maps(self, sampler: Stochastic, ways: Iterable[tuple[Rows, ...]]) -> list[Affine]:
        """What these batches, one after the other, come to; one map for each of the ways."""
        made = []
        for way in ways:
            first, *more = (self.given(sampler, rows) for rows in way)
            for step in more:
                first = first.then(step)
            made.append(first)
        return made


def regression(temperature: float = 1.0) -> Problem:
    """Two weights, and residuals of six times the noise: batches disagree."""
    rng = np.random.default_rng(7)
    return Problem(rng.normal(size=(ROWS, 2)), 6 * rng.normal(size=ROWS), temperature)


# ---- the exact law -------------------------------------------------------------------------------------------------------


def epochs(batch: int, length: int | None = None) -> list[tuple[Rows, ...]]:
    """The ways to lay all rows into batches, equally probable; or what the first few of them may be."""
    count = -(-ROWS // batch)
    ends = [i * ROWS // count for i in range(count + 1)]
    parts = [slice(a, b) for a, b in pairwise(ends)]
    laid = [tuple(tuple(sorted(order[part])) for part in parts) for order in permutations(range(ROWS))]
    return sorted({way[:length] for way in laid})


def moments(each: Sequence[Affine], mean: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of what one of these maps, drawn by lot, makes of z."""
    means = np.stack([m.a @ mean + m.c for m in each])
    within = np.mean([m.a @ covariance @ m.a.T + m.q for m in each], 0)
    return means.mean(0), within + np.cov(means.T, ddof=0)


def stationary(each: Sequence[Affine]) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the covariance that these maps, drawn by lot again and again, keep: a linear equation for each."""
    dim = len(each[0].c)
    mean = np.linalg.solve(np.eye(dim) - np.mean([m.a for m in each], 0), np.mean([m.c for m in each], 0))
    still = moments(each, mean, np.zeros((dim, dim)))[1]  # S = E[A S Aᵀ] + this
    lyapunov = np.eye(dim * dim) - np.mean([np.kron(m.a, m.a) for m in each], 0)
    return mean, np.linalg.solve(lyapunov, still.ravel()).reshape(dim, dim)


def assert_mixture(u: Tensor, each: Sequence[Affine], mean: np.ndarray, covariance: np.ndarray) -> None:
    """u (chains, dim) is what one of these maps, drawn by lot, makes of z ~ N(mean, covariance)."""
    dim = u.shape[1]
    for direction in [*np.eye(dim), *([np.array([0.8, -0.6])] if dim == 2 else [])]:
        x, along, below = u.numpy() @ direction, np.pad(direction, (0, len(mean) - dim)), np.zeros(len(u))
        for m in each:
            sd = math.sqrt(along @ (m.a @ covariance @ m.a.T + m.q) @ along)
            below += special.ndtr((x - along @ (m.a @ mean + m.c)) / sd)
        scores = stats.norm.ppf(below / len(each))
        assert_mean(scores, 0.0, 1.0)
        assert_gaussian_variance(scores, 0.0, 1.0)
        assert_law(scores, stats.norm.cdf)


# ---- batches as the driver lays them -------------------------------------------------------------------------------------


def started(sampler: Stochastic, target: Target, z: np.ndarray, noise: Noise) -> Any:
    """A first State with velocities, and with the preconditioner's memory, set by hand."""
    u, v = (torch.as_tensor(part) for part in (z[:, : target.dim], z[:, target.dim :]))
    state = TRUE[type(sampler)](sampler, target, Ends(u, {}), noise)
    state = state._replace(squares=torch.tensor(SQUARES, dtype=DOUBLE)[: target.dim].expand(len(z), -1))
    return state._replace(v=v) if isinstance(sampler, SGHMC) else state


TRUE = {kind: kind.init for kind in (SGLD, SGHMC)}


def check_law(sampler: Stochastic, temperature: float = 1.0, n: int = N) -> None:
    """From the stationary moments of whole epochs, one epoch and one step on."""
    problem = regression(temperature)
    target, whole = problem.target(), problem.maps(sampler, epochs(BATCH))
    mean, covariance = stationary(whole)
    for kept, want in zip(moments(whole, mean, covariance), (mean, covariance), strict=True):
        np.testing.assert_allclose(kept, want, rtol=1e-9, atol=1e-12)
    one_more = problem.maps(sampler, epochs(BATCH, 1))
    quiet = stationary(problem.maps(sampler, [(tuple(range(ROWS)),)]))[1]
    assert moments(one_more, mean, covariance)[1][1, 1] > 1.2 * quiet[1, 1], "gradient noise that would not be missed"
    each = [first.then(second) for first, second in product(whole, one_more)]
    z = np.random.default_rng(12).multivariate_normal(mean, covariance, n, method="cholesky")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(sampler), "init", lambda self, target, ends, noise: started(self, target, z, noise))
        start = Start(n, Ends(torch.as_tensor(z[:, : problem.dim]), {}))
        posterior = sampler.run(target, start, Run(target.model.noise(11, "stochastic"), None))
    assert sampler.steps(3) == 4
    assert_mixture(posterior.ends().theta, each, mean, covariance)


FROZEN = RMSprop(decay=math.nextafter(1.0, 0.0), eps=EPS)  # to the last bit


def sgld(h: float = 0.05, precondition: RMSprop | None = None) -> SGLD:
    return SGLD(draws=1, warmup=3, batch_size=BATCH, step_size=h, precondition=precondition)


def sghmc(h: float = 0.05, precondition: RMSprop | None = None) -> SGHMC:
    return SGHMC(draws=1, warmup=3, batch_size=BATCH, step_size=h, friction=0.5, precondition=precondition)


@pytest.mark.parametrize("precondition", [None, FROZEN], ids=["plain", "preconditioned"])
@pytest.mark.parametrize("sampler", [sgld, sghmc])
def test_minibatches_have_the_law_of_their_recursion(sampler: type[Stochastic], precondition: RMSprop | None) -> None:
    check_law(sampler(0.05, precondition))


@pytest.mark.parametrize("temperature", [0.25, 2.0])
@pytest.mark.parametrize("sampler", [sgld, sghmc])
def test_so_they_have_at_a_temperature(sampler: type[Stochastic], temperature: float) -> None:
    check_law(sampler(0.05 * temperature), temperature)


# ---- batches drawn afresh: the formulas ------------------------------------------------------------------------------------


def check_formula(sampler: Stochastic, n: int = N) -> None:
    """The mean of some numbers: every batch has the same slope λ, and the gradient's noise the variance of a mean of B from N.

    V = N² (1 - B/N) S² / (B SD⁴),     SGLD: s² (1 + hV/2) / (1 - h/2s²), s² = 1/λ,     SGHMC: S = A S Aᵀ + Q + h² V 1 1ᵀ
    """
    problem = Problem(np.ones((ROWS, 1)), regression().y)
    h, pairs = sampler.size(0.0), sorted({way[1:2] for way in epochs(BATCH)})  # the second of an epoch has two rows
    each = problem.maps(sampler, pairs)
    mean, covariance = stationary(each)
    noise = ROWS**2 * (1 - BATCH / ROWS) * problem.y.var(ddof=1) / BATCH / SD**4
    a, _, q = each[0]
    precise = float(problem.gradient(tuple(range(ROWS)))[0][0, 0])
    np.testing.assert_allclose(covariance, linalg.solve_discrete_lyapunov(a, q + h**2 * noise), rtol=1e-9)
    if isinstance(sampler, SGLD):
        assert covariance[0, 0] == pytest.approx((1 + h * noise / 2) / (1 - h * precise / 2) / precise, rel=1e-9)
    target, keys = problem.target(), problem.target().model.noise(13, "formula")
    z = np.random.default_rng(14).multivariate_normal(mean, covariance, n, method="cholesky")
    state = started(sampler, target, z, keys)
    for step in range(2):
        rows = keys.at("epoch", step).permutations(n, ROWS)[:, :BATCH]
        state, _ = sampler.step(target, state, target.batch(rows), keys.at("step", step))
    assert_mixture(state.u, [first.then(second) for first, second in product(each, each)], mean, covariance)


@pytest.mark.parametrize("sampler", [sgld, sghmc])
def test_gradient_noise_widens_the_law_by_the_formula(sampler: type[Stochastic]) -> None:
    check_formula(sampler())
