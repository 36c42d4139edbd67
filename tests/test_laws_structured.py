"""Hierarchies in both views, and laws with correlated weights against dense Gaussians.

Densities and inverses to 1e-10. Draws of Gaussian laws: their projections have chi-square sums of squares, exactly.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from chance import assert_gaussian_variance, assert_mean
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.distributions import MultivariateNormal

from nescio.errors import InputError
from nescio.laws import (
    Correlated,
    Exponential,
    Gamma,
    HalfCauchy,
    HalfNormal,
    HalfStudentT,
    Horseshoe,
    InverseGamma,
    Laplace,
    Law,
    Learned,
    MatrixNormal,
    Normal,
    SpikeSlab,
    StudentT,
    fan_in,
)
from nescio.laws.prior import Prior
from nescio.laws.site import Site, sites
from nescio.noise import Noise


def covariance(size: int, seed: int = 0) -> Tensor:
    """A full covariance, far from diagonal and with no symmetry that could hide a transposed factor."""
    a = Noise(seed, ("covariance", size), dtype=torch.float64).normal(size, size)
    return a @ a.mT / size + 0.1 * torch.diag(torch.linspace(0.5, 3.0, size).double())


HIERARCHIES: dict[str, Law | dict[str, Law]] = {
    "relevance": Normal(0, HalfCauchy(1.0).per("input")),
    "horseshoe": Horseshoe(0.5),
    "layers": Normal(Normal(0.3, 0.7).per("layer"), HalfStudentT(4.0, HalfNormal(0.5).per("net")).per("layer")),
    "root": StudentT(5.0, 0.2, InverseGamma(2.0, 1.0).sqrt().per("unit")),
    "root of roots": Normal(0, InverseGamma(2.0, Exponential(1.0).sqrt().per("net")).sqrt().per("layer")),
    "degrees of freedom": StudentT(Gamma(2.0, 0.1).per("net"), 0.0, HalfCauchy(fan_in)),
    "learned": Normal(Learned(0.2).per("layer"), HalfCauchy(Learned(0.5))),
    "mixture": SpikeSlab(0.3, HalfCauchy(1.0).per("layer"), 0.1),
    "matrix": {
        "*weight": MatrixNormal(
            lambda site: covariance(site.shape[0]),
            lambda site: covariance(site.shape[1], 1),
            scale=HalfNormal(1.0).per("layer"),
        ),
        "*": Laplace(0, Gamma(2.0, 2.0).per("layer")),
    },
    "correlated": Correlated(lambda s: covariance(s.size), Normal(0, 1).per("layer"), HalfCauchy().per("input")),
    "joint": Correlated(covariance(11), scale=HalfCauchy(HalfCauchy(1.0).per("net")).per("unit")).per("net"),
}
NET = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))  # 6 + 2 + 2 + 1 = 11 weights


def check_views(name: str) -> None:
    """p(u) = p(θ) |dθ/du| in both views, with the Jacobian by automatic differentiation; u -> θ -> u is the identity."""
    prior = Prior(HIERARCHIES[name], sites(NET), {})
    learned = torch.cat([torch.full((v.size,), not v.random) for v in prior.variables])
    for seed in range(3):
        u = Noise(seed, dtype=torch.float64).normal(prior.dim)
        theta = torch.cat(prior.unpack(u).values)
        at_theta = prior.unpack(prior.pack(theta, centred=True), centred=True)
        density = float(at_theta.log_density - at_theta.log_jacobian)  # of θ itself
        for centred in (False, True):
            v = prior.pack(theta, centred)
            point = prior.unpack(v, centred)
            torch.testing.assert_close(torch.cat(point.values), theta, rtol=1e-10, atol=1e-10)
            slope = jacobian(lambda v, c=centred: torch.cat(prior.unpack(v, c).values), v)
            random = slope[~learned][:, ~learned]  # a learned number has no density
            log_det = float(torch.linalg.slogdet(random).logabsdet)
            assert abs(float(point.log_jacobian) - log_det) < 1e-10, (name, centred)
            assert abs(float(point.log_density) - density - log_det) < 1e-10, (name, centred)
        torch.testing.assert_close(prior.pack(theta), u, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", HIERARCHIES)
def test_views_agree(name: str) -> None:
    check_views(name)


def check_hierarchical_score() -> None:
    """E ∇ log p(u) = 0 at draws, non-centred: there the score has a finite variance for every parent."""
    for law in (Horseshoe(0.5), Normal(0, InverseGamma(2.0, 1.0).sqrt().per("input")), Laplace(0, HalfNormal(2.0))):
        prior = Prior(law, [Site("w", (400_000, 1))], {})
        u = prior.pack(prior.draw(Noise(1))).requires_grad_()
        (score,) = torch.autograd.grad(torch.as_tensor(prior.unpack(u).log_density), u)
        for block in score.split(prior.sizes):
            if len(block) > 1:
                assert_mean(block, 0.0)


def test_hierarchical_score() -> None:
    check_hierarchical_score()


# ---- against dense Gaussians ---------------------------------------------------------------------------------------


def check_structured_density() -> None:
    """Per layer, joint over layers, and Kronecker, against the multivariate normal with the whole covariance."""
    found = sites(NET)
    x = Noise(3, dtype=torch.float64).normal(11)
    loc = torch.tensor(0.3, dtype=torch.float64)
    blocks = [covariance(site.size) for site in found]
    weights = [site for site in found if len(site.shape) == 2]
    kronecker = [torch.kron(covariance(s.shape[0]), covariance(s.shape[1], 1)) for s in weights]
    cases = [
        (Correlated(lambda s: covariance(s.size), 0.3, 1.7), found, torch.block_diag(*blocks), 1.7),
        (Correlated(covariance(11), 0.3, 1.7).per("net"), found, covariance(11), 1.7),
        (MatrixNormal(lambda s: covariance(s.shape[0]), lambda s: covariance(s.shape[1], 1), 0.3, 0.6), weights,
         torch.block_diag(*kronecker), 0.6),
        (MatrixNormal(loc=0.3), weights, torch.eye(8).double(), 1.0),
        (Correlated(lambda s: torch.eye(s.size), loc=0.3), found, torch.eye(11).double(), 1.0),
    ]  # fmt: skip
    for law, where, dense, scale in cases:
        prior, size = Prior(law, where, {}), len(dense)
        expected = MultivariateNormal(loc.expand(size), scale**2 * dense).log_prob(x[:size])
        assert abs(float(prior.unpack(x[:size]).log_density) - float(expected)) < 1e-10, law


def check_moments(law: Law, shape: tuple[int, ...], dense: Tensor, draws: int) -> None:
    """Means and variances of coordinates and of random projections; many equal tensors give independent draws at once."""
    if law.sharing == "net":
        prior = Prior(law, [Site("w", shape)], {})
        w = torch.stack([prior.draw(Noise(seed)) for seed in range(draws)])
    else:
        w = Prior(law, [Site(f"w{i}", shape) for i in range(draws)], {}).draw(Noise(0)).view(draws, -1)
    size = len(dense)
    directions = torch.cat([torch.eye(size).double(), Noise(5, dtype=torch.float64).normal(20, size)])
    variance = (directions @ dense * directions).sum(1)
    mean = 0.3 * directions.sum(1)
    assert_mean(w @ directions.mT, mean, variance.sqrt())
    assert_gaussian_variance(w @ directions.mT, mean, variance)


def check_correlated_draws() -> None:
    check_moments(Correlated(covariance(6), 0.3, 1.7), (2, 3), 1.7**2 * covariance(6), 10_000)


def check_matrix_draws() -> None:
    dense = 0.6**2 * torch.kron(covariance(2), covariance(3, 1))
    check_moments(MatrixNormal(covariance(2), covariance(3, 1), 0.3, 0.6), (2, 3), dense, 10_000)


def test_structured_density() -> None:
    check_structured_density()


def test_structured_draws() -> None:
    check_correlated_draws()
    check_matrix_draws()
    check_moments(Correlated(covariance(6), 0.3, 1.7).per("net"), (2, 3), 1.7**2 * covariance(6), 1_500)


def test_the_moment_check_sees_a_wrong_covariance() -> None:
    wrong = covariance(6) + 0.1 * torch.eye(6)
    with pytest.raises(AssertionError):
        check_moments(Correlated(wrong, 0.3, 1.7), (2, 3), 1.7**2 * covariance(6), 10_000)


def test_convolution_columns_are_channels_times_kernel() -> None:
    found = sites(nn.Conv2d(2, 3, (1, 2), bias=False))
    x = Noise(3, dtype=torch.float64).normal(12)
    law = MatrixNormal(covariance(3), covariance(4, 1))
    dense = torch.kron(covariance(3), covariance(4, 1))
    expected = MultivariateNormal(torch.zeros(12).double(), dense).log_prob(x)
    assert abs(float(Prior(law, found, {}).unpack(x).log_density) - float(expected)) < 1e-10


@pytest.mark.parametrize(
    ("law", "message"),
    [
        (MatrixNormal(), "needs matrices"),
        (Correlated(torch.eye(3)), "must have shape"),
        (Correlated(lambda s: -torch.eye(s.size)), "positive definite"),
        (Correlated(lambda s: torch.eye(s.size) + torch.ones(s.size, s.size).triu(1) * 0.1), "symmetric"),
        (Correlated(lambda s: torch.eye(s.size)).per("net"), "needs a tensor"),
    ],
)
def test_structured_refusals(law: Law, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Prior(law, sites(NET), {})


def test_covariance_helper_is_far_from_diagonal() -> None:
    c = covariance(6).numpy()
    assert np.abs(c - np.diag(np.diag(c))).max() > 0.2
    assert math.isclose(float(np.abs(c - c.T).max()), 0.0, abs_tol=1e-15)
