"""Calibration after the fact: temperatures and conformal rules.

The number of covered test points is beta-binomial, whatever the model: coverage is tested by that exact law, two-sided.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from chance import Z, between, within
from scipy import optimize, stats
from targets import DOUBLE
from torch import Tensor, nn
from torch import distributions as td

from nescio import InputError, Model, UnsupportedError, evaluate, fit
from nescio.evaluation import conformal, temperature
from nescio.evaluation.conformal import Adaptive, Around, Least, Scaled, Score
from nescio.functions import Functions
from nescio.infer import MAP, Laplace
from nescio.laws import Normal
from nescio.likelihoods import Categorical
from nescio.links import Classes, probit
from nescio.posterior.gaussian import GaussianPosterior
from nescio.predictive import Drawn, Predictive

N, NEW = 499, 2000  # calibration and test points


def classes(n: int, seed: int, sharp: float = 3.0, draws: int = 4, spread: float = 1.0) -> tuple[Drawn, Tensor]:
    """Labels from softmax(f); draws that are too sure by a factor `sharp`, and have noise of their own."""
    rng = np.random.default_rng(seed)
    f = 1.5 * rng.normal(size=(n, 4))
    y = (f + rng.gumbel(size=f.shape)).argmax(1)
    given = sharp * f + spread * rng.normal(size=(draws, n, 4))
    return Drawn(td.Categorical(logits=torch.as_tensor(given))), torch.as_tensor(y)


def reals(n: int, seed: int) -> tuple[Drawn, Tensor]:
    """Intervals too narrow by a factor 3, heteroscedastic."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.5, 2, size=(n, 1))
    y = x + x * rng.normal(size=(n, 1))
    means = torch.as_tensor(x + 0.05 * rng.normal(size=(3, n, 1)))
    return Drawn(td.Normal(means, torch.as_tensor(x / 3).expand_as(means))), torch.as_tensor(y)


def covered(rule: object, predictive: Predictive, y: Tensor) -> int:
    found = rule(predictive)  # type: ignore[operator]
    if isinstance(found, tuple):
        low, high = found
        return int(((y >= low) & (y <= high)).sum())
    return int(found.gather(-1, y[:, None]).sum())


def assert_covered(hits: int, level: float) -> None:
    rank = math.ceil((N + 1) * level)
    between(hits, stats.betabinom(NEW, rank, N + 1 - rank), f"hits of {NEW}")


CASES: list[tuple[Callable[[int, int], tuple[Drawn, Tensor]], Score | None]] = [
    (reals, None),
    (reals, Around()),
    (reals, Scaled()),
    (classes, None),
    (classes, Adaptive(seed=5)),
    (classes, Least()),
]


@pytest.mark.parametrize("level", [0.5, 0.9])
@pytest.mark.parametrize(("make", "score"), CASES, ids=lambda v: type(v).__name__ if isinstance(v, Score) else "")
def test_coverage_is_as_promised(
    make: Callable[[int, int], tuple[Drawn, Tensor]], score: Score | None, level: float
) -> None:
    """Around an overconfident posterior. Planted: without calibration its own intervals hold far fewer."""
    rule = conformal(*make(N, 0), level=level, score=score)
    fresh, y = make(NEW, 1)
    assert_covered(covered(rule, fresh, y), level)
    assert rule.points == N and rule.level == level
    if make is reals:
        with pytest.raises(AssertionError):
            assert_covered(covered(lambda p: p.interval(level), fresh, y), level)


def test_coverage_of_closed_forms() -> None:
    rng = np.random.default_rng(3)

    def made(n: int) -> tuple[Functions, Tensor]:
        y = torch.as_tensor(rng.normal(size=(n, 1)))
        return Functions(torch.zeros(n, 1, dtype=DOUBLE), torch.full((n, 1, 1), 9.0, dtype=DOUBLE), torch.ones(n, 1)), y

    rule = conformal(*made(N))
    fresh, y = made(NEW)
    assert rule.q < 0  # too wide, so it is narrowed
    assert_covered(covered(rule, fresh, y), 0.9)


def test_adaptive_sets_adapt() -> None:
    """Larger where more classes are likely; never so on the mean as the least sets."""
    calibrate, fresh = classes(N, 0, sharp=1.0), classes(NEW, 1, sharp=1.0)[0]
    small, fair = (conformal(*calibrate, score=score)(fresh) for score in (Least(), Adaptive()))
    assert small.sum() < fair.sum()
    doubt = fresh.total.argsort()
    sizes = fair.sum(-1)[doubt].double()
    assert sizes[-500:].mean() > sizes[:500].mean() + 1


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((*reals(8, 0), 0.9), "a level of 0.9 needs at least 9 calibration points; got 8"),
        ((*reals(50, 0), 1.0), "a level lies strictly between 0 and 1"),
        ((reals(50, 0)[0], torch.zeros(50)), r"y must be a tensor of shape \(50, 1\); got \(50,\)"),
    ],
)
def test_conformal_says_what_it_needs(arguments: tuple[object, ...], match: str) -> None:
    with pytest.raises(InputError, match=match):
        conformal(*arguments)  # type: ignore[arg-type]


def test_sets_are_for_classes() -> None:
    with pytest.raises(UnsupportedError, match="sets are for classes"):
        conformal(*reals(50, 0), score=Least())


# ---- temperature -----------------------------------------------------------------------------------------------------


def test_the_temperature_is_the_minimum_of_the_loss() -> None:
    """Against scipy's own search, on one draw and on a mixture; and the truth is found: logits were three times too large."""
    predictive, y = classes(2000, 0, draws=1)
    f = predictive.draws.logits.numpy()  # type: ignore[attr-defined]

    def loss(log_t: float) -> float:
        scaled = f / math.exp(log_t)
        mixed = np.log(np.exp(scaled - np.logaddexp.reduce(scaled, -1, keepdims=True)).mean(0))
        return -mixed[np.arange(len(y)), y].mean()

    found = temperature(predictive, y)
    want = optimize.minimize_scalar(loss, (0.0, 1.0)).x
    assert found.value == pytest.approx(math.exp(want), rel=1e-5)
    assert found.after == pytest.approx(loss(want), rel=1e-9) and found.after < found.before
    assert 2.5 < found.value < 4.0


def test_a_tempered_predictive_keeps_its_parts_and_order() -> None:
    predictive, y = classes(500, 1)
    warm = temperature(predictive, y)(predictive)
    torch.testing.assert_close(warm.total, warm.aleatoric + warm.epistemic)
    assert isinstance(warm, Drawn)
    assert torch.equal(warm.draws.probs.argmax(-1), predictive.draws.probs.argmax(-1))  # type: ignore[attr-defined]
    assert warm.total.mean() > predictive.total.mean()


def test_what_is_calibrated_stays_so() -> None:
    """log T has the variance 1 / (N E Var_p[f]): within Z of zero. Planted: logits a quarter too large are seen."""
    honest, y = classes(4000, 2, sharp=1.0, draws=1, spread=0.0)
    p, f = honest.draws.probs[0], honest.draws.logits[0]  # type: ignore[attr-defined]
    information = ((p * f.square()).sum(-1) - (p * f).sum(-1).square()).sum().item()
    within(math.log(temperature(honest, y).value) * math.sqrt(information))
    sure = Drawn(td.Categorical(logits=1.25 * f[None]))
    assert abs(math.log(temperature(sure, y).value)) > Z / math.sqrt(information)


def test_yes_no_and_linked_classes_are_tempered() -> None:
    rng = np.random.default_rng(0)
    f = rng.normal(size=(1000, 1))
    y = torch.as_tensor((f + rng.logistic(size=f.shape) > 0).astype(float))
    coin = Drawn(td.Bernoulli(logits=torch.as_tensor(4 * f)[None]))
    assert temperature(coin, y).value == pytest.approx(4.0, rel=0.3)
    p = td.Categorical(logits=torch.tensor([[2.0, 0.0]] * 20))
    linked = Classes(p, lambda: torch.zeros(20))
    labels = torch.tensor([0] * 13 + [1] * 7)
    warm = temperature(linked, labels)(linked)
    torch.testing.assert_close(warm.mean[0, 0].item(), 0.65, rtol=1e-4, atol=0)
    with pytest.raises(UnsupportedError, match="parts of the uncertainty need draws"):
        _ = warm.aleatoric


def test_temperatures_need_labels_and_classes() -> None:
    predictive, y = classes(5, 0)
    with pytest.raises(InputError, match="a temperature needs at least 10 labels; got 5"):
        temperature(predictive, y)
    with pytest.raises(UnsupportedError, match="temperatures are for classes"):
        temperature(*reals(20, 0))


def test_probabilities_by_a_link_are_scored_as_classes() -> None:
    """The linearised posterior with a link has no draws; its labels are scored like any other, and may be declined."""
    x = torch.linspace(-1, 1, 20, dtype=DOUBLE)[:, None]
    y = (x[:, 0] > 0).long()
    model = Model(nn.Linear(1, 2, dtype=DOUBLE), Normal(0, 5), Categorical())
    posterior = fit(model, (x, y), MAP(epochs=30, lr=0.3) >> Laplace())
    assert isinstance(posterior, GaussianPosterior)
    linked = posterior.linearize(probit)
    found = evaluate(linked, (x, y))
    assert set(found) == {"nll", "accuracy", "brier"} and found["accuracy"] > 0.8
    assert 0 < linked.predict(x).abstain(risk=0.2).coverage < 1
