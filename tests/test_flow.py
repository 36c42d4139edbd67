"""A tractable density beside the VAE: a flow is normalised, invertible, its Jacobian that of autograd, and any method takes it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from chance import assert_mean
from scipy import stats
from torch import Tensor

from nescio import Model, fit
from nescio.errors import InputError, UnsupportedError
from nescio.generative import flow_back
from nescio.infer import HMC, MAP
from nescio.laws import Normal
from nescio.likelihoods import Flowing
from nescio.nets import Flow, flow, mlp
from nescio.noise import Noise


def bent(n: int) -> Tensor:
    """A banana: x2 bends with the square of x1."""
    e = Noise(3, dtype=torch.float64).normal(n, 2)
    return torch.stack([e[:, 0], 0.5 * e[:, 1] + e[:, 0] ** 2 - 1], 1)


def made(inputs: int) -> Flow:
    net = flow(inputs, 8, 4).double()
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(1.5)
    return net


def check_change_of_variables() -> None:
    """log |dz/dx| is autograd's, and the density integrates to 1 on a grid (trapezia, 0.1 apart, smooth and gone at the edge)."""
    net = made(3)
    x = Noise(1, dtype=torch.float64).normal(5, 3)
    jacobian = torch.func.vmap(torch.func.jacrev(lambda row: net(row)["z"]))(x)
    torch.testing.assert_close(net(x)["log_det"], torch.linalg.slogdet(jacobian).logabsdet, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(net(net(x)["z"], back=True)["x"], x, rtol=1e-10, atol=1e-10)
    plane = made(2)
    line = torch.linspace(-20, 20, 401, dtype=torch.float64)
    grid = torch.cartesian_prod(line, line)
    with torch.no_grad():
        density = Flowing().observe(plane(grid)).log_prob(grid).exp()
    assert float(density.sum() * (line[1] - line[0]) ** 2) == pytest.approx(1.0, abs=1e-3)


def test_change_of_variables() -> None:
    check_change_of_variables()


def test_a_flow_learns_what_a_gaussian_cannot() -> None:
    x = bent(400)
    net = flow(2, 16, 4).double()
    posterior = fit(Model(net, Normal(0, 3), Flowing()), (x, x), MAP(epochs=30, lr=0.02, batch_size=50))
    fresh = bent(1400)[400:]
    got = posterior.predict(fresh).log_prob(fresh)
    gaussian = stats.multivariate_normal(x.mean(0), np.cov(x.T)).logpdf(fresh)
    assert float(got.mean()) > gaussian.mean() + 0.2
    drawn = flow_back(posterior, 2000, seed=1)
    assert drawn.shape == (2000, 2)
    z = posterior.model.network.call(posterior.point(), drawn)["z"]
    assert_mean(z, torch.zeros(2), torch.ones(2))  # there and back: the very noise it came from


def test_samplers_take_a_flow_and_misuse_is_refused() -> None:
    x = bent(20)
    model = Model(flow(2, 2, 2).double(), Normal(0, 1), Flowing())
    draws = fit(model, (x, x), HMC(draws=5, warmup=5, leapfrog=3))
    assert draws.predict(x).log_prob(x).isfinite().all()
    assert flow_back(draws, 7, draws=3).shape == (7, 2)
    with pytest.raises(UnsupportedError, match=r"knows its own.*log_prob"):
        _ = draws.predict(x).mean
    with pytest.raises(InputError, match="called on"):
        fit(model, (x, x + 1), MAP(epochs=1))
    with pytest.raises(InputError, match="z and its Jacobian"):
        fit(Model(mlp(2, 2), Normal(0, 1), Flowing()), (x.float(), x.float()), MAP(epochs=1))
    with pytest.raises(InputError, match="at least one point"):
        flow_back(draws, 0)
    with pytest.raises(UnsupportedError, match="taken back"):
        flow_back(draws.__class__(Model(mlp(2, 1), Normal(0, 1), Flowing()), draws.theta, draws.log_joint, {}, {}), 3)
