"""A predictive is the equal-weight mixture over draws: densities, quantiles, samples and entropies against closed forms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pytest
import torch
from chance import ALPHA, M, assert_law, assert_mean, assert_probability, likely, within
from scipy import stats
from scipy.special import logsumexp
from targets import DOUBLE
from torch import Tensor, nn
from torch import distributions as td

from nescio import InputError, UnsupportedError
from nescio.densities import Joint
from nescio.errors import NescioError
from nescio.laws import Normal
from nescio.laws.law import Number, positive
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
from nescio.predictive import Drawn, Predictive


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def gaussians(means: Any, sds: Any, dtype: torch.dtype = DOUBLE) -> Drawn:
    """Means and sds (draws, points), as observations (points, 1)."""
    mean, sd = np.broadcast_arrays(np.asarray(means, dtype=float), np.asarray(sds, dtype=float))
    return Drawn(td.Normal(torch.tensor(mean, dtype=dtype)[..., None], torch.tensor(sd, dtype=dtype)[..., None]))


def cdf(y: Any, means: Any, sds: Any) -> np.ndarray:
    """Of the mixture, at one value for each point."""
    return stats.norm.cdf(np.asarray(y, dtype=float), means, sds).mean(0)


def parts(error: NescioError) -> None:
    """All three clauses are there."""
    assert all((error.must, error.got, error.remedy))


MIXTURES = {
    "one draw": (np.array([[0.3, -2.0]]), np.array([[0.5, 3.0]])),
    "overlapping": (normal(20, 4), 0.1 + normal(20, 4, seed=1) ** 2),
    "far apart": (np.array([[-1e3, 0.0], [1e3, 5.0], [0.0, 1e4]]), np.full((3, 2), 1e-2)),
    "scales apart": (np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([[1e-3, 1e3], [1e3, 1e-3]])),
    "away from zero": (1e6 + normal(5, 2), np.full((5, 2), 0.1)),
}
LEVELS = [1e-6, 0.01, 0.05, 0.3, 0.5, 0.7, 0.95, 0.999, 1 - 1e-6]
every_mixture = pytest.mark.parametrize(("means", "sds"), MIXTURES.values(), ids=MIXTURES.keys())


# ---- density ---------------------------------------------------------------------------------------------------------


def test_the_density_is_the_log_of_the_mean() -> None:
    means, sds, y = normal(7, 5, 2), 0.2 + normal(7, 5, 2, seed=1) ** 2, normal(5, 2, seed=2)
    predictive = Drawn(td.Normal(torch.tensor(means), torch.tensor(sds)))
    want = logsumexp(stats.norm.logpdf(y, means, sds).sum(-1), axis=0) - math.log(7)
    np.testing.assert_allclose(predictive.log_prob(torch.tensor(y)), want, rtol=1e-12)


def test_the_density_does_not_underflow() -> None:
    """A thousand standard deviations out every density is zero, and its logarithm is not."""
    means = np.array([[0.0, 1.0], [0.5, -1.0]])
    y = np.array([1000.0, -1000.0])
    want = logsumexp(stats.norm.logpdf(y, means, 1.0), axis=0) - math.log(2)
    got = gaussians(means, 1.0).log_prob(torch.tensor(y)[:, None])
    np.testing.assert_allclose(got, want, rtol=1e-12)
    assert bool((got.exp() == 0).all())


# ---- quantiles -------------------------------------------------------------------------------------------------------


@every_mixture
def test_the_distribution_function_at_a_quantile_is_its_level(means: np.ndarray, sds: np.ndarray) -> None:
    predictive = gaussians(means, sds)
    found = [predictive.quantile(q)[:, 0].numpy() for q in LEVELS]
    for q, y in zip(LEVELS, found, strict=True):
        np.testing.assert_allclose(cdf(y, means, sds), q, rtol=0, atol=1e-6)
    assert bool((np.diff(found, axis=0) >= 0).all())


@every_mixture
@pytest.mark.parametrize("level", [0.05, 0.5, 0.9, 0.999])
def test_an_interval_holds_its_level_with_even_tails(means: np.ndarray, sds: np.ndarray, level: float) -> None:
    low, high = (cdf(bound[:, 0], means, sds) for bound in gaussians(means, sds).interval(level))
    np.testing.assert_allclose(high - low, level, rtol=0, atol=1e-6)
    np.testing.assert_allclose(low, (1 - level) / 2, rtol=0, atol=1e-6)


def test_one_draw_has_the_quantiles_of_its_own_distribution() -> None:
    predictive = gaussians([[0.3, -2.0]], [[0.5, 3.0]])
    for q in LEVELS:
        want = stats.norm.ppf(q, [0.3, -2.0], [0.5, 3.0])
        np.testing.assert_allclose(predictive.quantile(q)[:, 0], want, rtol=1e-9, atol=1e-9)


def test_quantiles_in_single_precision() -> None:
    means, sds = MIXTURES["overlapping"]
    predictive = gaussians(means, sds, torch.float32)
    for q in (0.05, 0.5, 0.95):
        assert predictive.quantile(q).dtype == torch.float32
        np.testing.assert_allclose(cdf(predictive.quantile(q)[:, 0], means, sds), q, atol=1e-5)


def test_quantiles_of_grey_pixels() -> None:
    """The continuous Bernoulli with logit f has distribution function (e^{fy} - 1) / (e^f - 1)."""
    f = normal(6, 4, 3) * 5
    predictive = Drawn(ContinuousBernoulli().observe(torch.tensor(f)))
    for q in (0.01, 0.5, 0.9):
        y = predictive.quantile(q).numpy()
        np.testing.assert_allclose((np.expm1(f * y) / np.expm1(f)).mean(0), q, rtol=0, atol=1e-9)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 1.5, 90.0, math.nan])
def test_a_level_outside_the_open_unit_interval_is_refused(level: float) -> None:
    with pytest.raises(InputError, match="a level lies strictly between 0 and 1; got") as caught:
        gaussians([[0.0]], 1.0).interval(level)
    parts(caught.value)


# ---- samples ---------------------------------------------------------------------------------------------------------

SAMPLED = (np.array([[0.0, 5.0], [2.0, -1.0], [-3.0, 0.0]]), np.array([[0.2, 1.0], [2.0, 0.1], [0.5, 3.0]]))


def test_samples_have_the_law_of_the_mixture_at_every_point() -> None:
    """DKW and z-tests of two moments, n = 20 000, no multiple of the three draws. Planted: the draws' sds swapped."""
    means, sds = SAMPLED
    drawn = gaussians(means, sds).sample(20_000, seed=3)[..., 0].numpy()
    assert drawn.shape == (20_000, 2)
    for point in range(2):
        own = drawn[:, point]
        law = lambda y, s=sds, p=point: stats.norm.cdf(y[:, None], means[:, p], s[:, p]).mean(1)  # noqa: E731
        assert_law(own, law)
        with pytest.raises(AssertionError):
            assert_law(own, lambda y, law=law: law(y, sds[::-1]))
    mean, second = means.mean(0), (means**2 + sds**2).mean(0)
    assert_mean(drawn, mean)
    assert_mean(drawn**2, second)


def test_samples_of_grey_pixels() -> None:
    """DKW, n = 20 000. Planted: the Bernoulli's mean for the continuous one's, as a shift."""
    f = np.array([-3.0, 0.5, 8.0])
    drawn = Drawn(ContinuousBernoulli().observe(torch.tensor(f)[:, None, None])).sample(20_000)[:, 0, 0]
    law = lambda y: (np.expm1(f * np.clip(y, 0, 1)[:, None]) / np.expm1(f)).mean(1)  # noqa: E731
    assert_law(drawn, law)
    with pytest.raises(AssertionError):
        assert_law(drawn + 0.1, law)


def test_samples_of_labels() -> None:
    """Frequencies by the exact binomial: samples are even over draws, which only narrows it."""
    p = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])  # (draws, classes)
    drawn = Drawn(td.Categorical(probs=torch.tensor(p)[:, None])).sample(10_001)
    assert drawn.shape == (10_001, 1)
    assert drawn.dtype == torch.int64
    for label in range(3):
        assert_probability(int((drawn == label).sum()), 10_001, p[:, label].mean())
    with pytest.raises(AssertionError):
        assert_probability(int((drawn == 0).sum()), 10_001, p[0, 0])
    yes = Drawn(td.Bernoulli(probs=torch.tensor([[[0.9]], [[0.3]]]))).sample(10_000)
    assert set(yes.unique().tolist()) == {0.0, 1.0}
    assert_probability(int(yes.sum()), 10_000, 0.6)


def test_one_sample_is_one_draw_at_all_points_outputs_and_tasks() -> None:
    """Draw k has mean k everywhere and next to no noise, so that a sample shows whose it is."""
    level = torch.arange(5, dtype=DOUBLE)
    wide = Drawn(td.Normal(level.view(5, 1, 1).expand(5, 4, 3), torch.tensor(1e-9, dtype=DOUBLE)))
    drawn = wide.sample(13).round()
    assert bool((drawn == drawn[:, :1, :1]).all())
    counts = torch.bincount(drawn[:, 0, 0].long(), minlength=5)
    assert sorted(counts.tolist()) == [2, 2, 3, 3, 3]
    assert torch.bincount(wide.sample(15).round()[:, 0, 0].long()).tolist() == [3] * 5
    labels = Drawn(td.Categorical(logits=1e3 * torch.eye(5, dtype=DOUBLE)[:, None]))
    joint = Drawn(Joint({"real": wide.draws, "label": labels.draws})).sample(13)
    assert joint["real"].shape == (13, 4, 3)
    assert torch.equal(joint["real"].round()[:, 0, 0].long(), joint["label"][:, 0])


def test_samples_depend_on_the_seed_alone() -> None:
    predictive = gaussians(*SAMPLED)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = predictive.sample(50, seed=7)
    assert torch.equal(torch.get_rng_state(), state)  # torch's own generator is as it was
    torch.manual_seed(2)
    assert torch.equal(predictive.sample(50, seed=7), first)
    assert not torch.equal(predictive.sample(50, seed=8), first)
    noise = gaussians([[0.0] * 3], 1.0).sample(2, seed=0)
    assert len(noise.unique()) == 6  # every point its own noise


# ---- discrete outcomes -----------------------------------------------------------------------------------------------


def test_entropies_of_yes_and_no_by_hand() -> None:
    """Two draws at two points: they contradict each other, or they agree that nothing is known."""
    predictive = Drawn(td.Bernoulli(probs=torch.tensor([[[0.9], [0.5]], [[0.1], [0.5]]], dtype=DOUBLE)))
    own = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))
    np.testing.assert_allclose(predictive.mean[:, 0], [0.5, 0.5], rtol=1e-12)
    np.testing.assert_allclose(predictive.variance[:, 0], [0.25, 0.25], rtol=1e-12)
    np.testing.assert_allclose(predictive.total[:, 0], [math.log(2)] * 2, rtol=1e-12)
    np.testing.assert_allclose(predictive.aleatoric[:, 0], [own, math.log(2)], rtol=1e-12)
    np.testing.assert_allclose(predictive.epistemic[:, 0], [math.log(2) - own, 0.0], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
def test_certain_draws_that_contradict_each_other(dtype: torch.dtype) -> None:
    """Probabilities of zero and one: all uncertainty is epistemic, and nothing is NaN."""
    labels = Drawn(td.Categorical(probs=torch.eye(3, dtype=dtype)[:, None]))
    yes = Drawn(td.Bernoulli(probs=torch.tensor([[[0.0]], [[1.0]]], dtype=dtype)))
    for predictive, classes in ((labels, 3), (yes, 2)):
        assert predictive.epistemic.item() == pytest.approx(math.log(classes), abs=1e-5)
        assert predictive.aleatoric.item() == pytest.approx(0.0, abs=1e-5)
        assert predictive.total.dtype == dtype
    assert labels.log_prob(torch.tensor([1])).item() == pytest.approx(-math.log(3), abs=1e-5)


def dense_model() -> Model:
    torch.manual_seed(0)
    return Model(nn.Conv2d(2, 3, 1).to(DOUBLE), Normal(0, 1), Categorical(axis=-3))


def test_labels_for_every_pixel() -> None:
    """Classes are the last axis of the mean, and one image is one observation."""
    x = torch.tensor(normal(4, 2, 5, 6))
    predictive = dense_model().prior_predictive(x, draws=8)
    p = predictive.draws.probs.numpy()  # type: ignore[attr-defined]  # (draws, N, H, W, C)
    assert predictive.mean.shape == (4, 5, 6, 3)
    np.testing.assert_allclose(predictive.mean.sum(-1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(predictive.mean, p.mean(0), rtol=1e-12)
    y = torch.randint(0, 3, (4, 5, 6), generator=torch.Generator().manual_seed(0))
    each = np.log(np.take_along_axis(p, y.numpy()[None, ..., None], -1))[..., 0].sum((2, 3))
    np.testing.assert_allclose(predictive.log_prob(y), logsumexp(each, axis=0) - math.log(8), rtol=1e-10)
    np.testing.assert_allclose(predictive.aleatoric, -(p * np.log(p)).sum(-1).mean(0), rtol=1e-10)
    assert predictive.epistemic.shape == predictive.total.shape == (4, 5, 6)
    assert predictive.sample(7).shape == (7, 4, 5, 6)
    with pytest.raises(InputError, match=r"y must have shape \(4, 5, 6\)"):
        predictive.log_prob(y[:, :, :5])


def test_the_probabilities_of_pixels_are_those_of_their_channels() -> None:
    model = dense_model()
    x = torch.tensor(normal(1, 2, 2, 2))
    theta = torch.tensor(normal(1, model.dim, seed=1))
    named = model.named(theta)
    f = torch.einsum("cd,ndhw->nchw", named["weight"][0, :, :, 0, 0], x) + named["bias"][0][:, None, None]
    torch.testing.assert_close(model.predictive(named, x).mean, f.softmax(1).movedim(1, -1))


@pytest.mark.parametrize("draws", [td.Categorical(logits=torch.zeros(2, 3, 4)), td.Bernoulli(logits=torch.zeros(2, 3))])
def test_labels_have_no_quantiles(draws: td.Distribution) -> None:
    for ask in (lambda p: p.quantile(0.5), lambda p: p.interval(0.9)):
        with pytest.raises(UnsupportedError, match="quantiles need an ordered outcome; got .*; use mean") as caught:
            ask(Drawn(draws))
        parts(caught.value)


# ---- several tasks ---------------------------------------------------------------------------------------------------


class Heads(nn.Module):
    """A depth and a label from one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        f = self.layer(x)
        return {"depth": f[:, :1], "seg": f[:, 1:]}


def tasks(draws: int = 6) -> Predictive:
    torch.manual_seed(0)
    model = Model(Heads().to(DOUBLE), Normal(0, 1), MultiTask(depth=Gaussian(0.3), seg=Categorical()))
    return model.prior_predictive(torch.tensor(normal(5, 2)), draws=draws)


def test_tasks_share_their_draws_in_the_density() -> None:
    """log (1/S) Σ p(depth | w) p(label | w): not the sum of the two tasks' own log densities."""
    predictive = tasks()
    assert isinstance(predictive, Drawn)
    y = {"depth": torch.tensor(normal(5, 1, seed=1)), "seg": torch.tensor([0, 1, 2, 1, 0])}
    means, p = predictive["depth"].draws.mean.numpy()[..., 0], predictive["seg"].draws.probs.numpy()  # type: ignore[attr-defined]
    each = stats.norm.logpdf(y["depth"].numpy()[:, 0], means, 0.3) + np.log(p[:, range(5), y["seg"]])
    np.testing.assert_allclose(predictive.log_prob(y), logsumexp(each, axis=0) - math.log(6), rtol=1e-10)
    apart = predictive["depth"].log_prob(y["depth"]) + predictive["seg"].log_prob(y["seg"])
    assert (apart - predictive.log_prob(y)).abs().max() > 0.01


def test_one_task_is_a_predictive_of_its_own() -> None:
    predictive = tasks()
    assert isinstance(predictive, Drawn)
    assert predictive["depth"].mean.shape == (5, 1)
    assert predictive["depth"].interval()[0].shape == (5, 1)
    assert predictive["seg"].mean.shape == (5, 3)
    assert not predictive["depth"].discrete
    assert predictive["seg"].discrete
    drawn = predictive.sample(4)
    assert {name: tuple(y.shape) for name, y in drawn.items()} == {"depth": (4, 5, 1), "seg": (4, 5)}


def test_several_tasks_have_no_common_number() -> None:
    predictive = tasks()
    assert isinstance(predictive, Drawn)
    for ask in ("mean", "variance", "std", "aleatoric", "epistemic", "total"):
        with pytest.raises(
            UnsupportedError, match=r"several tasks.*; got .*'depth', 'seg'.*; use predictive\['depth'\]"
        ):
            getattr(predictive, ask)
    for ask in (lambda: predictive.quantile(0.5), lambda: predictive.interval()):
        with pytest.raises(UnsupportedError, match="several tasks"):
            ask()
    with pytest.raises(InputError, match=r"got 'dept'; the tasks are \['depth', 'seg'\]"):
        predictive["dept"]
    with pytest.raises(InputError, match="a task must be one of the model's"):
        gaussians([[0.0]], 1.0)["depth"]


# ---- an own likelihood -----------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, eq=False)
class Robust(Likelihood):
    """Student's t with three degrees of freedom: torch has no quantile function of it."""

    scale: Number = positive(1.0)

    def observe(self, f: Tensor, scale: Tensor) -> td.Distribution:
        return td.StudentT(3.0, f, scale.expand_as(f))


def robust() -> tuple[Predictive, np.ndarray]:
    model = Model(nn.Linear(1, 1, dtype=DOUBLE), Normal(0, 1), Robust(0.5))
    predictive = model.prior_predictive(torch.tensor(normal(3, 1)), draws=10)
    return predictive, predictive.draws.loc[..., 0].numpy()  # type: ignore[attr-defined]


def test_without_a_quantile_function_quantiles_are_those_of_samples() -> None:
    """10 000 samples: by DKW their quantile is one of a level at most 0.035 off. Planted: 0.05 off is seen."""
    predictive, means = robust()

    def p_values(q: float, wanted: float) -> np.ndarray:
        level = stats.t.cdf(predictive.quantile(q)[:, 0].numpy(), 3, means, 0.5).mean(0)
        gap = np.maximum(np.abs(level - wanted) - 1e-4, 0)  # 1e-4: between two samples
        return 2 * np.exp(-2 * 10_000 * gap**2)

    for q in (0.05, 0.5, 0.9):
        likely(p_values(q, q))
        assert torch.equal(predictive.quantile(q), predictive.quantile(q))
    assert p_values(0.55, 0.5).min() < ALPHA / M
    low, high = predictive.interval(0.9)
    assert bool((low < high).all())


def test_an_own_likelihood_has_exact_density_and_moments() -> None:
    predictive, means = robust()
    y = normal(3, seed=5)
    want = logsumexp(stats.t.logpdf(y, 3, means, 0.5), axis=0) - math.log(10)
    np.testing.assert_allclose(predictive.log_prob(torch.tensor(y)[:, None]), want, rtol=1e-10)
    np.testing.assert_allclose(predictive.aleatoric[:, 0], 0.25 * 3, rtol=1e-10)  # scale² df / (df - 2)
    np.testing.assert_allclose(predictive.variance[:, 0], 0.75 + means.var(0), rtol=1e-10)


# ---- shapes and precision --------------------------------------------------------------------------------------------

KINDS: list[tuple[Likelihood, int, tuple[int, ...], tuple[int, ...]]] = [  # outputs, shape of y and of the mean
    (Gaussian(0.3), 1, (5, 1), (5, 1)),
    (Gaussian(torch.tensor([0.1, 0.2, 0.3])), 3, (5, 3), (5, 3)),
    (Gaussian(0.3, loc=torch.tensor([1.0, 2.0]), scale=torch.tensor([3.0, 4.0])), 2, (5, 2), (5, 2)),
    (Heteroscedastic(), 4, (5, 2), (5, 2)),
    (Robust(1.0), 2, (5, 2), (5, 2)),
    (Bernoulli(), 3, (5, 3), (5, 3)),
    (ContinuousBernoulli(), 3, (5, 3), (5, 3)),
    (Categorical(), 3, (5,), (5, 3)),
]


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
@pytest.mark.parametrize(("likelihood", "outputs", "y_shape", "mean_shape"), KINDS, ids=lambda v: type(v).__name__)
def test_shapes_and_precision(
    likelihood: Likelihood, outputs: int, y_shape: tuple[int, ...], mean_shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    model = Model(nn.Linear(2, outputs).to(dtype), Normal(0, 1), likelihood)
    predictive = model.prior_predictive(torch.tensor(normal(5, 2), dtype=dtype), draws=4)
    drawn = predictive.sample(6)
    assert tuple(drawn.shape) == (6, *y_shape)
    for number in (predictive.mean, predictive.variance, predictive.std):
        assert tuple(number.shape) == mean_shape
        assert number.dtype == dtype
    for number in (predictive.aleatoric, predictive.epistemic, predictive.total):
        assert tuple(number.shape) == y_shape
        assert bool((number >= 0).all())
        assert number.dtype == dtype
    density = predictive.log_prob(drawn[0])
    assert tuple(density.shape) == (5,)
    assert density.dtype == dtype
    assert bool(density.isfinite().all())
    if not isinstance(likelihood, (Bernoulli, Categorical)):
        assert all(tuple(bound.shape) == y_shape and bound.dtype == dtype for bound in predictive.interval())
    if len(y_shape) == 2:
        with pytest.raises(InputError, match=r"y must have shape \(5,.*one row for each row of x"):
            predictive.log_prob(drawn[0][:, 0])  # (N,) never meets (N, 1)
    with pytest.raises(InputError, match="y must have shape"):
        predictive.log_prob(drawn[0][:3])


# ---- refusals, and tasks that are independent given the weights ------------------------------------------------------


def test_tasks_have_noise_of_their_own() -> None:
    """Given the weights tasks are independent: r of 4000 pairs has the sd 1 / sqrt(4000)."""
    one = td.Normal(torch.zeros(2, 1, 1, dtype=DOUBLE), torch.ones(2, 1, 1, dtype=DOUBLE))
    drawn = Drawn(Joint({"a": one, "b": one, "c": Joint({"a": one})})).sample(4000)
    rows = torch.stack([drawn["a"].flatten(), drawn["b"].flatten(), drawn["c"]["a"].flatten()])
    within(torch.corrcoef(rows)[torch.triu_indices(3, 3, 1).unbind()] * math.sqrt(4000), "correlation")


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 1.5, 90.0, math.nan])
def test_a_quantile_outside_the_open_unit_interval_is_refused(level: float) -> None:
    for predictive in (gaussians([[0.0]], 1.0), robust()[0]):
        with pytest.raises(InputError, match="a quantile's level lies strictly between 0 and 1; got") as caught:
            predictive.quantile(level)
        parts(caught.value)


@pytest.mark.parametrize("n", [0, -3])
def test_no_samples_are_refused(n: int) -> None:
    for predictive in (gaussians([[0.0]], 1.0), tasks()):
        with pytest.raises(InputError, match="at least one sample must be asked for; got"):
            predictive.sample(n)


def test_outcomes_that_are_none_are_refused() -> None:
    with pytest.raises(InputError, match=r"y must be a tensor; got ndarray; use torch.as_tensor\(y\)"):
        gaussians([[0.0]], 1.0).log_prob(np.zeros((1, 1)))
    for y, got in (({"depth": torch.zeros(5, 1)}, r"\['depth'\]"), (torch.zeros(5, 1), "Tensor"), ({}, r"\[\]")):
        with pytest.raises(InputError, match=rf"a dictionary with the tasks \['depth', 'seg'\]; got {got}"):
            tasks().log_prob(y)
