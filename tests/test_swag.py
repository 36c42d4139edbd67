"""SWAG: its moments against a path of gradient descent written out here, and against the law that such a path is known to have."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from chance import within
from check_method import check_method
from torch import Tensor, nn

from nescio import InputError, Model, Posterior, fit
from nescio.infer import MAP, SWAG, Laplace, Method
from nescio.infer.curvature import diag
from nescio.laws import HalfCauchy, Normal
from nescio.likelihoods import Categorical, Gaussian
from nescio.linalg import LowRank
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior import GaussianPosterior, Mixture

DOUBLE = torch.float64


def swag(model: Model, data: tuple[Tensor, Tensor], method: Method) -> GaussianPosterior:
    posterior = fit(model, data, method)
    assert isinstance(posterior, GaussianPosterior)
    return posterior


def check_moments() -> None:
    """Full batches, so the path is known: every third of 60 steps is collected, the last five are the directions."""
    x, y = Noise(1, (), dtype=DOUBLE).normal(12, 3), Noise(2, (), dtype=DOUBLE).normal(12, 1)
    net = nn.Linear(3, 1, bias=False).double()
    model = Model(net, Normal(0, 2.0), Gaussian(0.5))
    posterior = swag(model, (x, y), SWAG(5, epochs=60, lr=0.02, momentum=0.7, every=3, batch_size=12))
    w, v, path = net.weight.detach().numpy()[0].copy(), np.zeros(3), []
    for step in range(60):
        slope = (x.numpy().T @ (x.numpy() @ w - y.numpy()[:, 0]) / 0.25 + w / 4) / 12  # of -log posterior / N
        v = 0.7 * v + slope
        w = w - 0.02 * v
        if step % 3 == 2:
            path.append(w)
    kept = np.array(path)
    away = np.array([kept[i] - kept[: i + 1].mean(0) for i in range(15, 20)])
    wanted = 0.5 * np.diag(kept.var(0)) + away.T @ away / (2 * 4)
    np.testing.assert_allclose(posterior.theta, kept.mean(0), atol=1e-12)
    np.testing.assert_allclose(posterior.covariance.dense(), wanted, rtol=1e-8, atol=1e-14)
    assert isinstance(posterior.covariance, LowRank) and posterior.info["collected"] == 20


def test_moments() -> None:
    check_moments()


def check_stationary(outputs: int = 200, epochs: int = 120) -> None:
    """On a quadratic, SGD has a stationary law. One weight for each output, gradient w - y of a row: after an epoch of n batches
    w' = (1-h)ⁿ w + h Σ_j (1-h)^(n-1-j) ȳ_j, and rows are drawn without replacement, so Cov(ȳ_i, ȳ_j) = -S²/(n(n-1)) with S² = Σ(y - ȳ)²/n.

    The mean over outputs of variance / known variance: each has the relative error √(2/T) if collected points are independent; they
    are nearly so, (1-h)ⁿ = 0.008, which also forgets the start. The bound is Z observed standard errors and 3% of 1/T for both.
    """
    n, h = 4, 0.7
    y = Noise(1, (), dtype=DOUBLE).normal(n, outputs)
    net = nn.Linear(1, outputs, bias=False).double()
    nn.init.zeros_(net.weight)
    model = Model(net, Normal(0, 1e6), Gaussian(1.0))
    x = torch.ones(n, 1, dtype=DOUBLE)
    posterior = swag(model, (x, y), SWAG(2, epochs=epochs, lr=h, momentum=0.0, batch_size=1))
    r = (1 - h) ** np.arange(n)[::-1]
    scatter = y.var(0, correction=0).numpy()
    between = np.full((n, n), -1 / (n - 1))
    np.fill_diagonal(between, 1.0)
    known = scatter * h**2 * (r @ between @ r) / (1 - (1 - h) ** (2 * n))
    assert isinstance(posterior.covariance, LowRank)
    variance = 2 * posterior.covariance.values.numpy() * epochs / (epochs - 1)  # it holds half of it; unbiased
    ratio = variance / known
    se = ratio.std(ddof=1) / math.sqrt(outputs)
    within(max(abs(ratio.mean() - 1) - 0.03 / epochs, 0) / se, f"variance, {ratio.mean():.4f} ± {se:.4f},")
    z = (posterior.theta.numpy() - y.mean(0).numpy()) / np.sqrt(known / epochs)
    within(z.mean() * math.sqrt(outputs) / 1.1, "mean")  # correlation widens it by at most 1%


def test_stationary_law() -> None:
    check_stationary()


def test_mixtures_of_swag_and_of_laplace() -> None:
    x = Noise(1).normal(60, 2)
    y = (x[:, 0] > 0).long()
    model = Model(mlp(2, 4, 2), Normal(0, 1), Categorical())
    for after in (SWAG(3, epochs=4), Laplace(diag)):
        mixture = fit(model, (x, y), 3 * (MAP(epochs=3) >> after))
        assert isinstance(mixture, Mixture) and len(mixture.parts) == 3
        thetas = torch.stack([part.ends().theta[0] for part in mixture.parts])
        assert float(torch.cdist(thetas, thetas).fill_diagonal_(1).min()) > 0.1, "members differ"
        predicted = mixture.predict(x, draws=30)
        torch.testing.assert_close(predicted.mean.sum(1), torch.ones(60))
        straight = mixture.linearize().predict(x, draws=30)
        each = torch.stack([part.linearize().predict(x, draws=10, seed=0).mean for part in mixture.parts]).mean(0)  # type: ignore[attr-defined]
        assert float((straight.mean - each).abs().mean()) < 0.1  # other draws of the same functions


def test_norm_statistics_are_those_of_the_mean() -> None:
    """At the averaged weights, what goes into the norm has these moments over the data."""
    x = Noise(1).normal(64, 3) + 2
    y = x.sum(1, keepdim=True).sin()
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
    posterior = swag(Model(net, Normal(0, 1), Gaussian(0.3)), (x, y), SWAG(3, epochs=6, lr=0.05, batch_size=32))
    point = posterior.point()
    into = x @ point["0.weight"].mT + point["0.bias"]
    torch.testing.assert_close(point["1.running_mean"], into.mean(0), rtol=0.1, atol=0.1)
    torch.testing.assert_close(point["1.running_var"], into.var(0), rtol=0.2, atol=0.05)


def test_scales_and_noise_stay() -> None:
    model = Model(mlp(2, 4, 1), Normal(0, HalfCauchy(1.0)), Gaussian(HalfCauchy(1.0)))
    x = Noise(1).normal(30, 2)
    posterior = swag(model, (x, x[:, :1]), MAP(epochs=3) >> SWAG(2, epochs=3))
    assert {"likelihood.noise", "prior.*.scale"} <= set(posterior.info["fixed"])
    drawn = posterior.sample(5)
    assert float(drawn["likelihood.noise"].std()) == 0 and float(drawn["0.weight"].std(0).min()) > 0
    some = swag(model, (x, x[:, :1]), SWAG(2, epochs=3).on("0.*"))
    assert len(some.slots) == 12
    assert torch.equal(some.point()["2.weight"], model.network.weights()["2.weight"])


def test_contract() -> None:
    check_method(SWAG(2, epochs=2, lr=1e-3))


@pytest.mark.parametrize("arguments", [{"rank": 1}, {"lr": 0.0}, {"momentum": 1.0}, {"every": 0}, {"epochs": 1}])
def test_refusals(arguments: dict[str, float]) -> None:
    x = Noise(1).normal(30, 2)
    with pytest.raises(InputError):
        fit(Model(mlp(2, 4, 1), Normal(0, 1), Gaussian(1.0)), (x, x[:, :1]), SWAG(**arguments))  # type: ignore[arg-type]
    posterior: Posterior = fit(Model(mlp(2, 4, 1), Normal(0, 1), Gaussian(1.0)), (x, x[:, :1]), MAP(epochs=1))
    with pytest.raises(InputError, match="finite"):
        fit(posterior.model, (100 * x, 1e4 * x[:, :1]), SWAG(2, epochs=20, lr=10.0))
