"""Samplers on data that they have never seen: Geweke's joint test and simulation-based calibration, every chain with data of its own.

Model: y = w·x + σ ε with w ~ N(0, I₂), σ ~ HalfNormal(1), six rows. θ is drawn from its prior and y from θ, so
- Geweke (2004): sweeps of [θ by one transition given y; y anew given θ] leave the joint law as it is: θ keeps its prior (DKW);
- SBC (Talts et al., 2018): the rank of θ among draws of its posterior is uniform (chi-square on 20 bins, and normal scores).
Both see what invariance on one data set cannot: a likelihood or a prior weighed wrongly. Nightly, with a fresh printed seed and the
false-alarm rate of chance.py. Each is shown to fail on a planted fault.

Samplers without an accept step have a bias, of known order, and get steps at which it is far below what the tests resolve. Curvature must
then be bounded, so log σ ~ N(0, 0.3²) in their model: -log p has on average a curvature of 1 + 6 E σ⁻² = 8 at most in w, and of
12 + 0.3⁻² = 23 in log σ. Relative to a variance s² = 1/λ of the posterior the bias is, to leading order,
- ULA and SGLD on all rows (one law): hλ/2, so 0.4% in w and 1.2% in log σ for h = 1e-3;
- SGHMC: hλ / 2(2 - a), so 0.2% and 0.7% for h = 1e-3, a = 0.2;
- MCLMC: of order ε²; below ε²λ / 4d, that of a leapfrog at its frequency 1 / s√d, so 0.3% and 0.7% for ε = 0.06, d = 3.
Geweke's test resolves 3% of the variance of w and 5% of that of log σ, to which all of this adds at most itself; calibration 14%.

What calibration needs is a way to run a chain backwards. ULA and SGLD satisfy detailed balance up to their bias: they are steps of a
reversible diffusion. SGHMC and MCLMC do not; but both are reversible with the velocity turned round, up to their bias again, so the chain
behind θ is made by the same kernel from the opposite velocity (`backwards`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from chance import assert_gaussian_variance, assert_law, assert_mean, likely
from scipy import stats
from targets import LogNormal
from test_nightly import SEED
from torch import Tensor, nn

from nescio import Model
from nescio.batch import Batch
from nescio.data.source import source
from nescio.infer import HMC, MALA, MCLMC, NUTS, SGHMC, SGLD, ULA, AdjustedMCLMC, Metropolis, isokinetic
from nescio.infer.sampler import Sampler
from nescio.laws import HalfNormal, Law, Normal
from nescio.likelihoods import Gaussian
from nescio.native.build import compiler
from nescio.noise import Noise
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


def model(law: Law = HalfNormal(1.0)) -> tuple[Model, Tensor]:
    x = torch.linspace(-1, 1, ROWS, dtype=torch.float64)
    inputs = torch.stack([torch.ones_like(x), x], 1)
    return Model(nn.Linear(2, 1, bias=False).double(), Normal(0.0, 1.0), Gaussian(law)), inputs


def from_prior(chains: int, rng: np.random.Generator) -> Tensor:
    """(chains, 3): two weights and σ, in the order of the flat vector."""
    return torch.as_tensor(np.concatenate([rng.standard_normal((chains, 2)), abs(rng.standard_normal((chains, 1)))], 1))


def observed(theta: Tensor, inputs: Tensor, rng: np.random.Generator, wrong_weight: float = 1.0) -> Batch:
    """New data for each chain, and all of them: weight 1."""
    noise = torch.as_tensor(rng.standard_normal((len(theta), ROWS, 1)))
    y = (theta[:, :2] @ inputs.mT)[:, :, None] + theta[:, 2, None, None] * noise
    return Batch(inputs.expand(len(theta), ROWS, 2), y, wrong_weight, own=True)


def bound(law: Law = HalfNormal(1.0)) -> tuple[Target, Tensor]:
    net, inputs = model(law)
    return Target(net, source((inputs, torch.zeros(ROWS, 1, dtype=torch.float64)))), inputs


def check_geweke(
    name: str, chains: int = 10_000, sweeps: int = 40, wrong_weight: float = 1.0, quick: bool = False
) -> None:
    rng = np.random.default_rng(SEED)
    target, inputs = bound()
    target = replace(target, code={}) if quick else target
    theta = from_prior(chains, rng)
    for sweep in range(sweeps):
        batch = observed(theta, inputs, rng, wrong_weight)
        theta = one_step(SAMPLERS[name], target, theta, batch, sweep)
    assert not quick or (target.code and not any(code.note for code in target.code.values())), "it was not compiled"
    values = theta.numpy()
    for column in values[:, :2].T:
        assert_law(column, stats.norm.cdf)
    assert_law(values[:, 2], stats.halfnorm.cdf)


def first(sampler: Sampler, target: Target, theta: Tensor, batch: Batch, noise: Noise) -> Any:
    """A State there; made by hand, because `init` would evaluate shared data."""
    state = sampler.init(target, Ends(theta, {}), noise)
    u = target.u(theta)
    value, gradient = target.value_and_grad(u, batch)
    found = {"u": u, "log_density": value, "gradient": gradient}
    return state._replace(**{name: x for name, x in found.items() if hasattr(state, name)})


def one_step(sampler: Sampler, target: Target, theta: Tensor, batch: Batch, key: int) -> Tensor:
    """One transition."""
    noise = target.model.noise(SEED, "sweep", key)
    state = first(sampler, target, theta, batch, noise.at("init"))
    state, _ = sampler.step(target, state, batch, noise.at("step"))
    return target.theta(sampler.point(state)[0])


@pytest.mark.parametrize("name", SAMPLERS)
def test_geweke(name: str) -> None:
    check_geweke(name)


@pytest.mark.skipif(compiler() is None, reason="no C compiler here")
@pytest.mark.parametrize("name", ["HMC", "NUTS", "AdjustedMCLMC"])
def test_geweke_in_code_of_our_own(name: str) -> None:
    check_geweke(name, quick=True)


@pytest.mark.skipif(compiler() is None, reason="no C compiler here")
def test_geweke_sees_a_likelihood_counted_too_little_in_code_of_our_own() -> None:
    with pytest.raises(AssertionError, match="off by"):
        check_geweke("HMC", wrong_weight=0.7, quick=True)


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
    assert_uniform(less.numpy() + np.floor(rng.random((simulations, 3)) * (equal.numpy() + 1)), draws, rng)


def assert_uniform(ranks: np.ndarray, draws: int, rng: np.random.Generator) -> None:
    """Each column on 0, ..., draws: by its counts, and by normal scores."""
    for column in ranks.T:
        counts = np.histogram(column, bins=20, range=(-0.5, draws + 0.5))[0]
        likely(stats.chisquare(counts).pvalue, "evenness")
        scores = stats.norm.ppf((column + rng.random(len(column))) / (draws + 1))
        assert_mean(scores, 0.0, 1.0)
        assert_gaussian_variance(scores, 0.0, 1.0)


@pytest.mark.parametrize("name", SAMPLERS)
def test_simulation_based_calibration(name: str) -> None:
    check_sbc(name)


def test_calibration_sees_a_likelihood_counted_too_much() -> None:
    with pytest.raises(AssertionError):
        check_sbc("HMC", simulations=4000, wrong_weight=2.0)


# ---- samplers without an accept step -------------------------------------------------------------------------------------

SPREAD = 0.3  # of log σ
BIASED: dict[
    str, tuple[Sampler, int, int]
] = {  # steps in a sweep, sweeps: four times as long as a prior takes to be forgotten
    "ULA": (ULA(draws=1, warmup=0, step_size=1e-3), 40, 100),
    "SGLD": (SGLD(draws=1, warmup=0, step_size=1e-3), 40, 100),
    "SGHMC": (SGHMC(draws=1, warmup=0, step_size=1e-3, friction=0.2), 20, 40),
    "MCLMC": (MCLMC(draws=1, warmup=0, step_size=0.06, length=0.6), 20, 40),
}


def tame(chains: int, rng: np.random.Generator) -> tuple[Target, Tensor, Tensor]:
    """A target, its inputs, and draws of its prior."""
    target, inputs = bound(LogNormal(0.0, SPREAD))
    z = rng.standard_normal((chains, 3))
    code: dict[Any, Any] | None = None if compiler() is None else {}  # faster
    return replace(target, code=code), inputs, torch.as_tensor(np.column_stack([z[:, :2], np.exp(SPREAD * z[:, 2])]))


def moving(sampler: Sampler, target: Target, theta: Tensor, batch: Batch, noise: Noise) -> Any:
    """A State there, its velocity from the law that it has beside θ.

    That of SGHMC leads to where a chain is: of a Gaussian S = A S Aᵀ + Q gives Var v = 2h / (2 - a) and Cov(u, v) = Var v / 2 to leading
    order, hence the gradient in it. A direction of MCLMC is uniform.
    """
    state = first(sampler, target, theta, batch, noise.at("init"))
    if not isinstance(sampler, SGHMC):
        return state
    each = sampler.size(0.0) / (2 - sampler.friction)
    _, gradient = target.value_and_grad(state.u, batch)
    return state._replace(v=math.sqrt(2 * each) * noise.at("velocity").normal(*gradient.shape) - each * gradient)


def backwards(sampler: Sampler, state: Any) -> Any:
    """The State from which the same kernel makes what came before; that of SGHMC has a step behind it, which is known."""
    if isinstance(sampler, SGHMC):
        return state._replace(u=state.u - state.v, v=-state.v)
    return state._replace(direction=-state.direction) if isinstance(sampler, MCLMC) else state


def check_joint(name: str, chains: int = 40_000) -> None:
    """Geweke's test of many small steps to a sweep; velocities are drawn anew with the data."""
    rng, (sampler, count, sweeps) = np.random.default_rng(SEED + 2), BIASED[name]
    target, inputs, theta = tame(chains, rng)
    for sweep in range(sweeps):
        batch, noise = observed(theta, inputs, rng), target.model.noise(SEED, "joint", sweep)
        state = moving(sampler, target, theta, batch, noise)
        for k in range(count):
            state, _ = sampler.step(target, state, batch, noise.at("step", k))
        theta = target.theta(state.u)
    z = np.column_stack([theta[:, :2], theta[:, 2:].log() / SPREAD])
    for columns in (z[:, :2].reshape(-1), z[:, 2]):  # the weights are independent of each other
        assert_mean(columns, 0.0, 1.0)
        assert_gaussian_variance(columns, 0.0, 1.0)
    for column in z.T:
        assert_law(column, stats.norm.cdf)


def check_calibrated(name: str, simulations: int = 4000, draws: int = 99, thin: int = 10) -> None:
    """Ranks of θ in a chain through it, as in `check_sbc`; one run to each side, which keeps its velocity."""
    rng, (sampler, _, _) = np.random.default_rng(SEED + 3), BIASED[name]
    target, inputs, truth = tame(simulations, rng)
    batch, noise = observed(truth, inputs, rng), target.model.noise(SEED, "calibrated")
    middle = moving(sampler, target, truth, batch, noise)
    place, less = torch.as_tensor(rng.integers(0, draws + 1, (simulations, 1))), torch.zeros(simulations, 3)
    for side, wanted in enumerate((draws - place, place)):
        state = backwards(sampler, middle) if side else middle
        done = int(side and isinstance(sampler, SGHMC))
        for step in range(done, draws * thin):
            state, _ = sampler.step(target, state, batch, noise.at("step", side, step))
            if step % thin == thin - 1:
                less += (target.theta(state.u) < truth) & (step // thin < wanted)
    assert_uniform(less.numpy(), draws, rng)


CHECKS = {"joint": check_joint, "calibrated": check_calibrated}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", BIASED)
def test_without_an_accept_step(name: str, check: str) -> None:
    CHECKS[check](name)


def noisier(factor: float) -> Callable[[pytest.MonkeyPatch], None]:
    """The noise of a step is too large."""
    true = Noise.normal

    def normal(self: Noise, *shape: int) -> Tensor:
        return (factor if "step" in self.key else 1.0) * true(self, *shape)

    return lambda m: m.setattr(Noise, "normal", normal)


def kicked_twice(m: pytest.MonkeyPatch) -> None:
    true = isokinetic.kick
    m.setattr(isokinetic, "kick", lambda v, gradient, size: true(v, gradient, 2 * size))


FAULTS: dict[tuple[str, str], Callable[[pytest.MonkeyPatch], None]] = {
    **{(name, "joint"): noisier(1.05) for name in ("ULA", "SGLD", "SGHMC")},
    **{(name, "calibrated"): noisier(1.2) for name in ("ULA", "SGLD", "SGHMC")},
    **{("MCLMC", check): kicked_twice for check in CHECKS},
}


@pytest.mark.parametrize(("name", "check"), FAULTS)
def test_without_an_accept_step_faults_are_seen(name: str, check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise 5% too large (20% for calibration), kicks of twice the size."""
    FAULTS[name, check](monkeypatch)
    with pytest.raises(AssertionError, match="off|too"):
        CHECKS[check](name)
