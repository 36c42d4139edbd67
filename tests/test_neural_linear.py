"""The neural linear model against formulas written out here, to 1e-8: mean, covariance, evidence, predictive, Student's t, streaming."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chance import assert_gaussian_variance, assert_law, assert_mean, within
from scipy import integrate, stats
from targets import conjugate
from torch import Tensor, nn

from nescio import FileError, InputError, Model, UnsupportedError, evidence, fit, load
from nescio.diagnose import diagnose
from nescio.functions import StudentFunctions
from nescio.infer import HMC, MAP, Laplace, Method, NeuralLinear
from nescio.infer.curvature import full
from nescio.laws import Cauchy, Correlated, HalfCauchy, InverseGamma, Normal
from nescio.likelihoods import Categorical, Gaussian
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior import LinearHead, Mixture

DOUBLE = torch.float64
NOISE, SCALES, LOC, SCALE = torch.tensor([0.4, 0.9], dtype=DOUBLE), (1.3, 0.7), 0.5, 2.0
PRIOR = {"2.weight": Normal(0.2, SCALES[0]), "2.bias": Normal(0, SCALES[1]), "*": Normal(0, 1)}


def head(model: Model, data: Any, method: Method = NeuralLinear(), **options: Any) -> LinearHead:
    posterior = fit(model, data, method, **options)
    assert isinstance(posterior, LinearHead)
    return posterior


def problem(likelihood: Any = None, outputs: int = 2, prior: Any = None) -> tuple[Model, Tensor, Tensor, np.ndarray]:
    """A network of one hidden layer, data, and the features of all rows with a one, by hand."""
    torch.default_generator.manual_seed(0)
    x, y = Noise(3, (), dtype=DOUBLE).normal(25, 3), Noise(4, (), dtype=DOUBLE).normal(25, outputs)
    net = mlp(3, 4, outputs).double()
    likelihood = Gaussian(NOISE[:outputs], LOC, SCALE) if likelihood is None else likelihood
    hidden = np.maximum(x.numpy() @ net[0].weight.detach().numpy().T + net[0].bias.detach().numpy(), 0)
    return Model(net, PRIOR if prior is None else prior, likelihood), x, y, np.column_stack([hidden, np.ones(25)])


def check_linear() -> None:
    """A network that is nothing but its last layer: the conjugate model."""
    known = conjugate()
    posterior = head(known.model, known.data)
    x, y = Noise(1, (), dtype=DOUBLE).normal(6, 3), Noise(2, (), dtype=DOUBLE).normal(6, 1)
    assert known.predict is not None and known.log_evidence is not None
    wanted, predicted = known.predict(x.numpy()), posterior.predict(x)
    np.testing.assert_allclose(posterior.theta, known.mean, atol=1e-10)
    np.testing.assert_allclose(posterior.gaussian().covariance.dense(), known.covariance, atol=1e-10)
    assert float(posterior.evidence()) == pytest.approx(known.log_evidence, abs=1e-8)
    np.testing.assert_allclose(predicted.mean[:, 0], wanted.mean, atol=1e-10)
    np.testing.assert_allclose(predicted.variance[:, 0], wanted.variance, atol=1e-10)
    np.testing.assert_allclose(predicted.aleatoric[:, 0], 0.25, rtol=1e-12)
    np.testing.assert_allclose(predicted.log_prob(y), wanted.log_prob(y[:, 0].numpy()), atol=1e-8)


def test_linear_model() -> None:
    check_linear()


def by_hand(phi: np.ndarray, z: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean, covariance and evidence of one output; the prior has mean 0.2 for weights and 0 for the bias."""
    loc = np.append(np.full(phi.shape[1] - 1, 0.2), 0.0)
    prior = np.diag(np.append(np.full(phi.shape[1] - 1, SCALES[0] ** 2), SCALES[1] ** 2))
    covariance = np.linalg.inv(phi.T @ phi / noise**2 + np.linalg.inv(prior))
    mean = covariance @ (phi.T @ z / noise**2 + np.linalg.inv(prior) @ loc)
    marginal = stats.multivariate_normal(phi @ loc, phi @ prior @ phi.T + noise**2 * np.eye(len(z)))
    return mean, covariance, float(marginal.logpdf(z))


def check_features() -> None:
    """Two outputs, noise of their own, a prior with a mean, units of y."""
    model, x, y, phi = problem()
    posterior = head(model, (x, y))
    z = (y.numpy() - LOC) / SCALE
    told = [by_hand(phi, z[:, o], float(NOISE[o])) for o in range(2)]
    predicted = posterior.predict(x)
    for o, (mean, covariance, _) in enumerate(told):
        np.testing.assert_allclose(posterior.regression.mean[o], mean, atol=1e-9)
        spread = np.einsum("ni,ij,nj->n", phi, covariance, phi)
        np.testing.assert_allclose(predicted.mean[:, o], LOC + SCALE * phi @ mean, atol=1e-9)
        np.testing.assert_allclose(predicted.epistemic[:, o], SCALE**2 * spread, atol=1e-9)
        np.testing.assert_allclose(predicted.aleatoric[:, o], SCALE**2 * float(NOISE[o]) ** 2, atol=1e-12)
    total = sum(t[2] for t in told) - y.numel() * math.log(SCALE)
    assert float(posterior.evidence()) == pytest.approx(total, abs=1e-8)


def test_features() -> None:
    check_features()


def check_against_laplace() -> None:
    """The last layer alone under Laplace(full) is the same Gaussian, and has the same evidence and functions."""
    model, x, y, _ = problem()
    exact = head(model, (x, y))
    laplace: Any = fit(model, (x, y), NeuralLinear() >> Laplace(full).on("2.*"))
    assert float(evidence(laplace)) == pytest.approx(float(evidence(exact)), abs=1e-8)
    with pytest.raises(UnsupportedError, match="own prior"):
        evidence(exact, {"prior.2.weight.scale": torch.tensor(1.0)})
    ours, theirs = exact.predict(x), laplace.linearize().predict(x)
    torch.testing.assert_close(ours.variance, theirs.variance, rtol=1e-9, atol=1e-10)
    gaussian = exact.gaussian()
    assert torch.equal(gaussian.slots, laplace.slots)
    torch.testing.assert_close(gaussian.covariance.dense(), laplace.covariance.dense(), rtol=1e-8, atol=1e-10)


def test_last_layer_laplace_is_the_same() -> None:
    check_against_laplace()


def check_streaming() -> None:
    """Row by row, in uneven pieces, with known and with unknown noise: equal to all at once."""
    for likelihood, method in (
        (None, NeuralLinear()),
        (Gaussian(InverseGamma(2.0, 1.0).sqrt(), LOC, SCALE), NeuralLinear(scaled=True)),
    ):
        model, x, y, _ = problem(likelihood)
        whole, part = head(model, (x, y), method), head(model, (x[:3], y[:3]), method)
        for a, b in ((3, 4), (4, 13), (13, 25)):
            part = part.update(x[a:b], y[a:b])
        assert part.rows == whole.rows == 25 and part.info["rows"] == 25
        torch.testing.assert_close(part.theta, whole.theta, rtol=0, atol=1e-8)
        assert float(part.evidence()) == pytest.approx(float(whole.evidence()), abs=1e-8)
        one, two = part.predict(x), whole.predict(x)
        torch.testing.assert_close(one.variance, two.variance, rtol=0, atol=1e-8)
        torch.testing.assert_close(one.log_prob(y), two.log_prob(y), rtol=0, atol=1e-8)


def test_streaming() -> None:
    check_streaming()


SHAPE, RATE = 2.5, 1.2


def given_noise(phi: np.ndarray, z: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """log p(z | σ²) of all outputs, N(Φ loc, σ² (Φ P⁻¹ Φᵀ + 1)), for each of the variances."""
    loc = np.append(np.full(phi.shape[1] - 1, 0.2), 0.0)
    unit = phi @ np.diag(np.append(np.full(phi.shape[1] - 1, SCALES[0] ** 2), SCALES[1] ** 2)) @ phi.T + np.eye(
        len(phi)
    )
    r = z - (phi @ loc)[:, None]
    square, volume = float((r * np.linalg.solve(unit, r)).sum()), z.shape[1] * float(np.linalg.slogdet(unit)[1])
    return -0.5 * (square / variance + volume + z.size * np.log(2 * np.pi * variance))


def integrated(phi: np.ndarray, z: np.ndarray) -> float:
    """The same with the noise integrated out, on a grid of its logarithm: exact to rounding, smooth and zero at both ends."""
    t = np.linspace(-6, 6, 801)
    log = given_noise(phi, z, np.exp(t)) + stats.invgamma.logpdf(np.exp(t), SHAPE, scale=RATE) + t
    return float(log.max() + math.log(integrate.trapezoid(np.exp(log - log.max()), t)))


def check_student() -> None:
    """One noise for two outputs, and one for each: evidence and predictive by integration over the noise; quantiles by scipy."""
    rows = 8
    for shared in (True, False):
        ones = 1.0 if shared else torch.ones(2, dtype=DOUBLE)
        model, x, y, phi = problem(Gaussian(InverseGamma(SHAPE * ones, RATE * ones).sqrt(), LOC, SCALE))
        posterior = head(model, (x[:rows], y[:rows]), NeuralLinear(scaled=True))
        z = (y.numpy() - LOC) / SCALE
        groups = [z] if shared else [z[:, :1], z[:, 1:]]
        first = sum(integrated(phi[:rows], g[:rows]) for g in groups) - 2 * rows * math.log(SCALE)
        assert float(posterior.evidence()) == pytest.approx(first, abs=1e-8)
        predicted = posterior.predict(x[rows : rows + 1])
        assert isinstance(predicted, StudentFunctions)
        both = sum(integrated(phi[: rows + 1], g[: rows + 1]) for g in groups) - 2 * (rows + 1) * math.log(SCALE)
        assert float(predicted.log_prob(y[rows : rows + 1])) == pytest.approx(both - first, abs=1e-8)
        shape, rate = posterior.regression.inverse_gamma
        assert shape.tolist() == [SHAPE + rows] if shared else [SHAPE + rows / 2] * 2
        wide = ((predicted.spread.diagonal(dim1=1, dim2=2) + predicted.unit) * (rate / shape)).sqrt()
        for q in (0.05, 0.5, 0.9):
            wanted = stats.t(2 * shape.numpy()).ppf(q) * wide.numpy() + predicted.mean.numpy()
            np.testing.assert_allclose(predicted.quantile(q), wanted, atol=1e-8)
        exact = stats.t(2 * shape.numpy(), scale=wide.numpy()).var()
        np.testing.assert_allclose(predicted.variance, exact, rtol=1e-10)
        np.testing.assert_allclose(
            predicted.aleatoric, SCALE**2 * stats.invgamma(shape, scale=rate).mean() * np.ones((1, 2))
        )


def test_students_t() -> None:
    check_student()


def check_draws() -> None:
    """20,000 draws of the head and of the noise, and of outcomes."""
    model, x, y, _ = problem()
    posterior = head(model, (x, y))
    drawn = posterior.sample(20_000)
    weight = torch.cat([drawn["2.weight"], drawn["2.bias"][..., None]], -1)  # (draws, outputs, inputs)
    mean = posterior.regression.mean
    variance = posterior.regression.covariance().diagonal(dim1=1, dim2=2)
    assert_mean(weight.flatten(1), mean.flatten(), variance.flatten().sqrt())
    assert_gaussian_variance(weight.flatten(1), mean.flatten(), variance.flatten())
    phi = posterior.features(x[:1])
    f = (weight @ phi[0] * SCALE + LOC).numpy()  # correlations of the weights count here
    predicted = posterior.predict(x[:1])
    assert_gaussian_variance(f, predicted.mean[0].numpy(), predicted.epistemic[0].numpy())
    unknown, x, y, _ = problem(Gaussian(InverseGamma(SHAPE, RATE).sqrt()))
    posterior = head(unknown, (x, y), NeuralLinear(scaled=True))
    drawn = posterior.sample(20_000)
    shape, rate = (float(n) for n in posterior.regression.inverse_gamma)
    assert_law(drawn["likelihood.noise"].square(), stats.invgamma(shape, scale=rate).cdf)
    w, centre = drawn["2.weight"][:, 0, 0].numpy(), float(posterior.regression.mean[0, 0])
    sd = math.sqrt(rate / shape * float(posterior.regression.covariance()[0, 0, 0]))
    assert_law(w, stats.t(2 * shape, loc=centre, scale=sd).cdf)
    predicted = posterior.predict(x[:1])
    one = predicted.sample(20_000)[:, 0, 0]
    wide = math.sqrt(rate / shape * float(predicted.spread[0, 0, 0] + predicted.unit[0, 0]))  # type: ignore[attr-defined]
    assert_law(one, stats.t(2 * shape, loc=float(predicted.mean[0, 0]), scale=wide).cdf)


def test_draws() -> None:
    check_draws()


def test_hmc_on_the_last_layer_agrees() -> None:
    """A sampler that knows nothing of conjugacy: z-scores of the means of weights with their Monte Carlo errors."""
    model, x, y, _ = problem()
    exact = head(model, (x, y))
    method = NeuralLinear() >> (4 * HMC(draws=100, warmup=60, leapfrog=4).on("2.*"))
    chains: Any = fit(model, (x, y), method, seed=1, compile=False)
    drawn = chains.theta[:, :, exact.head.table.reshape(-1)]
    found = diagnose(drawn)
    away = drawn.flatten(0, 1).mean(0) - exact.regression.mean.flatten()
    within(away.numpy() / found.mcse_mean)
    ratio = drawn.flatten(0, 1).var(0) / exact.regression.covariance().diagonal(dim1=1, dim2=2).flatten()
    within((ratio - 1) / math.sqrt(2 / float(found.ess_bulk.min())))


def test_a_prior_that_ties_outputs_together() -> None:
    """One covariance over all weights of the head: a block of all of them, against the closed form and Laplace."""
    a = Noise(5, (), dtype=DOUBLE).normal(8, 8)
    tied = {"2.weight": Correlated(a @ a.mT + torch.eye(8)), "*": Normal(0, 1)}
    model, x, y, _ = problem(prior=tied)
    posterior = head(model, (x, y))
    assert posterior.regression.precision.shape == (1, 10, 10)
    laplace: Any = fit(model, (x, y), NeuralLinear() >> Laplace(full).on("2.*"))
    torch.testing.assert_close(
        posterior.gaussian().covariance.dense(), laplace.covariance.dense(), rtol=1e-8, atol=1e-9
    )
    spread = posterior.predict(x).spread  # type: ignore[attr-defined]
    torch.testing.assert_close(spread, laplace.linearize().predict(x).spread, rtol=1e-8, atol=1e-9)
    assert float(posterior.evidence()) == pytest.approx(float(evidence(laplace)), abs=1e-7)
    noise = Gaussian(InverseGamma(SHAPE, RATE).sqrt(), LOC, SCALE)
    unknown, x, y, _ = problem(noise, prior=tied)
    before = head(unknown, (x[:8], y[:8]), NeuralLinear(scaled=True))
    predicted: Any = before.predict(x[8:9])
    assert float(predicted.spread[0, 0, 1].abs()) > 0.01  # of one point, outputs vary together
    gain = float(before.update(x[8:9], y[8:9]).evidence() - before.evidence())  # the chain rule
    assert float(predicted.log_prob(y[8:9])) == pytest.approx(gain, abs=1e-8)
    drawn, exact = predicted.sample(20_000)[:, 0], float(predicted.spread[0, 0, 1] / predicted.unit[0, 0])
    shape, rate = before.regression.inverse_gamma
    product = (drawn - predicted.mean[0]).prod(1) / (SCALE**2 * rate / (shape - 1))
    assert_mean(product, exact)
    one = {"2.weight": Correlated(a[:4, :4] @ a[:4, :4].mT + torch.eye(4)), "*": Normal(0, 1)}
    model, x, y, _ = problem(outputs=1, prior=one)
    assert head(model, (x, y)).regression.precision.shape == (1, 5, 5)


def test_it_composes(tmp_path: Path) -> None:
    model, x, y, _ = problem()
    posterior = head(model, (x, y), MAP(epochs=5) >> NeuralLinear())
    assert {"0.weight", "0.bias"} <= set(posterior.info["fixed"]) and "2.weight" not in posterior.info["fixed"]
    own = model.network.weights()
    assert posterior.info["before"]["epochs"] == 5 and not torch.equal(posterior.point()["0.weight"], own["0.weight"])
    assert torch.equal(head(model, (x, y)).point()["0.weight"], own["0.weight"])  # a network as it is
    mixture = fit(model, (x, y), 2 * (MAP(epochs=2) >> NeuralLinear()))
    assert isinstance(mixture, Mixture) and mixture.predict(x, draws=10).mean.shape == (25, 2)
    posterior.save(tmp_path / "a.safetensors")
    again = load(tmp_path / "a.safetensors", model)
    assert isinstance(again, LinearHead)
    torch.testing.assert_close(again.predict(x).variance, posterior.predict(x).variance, rtol=0, atol=0)
    assert float(again.update(x[:2], y[:2]).evidence()) == float(posterior.update(x[:2], y[:2]).evidence())
    broken = {**posterior.tensors(), "precision": torch.eye(3)[None]}
    with pytest.raises(FileError, match="sums"):
        LinearHead.restore(model, broken, posterior.header()["info"])
    single, x, y, _ = problem(outputs=1)
    one = head(single, (x, y))
    with pytest.raises(InputError, match="at least one point"):
        one.update(x[:0], y[:0])
    one.save(tmp_path / "one.safetensors")
    torch.testing.assert_close(load(tmp_path / "one.safetensors", single).predict(x).mean, one.predict(x).mean)
    model, x, y, _ = problem()
    cold = head(model, (x, y), temperature=0.5)
    torch.testing.assert_close(cold.predict(x).epistemic, head(model, (x, y)).predict(x).epistemic / 2)
    with pytest.raises(UnsupportedError, match="temperature"):
        cold.evidence()


@pytest.mark.parametrize(
    ("model", "method", "says"),
    [
        (lambda: Model(mlp(3, 4, 2).double(), Normal(0, 1), Categorical()), NeuralLinear(), "Gaussian noise"),
        (lambda: Model(mlp(3, 4, 2).double(), Cauchy(0, 1), Gaussian(1.0)), NeuralLinear(), "Gaussian prior"),
        (
            lambda: Model(nn.Sequential(nn.Linear(3, 2), nn.Tanh()).double(), Normal(0, 1), Gaussian(1.0)),
            NeuralLinear(),
            "end in",
        ),
        (
            lambda: Model(mlp(3, 4, 2).double(), Normal(0, 1), Gaussian(HalfCauchy(1.0))),
            NeuralLinear(scaled=True),
            "inverse-gamma",
        ),
        (lambda: Model(mlp(3, 4, 2).double(), Normal(0, 1), Gaussian(1.0)), NeuralLinear().on("0.*"), "last layer"),
        (
            lambda: Model(mlp(3, 4, 2).double(), Normal(0, 1), Gaussian(1.0)),
            3 * NeuralLinear(),
            "features of their own",
        ),
    ],
    ids=["classes", "heavy tails", "no head", "other noise", "fixed head", "replicas"],
)
def test_refusals(model: Any, method: Method, says: str) -> None:
    _, x, y, _ = problem()
    built = model()
    data = (x, y[:, 0].gt(0).long()) if isinstance(built.likelihood, Categorical) else (x, y)
    with pytest.raises((UnsupportedError, InputError), match=says):
        fit(built, data, method)
