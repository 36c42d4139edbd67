"""Scores against values by hand, to rounding."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from targets import DOUBLE, conjugate
from torch import distributions as td
from torch import nn

from nescio import InputError, UnsupportedError, evaluate, fit
from nescio.evaluation import accuracy, brier, coverage, nll, rmse
from nescio.infer import MAP
from nescio.laws import Normal
from nescio.likelihoods import Bernoulli, Categorical, Gaussian, MultiTask
from nescio.model import Model
from nescio.posterior import Draws
from nescio.predictive import Drawn

MEANS = np.array([[0.0, 2.0, -1.0], [1.0, 2.0, 3.0]])  # (draws, points)
Y = np.array([0.5, 1.0, 4.0])


def real() -> Drawn:
    """Two draws of sd 0.5 at three points."""
    return Drawn(td.Normal(torch.tensor(MEANS)[..., None], torch.full((2, 3, 1), 0.5, dtype=DOUBLE)))


def labels() -> tuple[Drawn, torch.Tensor]:
    """Two draws whose mean is (0.6, 0.3, 0.1), (0.25, 0.25, 0.5) and (0.1, 0.8, 0.1); right, right and wrong."""
    p = [
        [[0.8, 0.1, 0.1], [0.5, 0.0, 0.5], [0.1, 0.9, 0.0]],
        [[0.4, 0.5, 0.1], [0.0, 0.5, 0.5], [0.1, 0.7, 0.2]],
    ]
    return Drawn(td.Categorical(probs=torch.tensor(p, dtype=DOUBLE))), torch.tensor([0, 2, 0])


def yes() -> tuple[Drawn, torch.Tensor]:
    """Means 0.7, 0.2 and 0.4 of yes; right, right and wrong."""
    p = torch.tensor([[[0.9], [0.1], [0.4]], [[0.5], [0.3], [0.4]]], dtype=DOUBLE)
    return Drawn(td.Bernoulli(probs=p)), torch.tensor([[1.0], [0.0], [1.0]], dtype=DOUBLE)


def test_nll_is_that_of_the_mixture() -> None:
    want = -np.log(stats.norm.pdf(Y, MEANS, 0.5).mean(0)).mean()
    assert nll(real(), torch.tensor(Y)[:, None]) == pytest.approx(want, rel=1e-12)
    predictive, y = labels()
    assert nll(predictive, y) == pytest.approx(-(math.log(0.6) + math.log(0.5) + math.log(0.1)) / 3, rel=1e-12)
    predictive, y = yes()
    assert nll(predictive, y) == pytest.approx(-(math.log(0.7) + math.log(0.8) + math.log(0.4)) / 3, rel=1e-12)


def test_rmse() -> None:
    """Means 0.5, 2 and 1 against 0.5, 1 and 4."""
    assert rmse(real(), torch.tensor(Y)[:, None]) == pytest.approx(math.sqrt((0 + 1 + 9) / 3), rel=1e-12)
    two = Drawn(td.Normal(torch.zeros(1, 2, 2, dtype=DOUBLE), torch.ones(1, 2, 2, dtype=DOUBLE)))
    y = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=DOUBLE)
    assert rmse(two, y) == pytest.approx(math.sqrt(30 / 4), rel=1e-12)  # over all outputs


def test_coverage_counts_what_lies_inside() -> None:
    """One standard Gaussian: the central 90 % is ±1.6449, the central half ±0.6745."""
    predictive = Drawn(td.Normal(torch.zeros(1, 6, 1, dtype=DOUBLE), torch.ones(1, 6, 1, dtype=DOUBLE)))
    y = torch.tensor([-3.0, -1.64, -0.5, 0.68, 1.65, 9.0], dtype=DOUBLE)[:, None]
    assert coverage(predictive, y) == pytest.approx(3 / 6, rel=1e-12)
    assert coverage(predictive, y, 0.5) == pytest.approx(1 / 6, rel=1e-12)
    assert coverage(predictive, y, 0.999) == pytest.approx(5 / 6, rel=1e-12)
    with pytest.raises(InputError, match="a level lies strictly between 0 and 1"):
        coverage(predictive, y, 90)


def test_accuracy() -> None:
    assert accuracy(*labels()) == pytest.approx(2 / 3, rel=1e-12)
    assert accuracy(*yes()) == pytest.approx(2 / 3, rel=1e-12)
    dense = Drawn(td.Categorical(logits=torch.tensor([[[[5.0, 0.0], [0.0, 5.0]]]])))  # one image of two pixels
    assert accuracy(dense, torch.tensor([[0, 0]])) == pytest.approx(0.5, rel=1e-12)


def test_brier_sums_over_classes() -> None:
    first = 0.4**2 + 0.3**2 + 0.1**2
    second = 0.25**2 + 0.25**2 + 0.5**2
    third = 0.9**2 + 0.8**2 + 0.1**2
    assert brier(*labels()) == pytest.approx((first + second + third) / 3, rel=1e-12)
    assert brier(*yes()) == pytest.approx(2 * (0.3**2 + 0.2**2 + 0.6**2) / 3, rel=1e-12)  # over no and yes


def test_yes_and_no_score_as_two_classes() -> None:
    predictive, y = yes()
    p = predictive.draws.probs[..., 0]  # type: ignore[attr-defined]
    two = Drawn(td.Categorical(probs=torch.stack([1 - p, p], -1)))
    classes = y[:, 0].long()
    for score in (nll, accuracy, brier):
        assert score(predictive, y) == pytest.approx(score(two, classes), rel=1e-12)


# ---- evaluate --------------------------------------------------------------------------------------------------------


def test_evaluate_of_a_real_outcome() -> None:
    known = conjugate()
    posterior = known.posterior(30, np.random.default_rng(0))
    x, y = known.data
    scores = evaluate(posterior, (x, y), draws=None)
    predictive = posterior.predict(x, draws=None)
    assert list(scores) == ["nll", "rmse", "coverage"]
    assert scores == {"nll": nll(predictive, y), "rmse": rmse(predictive, y), "coverage": coverage(predictive, y)}
    assert evaluate(posterior, (x, y), draws=3) != scores


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical()], ids=lambda v: type(v).__name__)
def test_evaluate_of_a_label(likelihood: Bernoulli | Categorical) -> None:
    torch.manual_seed(0)
    x = torch.as_tensor(np.random.default_rng(0).normal(size=(40, 2)))
    y = (x[:, 0] > 0).long()
    binary = isinstance(likelihood, Bernoulli)
    data = (x, y[:, None].to(DOUBLE) if binary else y)
    model = Model(nn.Linear(2, 1 if binary else 2, dtype=DOUBLE), Normal(0, 3), likelihood)
    posterior = fit(model, data, 2 * MAP(epochs=30, lr=0.1))
    scores = evaluate(posterior, data)
    assert list(scores) == ["nll", "accuracy", "brier"]
    assert all(isinstance(score, float) for score in scores.values())
    assert scores["accuracy"] > 0.9
    assert scores["brier"] < 0.5 * 2 * 0.25  # half of what a coin gets
    assert scores == evaluate(posterior, data)


def test_evaluate_refuses_what_it_cannot_score() -> None:
    known = conjugate()
    posterior = known.posterior(3, np.random.default_rng(0))
    x, y = known.data
    for wrong in (y[:, 0], y[:5]):
        with pytest.raises(InputError, match="y must have shape"):
            evaluate(posterior, (x, wrong))

    class Heads(nn.Linear):
        def forward(self, input: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
            f = super().forward(input)
            return {"a": f, "b": f}

    model = Model(Heads(3, 1, bias=False, dtype=DOUBLE), Normal(0, 1), MultiTask(a=Gaussian(0.1), b=Gaussian(0.2)))
    several = Draws(model, torch.zeros(1, 1, 3, dtype=DOUBLE), torch.zeros(1, 1), {}, {})
    with pytest.raises(UnsupportedError, match=r"evaluate scores one task; got dict; score predictive\[task\]"):
        evaluate(several, (x, {"a": y, "b": y}))  # type: ignore[arg-type]


@pytest.mark.parametrize("score", [rmse, coverage, accuracy, brier])
def test_a_score_never_broadcasts(score: Callable[..., float]) -> None:
    """(N,) against (N, 1) would give N² differences, or take yes and no for one class."""
    predictive, y = (real(), torch.tensor(Y)[:, None]) if score in (rmse, coverage) else yes()
    score(predictive, y)
    for wrong in (y[:, 0], y[:2], y.numpy()):
        with pytest.raises(InputError, match=r"y must be a tensor of shape \(3, 1\); got .*; give one observation"):
            score(predictive, wrong)
    if score in (accuracy, brier):
        predictive, y = labels()
        for wrong in (y[:, None], y[:2]):
            with pytest.raises(InputError, match=r"y must be a tensor of shape \(3,\)"):
                score(predictive, wrong)


def test_evaluate_of_arrays_says_what_to_do() -> None:
    known = conjugate()
    x, y = known.data
    with pytest.raises(InputError, match=r"y must be a tensor; got ndarray; use torch.as_tensor\(y\)"):
        evaluate(known.posterior(3, np.random.default_rng(0)), (x, y.numpy()))  # type: ignore[arg-type]
