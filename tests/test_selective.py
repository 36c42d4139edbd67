"""Answers that may be "I do not know": abstention, risk and coverage, a threshold that keeps its promise, scores of doubt.

Statistical: the promise, by the exact binomial (tests/chance.py). The rest is arithmetic.
"""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
import torch
from chance import ALPHA, M, likely, within
from scipy import stats
from targets import DOUBLE
from torch import Tensor
from torch import distributions as td

from nescio import InputError, UnsupportedError
from nescio.evaluation import (
    FeatureDensity,
    entropy,
    losses,
    max_probability,
    mutual_information,
    of_points,
    promise,
    risk_coverage,
    total_variance,
)
from nescio.evaluation.selective import clopper_pearson
from nescio.functions import Functions
from nescio.links import Classes
from nescio.noise import Noise
from nescio.predictive import Drawn, Predictive


def labelled(p: object) -> Drawn:
    """(draws, points, classes)."""
    return Drawn(td.Categorical(probs=torch.as_tensor(p, dtype=DOUBLE)))


def real(points: int = 4) -> Drawn:
    means = torch.tensor([[0.0, 1.0, 2.0, 5.0], [0.0, 3.0, 2.5, -5.0]], dtype=DOUBLE)[:, :points, None]
    return Drawn(td.Normal(means, torch.tensor([0.1, 0.2, 1.0, 2.0], dtype=DOUBLE)[:points, None].expand_as(means)))


PAIR = [[[0.9, 0.1, 0.0], [0.5, 0.3, 0.2], [0.1, 0.9, 0.0]], [[0.99, 0.01, 0.0], [0.3, 0.5, 0.2], [0.9, 0.1, 0.0]]]


# ---- abstention ------------------------------------------------------------------------------------------------------


def test_classes_are_answered_where_the_predictive_is_sure_enough() -> None:
    answers = labelled(PAIR).abstain(risk=0.1)
    assert list(answers) == [0, None, None]
    assert len(answers) == 3 and answers.coverage == pytest.approx(1 / 3)
    np.testing.assert_allclose(answers.risk, [0.055, 0.6, 0.5], atol=1e-12)
    assert answers.expected_risk == pytest.approx(0.055)
    assert repr(answers) == "Answers(1 of 3 known, expected risk 0.055)"
    assert labelled(PAIR).abstain(risk=0.0).expected_risk == 0.0  # who says nothing risks nothing


def test_a_real_answer_is_right_within_a_tolerance() -> None:
    """The stated risk against the exact one of each mixture."""
    predictive = real()
    answers = predictive.abstain(risk=0.05, within=0.5)
    median = predictive.quantile(0.5)[:, 0].numpy()
    means, sds = predictive.draws.mean[..., 0].numpy(), predictive.draws.stddev[..., 0].numpy()  # type: ignore[attr-defined]
    inside = (stats.norm.cdf(median + 0.5, means, sds) - stats.norm.cdf(median - 0.5, means, sds)).mean(0)
    np.testing.assert_allclose(answers.risk[:, 0], 1 - inside, atol=1e-6)
    assert answers.known[:, 0].tolist() == [True, False, False, False]
    assert answers[3] is None and torch.equal(torch.as_tensor(answers[0]), predictive.quantile(0.5)[0])
    closed = Functions(torch.zeros(2, 1), torch.tensor([[[0.01]], [[4.0]]]), torch.full((2, 1), 0.01))
    assert closed.abstain(risk=0.05, within=0.5).known[:, 0].tolist() == [True, False]


def test_yes_and_no_and_linked_classes_abstain_too() -> None:
    coin = Drawn(td.Bernoulli(probs=torch.tensor([[[0.02]], [[0.0]]], dtype=DOUBLE)))
    assert coin.abstain(risk=0.05).value.tolist() == [[0]] and coin.abstain(risk=0.05).coverage == 1
    probs = torch.tensor([[0.97, 0.03], [0.6, 0.4]])
    linked = Classes(td.Categorical(probs=probs), lambda: torch.zeros(2))
    assert list(linked.abstain(risk=0.05)) == [0, None]


def test_student_t_has_no_closed_distribution_function() -> None:
    """By 10 000 samples."""
    spread = Drawn(td.StudentT(torch.tensor(3.0, dtype=DOUBLE), torch.zeros(1, 1, 1, dtype=DOUBLE)))
    at = torch.tensor([[0.7]], dtype=DOUBLE)
    p = stats.t(3).cdf(0.7)
    within((spread.cdf(at).item() - p) / math.sqrt(p * (1 - p) / 10_000))


@pytest.mark.parametrize(
    ("predictive", "arguments", "match"),
    [
        (labelled(PAIR), {"risk": 1.5}, "a risk is a probability below 1; got 1.5"),
        (real(), {"risk": 0.1}, "a real answer is right within a tolerance; got within=None"),
        (real(), {"risk": 0.1, "within": -1.0}, "within=-1.0"),
    ],
)
def test_abstention_says_what_it_needs(predictive: Predictive, arguments: dict[str, float], match: str) -> None:
    with pytest.raises(InputError, match=match):
        predictive.abstain(**arguments)


# ---- risk and coverage -----------------------------------------------------------------------------------------------


def test_risk_and_coverage_by_hand() -> None:
    doubt, loss = torch.tensor([0.3, 0.1, 0.2, 0.9]), torch.tensor([1.0, 0.0, 0.0, 1.0])
    curve = risk_coverage(doubt, loss)
    np.testing.assert_allclose(curve.coverage, [0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(curve.risk, [0, 0, 1 / 3, 0.5])
    assert curve.aurc == pytest.approx((1 / 3 + 0.5) / 4) and curve.excess == pytest.approx(0.0, abs=1e-15)
    assert risk_coverage(-doubt, loss).excess > 0.3


def test_equal_doubts_are_the_mean_over_their_orders() -> None:
    """By enumeration of the orders."""
    doubt, loss = torch.tensor([0.1, 0.5, 0.5, 0.5, 0.9]), torch.tensor([0.0, 1.0, 0.0, 0.5, 1.0])
    by_hand = np.mean(
        [np.cumsum([0.0, *(loss[list(p)].tolist()), 1.0]) / np.arange(1, 6) for p in permutations((1, 2, 3))], axis=0
    )
    np.testing.assert_allclose(risk_coverage(doubt, loss).risk, by_hand, rtol=1e-12)


def test_losses_are_errors_or_squares() -> None:
    assert losses(labelled(PAIR), torch.tensor([0, 1, 2])).tolist() == [0.0, 1.0, 1.0]
    assert losses(real(2), torch.tensor([[1.0], [2.0]], dtype=DOUBLE))[:, 0].tolist() == [1.0, 0.0]
    with pytest.raises(InputError, match="y must be a tensor of shape"):
        losses(labelled(PAIR), torch.zeros(3, 1))


def test_errors_rise_with_disagreement() -> None:
    """001-5: where draws agree they are right. Five members, sure of their own noisy reading of 4000 points."""
    rng = np.random.default_rng(0)
    y = torch.as_tensor(rng.integers(0, 3, 4000))
    difficulty = torch.as_tensor(rng.uniform(0, 3, 4000))
    votes = torch.nn.functional.one_hot(y, 3) + difficulty[:, None] * torch.as_tensor(rng.normal(size=(5, 4000, 3)))
    predictive = Drawn(td.Categorical(logits=4 * votes))
    wrong, doubt = losses(predictive, y), mutual_information(predictive)
    bins = wrong[doubt.argsort()].view(4, 1000).mean(1)
    assert bool((bins[1:] > bins[:-1]).all())
    assert risk_coverage(doubt, wrong).aurc < 0.7 * wrong.mean()  # a random order has the mean


# ---- a promise -------------------------------------------------------------------------------------------------------

TRUE_RISK = 0.1


def graded(n: int, noise: Noise) -> tuple[Drawn, Tensor]:
    """The stated error u of a point is uniform on (0, ½) and its true error min(2u, 1): a model that is too sure of itself."""
    u = 0.5 * noise.at("u").to(torch.device("cpu"), DOUBLE).uniform(n)
    wrong = noise.at("y").to(torch.device("cpu"), DOUBLE).uniform(n) < 2 * u
    return labelled(torch.stack([1 - u, u], -1)[None]), wrong.long()


def kept_promises(rule: object, repeats: int = 150) -> int:
    """How often the true risk below the threshold t, which is t / 2 * 2 = t, is above the promise."""
    broken = 0
    for i in range(repeats):
        predictive, y = graded(400, Noise(1).at(i))
        made = rule(predictive, y, risk=TRUE_RISK, confidence=0.9)  # type: ignore[operator]
        t = min(max(made.threshold, 0.0), 0.5)
        broken += t > TRUE_RISK  # E[2u | u < t] = t
    return broken


def test_promises_are_kept() -> None:
    """At most one in ten may be broken: 150 calibrations, exact binomial. Planted: trusting the empirical risk."""
    law = stats.binom(150, 0.1)
    likely(law.sf(kept_promises(promise) - 1))

    class Naive:
        def __init__(self, threshold: float) -> None:
            self.threshold = threshold

    def empirical(predictive: Drawn, y: Tensor, risk: float, confidence: float) -> Naive:
        doubt, wrong = max_probability(predictive), losses(predictive, y)
        order = doubt.argsort()
        good = (wrong[order].cumsum(0) / torch.arange(1, len(y) + 1) <= risk).nonzero()
        return Naive(float(doubt[order][good[-1, 0]]) if len(good) else 0.0)

    assert law.sf(kept_promises(empirical) - 1) < ALPHA / M


def test_a_promise_is_used_and_can_be_refused() -> None:
    predictive, y = graded(2000, Noise(3))
    made = promise(predictive, y, risk=0.2)
    assert 0.1 < made.coverage < 0.4 and made.bound <= 0.2
    answers = made.answers(predictive)
    assert answers.coverage == pytest.approx(made.coverage)
    assert promise(predictive, y, risk=0.001).answers(predictive).coverage == 0  # nobody can promise that
    with pytest.raises(InputError, match="risk lies strictly between 0 and 1"):
        promise(predictive, y, risk=0.0)
    with pytest.raises(InputError, match="a promise is about labels of points"):
        promise(real(), torch.zeros(4, 1, dtype=DOUBLE), risk=0.1)


@pytest.mark.parametrize(("hits", "n"), [(0, 20), (3, 50), (49, 50), (50, 50), (7, 2000)])
def test_clopper_pearson_is_the_beta_quantile(hits: int, n: int) -> None:
    want = 1.0 if hits == n else stats.beta.isf(0.003, hits + 1, n - hits)
    assert clopper_pearson(hits, n, 0.003) == pytest.approx(want, rel=1e-9)


# ---- scores of doubt -------------------------------------------------------------------------------------------------


def test_scores_by_hand() -> None:
    predictive, p = labelled(PAIR), np.array(PAIR).mean(0)
    np.testing.assert_allclose(max_probability(predictive), 1 - p.max(-1), rtol=1e-12)
    with np.errstate(divide="ignore", invalid="ignore"):
        h = -np.where(p > 0, p * np.log(p), 0).sum(-1)
        each = -np.where(np.array(PAIR) > 0, PAIR * np.log(PAIR), 0).sum(-1).mean(0)
    np.testing.assert_allclose(entropy(predictive), h, rtol=1e-6)
    np.testing.assert_allclose(mutual_information(predictive), h - each, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(total_variance(predictive), (p * (1 - p)).sum(-1), rtol=1e-12)
    assert torch.equal(total_variance(real()), real().variance)
    with pytest.raises(UnsupportedError, match="entropy is for classes"):
        entropy(real())
    assert of_points(torch.ones(3, 4, 5)).shape == (3,) and of_points(torch.ones(3)).shape == (3,)


def test_feature_density_is_the_mahalanobis_distance() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    x = rng.normal(size=(300, 4)) @ rng.normal(size=(4, 4)) + 5 * rng.normal(size=(3, 4))[y]
    made = FeatureDensity.of(torch.as_tensor(x), torch.as_tensor(y), shrink=0.0)
    means = np.stack([x[y == c].mean(0) for c in range(3)])
    inverse = np.linalg.inv((x - means[y]).T @ (x - means[y]) / 300)
    new = rng.normal(size=(7, 4))
    gap = new[:, None] - means
    want = 0.5 * np.einsum("nci,ij,ncj->nc", gap, inverse, gap).min(1)
    np.testing.assert_allclose(made(torch.as_tensor(new)), want, rtol=1e-9)
    with pytest.raises(InputError, match=r"every class needs an example; got none of class \[1\]"):
        FeatureDensity.of(torch.zeros(2, 3), torch.tensor([0, 2]))
    with pytest.raises(InputError, match="features must be"):
        made(torch.zeros(3))


def test_shapes_and_numbers_are_checked() -> None:
    with pytest.raises(InputError, match="one shape"):
        risk_coverage(torch.zeros(3), torch.zeros(4))
    with pytest.raises(InputError, match="must be finite"):
        risk_coverage(torch.tensor([math.nan]), torch.zeros(1))
