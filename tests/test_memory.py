"""A posterior as the next prior: exact where it is Gaussian, the order of weights right, the rest of the prior left as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from chance import assert_gaussian_variance, assert_mean
from scipy import stats
from targets import conjugate
from torch import Tensor, nn

from nescio import InputError, Model, UnsupportedError, evidence, fit
from nescio.infer import MAP, VI, Laplace, NeuralLinear, Subnetwork
from nescio.infer.curvature import Structure, diag, full, kfac, low_rank
from nescio.infer.families import MeanField
from nescio.laws import HalfCauchy, Normal
from nescio.laws.remembered import Remembered
from nescio.likelihoods import Categorical, Gaussian
from nescio.linalg import Blocks, Dense, Diag, LowRank, Operator
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior import GaussianPosterior

DOUBLE = torch.float64
ORDERED = {"bias": Normal(0.3, 1.5), "weight": Normal(0, 0.5)}  # the vector has the bias first, the network the weight


def two(prior: Any = ORDERED, outputs: int = 2) -> tuple[nn.Module, Model, Tensor, Tensor]:
    torch.default_generator.manual_seed(0)
    x, y = Noise(3, (), dtype=DOUBLE).normal(20, 3), Noise(4, (), dtype=DOUBLE).normal(20, outputs)
    net = nn.Linear(3, outputs).double()
    return net, Model(net, prior, Gaussian(0.7)), x, y


def check_in_sequence(structures: tuple[Structure, ...] = (full, kfac, low_rank(8))) -> None:
    """Two parts one after the other and all at once: mean, covariance by names, and the evidences add up."""
    net, model, x, y = two()
    for structure in structures:
        method = NeuralLinear() >> Laplace(structure)  # the mode of a linear model in closed form
        whole, first = fit(model, (x, y), method), fit(model, (x[:8], y[:8]), method)
        second = fit(Model(net, first.as_prior(), Gaussian(0.7)), (x[8:], y[8:]), method)
        assert isinstance(whole, GaussianPosterior) and isinstance(second, GaussianPosterior)
        for name in ("weight", "bias"):
            torch.testing.assert_close(second.point()[name], whole.point()[name], rtol=0, atol=1e-8)
        order = torch.tensor([2, 3, 4, 5, 6, 7, 0, 1])  # the whole one has the biases first
        joint = whole.covariance.dense()[order][:, order]
        torch.testing.assert_close(second.covariance.dense(), joint, rtol=0, atol=1e-8)
        total = float(evidence(first)) + float(evidence(second))
        assert total == pytest.approx(float(evidence(whole)), abs=1e-8)


def test_in_sequence_is_at_once() -> None:
    check_in_sequence()


def check_neural_linear_in_sequence() -> None:
    torch.default_generator.manual_seed(0)
    net, x, y = (
        mlp(3, 4, 2).double(),
        Noise(3, (), dtype=DOUBLE).normal(20, 3),
        Noise(4, (), dtype=DOUBLE).normal(20, 2),
    )
    model = Model(net, Normal(0, 1.2), Gaussian(0.7))
    whole: Any = fit(model, (x, y), NeuralLinear())
    first: Any = fit(model, (x[:9], y[:9]), NeuralLinear())
    second: Any = fit(Model(net, first.as_prior(), Gaussian(0.7)), (x[9:], y[9:]), NeuralLinear())
    assert list(first.as_prior()) == ["0.weight", "0.bias", "*"]
    torch.testing.assert_close(second.regression.mean, whole.regression.mean, rtol=0, atol=1e-8)
    torch.testing.assert_close(second.predict(x).variance, whole.predict(x).variance, rtol=0, atol=1e-8)
    assert float(first.evidence() + second.evidence()) == pytest.approx(float(whole.evidence()), abs=1e-8)


def test_neural_linear_in_sequence() -> None:
    check_neural_linear_in_sequence()


def check_law() -> None:
    """Density of every structure against scipy; 20,000 draws."""
    a = Noise(5, (), dtype=DOUBLE).normal(6, 6)
    mean, matrix = Noise(6, (), dtype=DOUBLE).normal(6), a @ a.mT + torch.eye(6)
    places = (torch.tensor([4, 1]), torch.tensor([0, 5, 3, 2]))
    operators: list[Operator] = [
        Dense(matrix),
        Diag(matrix.diagonal().clone()),
        LowRank(matrix.diagonal().clone(), a[:, :2], torch.ones(2, dtype=DOUBLE)),
        Blocks((Dense(matrix[:2, :2]), Diag(matrix.diagonal()[2:].clone())), places),
    ]
    for operator in operators:
        model = Model(nn.Linear(2, 2).double(), Remembered(mean, operator), Gaussian(1.0))
        w = Noise(7, (), dtype=DOUBLE).normal(6)
        exact = stats.multivariate_normal(mean.numpy(), operator.dense().numpy())
        assert float(model.log_prior(w)) == pytest.approx(float(exact.logpdf(w.numpy())), abs=1e-9)
        stacked = torch.func.vmap(model.log_prior)(torch.stack([w, 2 * w]))
        assert float(stacked[1]) == pytest.approx(float(exact.logpdf(2 * w.numpy())), abs=1e-9)
        drawn = torch.stack([model.prior.draw(Noise(8, (i,), dtype=DOUBLE)) for i in range(2000)])
        assert_mean(drawn, mean, operator.diagonal().sqrt())
        direction = torch.linspace(-1, 1, 6, dtype=DOUBLE)
        along = float(direction @ operator.dense() @ direction)
        assert_gaussian_variance(drawn @ direction, float(mean @ direction), along)


def test_the_law() -> None:
    check_law()


def test_mean_field_and_a_float_network() -> None:
    """Variational continual learning: the prior is q; MAP under it and nothing new stays at the mean of q."""
    x = Noise(1).normal(40, 2)
    net = mlp(2, 4, 3)
    y = (x[:, 0] > 0).long()
    posterior = fit(Model(net, Normal(0, 1), Categorical()), (x, y), VI(MeanField(), epochs=3))
    laws = posterior.as_prior()
    assert list(laws) == ["*"] and isinstance(laws["*"], Remembered) and isinstance(laws["*"].covariance, Diag)
    drawn = posterior.sample(4000)
    flat = torch.cat([drawn[name].flatten(1) for name, _ in net.named_parameters()], 1)
    assert_mean(flat, laws["*"].mean, laws["*"].covariance.values.sqrt())
    assert_gaussian_variance(flat, laws["*"].mean, laws["*"].covariance.values)
    model = Model(net, laws, Categorical())
    after = fit(model, (x, y), MAP(epochs=2) >> Laplace(diag))
    again: Any = fit(model, (x, y), VI(MeanField(), epochs=2))
    assert isinstance(after, GaussianPosterior) and np.isfinite(again.info["elbo"])
    assert bool((after.covariance.diagonal() <= laws["*"].covariance.values * (1 + 1e-6)).all()), "data only add"


def test_refusals() -> None:
    known = conjugate()
    with pytest.raises(UnsupportedError, match="Gaussian posterior"):
        fit(known.model, known.data, MAP(epochs=1)).as_prior()
    x = Noise(1).normal(30, 2)
    model = Model(mlp(2, 4, 1), Normal(0, 1), Gaussian(1.0))
    part = fit(model, (x, x[:, :1]), Laplace(full).on(Subnetwork(3)))
    with pytest.raises(UnsupportedError, match="whole tensors"):
        part.as_prior()
    shared = Model(mlp(2, 4, 1), Normal(0, HalfCauchy(1.0)), Gaussian(1.0))
    with pytest.raises(UnsupportedError, match="shared"):
        fit(shared, (x, x[:, :1]), Laplace(full).on("2.*")).as_prior()
    with pytest.raises(InputError, match="matched weights"):
        Model(mlp(2, 5, 1), fit(model, (x, x[:, :1]), Laplace(full)).as_prior(), Gaussian(1.0))
