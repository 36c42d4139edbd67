"""Two stories that the lectures tell, told by numbers: dropout trains many networks in one, and why gradients go through the draw.

Each claim stands beside a planted fault that the same check must catch. Statistical checks have the false-alarm rate of chance.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from chance import assert_gaussian_variance, assert_mean
from torch import Tensor, nn
from torch.distributions import Normal as TorchNormal

from nescio import Model, fit
from nescio.data.source import source
from nescio.data.toys import two_moons
from nescio.infer import MAP
from nescio.laws import Normal
from nescio.likelihoods import Categorical, Gaussian
from nescio.nets import mlp
from nescio.network import Params
from nescio.noise import Noise
from nescio.target import Target

# ---- 001-7: dropout recap --------------------------------------------------------------------------------------

HIDDEN = 64


def half_dropped() -> nn.Module:
    return nn.Sequential(nn.ReLU(), nn.Dropout(0.5))


def trained(activation: Callable[[], nn.Module]) -> tuple[Model, Params]:
    with Noise(0).at("stories").scope():
        net = mlp(2, HIDDEN, HIDDEN, 2, activation=activation)
    model = Model(net, Normal(0, 1), Categorical())
    return model, fit(model, two_moons(300, 0.2), MAP(epochs=60, lr=0.01)).point()


@pytest.fixture(scope="module")
def with_dropout() -> tuple[Model, Params]:
    return trained(half_dropped)


def masks(n: int, seed: int = 0) -> dict[str, Tensor]:
    """Which hidden units stay, one row a subnetwork: (n, HIDDEN) for each of the two hidden layers."""
    return {name: Noise(seed).at("mask", name).uniform(n, HIDDEN) < 0.5 for name in ("2.weight", "4.weight")}


def subnetworks(params: Params, kept: dict[str, Tensor]) -> Params:
    """Stacked parameters: a dropped unit has no outgoing weight, the others count double as they did in training."""
    n = len(next(iter(kept.values())))
    stacked = {name: value.expand(n, *value.shape) for name, value in params.items()}
    return stacked | {name: 2 * params[name] * mask[:, None, :] for name, mask in kept.items()}


def score(model: Model, params: Params) -> Tensor:
    """log p(y | x) of held-out points under each subnetwork, (subnetworks, points)."""
    return model.log_prob(params, *two_moons(2000, 0.2, seed=1)).double()


def averaged(each: Tensor) -> Tensor:
    """Log density of the mixture, (points,)."""
    return each.logsumexp(0) - math.log(len(each))


def gain(each: Tensor, together: Tensor) -> float:
    """By how much the average network beats the average of the networks, in nats a point."""
    return float(together.mean() - each.mean())


def test_averaging_subnetworks_beats_the_average_subnetwork(with_dropout: tuple[Model, Params]) -> None:
    """Never worse by Jensen (log of a mean >= mean of logs), strictly better as the subnetworks disagree.

    No more is claimed: a lucky subnetwork may beat the average network, and about half of them do here, since a few poor ones pull
    the mean down. Masks are drawn without looking, so it is the mean that one would get.
    """
    model, params = with_dropout
    each = score(model, subnetworks(params, masks(50)))
    together = averaged(each)
    assert torch.all(together >= each.mean(0) - 1e-9)  # at every point
    assert gain(each, together) > 0
    assert gain(each, each.mean(0)) == pytest.approx(0, abs=1e-12)  # planted: logs averaged instead of densities


def test_more_masks_gain_more(with_dropout: tuple[Model, Params]) -> None:
    """The same 64 subnetworks in groups of 1, 4, 16, 64, scored by group: each step is Jensen's inequality once more."""
    model, params = with_dropout
    each = score(model, subnetworks(params, masks(64)))
    scores = [float(torch.stack([averaged(g) for g in each.split(size)]).mean()) for size in (1, 4, 16, 64)]
    assert all(np.diff(scores) > 0)


def test_dropout_makes_features_redundant(with_dropout: tuple[Model, Params]) -> None:
    """A random half of the units still works alone if the network was trained that way, and works far less well if it was not."""
    with_it = score(with_dropout[0], subnetworks(with_dropout[1], masks(50)))
    model, params = trained(nn.ReLU)
    without = score(model, subnetworks(params, masks(50)))
    whole = score(model, {name: value[None] for name, value in params.items()})
    assert whole.mean() > without.mean() + 0.1  # the undamaged network is fine: it is the masks that hurt
    assert with_it.mean() > without.mean() + 0.1
    assert with_it.mean(1).std() < without.mean(1).std()


def shared_units(first: Params, second: Params) -> int:
    """Hidden units that both of two subnetworks read from."""
    used = [{name: p[name].ne(0).any(0) for name in ("2.weight", "4.weight")} for p in (first, second)]
    return sum(int((used[0][name] & used[1][name]).sum()) for name in used[0])


def test_two_models_in_one(with_dropout: tuple[Model, Params]) -> None:
    """A mask and its complement share no hidden unit and leave none out; each does the task alone, together they do it better."""
    model, params = with_dropout
    kept = {name: mask[0] for name, mask in masks(1).items()}
    pair = {name: torch.stack([mask, ~mask]) for name, mask in kept.items()}
    stacked = subnetworks(params, pair)
    one, other = ({name: value[i] for name, value in stacked.items()} for i in range(2))
    assert shared_units(one, other) == 0
    assert all(bool(mask.any(0).all()) for mask in pair.values())
    each = score(model, stacked)
    assert each.mean(1).min() > -0.4  # a guess has -log 2 = -0.69
    assert gain(each, averaged(each)) > 0
    # what one of them uses can be overwritten without the other noticing
    broken = dict(params)
    for name, mask in kept.items():
        broken[name] = torch.where(mask, 1e3, params[name])
    after = score(model, subnetworks(broken, pair))
    assert torch.equal(after[1], each[1])
    assert not torch.allclose(after[0], each[0])
    # planted: a second, independent mask instead of the complement
    again = subnetworks(params, masks(2, seed=1))
    assert shared_units(*({name: value[i] for name, value in again.items()} for i in range(2))) > 0


# ---- 002-25: the pathwise gradient -----------------------------------------------------------------------------

MU, RHO = 0.8, 0.0
S = math.log1p(math.exp(RHO))  # softplus
SLOPE = 1 / (1 + math.exp(-RHO))  # ds / dρ

# f, and d E f(z) / dμ and / ds in closed form, z ~ N(μ, s²)
CASES: dict[str, tuple[Callable[[Tensor], Tensor], float, float]] = {
    "square": (torch.square, 2 * MU, 2 * S),
    "fourth": (lambda z: z**4, 4 * MU**3 + 12 * MU * S**2, 12 * MU**2 * S + 12 * S**3),
    "exp": (torch.exp, math.exp(MU + S**2 / 2), S * math.exp(MU + S**2 / 2)),
}

Estimator = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]


def pathwise(f: Callable[[Tensor], Tensor], eps: Tensor) -> Tensor:
    """(draws, 2): by autograd through z = μ + softplus(ρ) ε, for μ and ρ."""
    mu, rho = (torch.full_like(eps, value).requires_grad_() for value in (MU, RHO))
    value = f(mu + nn.functional.softplus(rho) * eps)
    return torch.stack(torch.autograd.grad(value.sum(), (mu, rho)), -1)


def slope_of(f: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    z = z.clone().requires_grad_()
    return torch.autograd.grad(f(z).sum(), z)[0]


def by_hand(f: Callable[[Tensor], Tensor], eps: Tensor) -> Tensor:
    """∇ρ = f'(z) ε / (1 + e^-ρ)."""
    slope = slope_of(f, MU + S * eps)
    return torch.stack([slope, slope * eps * SLOPE], -1)


def without_epsilon(f: Callable[[Tensor], Tensor], eps: Tensor) -> Tensor:
    """Planted: ∇ρ as it is printed in a lecture (000-25), without the ε."""
    slope = slope_of(f, MU + S * eps)
    return torch.stack([slope, slope * SLOPE], -1)


def variance_for_sd(f: Callable[[Tensor], Tensor], eps: Tensor) -> Tensor:
    """Planted: z = μ + s² ε."""
    slope = slope_of(f, MU + S**2 * eps)
    return torch.stack([slope, slope * eps * SLOPE], -1)


def score_function(f: Callable[[Tensor], Tensor], eps: Tensor) -> Tensor:
    """f(z) ∇ log q(z): unbiased as well, and needs no derivative of f."""
    value = f(MU + S * eps)
    return torch.stack([value * eps / S, value * (eps.square() - 1) / S * SLOPE], -1)


def truth(case: str) -> np.ndarray:
    _, by_mu, by_s = CASES[case]
    return np.array([by_mu, by_s * SLOPE])


def draws(*shape: int) -> Tensor:
    return Noise(0, ("pathwise",), dtype=torch.float64).normal(*shape)


def exact_variance(estimator: Estimator, case: str) -> np.ndarray:
    """Var of one draw, by Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    each = estimator(CASES[case][0], torch.tensor(nodes)).numpy()
    weights = weights[:, None] / weights.sum()
    mean = (weights * each).sum(0)
    return (weights * (each - mean) ** 2).sum(0)


@pytest.mark.parametrize("case", CASES)
def test_pathwise_gradient_is_unbiased(case: str) -> None:
    eps = draws(200_000)
    for estimator in (pathwise, by_hand, score_function):
        assert_mean(estimator(CASES[case][0], eps), truth(case))
    for fault in (without_epsilon, variance_for_sd):
        with pytest.raises(AssertionError, match="mean off"):
            assert_mean(fault(CASES[case][0], eps), truth(case))


@pytest.mark.parametrize("case", CASES)
def test_gradient_by_hand_equals_autograd(case: str) -> None:
    eps = draws(1000)
    torch.testing.assert_close(pathwise(CASES[case][0], eps), by_hand(CASES[case][0], eps))
    assert not torch.allclose(pathwise(CASES[case][0], eps), without_epsilon(CASES[case][0], eps))


def test_variance_falls_as_one_over_the_number_of_draws() -> None:
    """∂ z² / ∂μ = 2 z is normal, so the mean of n of them has variance 4 s² / n exactly: chi-square limits."""
    for n in (1, 4, 16, 64):
        means = pathwise(torch.square, draws(4000 * n))[:, 0].view(4000, n).mean(1)
        assert_gaussian_variance(means, 2 * MU, 4 * S**2 / n)
        with pytest.raises(AssertionError):  # planted: a variance that does not fall
            assert_gaussian_variance(means, 2 * MU, 4 * S**2 / (n + 1 if n == 1 else 1))


@pytest.mark.parametrize("case", CASES)
def test_variance_of_the_mean_of_sixteen(case: str) -> None:
    """For the other f the squared deviation of a mean of 16 has mean Var / 16, with Var from quadrature."""
    means = pathwise(CASES[case][0], draws(20_000 * 16)).view(20_000, 16, 2).mean(1).numpy()
    squares = (means - truth(case)) ** 2
    assert_mean(squares, exact_variance(pathwise, case) / 16)
    with pytest.raises(AssertionError):
        assert_mean(squares, exact_variance(pathwise, case) / math.sqrt(16))


@pytest.mark.parametrize("case", CASES)
def test_pathwise_has_far_less_variance_than_the_score_function(case: str) -> None:
    """Exactly, for one draw: at least three times less for every f and both parameters, and the quadrature agrees with draws."""
    path, score_variance = exact_variance(pathwise, case), exact_variance(score_function, case)
    assert np.all(score_variance > 3 * path)
    for estimator, variance in ((pathwise, path), (score_function, score_variance)):
        if case == "square":  # light tails: the normal approximation of the mean of squares holds
            assert_mean((estimator(torch.square, draws(200_000)).numpy() - truth(case)) ** 2, variance)


def test_pathwise_gradient_of_the_kl_objective() -> None:
    """KL(q || p(w | D)) up to a constant for one weight of a linear model, where the gradient has a closed form."""
    x, y = torch.tensor([[1.0], [2.0], [-1.0]]).double(), torch.tensor([[0.5], [2.5], [0.1]]).double()
    target = Target(Model(nn.Linear(1, 1, bias=False).double(), Normal(0, 1), Gaussian(1.0)), source((x, y)))
    precision, pull = 1 + float((x * x).sum()), float((x * y).sum())
    closed = np.array([precision * MU - pull, (precision * S - 1 / S) * SLOPE])

    def objective_gradient(eps: Tensor, prior: float) -> Tensor:
        mu, rho = (torch.full_like(eps, value).requires_grad_() for value in (MU, RHO))
        s = nn.functional.softplus(rho)
        w = mu + s * eps
        log_joint = target.log_density(w[:, None], target.batch(None))
        extra = (prior - 1) * TorchNormal(0.0, 1.0).log_prob(w)
        value = TorchNormal(mu, s).log_prob(w) - log_joint - extra
        return torch.stack(torch.autograd.grad(value.sum(), (mu, rho)), -1)

    assert_mean(objective_gradient(draws(50_000), prior=1), closed)
    with pytest.raises(AssertionError, match="mean off"):  # planted: the prior once for each observation
        assert_mean(objective_gradient(draws(50_000), prior=3), closed)
