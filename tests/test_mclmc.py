"""Microcanonical samplers: the integrator against its equations, the adjusted kernel against exact draws, the other's bias, the tuners.

Independent chains started at exact draws, so no effective sample size enters a tolerance (tests/chance.py); cold starts are judged by a
t-test over chains.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from chance import Z, assert_gaussian_variance, assert_law, assert_mean, between, within
from check_method import check_method, regression
from scipy import linalg, stats
from scipy.integrate import solve_ivp
from targets import DOUBLE, Known, conjugate, correlated_gaussian, linear, plain, skewed
from torch import Tensor

from nescio import InputError, UnsupportedError, fit
from nescio.infer import MAP
from nescio.infer.adjusted import AdjustedMCLMC, jittered
from nescio.infer.isokinetic import Plan, Point, Tuning, correlation_time, kick, normalise, path, refresh
from nescio.infer.mclmc import MCLMC
from nescio.infer.microcanonical import Info, State
from nescio.infer.sampler import Sampler
from nescio.laws import Normal
from nescio.likelihoods import Gaussian
from nescio.posterior import Draws
from nescio.posterior.posterior import Ends
from nescio.store.state import flatten

N = 40_000
SETTINGS = {
    "short": (0.7, 1),
    "middle": (0.7, 3),
    "coarse": (2.0, 3),
}  # step over √d times the narrowest sd; mean count


def walk(sampler: Sampler, known: Known, start: Tensor, steps: int, seed: int = 0) -> tuple[State, list[Info]]:
    """The state after so many steps from these values, and all infos."""
    target, noise = known.target(), known.model.noise(seed, "walk")
    state, infos = sampler.init(target, Ends(start, {}), noise.at("init")), []
    for step in range(steps):
        state, info = sampler.step(target, state, target.batch(None), noise.at("step", step))
        infos.append(info)
    return state, infos


def integrate(
    known: Known, x: Tensor, v: Tensor, size: float, count: int, root: Tensor | None = None
) -> tuple[Point, Tensor]:
    target = known.target()
    start = Point(x, v, *target.value_and_grad(x, target.batch(None)))
    return path(target, target.batch(None), torch.ones_like(x[0]) if root is None else root, start, size, count)


def some(dim: int, chains: int = 1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Positions and directions."""
    rng = np.random.default_rng(seed)
    x, v = (torch.as_tensor(rng.normal(size=(chains, dim))) for _ in range(2))
    return 0.5 * x, normalise(v)


# ---- the integrator --------------------------------------------------------------------------------------------------


def check_unit_norm() -> None:
    """After forty steps, after a refresh, and in single precision after one kick; steep gradients included."""
    x, v = some(5, 100)
    end, _ = integrate(correlated_gaussian(5), x, v, 0.3, 40)
    forgot = refresh(v, x, torch.tensor(0.3), torch.tensor(1.0))
    for turned in (end.v, forgot):
        assert float((turned.square().sum(1) - 1).abs().max()) < 1e-12, "|v| is not 1"
    for scale in (1e-6, 1.0, 1e6):
        turned, change = kick(v.float(), (scale * x).float(), 0.1)
        assert float((turned.square().sum(1) - 1).abs().max()) < 1e-6 and bool(change.isfinite().all())


def check_reversible() -> None:
    """Flip, go, flip, go is the identity, and the energy error changes its sign."""
    known = skewed(4)
    x, v = some(4, 20)
    there, error = integrate(known, x, v, 0.4, 6)
    back, other = integrate(known, there.x, -there.v, 0.4, 6)
    assert float((back.x - x).abs().max()) < 1e-10 and float((back.v + v).abs().max()) < 1e-10
    assert float((error + other).abs().max()) < 1e-9 and float(error.abs().max()) > 0.01


def written_out(x: np.ndarray, v: np.ndarray, precision: np.ndarray, size: float) -> tuple[np.ndarray, np.ndarray]:
    """One step on N(0, precision⁻¹) by hyperbolic functions, with McLachlan's number in closed form."""
    root = np.cbrt(2 * math.sqrt(326) + 36)
    b = 0.5 - root / 12 + 1 / (6 * root)

    def turn(v: np.ndarray, time: float) -> np.ndarray:
        g = -precision @ x
        norm = np.linalg.norm(g)
        delta, a = time * norm / (len(x) - 1), v @ g / norm
        return (v + g / norm * (np.sinh(delta) + a * (np.cosh(delta) - 1))) / (np.cosh(delta) + a * np.sinh(delta))

    v = turn(v, b * size)
    x = x + size / 2 * v
    v = turn(v, (1 - 2 * b) * size)
    x = x + size / 2 * v
    return x, turn(v, b * size)


def check_step() -> None:
    known = correlated_gaussian(4)
    x, v = some(4)
    end, _ = integrate(known, x, v, 0.7, 1)
    position, direction = written_out(x[0].numpy(), v[0].numpy(), np.linalg.inv(known.covariance), 0.7)
    np.testing.assert_allclose(end.x[0], position, atol=1e-12)
    np.testing.assert_allclose(end.v[0], direction, atol=1e-12)


def check_equations() -> None:
    """Paths converge to those of dx = v, dv = (1 - v vᵀ) ∇log p / (d - 1), here that of the log of exponentials, at second order."""
    x, v = some(3)

    def field(_: float, z: np.ndarray) -> np.ndarray:
        g = 1 - np.exp(z[:3])
        return np.concatenate([z[3:], (g - z[3:] * (z[3:] @ g)) / 2])

    exact = solve_ivp(field, (0, 2), np.concatenate([x[0], v[0]]), rtol=1e-12, atol=1e-12).y[:, -1]
    gaps, errors = [], []
    for count in (40, 80):
        end, error = integrate(skewed(3), x, v, 2 / count, count)
        gaps.append(np.abs(torch.cat([end.x[0], end.v[0]]).numpy() - exact).max())
        errors.append(abs(float(error)))
    assert gaps[1] < 1e-3
    for a, b in (gaps, errors):
        assert abs(math.log2(a / b) - 2) < 0.02, f"order {math.log2(a / b)}"


def check_volume() -> None:
    """The energy error is that of the density: ΔE = -Δlog p - log |det J|, J by central differences on R³ x S², preconditioned."""
    known, size, count, h = skewed(3), 0.8, 2, 1e-5
    root = torch.tensor([0.7, 1.0, 1.6], dtype=DOUBLE)
    x, v = some(3)
    frame = tangents(v[0])
    end, error = integrate(known, x, v, size, count, root)
    out = tangents(end.v[0])
    columns = []
    for i in range(5):
        ends = []
        for sign in (1, -1):
            step = torch.zeros(5, dtype=DOUBLE).index_fill_(0, torch.tensor(i), sign * h)
            moved, _ = integrate(known, x + root * step[:3], normalise(v + frame @ step[3:]), size, count, root)
            ends.append(torch.cat([moved.x[0] / root, out.mT @ moved.v[0]]))
        columns.append((ends[0] - ends[1]) / (2 * h))
    volume = torch.linalg.slogdet(torch.stack(columns, 1)).logabsdet
    target = known.target()
    before, after = (target.log_density(z, target.batch(None)) for z in (x, end.x))
    assert abs(float(error + (after - before) + volume)) < 1e-7
    assert abs(float(volume)) > 0.1, "a case that shows nothing"


def tangents(v: Tensor) -> Tensor:
    """An orthonormal frame of the directions at right angles to v, (dim, dim - 1)."""
    return torch.as_tensor(linalg.null_space(v[None].numpy()))


def check_decoherence() -> None:
    """On a flat density the correlation of directions is e^(-t/L): a law of large dimensions, to 1 / d, and 6 sd are 0.006."""
    model, data = plain(500, Normal(0.0, 1e6))
    known = Known(model, data, np.zeros(500), np.eye(500))
    sampler = MCLMC(draws=1, warmup=0, step_size=0.3, length=1.0)
    start = torch.zeros(2000, 500, dtype=DOUBLE)
    first, _ = walk(sampler, known, start, 0)
    last, _ = walk(sampler, known, start, 4)
    kept = float((first.direction * last.direction).sum(1).mean())
    assert abs(kept - math.exp(-1.2)) < 0.01, f"{kept} instead of {math.exp(-1.2)}"


CHECKS = [check_unit_norm, check_reversible, check_step, check_equations, check_volume, check_decoherence]


@pytest.mark.parametrize("check", CHECKS)
def test_integrator(check: Callable[[], None]) -> None:
    check()


def test_energy_change_of_a_kick_is_the_log_volume_by_autograd() -> None:
    _, v = some(3)
    gradient, frame = torch.tensor([[0.4, -1.1, 0.8]], dtype=DOUBLE), tangents(v[0])
    turned, change = kick(v, gradient, 0.9)
    out = tangents(turned[0])
    jacobian = torch.func.jacrev(lambda s: out.mT @ kick(normalise(v + frame @ s), gradient, 0.9)[0][0])(
        torch.zeros(2, dtype=DOUBLE)
    )
    assert float(change + torch.linalg.slogdet(jacobian).logabsdet) == pytest.approx(0, abs=1e-12)
    assert abs(float(change)) > 0.1


def test_a_dense_preconditioner_is_a_change_of_coordinates() -> None:
    """Preconditioned paths on N(0, Σ) are plain paths on N(0, I)."""
    known, plain_one = correlated_gaussian(4), correlated_gaussian(4, 0.0)
    unit = torch.diag(torch.as_tensor(1 / np.sqrt(np.diag(plain_one.covariance))))
    root = torch.linalg.cholesky(torch.as_tensor(known.covariance))
    y, v = some(4, 3)
    end, error = integrate(known, y @ root.mT, v, 0.5, 3, root)
    want, other = integrate(plain_one, y / unit.diagonal(), v, 0.5, 3, 1 / unit.diagonal())
    torch.testing.assert_close(end.x, want.x * unit.diagonal() @ root.mT)
    torch.testing.assert_close(end.v, want.v)
    torch.testing.assert_close(error, other)


# ---- the adjusted kernel is exact ------------------------------------------------------------------------------------


def check_invariant(
    setting: str, known: Known, law: Callable[[np.ndarray], np.ndarray] | None = None, n: int = N
) -> None:
    """Exact draws in, two transitions, exact draws out."""
    size, count = SETTINGS[setting]
    sd = np.sqrt(np.diag(known.covariance))
    size *= math.sqrt(len(sd)) * float(sd.min())
    before = known.exact_draws(n, np.random.default_rng(0))
    sampler = AdjustedMCLMC(draws=1, warmup=0, step_size=size, length=count * size)
    state, infos = walk(sampler, known, before, 2)
    after = known.target().theta(state.u)
    assert float((after - before).abs().mean()) > 0.01 * float(before.std()), "nothing moved"
    assert_mean(after, known.mean, sd)
    if law is None:
        white = linalg.solve_triangular(
            linalg.cholesky(known.covariance, lower=True), (after.numpy() - known.mean).T, lower=True
        ).T
        assert_gaussian_variance(white, 0.0, 1.0)
        for column in white.T:
            assert_law(column, stats.norm.cdf)
    else:
        assert_law(after[:, 0], law)
    assert setting != "coarse" or float(infos[0].acceptance.mean()) < 0.95, "the accept rule has nothing to do"


def log_exponential(x: np.ndarray) -> np.ndarray:
    """The law of log X for X ~ Exp(1)."""
    return -np.expm1(-np.exp(x))


def check_invariant_gaussian() -> None:
    check_invariant("coarse", correlated_gaussian(5))


def check_invariant_skewed() -> None:
    check_invariant("coarse", skewed(3), log_exponential)


@pytest.mark.parametrize("setting", SETTINGS)
def test_invariance(setting: str) -> None:
    check_invariant(setting, correlated_gaussian(5))
    check_invariant(setting, skewed(3), log_exponential)
    check_invariant(setting, conjugate())


def check_energy_identity() -> None:
    """Reversible, and volume counted: E[1{ΔE<0} - 1{ΔE>0} e^-ΔE] = 0, bounded, for the number that the rule used."""
    known = skewed(3)
    x = known.exact_draws(N, np.random.default_rng(1))
    for size, count in ((1.0, 1), (1.0, 3), (2.0, 3)):
        _, error = integrate(known, x, some(3, N)[1], size, count)
        assert_mean(torch.where(error < 0, 1.0, -(-error).exp())[:, None], 0.0)


def test_energy_identity() -> None:
    check_energy_identity()


def test_a_rejected_step_repeats_the_state() -> None:
    known = skewed(3)
    start = known.exact_draws(1000, np.random.default_rng(0))
    state, infos = walk(AdjustedMCLMC(draws=1, warmup=0, step_size=4.0, length=8.0), known, start, 1)
    stayed = (state.u == known.target().u(start)).all(1)
    assert 0.02 < float(stayed.double().mean()) < 0.98
    value, gradient = known.target().value_and_grad(state.u, known.target().batch(None))
    torch.testing.assert_close((state.log_density, state.gradient), (value, gradient))
    assert float(infos[0].acceptance.mean()) < 0.98


# ---- the bias of the unadjusted one ----------------------------------------------------------------------------------


def bias(size: float, n: int) -> tuple[float, float]:
    """(relative bias of the variance, energy variance) on N(0, I) in ten dimensions after forty steps from exact draws."""
    known = correlated_gaussian(10, 0.0)
    root = torch.as_tensor(np.sqrt(np.diag(known.covariance)))
    start = known.exact_draws(n, np.random.default_rng(0))
    sampler, target, noise = (
        MCLMC(draws=1, warmup=0, step_size=size, length=4.0),
        known.target(),
        known.model.noise(0, "bias"),
    )
    state = sampler.init(target, Ends(start, {}), noise)
    state = state._replace(tuning=state.tuning._replace(root=root))
    info = None
    for step in range(40):
        state, info = sampler.step(target, state, target.batch(None), noise.at(step))
    assert info is not None
    return float((state.u / root).square().mean()) - 1, float(info.energy_error.square().mean()) / 10


def test_the_bias_falls_with_the_step() -> None:
    """The bias is of order ε², the energy variance of order ε⁶: halving ε leaves at most a quarter, up to Z sd of the estimate."""
    n = 10_000
    (coarse, wild), (fine, tame) = bias(6.0, n), bias(3.0, n)
    sd = math.sqrt(2 / (10 * n))
    assert coarse < -Z * sd, "no bias to be seen"
    within(max(abs(fine) - abs(coarse) / 4, 0) / sd)
    assert abs(math.log2(wild / tame) - 6) < 0.6
    assert tame < 5e-4
    within(max(abs(fine) - 0.02, 0) / sd)  # at the default's energy variance a variance is right to 2%


# ---- the tuners ------------------------------------------------------------------------------------------------------


def check_tuned_energy() -> None:
    """After the warm-up E ΔE² / d is what was asked for, up to the noise of a memory of 50 steps; it starts a thousand times off."""
    for goal, precondition in ((5e-4, False), (2e-2, True)):
        known = correlated_gaussian(10, 0.5)
        start = torch.zeros(32, 10, dtype=DOUBLE)
        sampler = MCLMC(draws=100, warmup=300, energy_variance=goal, precondition=precondition, step_size=1e-3)
        state, infos = walk(sampler, known, start, 400)
        kept = sampler.summary(infos[300:])
        assert 0.5 < kept["energy_variance"] / goal < 2, kept
        assert len({(i.step_size, i.length) for i in infos[300:]}) == 1, "it still adapts"
        assert bool((state.tuning.root == 1).all()) is not precondition


def check_tuned_path() -> None:
    """After the warm-up the acceptance is 0.9, a path is as long as was tuned for, and longer than one step on a narrow target."""
    known = correlated_gaussian(4, 0.9)
    sampler = AdjustedMCLMC(draws=80, warmup=150)
    _, infos = walk(sampler, known, torch.zeros(64, 4, dtype=DOUBLE), 230)
    kept = infos[150:]
    acceptance = torch.stack([i.acceptance for i in kept]).mean(0)  # (chains,)
    assert abs(float(acceptance.mean()) - 0.9) < 0.03, acceptance.mean()
    assert len({(i.step_size, i.length) for i in kept}) == 1, "it still adapts"
    assert_mean([[i.leapfrogs / 2 * i.step_size] for i in kept], kept[0].length)
    assert kept[0].length > 2 * kept[0].step_size, "paths have collapsed to one step"


@pytest.mark.parametrize("check", [check_tuned_energy, check_tuned_path])
def test_tuner(check: Callable[[], None]) -> None:
    check()


def check_jitter() -> None:
    for mean in (1.0, 1.2, 1.5, 2.0, 3.7, 16.0):
        counts = [jittered(mean, (i + 0.5) / 100_000) for i in range(100_000)]
        assert np.mean(counts) == pytest.approx(mean, abs=1e-3) and min(counts) == 1


def test_number_of_steps_has_its_mean() -> None:
    check_jitter()


def test_correlation_time_of_an_autoregression() -> None:
    """x' = φ x + noise has 1 + 2 Σ ρ = (1 + φ) / (1 - φ), whatever its scale; still coordinates are passed over."""
    rng, phi = np.random.default_rng(0), 0.8
    x = np.zeros((16, 4000, 3))
    for t in range(1, 4000):
        x[:, t] = phi * x[:, t - 1] + np.array([1.0, 100.0, 0.0]) * rng.normal(size=(16, 3))
    assert correlation_time(torch.as_tensor(x)) == pytest.approx(9.0, rel=0.1)
    assert correlation_time(torch.zeros(2, 50, 3)) == 1.0


def test_spread_is_within_chains() -> None:
    """Modes far apart do not count: each chain is taken about its own mean, diagonal or dense."""
    x = torch.as_tensor(np.random.default_rng(0).normal(size=(50, 4, 3)) * [1.0, 2.0, 3.0])
    x = x + torch.tensor([0.0, 1e3, -1e3, 1e4], dtype=DOUBLE)[:, None]
    within = sum(np.cov(x[:, c].numpy().T) for c in range(4)) / 4
    for dense in (False, True):
        tuning = Tuning.start(x[0], None, dense, 100)
        for some in x.split([1, 8, 8, 20, 13]):  # as many steps at a time as it likes
            tuning = tuning.add(some.movedim(0, 1))
        want = torch.as_tensor(within if dense else np.diag(within).copy())
        torch.testing.assert_close(tuning.scatter, want * 4 * 49, rtol=1e-9, atol=1e-6)
        closed = tuning.close(1.0, precondition=True, fixed=False)
        got = closed.root @ closed.root.mT if dense else closed.root.square()
        torch.testing.assert_close(got, want * 196 / 201, rtol=1e-3, atol=1e-3)
        assert closed.length == math.sqrt(3) and closed.count == 0


def test_plan_and_trace_cover_wide_nets() -> None:
    """The trace takes at most 256 of 369 coordinates; a fixed length takes none."""
    u = torch.arange(2 * 369, dtype=DOUBLE).reshape(2, 369)
    first, last = Plan.of(200).trace
    assert (first, last) == (160, 180) and Plan.of(200).ends[1] < first and last < 200
    tuning = Tuning.start(u, None, False, 200)
    tuning.write(torch.stack([u, 2 * u], 1), 3)
    assert tuning.trace.shape == (2, 20, 256) and len(set(tuning.trace[1, 3].tolist())) == 256
    assert torch.equal(tuning.trace[:, 4], 2 * tuning.trace[:, 3]) and not bool(tuning.trace[:, 5:].any())
    assert Tuning.start(u, 2.0, False, 200).trace.numel() == 0


# ---- the guard -------------------------------------------------------------------------------------------------------


def check_guard() -> None:
    """A step size of ten thousand leaves the numbers at once: the chain stays, is counted, and the step size falls until it works."""
    known = skewed(3)
    start = known.exact_draws(16, np.random.default_rng(0))
    sampler = MCLMC(draws=1, warmup=300, step_size=1e4)
    first, infos = walk(sampler, known, start, 1)
    failed = infos[0].divergent
    assert bool(failed.any()) and bool(first.u.isfinite().all()), "not a number"
    assert torch.equal(first.u[failed], known.target().u(start)[failed]), "a failed step moved"
    assert bool(infos[0].energy_error.isfinite().all())
    assert first.step_size.now < 1e4, "the step size did not fall"
    last, infos = walk(sampler, known, start, 300)
    assert last.step_size.now < 10 and not bool(infos[-1].divergent.any())
    assert bool(last.u.isfinite().all()) and float((last.u - start).abs().min()) > 0


def test_guard() -> None:
    check_guard()


def test_after_the_warm_up_the_guard_holds_and_nothing_adapts() -> None:
    known = skewed(3)
    start = known.exact_draws(16, np.random.default_rng(0))
    state, infos = walk(MCLMC(draws=1, warmup=0, step_size=1e4), known, start, 5)
    assert bool(state.u.isfinite().all()) and bool(infos[-1].divergent.any()) and state.step_size.now == 1e4


def test_a_chain_outside_the_support_does_not_shrink_the_steps_of_the_others() -> None:
    known = skewed(3)
    start = known.exact_draws(4, np.random.default_rng(0))
    start[0] = 1000.0  # e^1000: density zero
    state, infos = walk(MCLMC(draws=1, warmup=200), known, start, 200)
    assert infos[-1].divergent.tolist() == [True, False, False, False] and state.step_size.now > 0.1


# ---- from a cold start -----------------------------------------------------------------------------------------------


def check_cold_start() -> None:
    """Adjusted: means and variances of 64 chains by Student's t."""
    known, chains = conjugate(), 64
    posterior = fit(known.model, known.data, chains * AdjustedMCLMC(draws=150, warmup=200))
    assert isinstance(posterior, Draws)
    assert_moments(posterior, known)


def assert_moments(posterior: Draws, known: Known) -> None:
    x = (posterior.theta.numpy() - known.mean) / np.sqrt(np.diag(known.covariance))  # (chains, draws, dim)
    for statistic, want in ((x, 0.0), (x**2, 1.0)):
        means = statistic.mean(1)
        t = (means.mean(0) - want) / (means.std(0, ddof=1) / math.sqrt(len(x)))
        between(t, stats.t(len(x) - 1))


def test_cold_start_adjusted() -> None:
    check_cold_start()


def test_cold_start_dense() -> None:
    """A narrow target, condition number 1500: with a full preconditioner paths are short, and the moments exact."""
    known = correlated_gaussian(5, 0.98)
    posterior = fit(known.model, known.data, 64 * AdjustedMCLMC(draws=150, warmup=300, dense=True))
    assert isinstance(posterior, Draws)
    assert_moments(posterior, known)
    assert posterior.info["gradients"] < 12 * 150


def check_narrow() -> None:
    """Posterior sds of 1e-4 to 1e-3: no scale is assumed, so a path crosses the target in a few steps, as where sds are one."""
    rng, scales = np.random.default_rng(3), np.array([10.0, 3.0, 1.0])
    x = rng.normal(size=(50, 3)) * scales
    net = linear(3, Normal(0, 1), Gaussian(0.01))
    y = x @ (0.5 / scales) + 0.01 * rng.normal(size=50)
    precision = x.T @ x / 0.01**2 + np.eye(3)
    data = (torch.as_tensor(x), torch.as_tensor(y)[:, None])
    known = Known(net, data, np.linalg.solve(precision, x.T @ y / 0.01**2), np.linalg.inv(precision))
    for dense in (False, True):
        posterior = fit(known.model, known.data, 64 * AdjustedMCLMC(draws=100, warmup=600, dense=dense))
        assert isinstance(posterior, Draws)
        assert_moments(posterior, known)
        assert posterior.info["gradients"] <= 2 * 2 * 100, (
            "a path takes more than two steps, though the target is round"
        )


def test_cold_start_of_a_narrow_posterior() -> None:
    check_narrow()


def test_an_energy_goal_that_was_missed_is_told() -> None:
    """Too short a warm-up for steps of a hundred times the size that suits."""
    known = correlated_gaussian(5, 0.98)
    for sampler, missed in ((MCLMC(draws=50, warmup=0, step_size=1.0), True), (MCLMC(draws=50, warmup=300), False)):
        posterior = fit(known.model, known.data, 4 * (MAP(epochs=5) >> sampler))
        told = [said for said in posterior.info["mixing"]["problems"] if "energy variance" in said]
        assert len(told) == missed and "problems" not in posterior.info
        assert (posterior.info["energy_variance"] > 10 * sampler.energy_variance) == missed


@pytest.mark.parametrize("precondition", [False, True])
def test_cold_start_unadjusted(precondition: bool) -> None:
    """At its default: standard deviations within 3% and means within 0.05 of one, of which 0.01 is Monte Carlo error."""
    known = conjugate()
    posterior = fit(known.model, known.data, 64 * MCLMC(draws=300, warmup=300, precondition=precondition))
    assert isinstance(posterior, Draws)
    x = posterior.theta.flatten(0, 1).numpy()
    sd = np.sqrt(np.diag(known.covariance))
    assert np.abs(x.std(0) / sd - 1).max() < 0.03
    assert np.abs((x.mean(0) - known.mean) / sd).max() < 0.05


# ---- as methods ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [MCLMC(draws=3, warmup=4), AdjustedMCLMC(draws=3, warmup=4, most_steps=4)], ids=repr)
def test_contract(method: Sampler) -> None:
    check_method(method)


def test_an_ensemble_of_chains_after_an_optimiser() -> None:
    model, data, _ = regression()
    posterior = fit(model, data, 2 * (MAP(epochs=2) >> MCLMC(draws=5, warmup=40, thin=2, energy_variance=0.1)))
    assert isinstance(posterior, Draws) and posterior.theta.shape == (2, 5, model.dim)
    assert bool(posterior.theta.isfinite().all()) and posterior.info["gradients"] == 2 * 10


@pytest.mark.parametrize("sampler", [MCLMC(draws=1), AdjustedMCLMC(draws=1)], ids=repr)
def test_one_dimension_is_refused(sampler: Sampler) -> None:
    known = conjugate(features=1)
    with pytest.raises(UnsupportedError, match="two dimensions.*one latent.*use HMC"):
        fit(known.model, known.data, sampler)


@pytest.mark.parametrize("sampler", [MCLMC(draws=1), AdjustedMCLMC(draws=1)], ids=repr)
def test_states_are_plain(sampler: Sampler) -> None:
    """They can be stored and taken up again."""
    state, _ = walk(sampler, conjugate(), torch.zeros(2, 3, dtype=DOUBLE), 1)
    tensors, _ = flatten(state)
    assert any(name.endswith("direction") for name in tensors)


def test_numbers_are_checked() -> None:
    for wrong in (
        lambda: MCLMC(step_size=0.0),
        lambda: MCLMC(energy_variance=-1.0),
        lambda: MCLMC(length=0.0),
        lambda: AdjustedMCLMC(acceptance=1.0),
        lambda: AdjustedMCLMC(most_steps=0),
        lambda: replace(AdjustedMCLMC(), draws=0),
    ):
        with pytest.raises(InputError):
            wrong()
