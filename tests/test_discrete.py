"""Discrete latents by enumeration: every configuration of a tiny network, every submodel of a linear model.

The library's prior and likelihood are summed over all configurations and compared, to 1e-10, with evidences computed apart in numpy.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor, nn
from torch.autograd.functional import hessian
from torch.func import vmap

from nescio import Model, UnsupportedError, fit
from nescio.infer.map import MAP
from nescio.laws import Bernoulli, Discrete, HalfCauchy, Law, Normal, SpikeSlab
from nescio.laws.law import unvalidated
from nescio.likelihoods import Gaussian
from nescio.noise import Noise

X = Noise(0, ("x",), dtype=torch.float64).normal(7, 2)
Y = Noise(0, ("y",), dtype=torch.float64).normal(7, 1)
NOISE = 0.8
BINARY = {
    "signs": (Discrete(), {-1.0: 0.5, 1.0: 0.5}),
    "zero or one": (Bernoulli(0.3), {0.0: 0.7, 1.0: 0.3}),
    "ternary": (Discrete((-1.0, 0.0, 1.0), (0.25, 0.6, 0.15)), {-1.0: 0.25, 0.0: 0.6, 1.0: 0.15}),
}


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2, bias=False), nn.Tanh(), nn.Linear(2, 1, bias=False)).double()


def log_joint(model: Model, u: Tensor) -> Tensor:
    """log p(u) + log p(Y | X, u) as the library has them, one vector at a time."""
    return model.log_prior(u) + model.log_likelihood(model.params(u), X, Y)


def all_of(values: tuple[float, ...], count: int) -> Tensor:
    return torch.tensor(list(itertools.product(values, repeat=count)), dtype=torch.float64)


def by_hand(law_masses: dict[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """All weights (configurations, 6) and the log of prior times likelihood, in numpy."""
    w = all_of(tuple(law_masses), 6).numpy()
    prior = np.log(np.vectorize(law_masses.get)(w)).sum(1)
    hidden = np.tanh(np.einsum("ni,coi->cno", X.numpy(), w[:, :4].reshape(-1, 2, 2)))
    f = np.einsum("cno,co->cn", hidden, w[:, 4:])
    return w, prior + stats.norm.logpdf(Y.numpy()[:, 0], f, NOISE).sum(1)


def check_enumeration(name: str) -> None:
    """Evidence, posterior and posterior mean of a network of six discrete weights."""
    law, masses = BINARY[name]
    model = Model(network(), law, Gaussian(NOISE))
    assert model.dim == 6
    w, truth = by_hand(masses)
    configurations = torch.from_numpy(w)
    with unvalidated():
        found = vmap(lambda u: log_joint(model, u))(configurations)
        prior = vmap(model.log_prior)(configurations)
    assert abs(float(prior.logsumexp(0))) < 1e-10  # the prior sums to one
    assert abs(float(found.logsumexp(0)) - special.logsumexp(truth)) < 1e-10
    np.testing.assert_allclose(found.softmax(0), special.softmax(truth), rtol=1e-9, atol=1e-14)
    mean = found.softmax(0) @ configurations
    np.testing.assert_allclose(mean, special.softmax(truth) @ w, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", BINARY)
def test_enumeration(name: str) -> None:
    check_enumeration(name)


# ---- a delta spike: 2^M submodels ----------------------------------------------------------------------------------

FEATURES, INCLUSION, SLAB = 4, 0.3, 1.3
DESIGN = Noise(1, ("design",), dtype=torch.float64).normal(9, FEATURES)
TARGET = DESIGN[:, :1] * 1.5 + NOISE * Noise(1, ("target",), dtype=torch.float64).normal(9, 1)


def submodel_evidence(gate: np.ndarray) -> float:
    """log N(y; 0, σ² I + s² X_γ X_γᵀ) + log prior of the submodel."""
    x = DESIGN.numpy() * gate
    covariance = NOISE**2 * np.eye(len(x)) + SLAB**2 * x @ x.T
    inside = stats.multivariate_normal(np.zeros(len(x)), covariance).logpdf(TARGET.numpy()[:, 0])
    return float(inside) + float(stats.bernoulli(INCLUSION).logpmf(gate.astype(int)).sum())


def slab_integral(model: Model, gate: Tensor) -> Tensor:
    """log ∫ p(y, w, γ) dw: the joint density is Gaussian in w, so one Newton step and a determinant give it exactly."""

    def joint(w: Tensor) -> Tensor:
        u = torch.cat([gate, w])
        params = model.params(u)
        return model.log_prior(u) + model.log_likelihood(params, DESIGN, TARGET)

    w = torch.zeros(FEATURES, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(joint(w), w)
    curvature = -hessian(joint, w.detach())
    top = torch.linalg.solve(curvature, slope)
    half_log_det = 0.5 * torch.linalg.slogdet(curvature).logabsdet
    return joint(top) + 0.5 * FEATURES * math.log(2 * math.pi) - half_log_det


def check_submodels() -> None:
    model = Model(nn.Linear(FEATURES, 1, bias=False).double(), SpikeSlab(INCLUSION, SLAB), Gaussian(NOISE))
    assert [v.discrete for v in model.prior.variables] == [True, False]
    assert model.dim == 2 * FEATURES
    gates = all_of((0.0, 1.0), FEATURES)
    found = torch.stack([slab_integral(model, gate) for gate in gates])
    truth = np.array([submodel_evidence(gate) for gate in gates.numpy()])
    np.testing.assert_allclose(found.detach(), truth, rtol=1e-10, atol=1e-10)
    inclusion = found.softmax(0) @ gates
    np.testing.assert_allclose(inclusion.detach(), special.softmax(truth) @ gates.numpy(), rtol=1e-9)
    assert int(inclusion.argmax()) == 0  # the only feature that made the target


def test_all_submodels_of_a_delta_spike() -> None:
    check_submodels()


def test_gate_multiplies_the_weight() -> None:
    model = Model(nn.Linear(FEATURES, 1, bias=False).double(), SpikeSlab(INCLUSION, SLAB), Gaussian(NOISE))
    u = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.5, 0.6, 0.7, 0.8]).double()
    assert model.params(u)["weight"].flatten().tolist() == [0.5, 0.0, 0.0, float(u[7])]


@pytest.mark.parametrize("law", [Discrete(), Bernoulli(0.3), SpikeSlab(0.3, 1.0), SpikeSlab(0.3, HalfCauchy(1.0))])
def test_gradient_methods_refuse_discrete_latents(law: Law) -> None:
    with pytest.raises(UnsupportedError, match="discrete latents"):
        fit(Model(network(), law, Gaussian(NOISE)), (X, Y), MAP(epochs=1))
    assert fit(Model(network(), Normal(), Gaussian(NOISE)), (X, Y), MAP(epochs=1)) is not None
