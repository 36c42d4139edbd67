"""total = aleatoric + epistemic; more data remove the one and better features the other. And the examples that show it."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from chance import assert_law, between, within
from scipy import stats
from targets import DOUBLE, conjugate, linear, to_the_mode
from torch import Tensor, nn

import nescio
from nescio import UnsupportedError, fit
from nescio.infer import MAP
from nescio.laws import Learned, Normal
from nescio.likelihoods import Bernoulli, Categorical, Gaussian, Heteroscedastic, Likelihood
from nescio.model import Model
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.predictive import Predictive

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def example(name: str) -> ModuleType:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def points(n: int = 7) -> Tensor:
    return torch.as_tensor(np.random.default_rng(0).normal(size=(n, 2)))


def prior_predictive(likelihood: Likelihood, outputs: int, draws: int) -> Predictive:
    torch.manual_seed(0)
    model = Model(mlp(2, 8, outputs, activation=nn.Tanh).to(DOUBLE), Normal(0, 1), likelihood)
    return model.prior_predictive(points(), draws=draws)


def ensemble(likelihood: Likelihood, outputs: int) -> Predictive:
    """Five members on a few rows of noise."""
    torch.manual_seed(0)
    model = Model(mlp(2, 8, outputs, activation=nn.Tanh).to(DOUBLE), Normal(0, 1), likelihood)
    x = points(20)
    y: Tensor = (x[:, :1] > 0).to(DOUBLE)
    if isinstance(likelihood, Categorical):
        y = y[:, 0].long()
    return fit(model, (x, y), 5 * MAP(epochs=3)).predict(points())


def entropy(p: np.ndarray) -> np.ndarray:
    return -np.where(p > 0, p * np.log(np.maximum(p, 1e-300)), 0.0).sum(-1)


REAL = [(Gaussian(0.3), 1), (Gaussian(Learned(0.5)), 1), (Heteroscedastic(), 2)]
DISCRETE = [(Bernoulli(), 1), (Categorical(), 3)]
from_draws: list[Callable[[Likelihood, int], Predictive]] = [lambda l, k: prior_predictive(l, k, 50), ensemble]
both_sources = pytest.mark.parametrize("source", from_draws, ids=["prior draws", "ensemble"])


# ---- the identity ----------------------------------------------------------------------------------------------------


@both_sources
@pytest.mark.parametrize(("likelihood", "outputs"), REAL, ids=lambda v: type(v).__name__)
def test_real_outcomes_total_variance(
    source: Callable[[Likelihood, int], Predictive], likelihood: Likelihood, outputs: int
) -> None:
    """The variance of the mixture from its first two moments, by hand, is the sum of the parts."""
    predictive = source(likelihood, outputs)
    each = predictive.draws  # type: ignore[attr-defined]
    second = (each.variance + each.mean**2).mean(0)
    by_hand = second - each.mean.mean(0) ** 2
    torch.testing.assert_close(predictive.total, by_hand, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(predictive.variance, by_hand, rtol=1e-10, atol=1e-12)
    assert torch.equal(predictive.total, predictive.aleatoric + predictive.epistemic)
    torch.testing.assert_close(predictive.std, by_hand.sqrt(), rtol=1e-10, atol=0)
    assert bool((predictive.epistemic > 0).all())


@both_sources
@pytest.mark.parametrize(("likelihood", "outputs"), DISCRETE, ids=lambda v: type(v).__name__)
def test_discrete_outcomes_total_entropy(
    source: Callable[[Likelihood, int], Predictive], likelihood: Likelihood, outputs: int
) -> None:
    """H[E p] = E H[p] + I(y; w), and I is the mean divergence of the members from their mixture."""
    predictive = source(likelihood, outputs)
    p = predictive.draws.probs.numpy()  # type: ignore[attr-defined]
    p = np.stack([1 - p, p], -1) if outputs == 1 else p  # (draws, points, ..., classes)
    mixture = p.mean(0)
    np.testing.assert_allclose(predictive.total, entropy(mixture), rtol=1e-10)
    np.testing.assert_allclose(predictive.aleatoric, entropy(p).mean(0), rtol=1e-10)
    divergence = (p * np.log(p / mixture)).sum(-1).mean(0)
    np.testing.assert_allclose(predictive.epistemic, divergence, rtol=1e-8, atol=1e-12)
    assert bool((predictive.epistemic > 0).all())
    assert bool((predictive.total <= math.log(max(outputs, 2)) + 1e-12).all())


@pytest.mark.parametrize(("likelihood", "outputs"), REAL + DISCRETE, ids=lambda v: type(v).__name__)
def test_one_draw_has_no_epistemic_uncertainty(likelihood: Likelihood, outputs: int) -> None:
    predictive = prior_predictive(likelihood, outputs, 1)
    np.testing.assert_allclose(predictive.epistemic, 0.0, atol=1e-14)
    torch.testing.assert_close(predictive.total, predictive.aleatoric, rtol=0, atol=1e-14)
    assert bool((predictive.aleatoric > 0).all())


# ---- the mixture's other numbers -------------------------------------------------------------------------------------


def test_density_quantiles_and_samples_are_those_of_the_mixture() -> None:
    """Density and quantiles to rounding; samples by DKW, n = 40 000: a gap of 0.03 is seen."""
    predictive = prior_predictive(Gaussian(0.3), 1, 40)
    means = predictive.draws.mean[..., 0].numpy()  # type: ignore[attr-defined]  # (draws, points)
    y = np.linspace(-2, 2, 7)
    density = np.log(stats.norm.pdf(y, means, 0.3).mean(0))
    np.testing.assert_allclose(predictive.log_prob(torch.as_tensor(y)[:, None]), density, rtol=1e-10)
    low, high = (bound[:, 0].numpy() for bound in predictive.interval(0.9))
    np.testing.assert_allclose(stats.norm.cdf(low, means, 0.3).mean(0), 0.05, atol=1e-9)
    np.testing.assert_allclose(stats.norm.cdf(high, means, 0.3).mean(0), 0.95, atol=1e-9)
    drawn = predictive.sample(40_000, seed=1)[:, 0, 0].numpy()
    assert_law(drawn, lambda v: stats.norm.cdf(v[:, None], means[:, 0], 0.3).mean(1))
    with pytest.raises(AssertionError):  # planted: a Gaussian with the mixture's moments
        assert_law(drawn, stats.norm(means[:, 0].mean(), predictive.std[0, 0].item()).cdf)


def test_samples_serve_every_draw_evenly_and_are_coherent_over_points() -> None:
    net = nn.Linear(1, 1, bias=False, dtype=DOUBLE)
    model = Model(net, Normal(0, 1), Gaussian(1e-9))
    theta = torch.arange(1.0, 5.0, dtype=DOUBLE)[:, None]
    predictive = model.predictive(model.named(theta), torch.tensor([[1.0], [10.0]], dtype=DOUBLE))
    drawn = predictive.sample(6)[..., 0]
    torch.testing.assert_close(drawn[:, 1], 10 * drawn[:, 0], rtol=1e-6, atol=1e-6)  # one function each
    counts = torch.stack([(drawn[:, 0] - k).abs() < 1e-3 for k in range(1, 5)]).sum(1)
    assert sorted(counts.tolist()) == [1, 1, 2, 2]
    assert torch.equal(predictive.sample(6), predictive.sample(6))
    assert not torch.equal(predictive.sample(6), predictive.sample(6, seed=1))


def test_labels_have_no_quantiles() -> None:
    predictive = prior_predictive(Categorical(), 3, 5)
    torch.testing.assert_close(predictive.mean.sum(-1), torch.ones(7, dtype=DOUBLE))
    torch.testing.assert_close(predictive.variance, predictive.mean * (1 - predictive.mean))
    with pytest.raises(UnsupportedError, match="quantiles need an ordered outcome"):
        predictive.quantile(0.5)


# ---- data remove the epistemic part, features the aleatoric one (000-3, 000-4) ---------------------------------------


def test_epistemic_falls_as_one_over_n_and_aleatoric_does_not() -> None:
    """Exact conjugate draws: S x epistemic / (xᵀΣx) is chi-square with S - 1 degrees."""
    draws, x = 2000, torch.as_tensor(np.random.default_rng(5).normal(size=(20, 3)))
    exact, found, aleatoric = [], [], []
    for n in (100, 200, 400, 1600):
        known = conjugate(n=n, scale=10.0)
        predictive = known.posterior(draws, np.random.default_rng(n)).predict(x, draws=None)
        variance = np.einsum("ni,ij,nj->n", x, known.covariance, x)
        between(draws * predictive.epistemic[:, 0].numpy() / variance, stats.chi2(draws - 1))
        exact.append(variance.mean())
        found.append(predictive.epistemic.mean().item())
        aleatoric.append(predictive.aleatoric)
    for step in (0, 1):  # twice the data, half the variance: up to the luck of the inputs, 1/sqrt(N) each
        assert exact[step] / exact[step + 1] == pytest.approx(2.0, rel=0.3)
    assert found[0] / found[3] == pytest.approx(16.0, rel=0.3)
    assert all(bool((a == 0.25).all()) for a in aleatoric)


def test_aleatoric_falls_when_an_informative_feature_is_added() -> None:
    """y = x₁ + x₂ + noise: without x₂ its variance counts as noise. 1 + 0.09 against 0.09, each with the error sqrt(2/N), relative."""
    rng, n = np.random.default_rng(0), 2000
    features = torch.as_tensor(rng.normal(size=(n, 3)))  # the third one tells nothing
    y = features[:, :2].sum(1, keepdim=True) + 0.3 * torch.as_tensor(rng.normal(size=(n, 1)))
    found = []
    for columns in ([0], [0, 2], [0, 1]):
        x = features[:, columns]
        posterior = fit(linear(len(columns), Normal(0, 10), Gaussian(Learned(1.0))), (x, y), to_the_mode(n))
        found.append(posterior.predict(x).aleatoric.mean().item())
    truth = np.array([1.09, 1.09, 0.09])  # an uninformative one does not help
    within((np.array(found) / truth - 1) / math.sqrt(2 / n))


def test_disagreement_grows_away_from_the_data() -> None:
    x = torch.as_tensor(np.random.default_rng(0).uniform(-1, 1, size=(50, 1)))
    torch.manual_seed(0)
    model = Model(mlp(1, 20, 1).to(DOUBLE), Normal(0, 1), Gaussian(0.1))
    posterior = fit(model, (x, torch.sin(3 * x)), 5 * MAP(epochs=60, batch_size=50))
    near, far = (posterior.predict(c + torch.linspace(-1, 1, 21, dtype=DOUBLE)[:, None]) for c in (0.0, 5.0))
    assert far.epistemic.mean() > 10 * near.epistemic.mean()


# ---- the examples ----------------------------------------------------------------------------------------------------


def test_the_example_of_the_two_uncertainties(capsys: pytest.CaptureFixture[str]) -> None:
    module = example("epistemic_aleatoric")
    table = module.main(quick=True)
    assert [row.rows for row in table] == [100, 200, 400]
    assert (
        table[0].on_data > table[2].on_data
    )  # 1 / N would be four times; six members tell a ratio only to a factor of two or so
    for row in table:
        assert row.in_gap > 5 * row.on_data  # no data, no knowledge
        within((row.aleatoric / module.NOISE**2 - 1) / math.sqrt(2 / row.rows))
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_the_example_of_an_own_law_and_likelihood(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = example("own_law_and_likelihood")
    posterior, errors = module.main(quick=True)
    robust, usual = errors.values()
    assert robust < 0.5 * usual
    assert len(capsys.readouterr().out.splitlines()) == 2
    # the posterior is like any other: it can be stored and read back
    path, x = tmp_path / "posterior.safetensors", torch.linspace(-1, 1, 5)[:, None]
    posterior.save(path)
    again = nescio.load(path, Model(mlp(1, 30, 1), module.Logistic(0.0, 0.5), module.Robust(Learned(1.0))))
    assert torch.equal(again.predict(x).mean, posterior.predict(x).mean)
    other = Model(mlp(1, 30, 1), module.Logistic(0.0, 0.6), module.Robust(Learned(1.0)))
    with pytest.raises(nescio.FileError, match="another prior"):
        nescio.load(path, other)


def test_an_own_laws_draws_have_its_density() -> None:
    """DKW against scipy, n = 50 000. Planted: a scale wrong by 15 %, seen with probability 1 - 1e-6."""
    law = example("own_law_and_likelihood").Logistic(1.0, 0.5)
    model = linear(50_000, law, Gaussian(1.0))
    drawn = model.prior.draw(Noise(0, dtype=DOUBLE))
    assert_law(drawn, stats.logistic(1.0, 0.5).cdf)
    with pytest.raises(AssertionError):
        assert_law(drawn, stats.logistic(1.0, 0.5 * 1.15).cdf)
    u = torch.linspace(-4, 4, 50_000, dtype=DOUBLE)
    want = stats.logistic.logpdf(u, 1.0, 0.5).sum()
    assert model.log_prior(u).item() == pytest.approx(want, rel=1e-10)
