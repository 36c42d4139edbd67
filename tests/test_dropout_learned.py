"""Learned rates and learned variances: concrete and variational dropout."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from chance import assert_probability, within
from dropout_cases import DOUBLE, SD, P, block_of, loss_of, normal, seeded
from scipy import integrate, optimize, special
from torch import Tensor, nn
from torch import distributions as td

from nescio import Model, fit
from nescio.families import (
    ConcreteDropout,
    Family,
    MeanField,
    VariationalDropout,
    drop_rates,
    log_alphas,
)
from nescio.families.concrete import Relaxed
from nescio.families.variational_dropout import LogUniformKL, log_uniform_kl
from nescio.infer import VI
from nescio.laws import LogUniform, Normal
from nescio.likelihoods import Gaussian as Noise_
from nescio.model import sort
from nescio.noise import Noise
from nescio.posterior import Variational


def check_relaxed(temperature: float = 0.1) -> None:
    """P(z > 1/2) = 1 - p at every temperature; hard where no gradients are wanted."""
    factor, n = Relaxed(block_of(seeded(lambda: nn.Linear(4, 1))), P, False, temperature), 5000
    factor.begin()
    with Noise(0).scope():
        soft = factor.noise(n).detach() * (1 - P)
        with torch.no_grad():
            hard = factor.noise(n) * (1 - P)
    assert_probability(int((soft > 0.5).sum()), 4 * n, 1 - P)
    assert_probability(int((hard > 0.5).sum()), 4 * n, 1 - P)
    torch.testing.assert_close(hard, hard.round())
    assert not torch.equal(soft, soft.round())


@pytest.mark.parametrize("temperature", [0.01, 0.1, 1.0, 3.0])
def test_a_relaxed_mask_is_above_a_half_as_often_as_it_is_kept(temperature: float) -> None:
    check_relaxed(temperature)


def test_a_relaxed_mask_hardens_in_proportion_to_the_temperature() -> None:
    gaps = []
    for temperature in (0.04, 0.02, 0.01):
        factor = Relaxed(block_of(seeded(lambda: nn.Linear(4, 1))), P, False, temperature)
        factor.begin()
        with Noise(0).scope():
            z = factor.noise(20_000).detach() * (1 - P)
        gaps.append(float((z - (z > 0.5).to(z)).abs().mean()))
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.1) and gaps[1] / gaps[2] == pytest.approx(2, rel=0.1)


def test_the_slope_of_the_divergence_in_the_rates() -> None:
    prior = td.Normal(torch.zeros((), dtype=DOUBLE), torch.tensor(0.8, dtype=DOUBLE))
    for per_unit in (False, True):
        factor = Relaxed(block_of(seeded(lambda: nn.Linear(3, 2))), P, per_unit, 0.1)

        def kl(logit: Tensor, loc: Tensor, factor: Relaxed = factor) -> Tensor:
            def at(module: Relaxed) -> Tensor:
                module.begin()
                return module.kl([prior])

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(factor, "_parameters", {"logit": logit, "loc": loc})
                return at(factor)

        start = (factor.logit.detach().clone().requires_grad_(), factor.loc.detach().clone().requires_grad_())
        assert torch.autograd.gradcheck(kl, start)


def exact_elbo(x: Tensor, y: Tensor, scale: float, loc: np.ndarray, p: float) -> float:
    """Of a linear network whose inputs are dropped: a sum over masks in closed form."""
    w = torch.as_tensor(loc, dtype=DOUBLE)
    squares = (y[:, 0] - x @ w).square().sum() + p / (1 - p) * (x.square() @ w.square()).sum()
    fit_ = -0.5 * squares / SD**2 - len(x) * math.log(SD * math.sqrt(2 * math.pi))
    entropy = -len(w) * (p * math.log(p) + (1 - p) * math.log1p(-p))
    cross = 0.5 * w.square().sum() / (1 - p) / scale**2 + len(w) * math.log(scale * math.sqrt(2 * math.pi))
    return float(fit_ - cross + entropy)


def check_learned(family: Family | None = None) -> None:
    """Learned rate and weights are within 0.02 nats of the best bound there is; with a rate 1.5 times higher or lower they are not."""
    n, scale = 10, 0.5
    x = normal(n, 8) * 0.5
    y = x @ (0.5 * torch.ones(8, 1, dtype=DOUBLE)) + SD * normal(n, 1, seed=2)
    best = optimize.minimize(lambda v: -exact_elbo(x, y, scale, v[:-1], 1 / (1 + math.exp(-v[-1]))), np.full(9, 0.1))
    model = Model(seeded(lambda: nn.Linear(8, 1, bias=False)), Normal(0.0, scale), Noise_(SD))
    method = VI(family or ConcreteDropout(0.1, temperature=0.05), epochs=200, lr=0.05, samples=50, batch_size=n)
    posterior = fit(model, (x, y), method)
    assert isinstance(posterior, Variational)
    rate, loc = float(drop_rates(posterior.q)["weight"]), posterior.point()["weight"][0].numpy()
    assert exact_elbo(x, y, scale, loc, rate) > -best.fun - 0.02
    for other in (rate / 1.5, rate * 1.5):
        assert exact_elbo(x, y, scale, loc, other) < -best.fun - 0.02


def test_the_learned_rate_is_the_best_one() -> None:
    check_learned()


def test_a_rate_for_each_input_tells_what_is_useless() -> None:
    """Two inputs matter, six do not; data are many."""
    x = normal(300, 8)
    y = 2 * x[:, :1] - 2 * x[:, 1:2] + SD * normal(300, 1, seed=3)
    model = Model(seeded(lambda: nn.Linear(8, 1)), Normal(0.0, 1.0), Noise_(SD))
    posterior = fit(model, (x, y), VI(ConcreteDropout(0.2, per_unit=True), epochs=40, lr=0.05, batch_size=100))
    assert isinstance(posterior, Variational)
    rates = drop_rates(posterior.q)["weight"]
    assert rates.shape == (8,) and 2 * float(rates[:2].max()) < float(rates[2:].min())


# ---- variational dropout -----------------------------------------------------------------------------------------------


def exact_log_uniform(log_alpha: float) -> float:
    """KL(N(1, α), 1 / |w|), with E log |m + ε| = E log |ε| + ∫ √2 D(t / √2) dt, D Dawson's integral, from 0 to m = 1 / √α."""
    m = math.exp(-log_alpha / 2)
    slope = lambda t: math.sqrt(2) * special.dawsn(t / math.sqrt(2))  # noqa: E731
    inside = integrate.quad(slope, 0, min(m, 20), epsabs=1e-12)[0]
    if m > 20:  # D(x) = 1/2x + 1/4x³ + 3/8x⁵ + ..., integrated
        tail = [math.log(t) - 1 / (2 * t**2) - 3 / (4 * t**4) - 15 / (6 * t**6) for t in (m, 20.0)]
        inside += tail[0] - tail[1]
    log_abs = -0.5 * (np.euler_gamma + math.log(2)) + inside
    return log_alpha / 2 + log_abs - 0.5 * math.log(2 * math.pi * math.e) - log_alpha / 2


def check_log_uniform() -> None:
    """The documented error, 0.0094 nats at most, and no less than 0.009: the page says what it is."""
    grid = np.linspace(-14, 14, 561)
    exact = np.array([exact_log_uniform(a) for a in grid])
    error = np.abs(log_uniform_kl(torch.as_tensor(grid)).numpy() - exact).max()
    assert 0.009 < error <= 0.0094


def test_the_approximate_divergence_from_log_uniform() -> None:
    check_log_uniform()


def check_fused_log_uniform() -> None:
    """What is written by hand has autograd's value and slopes; a mean of zero has none."""
    loc = normal(40).requires_grad_()
    with torch.no_grad():
        loc[:2] = torch.tensor([0.0, 1e-30])
    sd = (0.1 + normal(40, seed=1).abs()).requires_grad_()
    got = LogUniformKL.apply(loc, sd)
    want = log_uniform_kl(2 * (sd.log() - loc.abs().clamp_min(1e-20).log())).sum()
    torch.testing.assert_close(got, want)
    for ours, theirs in zip(*(torch.autograd.grad(3 * f, (loc, sd)) for f in (got, want)), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_divergence_by_hand() -> None:
    check_fused_log_uniform()


def test_it_is_the_divergence_from_the_density_itself() -> None:
    """MeanField estimates the same by draws, under the same prior."""
    net = seeded(lambda: nn.Linear(5, 4))
    loss = loss_of(net, VariationalDropout(0.5), normal(3, 5), prior=LogUniform(), outputs=4)
    other = loss_of(net, MeanField(), normal(3, 5), prior=LogUniform(), outputs=4)
    with torch.no_grad(), Noise(0).scope():
        for ours, theirs in zip(loss.q.parts(), other.q.parts(), strict=True):
            theirs.load_state_dict({name.removeprefix("law."): x for name, x in ours.state_dict().items()})
        draws = torch.stack([other.q.call().divergence() for _ in range(1000)])
        got = float(loss.q.call().divergence())
    away = max(abs(got - float(draws.mean())) - 24 * 0.0094, 0)  # beyond what the approximation may be off
    within(away / float(draws.std()) * math.sqrt(len(draws)))


def test_variational_dropout_finds_useless_weights() -> None:
    x = normal(400, 6)
    y = 2 * x[:, :1] + SD * normal(400, 1, seed=3)
    model = Model(seeded(lambda: nn.Linear(6, 1)), {"weight": LogUniform(), "*": Normal(0.0, 1.0)}, Noise_(SD))
    posterior = fit(model, (x, y), VI(VariationalDropout(), epochs=150, lr=0.03, batch_size=200))
    assert isinstance(posterior, Variational)
    found = log_alphas(posterior.q)["weight"][0]
    assert float(found[0]) < -3 and float(found[1:].mean()) > 0, found


def test_its_weights_are_gaussians_for_moments_and_priors() -> None:
    x = normal(20, 2)
    model = Model(seeded(lambda: nn.Linear(2, 1)), LogUniform(), Noise_(0.1))
    posterior = fit(model, (x, x[:, :1]), VI(VariationalDropout(), epochs=2))
    assert isinstance(posterior, Variational)
    own = torch.cat([factor.law.rho.reshape(-1) for factor in posterior.q.parts()]).detach()  # type: ignore[union-attr]
    found = posterior.gaussian()
    torch.testing.assert_close(found.covariance.diagonal(), torch.nn.functional.softplus(own).square())
    assert set(posterior.as_prior()) == {"*"} and len(posterior.compile()(x)) == 3


def test_a_bias_that_acts_by_a_rule_is_used() -> None:
    """So that a second use, which the dry run did not see, is refused."""
    net = seeded(lambda: nn.Linear(2, 1))
    for family in (VariationalDropout(), MeanField()):
        loss = loss_of(net, family, normal(4, 2), normal(4, 1))
        named = sort(loss.q.call().params(loss.acting), loss.target.model.likelihood)[0]
        loss.target.model.network.within(named, normal(4, 2), lambda f: None)
        assert [weight.uses for weight in named.values()] == [1, 1]  # type: ignore[attr-defined]
