"""AUROC, AUPR and FPR95 are scikit-learn's, their intervals hold what they should, and corruptions do what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from chance import ALPHA, M, likely
from scipy import ndimage, stats
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from targets import DOUBLE
from torch import nn

from nescio import InputError, Model, fit
from nescio.evaluation import auroc, blurred, noisy, rotated, separation, sweep
from nescio.evaluation.detection import midranks
from nescio.infer import MAP
from nescio.laws import Normal
from nescio.likelihoods import Categorical
from nescio.noise import Noise


def scored(n: int, m: int, ties: bool, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    inside, outside = rng.normal(0, 1, n), rng.normal(1, 1, m)
    return (inside.round(), outside.round()) if ties else (inside, outside)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("n", "m"), [(50, 80), (1, 3), (200, 5)])
def test_equal_to_scikit_learn(n: int, m: int, ties: bool) -> None:
    inside, outside = scored(n, m, ties)
    got = separation(torch.as_tensor(inside), torch.as_tensor(outside), resamples=20)
    truth, score = np.r_[np.zeros(n), np.ones(m)], np.r_[inside, outside]
    assert got.auroc.value == pytest.approx(roc_auc_score(truth, score), abs=1e-12)
    assert got.aupr.value == pytest.approx(average_precision_score(truth, score), abs=1e-12)
    assert got.aupr_inside.value == pytest.approx(average_precision_score(1 - truth, -score), abs=1e-12)
    false, true, _ = roc_curve(truth, score, drop_intermediate=False)
    assert got.fpr95.value == pytest.approx(false[np.argmax(true >= 0.95)], abs=1e-12)
    assert all(e.low - 1e-12 <= e.value <= e.high + 1e-12 for e in got[:1])


def test_midranks_are_scipys() -> None:
    x = torch.tensor([3.0, 1.0, 3.0, 2.0, 1.0, 3.0])
    np.testing.assert_allclose(midranks(x), stats.rankdata(x))


def test_delongs_variance_is_that_of_the_jackknife_of_both_samples() -> None:
    """Leave-one-out over each sample gives the same structural components."""
    inside, outside = (torch.as_tensor(x) for x in scored(40, 30, ties=True, seed=2))
    kernel = (outside[:, None] > inside).double() + 0.5 * (outside[:, None] == inside).double()
    variance = kernel.mean(1).var() / 30 + kernel.mean(0).var() / 40
    found = auroc(inside, outside)
    logit = lambda p: math.log(p / (1 - p))  # noqa: E731
    half = (logit(found.high) - logit(found.low)) / 2
    want = 1.959963985 * variance.sqrt() / (found.value * (1 - found.value))
    assert half == pytest.approx(want.item(), rel=1e-6)


def test_intervals_hold_the_truth() -> None:
    """90 % intervals of 200 samples of 60 + 60: asymptotic, so at least 80 % must hold it; the exact binomial of 0.9
    allows 75 %. Planted: half the width holds 59 %."""
    true, hits, narrow = stats.norm.cdf(1 / math.sqrt(2)), 0, 0
    for i in range(200):
        found = auroc(*(torch.as_tensor(x) for x in scored(60, 60, False, seed=i)), level=0.9)
        hits += found.low <= true <= found.high
        narrow += abs(found.value - true) <= (found.high - found.low) / 4
    law = stats.binom(200, 0.9)
    likely(law.cdf(hits), f"{hits} of 200")
    assert law.cdf(narrow) < ALPHA / M


def test_bootstrap_intervals_have_the_width_of_the_sampling_spread() -> None:
    """FPR95 and AUPR of 100 fresh samples against the mean bootstrap width: within a third."""
    made = [
        separation(*(torch.as_tensor(x) for x in scored(100, 100, False, seed=i)), resamples=100) for i in range(60)
    ]
    for name in ("aupr", "aupr_inside"):
        values = np.array([getattr(s, name).value for s in made])
        widths = np.array([getattr(s, name).high - getattr(s, name).low for s in made])
        assert widths.mean() == pytest.approx(2 * 1.96 * values.std(), rel=0.35)


def test_perfect_separation_still_has_an_interval() -> None:
    found = separation(torch.zeros(20), torch.ones(30), resamples=10)
    assert found.auroc.value == 1 and found.auroc.low < 0.9 and found.fpr95.value == 0
    assert str(found.auroc) == "1.0000 [0.8500, 1.0000]"


@pytest.mark.parametrize(
    ("inside", "match"),
    [
        (torch.zeros(0), "inside must hold one number a point"),
        (torch.zeros(3, 2), "use of_points"),
        (torch.tensor([1.0, math.nan]), "scores must be finite; got 1"),
    ],
)
def test_bad_scores_are_refused(inside: torch.Tensor, match: str) -> None:
    with pytest.raises(InputError, match=match):
        separation(inside, torch.ones(3))


# ---- corruptions -----------------------------------------------------------------------------------------------------


def picture() -> torch.Tensor:
    return torch.as_tensor(np.random.default_rng(0).uniform(size=(2, 3, 9, 12)), dtype=DOUBLE)


def test_a_quarter_turn_is_exact() -> None:
    x = picture()[..., :9]
    torch.testing.assert_close(rotated(x, 90.0), torch.rot90(x, 1, (2, 3)), rtol=0, atol=1e-9)
    torch.testing.assert_close(rotated(rotated(x, 90.0), -90.0), x, rtol=0, atol=1e-9)
    assert torch.equal(rotated(x, 0.0), x)
    torch.testing.assert_close(rotated(picture(), 180.0), picture().flip(2, 3), rtol=0, atol=1e-9)


def test_blur_is_scipys() -> None:
    x = picture()
    want = ndimage.gaussian_filter(x.numpy(), (0, 0, 1.5, 1.5), mode="nearest", truncate=4.0)
    np.testing.assert_allclose(blurred(x, 1.5), want, atol=1e-9)
    np.testing.assert_allclose(blurred(x[:, 0], 1.5), want[:, 0], atol=1e-9)
    assert torch.equal(blurred(x, 0.0), x)


def test_noise_grows_in_one_direction() -> None:
    x = picture()
    torch.testing.assert_close(noisy(x, 0.6) - x, 3 * (noisy(x, 0.2) - x))
    assert torch.equal(noisy(x, 0.0), x)


@pytest.mark.parametrize("bad", [torch.zeros(3, 3), torch.zeros(2, 3, 4, 4, dtype=torch.uint8)])
def test_corruptions_want_images(bad: torch.Tensor) -> None:
    for corruption in (rotated, blurred, noisy):
        with pytest.raises(InputError, match="images must be real numbers"):
            corruption(bad, 1.0)


def test_a_sweep_shows_errors_and_doubt_grow() -> None:
    """Bars, upright or flat: turned by 90 degrees they are the other class, and an ensemble halfway does not know."""
    y = torch.arange(40) % 2
    x = torch.zeros(40, 8, 8)
    for i in range(40):
        at = 2 + (i // 2) % 4
        x[i, at, :] = 1 - y[i]
        x[i, :, at] += y[i]
    x += 0.1 * Noise(0).normal(*x.shape)
    torch.manual_seed(0)
    model = Model(
        nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 2)), Normal(0, 1), Categorical()
    )
    posterior = fit(model, (x, y), 5 * MAP(epochs=40, batch_size=40))
    upright, halfway, over = sweep(posterior, (x, y), rotated, (0.0, 45.0, 90.0))
    assert upright.loss == 0 < halfway.loss and over.loss > 0.9
    assert halfway.total > 2 * upright.total and halfway.nll > upright.nll
    assert halfway.total == pytest.approx(halfway.aleatoric + halfway.epistemic, rel=1e-5)
    assert upright.strength == 0.0 and upright.aurc == 0.0
