"""Likelihoods: densities against scipy, what they recover from data, what breaks without a term, and what they refuse."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pytest
import torch
from chance import Z, within
from scipy import integrate, stats
from targets import DOUBLE, linear, to_the_mode
from torch import Tensor, nn
from torch import distributions as td

from nescio import InputError, fit
from nescio.data import toys
from nescio.data.source import source
from nescio.densities import log_density
from nescio.infer import MAP
from nescio.laws import HalfCauchy, HalfNormal, Learned, Normal
from nescio.likelihoods import (
    Bernoulli,
    Categorical,
    ContinuousBernoulli,
    Gaussian,
    Heteroscedastic,
    Likelihood,
    MultiTask,
)
from nescio.model import Model
from nescio.nets import mlp
from nescio.target import Target


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Networks start the same in whatever order the tests run."""
    torch.manual_seed(0)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.as_tensor(np.random.default_rng(seed).normal(size=shape))


def density(likelihood: Likelihood, f: Any, y: Any, **numbers: float) -> np.ndarray:
    """Log density of each row."""
    given = {name.replace("__", "."): torch.tensor(x, dtype=DOUBLE) for name, x in numbers.items()}
    return log_density(likelihood.observe(f, **given), y, lead=1).numpy()


def log_softmax(f: np.ndarray) -> np.ndarray:
    return f - np.log(np.exp(f).sum(-1, keepdims=True))


# ---- densities -------------------------------------------------------------------------------------------------------


def test_gaussian() -> None:
    f, y = normal(6, 3), normal(6, 3, seed=1)
    want = stats.norm.logpdf(y, f, 0.3).sum(1)
    np.testing.assert_allclose(density(Gaussian(), f, y, noise=0.3), want, rtol=1e-12)
    per_output = Gaussian().observe(f, noise=torch.tensor([0.1, 1.0, 3.0], dtype=DOUBLE))
    want = stats.norm.logpdf(y, f, [0.1, 1.0, 3.0]).sum(1)
    np.testing.assert_allclose(log_density(per_output, y, lead=1), want, rtol=1e-12)
    scaled = density(Gaussian(loc=5.0, scale=2.0), f, y, noise=0.3)
    np.testing.assert_allclose(scaled, stats.norm.logpdf(y, 5 + 2 * f.numpy(), 0.6).sum(1), rtol=1e-12)


def test_heteroscedastic() -> None:
    f, y = normal(6, 4), normal(6, 2, seed=1)
    m, sd = f.numpy()[:, :2], 1e-6 + np.log1p(np.exp(f.numpy()[:, 2:]))
    want = stats.norm.logpdf(y, m, sd).sum(1)
    np.testing.assert_allclose(density(Heteroscedastic(), f, y), want, rtol=1e-12)
    loss = ((y.numpy() - m) ** 2 / (2 * sd**2) + np.log(sd) + 0.5 * math.log(2 * math.pi)).sum(1)
    np.testing.assert_allclose(density(Heteroscedastic(), f, y), -loss, rtol=1e-12)  # as Kendall & Gal write it
    want = stats.norm.logpdf(y, 1 + 3 * m, 3 * sd).sum(1)
    np.testing.assert_allclose(density(Heteroscedastic(loc=1.0, scale=3.0), f, y), want, rtol=1e-12)
    wide = np.sqrt((3 * sd) ** 2 + 2.0**2 / 12)  # a step of 2, in the units of y
    want = stats.norm.logpdf(y, 1 + 3 * m, wide).sum(1)
    np.testing.assert_allclose(density(Heteroscedastic(1.0, 3.0, rounded=2.0), f, y), want, rtol=1e-12)
    sure = torch.tensor([[0.0, -1000.0], [0.0, 1000.0]])  # neither a division by zero nor an overflow
    assert np.isfinite(density(Heteroscedastic(), sure, torch.ones(2, 1))).all()


def test_rounding_ends_the_reward_for_certainty() -> None:
    """A Gaussian that is rounded has that variance more; without it a network that hits whole numbers gains without end."""
    whole = np.arange(-20, 21)
    chance = np.diff(stats.norm.cdf(np.append(whole - 0.5, 20.5), 0.3, 1.2))
    variance = (chance * whole**2).sum() - (chance * whole).sum() ** 2
    assert variance == pytest.approx(1.44 + 1 / 12, abs=1e-9)
    certain = torch.tensor([[0.3, -50.0]], dtype=DOUBLE)
    assert float(Heteroscedastic(rounded=1.0).observe(certain).variance) == pytest.approx(variance - 1.44, abs=1e-9)
    hit = torch.tensor([[0.0, -5.0], [0.0, -10.0], [0.0, -20.0]])
    free, held = (density(Heteroscedastic(rounded=step), hit, torch.zeros(3, 1)) for step in (0.0, 1.0))
    assert free[2] - free[1] > 3 and abs(held[2] - held[1]) < 1e-3


def test_categorical() -> None:
    f, y = normal(6, 4), torch.tensor([0, 1, 2, 3, 0, 2])
    want = log_softmax(f.numpy())[range(6), y]
    np.testing.assert_allclose(density(Categorical(), f, y, noise=1.0), want, rtol=1e-12)
    want = log_softmax(f.numpy() / 0.25)[range(6), y]
    np.testing.assert_allclose(density(Categorical(), f, y, noise=0.5), want, rtol=1e-12)
    images = normal(2, 3, 4, 5)  # (N, C, H, W)
    labels = torch.as_tensor(np.random.default_rng(0).integers(0, 3, (2, 4, 5)))
    each = log_softmax(np.moveaxis(images.numpy(), 1, -1))
    want = np.take_along_axis(each, labels.numpy()[..., None], -1).sum((1, 2, 3))
    np.testing.assert_allclose(density(Categorical(axis=-3), images, labels, noise=1.0), want, rtol=1e-12)


def test_bernoulli() -> None:
    f = normal(6, 3)
    y = (normal(6, 3, seed=1) > 0).to(DOUBLE)
    want = stats.bernoulli.logpmf(y, 1 / (1 + np.exp(-f.numpy()))).sum(1)
    np.testing.assert_allclose(density(Bernoulli(), f, y), want, rtol=1e-12)


LOGITS = [-15.0, -3.0, -0.5, -0.0041, -0.004, -0.0039, -1e-3, -1e-6, 0.0, 1e-9, 0.0039, 0.0041, 0.02, 1.0, 8.0, 15.0]


@pytest.mark.parametrize("logit", LOGITS)
def test_the_continuous_bernoulli_is_normalised(logit: float) -> None:
    def at(y: float) -> float:
        f, one = torch.full((1, 1), logit, dtype=DOUBLE), torch.full((1, 1), y, dtype=DOUBLE)
        return math.exp(density(ContinuousBernoulli(), f, one)[0])

    assert integrate.quad(at, 0, 1, epsabs=0, epsrel=1e-11)[0] == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("logit", LOGITS)
def test_the_continuous_bernoulli_is_the_tilted_uniform(logit: float) -> None:
    """log p(y) = y f - log ((e^f - 1) / f)."""
    y = torch.linspace(0, 1, 11, dtype=DOUBLE)[:, None]
    got = density(ContinuousBernoulli(), torch.full_like(y, logit), y)
    normaliser = math.log(math.expm1(logit) / logit) if logit else 0.0
    np.testing.assert_allclose(got, y.numpy()[:, 0] * logit - normaliser, rtol=0, atol=1e-9)


def test_the_continuous_bernoulli_in_single_precision() -> None:
    """Mean and variance near one half, where a careless formula is 0 / 0: the exact variance is 1/12."""
    f = torch.linspace(-0.05, 0.05, 101)
    observed = ContinuousBernoulli().observe(f)
    np.testing.assert_allclose(observed.variance, 1 / 12 - f.double().numpy() ** 2 / 240, rtol=1e-4)
    np.testing.assert_allclose(observed.mean, 0.5 + f.double().numpy() / 12, rtol=1e-4)


@pytest.mark.parametrize("logit", [-60.0, 60.0])
def test_the_continuous_bernoulli_is_normalised_far_out(logit: float) -> None:
    """A black pixel that the network is sure of: log p(0) = log f + f - log(e^f - 1)."""
    y = torch.full((1, 1), float(logit > 0), dtype=DOUBLE)
    got = density(ContinuousBernoulli(), torch.full_like(y, logit), y)[0]
    assert got == pytest.approx(math.log(60) - math.log1p(-math.exp(-60)), abs=1e-9)


def test_several_tasks_are_the_sum_of_their_parts() -> None:
    tasks = MultiTask(depth=Gaussian(Learned(1.0)), seg=Categorical(Learned(1.0)))
    f = {"depth": normal(5, 2), "seg": normal(5, 3, seed=1)}
    y = {"depth": normal(5, 2, seed=2), "seg": torch.tensor([0, 1, 2, 1, 0])}
    got = density(tasks, f, y, depth__noise=0.4, seg__noise=1.7)
    parts = (
        density(Gaussian(), f["depth"], y["depth"], noise=0.4),
        density(Categorical(), f["seg"], y["seg"], noise=1.7),
    )
    np.testing.assert_allclose(got, sum(parts), rtol=1e-12)
    # 1/(2σ²) of the squared error plus log σ, and 1/σ² of the logits (Kendall et al., 2018)
    error = ((y["depth"] - f["depth"]) ** 2).sum(1).numpy()
    np.testing.assert_allclose(parts[0], -error / (2 * 0.4**2) - 2 * math.log(0.4) - math.log(2 * math.pi), rtol=1e-10)


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.depth, self.seg = nn.Linear(2, 1), nn.Linear(2, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"depth": self.depth(x), "seg": self.seg(x)}


def test_several_tasks_end_to_end() -> None:
    x = normal(300, 2).float()
    y = {"depth": x.sum(1, keepdim=True) + 0.2 * normal(300, 1, seed=1).float(), "seg": (x[:, 0] > 0).long()}
    model = Model(TwoHeads(), Normal(0, 3), MultiTask(depth=Gaussian(Learned(1.0)), seg=Categorical(Learned(1.0))))
    posterior = fit(model, (x, y), 2 * MAP(epochs=80, lr=3e-2, batch_size=100))
    got = posterior.sample(2)
    assert {"likelihood.depth.noise", "likelihood.seg.noise", "depth.weight", "seg.bias"} <= set(got)
    assert got["likelihood.depth.noise"].shape == (2,)
    within((float(got["likelihood.depth.noise"][0]) / 0.2 - 1) * math.sqrt(600))  # 300 rows
    predictive = posterior.predict(x)
    joint = predictive.log_prob(y)
    assert joint.shape == (300,)
    observed = model.observed(got, x)
    by_hand = log_density(observed, y, lead=2).logsumexp(0) - math.log(2)
    torch.testing.assert_close(joint, by_hand)


# ---- what they recover -----------------------------------------------------------------------------------------------


def test_a_learned_noise_recovers_sigma() -> None:
    """σ̂ has the standard error σ / sqrt(2N); the bias of three weights is 3/(2N), a twentieth of one standard error."""
    rng, n, sigma = np.random.default_rng(0), 2000, 0.7
    x = rng.normal(size=(n, 3))
    y = x @ [1.0, -2.0, 0.5] + sigma * rng.normal(size=n)
    model = linear(3, Normal(0, 10), Gaussian(Learned(1.0)))
    data = torch.as_tensor(x), torch.as_tensor(y)[:, None]
    posterior = fit(model, data, to_the_mode(n))
    found = posterior.point()["likelihood.noise"].item()
    within((found - sigma) / sigma * math.sqrt(2 * n))
    assert abs(found - 1.0) > Z * sigma / math.sqrt(2 * n)  # where it started would not do


def test_a_random_noise_is_a_latent_and_recovers_sigma_too() -> None:
    rng, n = np.random.default_rng(0), 2000
    x = torch.as_tensor(rng.normal(size=(n, 1)))
    y = 2 * x + torch.as_tensor(rng.normal(size=(n, 2)) * [0.3, 3.0])
    net = nn.Linear(1, 2, dtype=DOUBLE)
    noise = HalfCauchy(torch.ones(2, dtype=DOUBLE))  # one for each output
    posterior = fit(Model(net, Normal(0, 10), Gaussian(noise)), (x, y), to_the_mode(n))
    found = posterior.point()["likelihood.noise"].numpy()
    within((found / [0.3, 3.0] - 1) * math.sqrt(2 * n))


def test_a_law_inside_a_likelihood_may_be_hierarchical() -> None:
    """The scale of the noise's own law is a latent, but not a number of the likelihood."""
    model = Model(nn.Linear(1, 1), Normal(0, 1), Gaussian(HalfNormal(HalfCauchy(1.0))))
    posterior = fit(model, (torch.randn(20, 1), torch.randn(20, 1)), MAP(epochs=2))
    assert {"likelihood.noise", "likelihood.noise.scale"} <= set(posterior.sample(1))
    assert posterior.predict(torch.zeros(3, 1)).mean.shape == (3, 1)


def fitted_sd(likelihood: Likelihood, n: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """(true, found) noise standard deviation, averaged over ten bins of x, on data whose noise grows ninefold."""
    x, y = toys.heteroscedastic(n)
    torch.manual_seed(0)
    model = Model(mlp(1, 32, 2, activation=nn.Tanh), Normal(0, 3), likelihood)
    posterior = fit(model, (x, y), MAP(epochs=50, lr=1e-2, batch_size=128))
    at = torch.linspace(-2, 2, 401)[:-1, None] + 0.005
    found = posterior.predict(at).aleatoric.sqrt()
    true = toys.heteroscedastic_sd(at)
    return true.reshape(10, 40).mean(1).numpy(), found.reshape(10, 40).mean(1).numpy()


def test_heteroscedastic_recovers_the_noise_as_a_function_of_x() -> None:
    """A bin of 300 points fixes its sd to 1/sqrt(600) = 4.1 %; Z of these, a quarter, are what a net may be off that
    shares nothing between bins. One sd for all, 0.27, would be wrong by a factor of four at the left."""
    true, found = fitted_sd(Heteroscedastic())
    within((found / true - 1) * math.sqrt(600))
    assert abs(0.27 / true[0] - 1) > 2


@final
class Unweighted(td.Distribution):
    """A Gaussian of which one term is missing: what is left is no density."""

    arg_constraints = {}

    def __init__(self, f: Tensor, weighted: bool, penalised: bool) -> None:
        self.centre, self.log_variance = f.chunk(2, dim=-1)
        self.weighted, self.penalised = weighted, penalised
        super().__init__(self.centre.shape, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.centre

    @property
    def variance(self) -> Tensor:
        return self.log_variance.exp()

    def log_prob(self, value: Tensor) -> Tensor:
        weight = (-self.log_variance).exp() if self.weighted else 1.0
        return -0.5 * weight * (value - self.mean) ** 2 - (0.5 * self.log_variance if self.penalised else 0.0)


@final
@dataclass(frozen=True, eq=False)
class Ablated(Likelihood):
    """Heteroscedastic with one of its two terms switched off."""

    weighted: bool = True
    penalised: bool = True

    def observe(self, f: Tensor) -> td.Distribution:
        return Unweighted(f, self.weighted, self.penalised)

    def check(self, f: Any, y: Any) -> None:
        Heteroscedastic().check(f, y)


def test_without_log_sigma_the_noise_runs_away() -> None:
    true, found = fitted_sd(Ablated(penalised=False), n=1000)
    assert found.min() > 10 * true.max()
    true, found = fitted_sd(Ablated(), n=1000)  # the same code with both terms is the right one
    within((found / true - 1) * math.sqrt(200))


class MeanAndNoise(nn.Module):
    """Mean from the first column, log variance from the second, which flags the outliers."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.noise = nn.Linear(1, 1, dtype=DOUBLE), nn.Linear(1, 1, dtype=DOUBLE)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.mean(x[..., :1]), self.noise(x[..., 1:])], -1)


def test_without_the_weight_outliers_dominate() -> None:
    """A fifth of the rows is flagged and 200 times as noisy. Weighted, the slope is as good as from the clean rows alone."""
    rng, n = np.random.default_rng(0), 1000
    flag = (np.arange(n) % 5 == 0).astype(float)
    sd = np.where(flag > 0, 10.0, 0.05)
    x = rng.normal(size=n)
    y = 2 * x + sd * rng.normal(size=n)
    data = torch.as_tensor(np.stack([x, flag], 1)), torch.as_tensor(y)[:, None]
    standard_error = 1 / math.sqrt((x**2 / sd**2).sum())
    errors = {}
    for name, likelihood in {"right": Heteroscedastic(), "ablated": Ablated(weighted=False)}.items():
        model = Model(MeanAndNoise(), Normal(0, 10), likelihood)
        posterior = fit(model, data, to_the_mode(n))
        errors[name] = abs(posterior.point()["mean.weight"].item() - 2)
    within(errors["right"] / standard_error)  # as weighted least squares with the true noise
    assert errors["ablated"] > 10 * Z * standard_error


# ---- units -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Gaussian, Heteroscedastic])
def test_units_are_those_of_y(kind: Callable[..., Likelihood]) -> None:
    """Net in standard units and likelihood in y's: the same posterior as standardising by hand, densities with the Jacobian."""
    x, y = normal(40, 2), 50 + 7 * normal(40, 1, seed=1)
    loc, scale = y.mean().item(), y.std().item()
    torch.manual_seed(0)
    net = mlp(2, 4, 1 if kind is Gaussian else 2, activation=nn.Tanh).to(DOUBLE)
    noise = {"noise": 0.5} if kind is Gaussian else {}
    ours = Model(net, Normal(0, 1), kind(**noise, loc=loc, scale=scale))
    hand = Model(net, Normal(0, 1), kind(**noise))
    z = (y - loc) / scale
    method = 2 * MAP(epochs=5, batch_size=16)
    a, b = fit(ours, (x, y), method), fit(hand, (x, z), method)
    torch.testing.assert_close(a.point()["0.weight"], b.point()["0.weight"], rtol=1e-9, atol=1e-12)
    p, q = a.predict(x), b.predict(x)
    torch.testing.assert_close(p.mean, loc + scale * q.mean, rtol=1e-9, atol=0)
    torch.testing.assert_close(p.variance, scale**2 * q.variance, rtol=1e-9, atol=0)
    torch.testing.assert_close(p.quantile(0.2), loc + scale * q.quantile(0.2), rtol=1e-7, atol=0)
    torch.testing.assert_close(p.log_prob(y), q.log_prob(z) - math.log(scale), rtol=1e-7, atol=1e-9)


def test_units_per_output() -> None:
    f, y = normal(5, 2), normal(5, 2, seed=1)
    loc, scale = torch.tensor([[1.0, -10.0], [1.0, 100.0]], dtype=DOUBLE)
    want = stats.norm.logpdf(y, loc.numpy() + scale.numpy() * f.numpy(), 0.5 * scale.numpy()).sum(1)
    np.testing.assert_allclose(density(Gaussian(loc=loc, scale=scale), f, y, noise=0.5), want, rtol=1e-10)


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_in_three_parts() -> None:
    x, f32 = torch.randn(6, 2), torch.float32
    y, labels = torch.randn(6, 1), torch.tensor([0, 1, 2, 0, 1, 2])

    def one(out: int, likelihood: Likelihood, y: Any) -> None:
        fit(Model(nn.Linear(2, out), Normal(0, 1), likelihood), (x, y), MAP(epochs=1))

    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: one(1, Gaussian(0.1), y[:, 0]), r"y must have shape \(N, 1\); got \(6,\); use y\[:, None\]"),
        (lambda: one(2, Gaussian(0.1), y), r"shape \(N, 2\); got \(6, 1\)"),
        (lambda: one(1, Gaussian(0.1), y.double()), f"y must be {f32} .*; got torch.float64; use y.to"),
        (lambda: one(1, Gaussian(0.1), labels[:, None]), "got torch.int64"),
        (lambda: one(1, Heteroscedastic(), y), "a mean and a scale per output; got 1 outputs; double"),
        (lambda: one(2, Heteroscedastic(rounded=-1.0), y), "rounded is a step"),
        (lambda: one(2, Heteroscedastic(), y[:, 0]), r"shape \(N, 1\); got \(6,\)"),
        (lambda: one(3, Categorical(), y), r"y must have shape \(N,\); got \(6, 1\)"),
        (lambda: one(3, Categorical(), y[:, 0]), "labels must be whole numbers; got torch.float32; use y.long"),
        (lambda: one(2, Categorical(), labels), r"labels must lie in 0 \.\.\. 1; got 0 \.\.\. 2, first at row 2"),
        (lambda: one(3, Categorical(), labels - 1), r"got -1 \.\.\. 1, first at row 0"),
        (lambda: one(1, Bernoulli(), y.sigmoid()), "y must hold zeros and ones.*ContinuousBernoulli"),
        (lambda: one(1, ContinuousBernoulli(), 255 * y.sigmoid()), r"y must lie in \[0, 1\].*divide pixels by 255"),
        (lambda: Categorical(axis=1), "axis counts from the end"),
        (lambda: one(1, Gaussian(-1.0), y), "likelihood.noise must satisfy"),
        (lambda: one(1, Gaussian(Normal(0, 1)), y), r"likelihood\.noise must satisfy .*; got Normal"),
        (lambda: one(1, MultiTask(a=Gaussian(1.0)), y), "must be a dictionary with the tasks"),
    ]
    for call, message in wrong:
        with pytest.raises(InputError, match=message) as caught:
            call()
        assert all((caught.value.must, caught.value.got, caught.value.remedy))


def test_an_outcome_of_the_wrong_shape_never_broadcasts() -> None:
    x, y = torch.randn(6, 2), torch.randn(6, 1)
    model = Model(nn.Linear(2, 1), Normal(0, 1), Gaussian(0.5))
    predictive = fit(model, (x, y), 2 * MAP(epochs=1)).predict(x)
    assert predictive.log_prob(y).shape == (6,)
    for wrong in (y[:, 0], y[:1], y.T, torch.zeros(())):
        with pytest.raises(InputError, match="y must have shape"):
            predictive.log_prob(wrong)
    target = Target(model, source((x, y)))
    with pytest.raises(InputError, match="y must have shape"):
        model.log_likelihood(model.params(torch.zeros(model.dim)), x, y[:, 0])
    assert torch.isfinite(target.log_density(torch.zeros(1, model.dim), target.batch(None))).all()
