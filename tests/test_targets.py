"""The target is the right density: against outside references, closed forms and a grid, in whole and in minibatches."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import targets
import torch
from chance import assert_gaussian_variance, assert_law, assert_mean
from conftest import TRUTH
from scipy import stats
from targets import (
    DOUBLE,
    Array,
    Known,
    conjugate,
    correlated_gaussian,
    funnel,
    grid,
    grid_log_joint,
    linear,
    skewed,
    truth_linear,
    truth_logistic,
)
from torch import Tensor, nn

from nescio.data.source import source
from nescio.laws import Exponential, HalfCauchy, Learned, Normal
from nescio.likelihoods import Gaussian, Heteroscedastic
from nescio.model import Model
from nescio.nets import mlp
from nescio.target import Target

STEMS = sorted(path.with_suffix("") for kind in ("linear", "informative") for path in TRUTH.glob(f"{kind}/*.npz"))
every_truth = pytest.mark.parametrize("stem", STEMS, ids=lambda stem: stem.name)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def points(target: Target, n: int, seed: int = 0) -> Tensor:
    """Some unconstrained vectors, (n, dim)."""
    return torch.as_tensor(rng(seed).normal(size=(n, target.dim)))


def curvature(density: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The Hessian, by reverse mode twice."""
    return torch.func.jacrev(torch.func.grad(density))


def noisy_net(rows: int = 50) -> Target:
    """A net with a random noise scale and a random prior scale: everything a target can hold."""
    net = mlp(2, 4, 1, activation=nn.Tanh).to(DOUBLE)
    model = Model(net, Normal(0, HalfCauchy(1.0).per("layer")), Gaussian(HalfCauchy(1.0)))
    x = torch.as_tensor(rng(3).normal(size=(rows, 2)))
    return Target(model, source((x, torch.sin(x).sum(1, keepdim=True))))


# ---- densities from outside ------------------------------------------------------------------------------------------


def test_the_reference_folder_is_whole(truth: Path) -> None:
    assert len(STEMS) == 28


@every_truth
def test_log_densities_equal_the_reference(stem: Path) -> None:
    known = truth_linear(stem)
    check = known.reference["density_check"]
    theta = torch.tensor([*check["w"], check["sigma"]], dtype=DOUBLE)
    model, target = known.model, known.target()
    likelihood = model.log_likelihood(model.prior.params(model.prior.split(theta)), *known.data)
    assert likelihood.item() == pytest.approx(check["log_likelihood"], rel=1e-9)
    values, parts = list(model.prior.split(theta)), []
    for variable, value in zip(model.prior.variables, values, strict=True):  # centred: u is w, and log sigma
        u = variable.unconstrain(value, values, True)
        part = variable.constrain(u, values, True)
        parts.append(float(part.log_density - part.log_jacobian))
    assert sum(parts[:-1]) == pytest.approx(check["log_prior_w"], rel=1e-9, abs=1e-12)
    assert parts[-1] == pytest.approx(check["log_prior_sigma"], rel=1e-9, abs=1e-12)
    assert target.log_joint(theta[None], {}).item() == pytest.approx(check["log_joint"], rel=1e-9)
    # the density of the unconstrained vector adds the Jacobian of sigma = exp(u): log sigma
    density = target.log_density(target.u(theta[None]), target.batch(None)).item()
    assert density == pytest.approx(check["log_joint"] + math.log(check["sigma"]), rel=1e-9)


@every_truth
def test_known_noise_gives_the_reference_posterior(stem: Path) -> None:
    """Where all priors are Gaussian or flat, a quadratic: its gradient vanishes at the mean, its Hessian is -covariance⁻¹."""
    known = truth_linear(stem, known_noise=True)
    if "student_t" in str(known.reference["model"]["weight_prior"]):
        pytest.skip("the intercept has a t prior: not a Gaussian posterior")
    target = known.target()
    mean = torch.as_tensor(known.mean, dtype=DOUBLE)

    def density(u: Tensor) -> Tensor:
        return target.log_density(u[None], target.batch(None))[0]

    hessian = curvature(density)(mean).numpy()
    product = -hessian @ known.covariance  # conditioning up to 1e6²: the identity to 1e-4 in the worst file
    np.testing.assert_allclose(product, np.eye(len(mean)), atol=1e-3)
    sd = np.sqrt(np.diag(known.covariance))
    newton = np.linalg.solve(hessian, torch.func.grad(density)(mean).numpy())
    assert np.abs(newton / sd).max() < 1e-5
    # log ∫ likelihood x prior of a quadratic: its height at the mode + (d log 2π - log det)/2
    height = density(mean).item() + 0.5 * (len(mean) * math.log(2 * math.pi) - np.linalg.slogdet(-hessian)[1])
    assert height == pytest.approx(known.log_evidence, rel=1e-9, abs=1e-6)


def assert_reference_moments(known: Known) -> None:
    draws = known.exact_draws(20_000, rng())
    assert_mean(draws, known.mean, np.sqrt(np.diag(known.covariance)))
    whitened = np.linalg.solve(np.linalg.cholesky(known.covariance), (draws.numpy() - known.mean).T)
    assert_mean((whitened**2).T, np.ones(len(whitened)))


@every_truth
def test_exact_draws_have_the_reference_moments(stem: Path) -> None:
    """20 000 draws: a shift of 0.079 sd is seen with probability 1 - 1e-6 (chance.power)."""
    known = truth_linear(stem)
    if known.draw is None:
        pytest.skip("no exact draws with a t prior")
    assert_reference_moments(known)


def test_a_forgotten_jacobian_would_be_seen(truth: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the density of σ taken for that of log σ. It moves mesquite's noise by 0.11 sd."""
    monkeypatch.setattr(targets, "log_noise_prior", lambda prior, sigma: -np.log(sigma))
    with pytest.raises(AssertionError, match="mean off"):
        assert_reference_moments(truth_linear(truth / "linear" / "mesquite-logmesquite"))


def test_german_credit_density(truth: Path) -> None:
    """At the reference's mode the gradient vanishes, and the Laplace evidence there is the published one."""
    known = truth_logistic(truth)
    target, laplace = known.target(), known.reference["laplace"]
    mode = torch.tensor(laplace["map"], dtype=DOUBLE)

    def density(u: Tensor) -> Tensor:
        return target.log_density(u[None], target.batch(None))[0]

    hessian = curvature(density)(mode).numpy()
    covariance = np.linalg.inv(-hessian)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), laplace["sd"], rtol=1e-6)
    newton = covariance @ torch.func.grad(density)(mode).numpy()
    assert np.abs(newton / np.array(laplace["sd"])).max() < 1e-6
    evidence = density(mode).item() + 0.5 * (25 * math.log(2 * math.pi) + np.linalg.slogdet(covariance)[1])
    assert evidence == pytest.approx(laplace["log_evidence"], abs=1e-6)


# ---- Jacobian and temperature ----------------------------------------------------------------------------------------


def test_the_jacobian_is_that_of_the_map_from_u_to_theta() -> None:
    for centred in (True, False):
        target = replace(noisy_net(), centred=centred)
        u = points(target, 1)
        jacobian = torch.func.jacrev(lambda v, t=target: t.theta(v[None])[0])(u[0])
        log_det = torch.linalg.slogdet(jacobian)[1].item()
        joint = target.log_joint(target.theta(u), {}).item()
        density = target.log_density(u, target.batch(None)).item()
        assert density == pytest.approx(joint + log_det, rel=1e-12)
        assert abs(log_det) > 0.1  # there is something to see


def test_both_views_are_the_same_law() -> None:
    """At one θ the two densities differ by the ratio of their Jacobians, and the values are the same."""
    centred, not_centred = replace(noisy_net(), centred=True), noisy_net()
    theta = centred.theta(points(centred, 3))
    torch.testing.assert_close(not_centred.theta(not_centred.u(theta)), theta, rtol=1e-12, atol=1e-12)
    joints = [target.log_joint(theta, {}) for target in (centred, not_centred)]
    torch.testing.assert_close(joints[0], joints[1], rtol=1e-12, atol=0)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 3.0])
def test_temperature_divides_the_joint_and_not_the_jacobian(temperature: float) -> None:
    cold, target = replace(noisy_net(), temperature=temperature), noisy_net()
    u = points(target, 4)
    joint = target.log_joint(target.theta(u), {})
    jacobian = target.log_density(u, target.batch(None)) - joint
    tempered = cold.log_density(u, cold.batch(None))
    torch.testing.assert_close(tempered, joint / temperature + jacobian, rtol=1e-12, atol=1e-12)
    in_weight_space = cold.log_posterior(u, cold.batch(None), {})[0]
    torch.testing.assert_close(in_weight_space, joint / temperature, rtol=1e-12, atol=1e-12)


# ---- minibatches -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [50, 16, 7, 1])
def test_an_epoch_of_minibatches_is_the_full_gradient(batch: int) -> None:
    """Weighted by their size, disjoint batches of one epoch average to the full density and gradient; 16 and 7 leave a rest."""
    target = noisy_net(50)
    u = points(target, 1).requires_grad_()
    order = torch.as_tensor(rng().permutation(50))
    full = target.log_density(u, target.batch(None))
    mean = torch.zeros_like(full)
    for start in range(0, 50, batch):
        index = order[start : start + batch]
        mean = mean + target.log_density(u, target.batch(index)) * len(index) / 50
    torch.testing.assert_close(mean, full, rtol=1e-10, atol=0)
    want, got = (torch.autograd.grad(value.sum(), u)[0] for value in (full, mean))
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


def test_a_batch_is_weighted_by_its_own_size() -> None:
    target = noisy_net(50)
    assert target.batch(None).weight == 1.0
    assert target.batch(torch.arange(16)).weight == 50 / 16
    assert target.batch(torch.arange(48, 50)).weight == 25.0  # the ragged last one of 16
    assert target.batch(torch.arange(10).reshape(2, 5)).weight == 10.0  # each chain its own five


# ---- chains and fixed entries ----------------------------------------------------------------------------------------


def test_chains_together_are_chains_one_by_one() -> None:
    target = noisy_net()
    u = points(target, 5)
    index = torch.stack([torch.as_tensor(rng(i).permutation(50)[:8]) for i in range(5)])
    for batch in (None, torch.arange(8), index):
        each = [target.log_density(u[i : i + 1], target.batch(index[i] if batch is index else batch)) for i in range(5)]
        torch.testing.assert_close(target.log_density(u, target.batch(batch)), torch.cat(each), rtol=1e-12, atol=1e-12)


def test_free_holds_the_others_fixed() -> None:
    target = noisy_net()
    theta = target.theta(points(target, 3))
    mask = target.model.prior.slots("2.*")
    part = target.free(mask, theta)
    assert 0 < part.dim == int(mask.sum()) < target.dim
    same = part.log_density(part.u(theta), part.batch(None))
    torch.testing.assert_close(same, target.log_density(target.u(theta), target.batch(None)), rtol=1e-12, atol=0)
    moved = part.full(part.u(theta) + 1.0)
    torch.testing.assert_close(moved[:, ~mask], target.u(theta)[:, ~mask], rtol=0, atol=0)
    assert bool((moved[:, mask] != target.u(theta)[:, mask]).all())
    torch.testing.assert_close(part.chains(slice(1, 3)).full(part.u(theta)[1:] + 1.0), moved[1:], rtol=0, atol=0)
    assert target.free(torch.ones_like(mask), theta).slots is None


def test_on_frees_the_matching_weights_and_the_scales_of_their_prior_alone() -> None:
    model = noisy_net().model
    sizes = {variable.name: variable.size for variable in model.prior.variables}
    mask = model.prior.slots("0.*")  # 2x4 + 4 weights and two of the four scales, one a tensor
    assert int(mask.sum()) == 12 + 2
    assert int(model.prior.slots("likelihood.*").sum()) == sizes["likelihood.noise"] == 1
    assert not bool((mask & model.prior.slots("likelihood.*")).any())


def test_a_learned_number_has_no_density() -> None:
    fixed, learned = (Model(mlp(1, 1).to(DOUBLE), Normal(0, 1), Gaussian(s)) for s in (0.5, Learned(0.5)))
    data = source((torch.ones(4, 1, dtype=DOUBLE), torch.zeros(4, 1, dtype=DOUBLE)))
    one, two = Target(fixed, data), Target(learned, data)
    u = points(one, 1)
    with_log = torch.cat([u, torch.tensor([[math.log(0.5)]], dtype=DOUBLE)], 1)
    a, b = one.log_density(u, one.batch(None)), two.log_density(with_log, two.batch(None))
    torch.testing.assert_close(a, b, rtol=1e-12, atol=0)


# ---- closed forms ----------------------------------------------------------------------------------------------------


def test_the_conjugate_density_is_the_closed_form_gaussian() -> None:
    """Bayes' rule, constants included: log joint = log evidence + log posterior at every point."""
    known = conjugate()
    target = known.target()
    theta = known.exact_draws(100, rng()) * 3
    joint = target.log_density(theta, target.batch(None)).numpy()
    posterior = stats.multivariate_normal(known.mean, known.covariance).logpdf(theta.numpy())
    np.testing.assert_allclose(joint, known.log_evidence + posterior, rtol=1e-10)


def test_the_evidence_of_one_weight_by_quadrature() -> None:
    known = conjugate(n=12, features=1, seed=4)
    target = known.target()
    w = torch.linspace(-12, 12, 20_001, dtype=DOUBLE)
    joint = target.log_density(w[:, None], target.batch(None))
    integral = torch.logsumexp(joint, 0).item() + math.log((w[1] - w[0]).item())
    assert integral == pytest.approx(known.log_evidence, rel=1e-10)


def test_the_evidence_of_a_positive_number_by_quadrature_over_u() -> None:
    """∫ density du over the unconstrained line = ∫ likelihood x prior dσ, only with the Jacobian."""
    model = linear(1, Normal(0, 1), Gaussian(Exponential(1.0)))
    y = torch.tensor([[0.3], [-0.7], [1.1]], dtype=DOUBLE)
    target = Target(model, source((torch.zeros(3, 1, dtype=DOUBLE), y)))  # x = 0: the weight drops out
    t = torch.linspace(-12, 6, 20_001, dtype=DOUBLE)
    u = torch.stack([torch.zeros_like(t), t], 1)
    log_weight_prior = -0.5 * math.log(2 * math.pi)
    density = (target.log_density(u, target.batch(None)) - log_weight_prior).exp()
    sigma = np.linspace(1e-4, 60, 600_001)
    direct = np.exp(stats.norm.logpdf(y.numpy(), 0, sigma).sum(0) - sigma)
    assert torch.trapezoid(density, t).item() == pytest.approx(np.trapezoid(direct, sigma), rel=1e-8)


# ---- Bayes' rule on a grid (000-12, 001-1), the mode against the posterior (001-2) -------------------------------------


@pytest.fixture(scope="module")
def small() -> Known:
    return grid()


def test_bayes_rule_on_a_grid(small: Known) -> None:
    """The library's density, normalised on its own coarser grid, has the evidence, mean and covariance of plain numpy."""
    target = small.target()
    axis = torch.linspace(-7, 9, 401, dtype=DOUBLE)
    u = torch.cartesian_prod(axis, axis)
    joint = target.log_density(u, target.batch(None))
    assert torch.logsumexp(joint, 0).item() + 2 * math.log((axis[1] - axis[0]).item()) == pytest.approx(
        small.log_evidence, rel=1e-8
    )
    weight = joint.softmax(0)
    mean = weight @ u
    np.testing.assert_allclose(mean, small.mean, rtol=1e-6)
    np.testing.assert_allclose((u - mean).T * weight @ (u - mean), small.covariance, rtol=1e-6)
    by_hand = grid_log_joint(u[:, 1].numpy(), u[:, 0].numpy(), *(t[:, 0].numpy() for t in small.data))
    np.testing.assert_allclose(joint.numpy(), by_hand, rtol=1e-10)


def test_the_predictive_of_exact_draws_is_the_grids(small: Known) -> None:
    """40 000 exact draws through nescio's own predictive: mean and density by z-tests, power 0.056 sd.

    Planted: draws of the mode's Gaussian approximation, which this skewed posterior is not.
    """
    assert small.predict is not None
    x = torch.tensor([[-2.0], [0.5], [3.0]], dtype=DOUBLE)
    posterior = small.posterior(40_000, rng(1))
    exact, y = small.predict(x.numpy()), np.array([-1.0, 0.2, 2.0])
    f = posterior.model.observed(posterior.sample(40_000), x).mean[..., 0]
    assert_mean(f, exact.mean)
    b, a = rng(2).multivariate_normal(small.mean, small.covariance, 40_000).T
    with pytest.raises(AssertionError):
        assert_mean(a[:, None] * np.tanh(b[:, None] * x[:, 0].numpy()), exact.mean)
    assert_mean(stats.norm.pdf(y, f, 0.4), np.exp(exact.log_prob(y)))
    predictive = posterior.predict(x, draws=None)
    np.testing.assert_allclose(predictive.mean[:, 0], f.mean(0), rtol=1e-12)
    density = np.log(stats.norm.pdf(y, f, 0.4).mean(0))
    np.testing.assert_allclose(predictive.log_prob(torch.as_tensor(y)[:, None]), density, rtol=1e-10)
    np.testing.assert_allclose(predictive.variance[:, 0], f.numpy().var(0) + 0.16, rtol=1e-10)


def test_mode_mean_and_predictive_agree_when_conjugate_and_differ_when_skewed(small: Known) -> None:
    gaussian = conjugate()
    target = gaussian.target()
    gradient = torch.func.grad(lambda u: target.log_density(u[None], target.batch(None))[0])
    assert gradient(torch.as_tensor(gaussian.mean)).abs().max() < 1e-9  # the mode is the mean

    assert small.predict is not None
    target = small.target()
    u = torch.tensor(small.mean, dtype=DOUBLE)
    density = lambda u: target.log_density(u[None], target.batch(None))[0]  # noqa: E731
    for _ in range(50):  # Newton
        u = u - torch.linalg.solve(curvature(density)(u), torch.func.grad(density)(u))
    assert torch.func.grad(density)(u).abs().max() < 1e-10
    sd = np.sqrt(np.diag(small.covariance))
    assert np.abs((u.numpy() - small.mean) / sd).max() > 0.2  # mode is not mean

    def f(b: float, a: float) -> float:
        return a * math.tanh(b * 0.5)

    at_mode, at_mean, averaged = f(*u.tolist()), f(*small.mean), small.predict(np.array([[0.5]])).mean[0]
    gaps = np.abs(np.subtract.outer([at_mode, at_mean, averaged], [at_mode, at_mean, averaged]))
    assert gaps[np.triu_indices(3, 1)].min() > 0.005  # three different predictions, all exact to 1e-8


# ---- the plain densities are what they say ---------------------------------------------------------------------------


def assert_gaussian(draws: Array) -> None:
    known = correlated_gaussian()
    assert_gaussian_variance(draws, known.mean, np.diag(known.covariance))
    for row in np.linalg.solve(np.linalg.cholesky(known.covariance), draws.T):
        assert_law(row, stats.norm.cdf)


def assert_skewed(draws: Array) -> None:
    assert_mean(draws, -np.euler_gamma, math.pi / math.sqrt(6))
    assert_law(draws[:, 0], lambda w: -np.expm1(-np.exp(w)))


def assert_funnel(draws: Array) -> None:
    assert_law(2 * np.log(draws[:, 0]), stats.norm(0, 3).cdf)
    assert_law(draws[:, 1] / draws[:, 0], stats.norm.cdf)


@pytest.mark.parametrize(
    ("known", "right"),
    [(correlated_gaussian(), assert_gaussian), (skewed(1), assert_skewed), (funnel(2), assert_funnel)],
    ids=["gaussian", "skewed", "funnel"],
)
def test_exact_draws_of_the_plain_targets(known: Known, right: Callable[[Array], None]) -> None:
    """n = 100 000. Planted: all of it 10 % too wide, which is seen with probability 1 - 1e-6."""
    draws = known.exact_draws(100_000, rng(1)).numpy()
    right(draws)
    with pytest.raises(AssertionError):
        right(1.1 * draws)


def test_densities_of_the_plain_targets() -> None:
    for known, log_density in (
        (correlated_gaussian(), stats.multivariate_normal(np.zeros(4), correlated_gaussian().covariance).logpdf),
        (skewed(2), lambda w: (w - np.exp(w)).sum(1)),
    ):
        theta = known.exact_draws(50, rng())
        target = known.target()
        np.testing.assert_allclose(target.log_density(theta, target.batch(None)), log_density(theta.numpy()), rtol=1e-9)


def test_the_funnel_centred_and_not() -> None:
    known = funnel(2)
    theta = known.exact_draws(50, rng())
    target, centred = known.target(), replace(known.target(), centred=True)
    v, w = 2 * np.log(theta[:, 0].numpy()), theta[:, 1:].numpy()
    neal = stats.norm.logpdf(v, 0, 3) + math.log(2) + stats.norm.logpdf(w, 0, np.exp(v / 2)[:, None]).sum(1)
    np.testing.assert_allclose(centred.log_density(centred.u(theta), target.batch(None)), neal, rtol=1e-10)
    z = w / np.exp(v / 2)[:, None]
    white = stats.norm.logpdf(v, 0, 3) + math.log(2) + stats.norm.logpdf(z).sum(1)
    np.testing.assert_allclose(target.log_density(target.u(theta), target.batch(None)), white, rtol=1e-9)


def test_a_likelihood_without_numbers_adds_none() -> None:
    model = Model(mlp(1, 2).to(DOUBLE), Normal(0, 1), Heteroscedastic())
    assert model.dim == 4
    assert [variable.name for variable in model.prior.variables] == ["prior.*"]
