"""Faults in abstention, detection, calibration, active learning, decisions and missing labels, each with the check that sees it.

Checks are exact arithmetic unless they say otherwise, and take well under a second.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from chance import assert_probability
from fault import Fault
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from torch import Tensor, nn
from torch import distributions as td

from nescio import Model, fit
from nescio.active import BALD, BatchBALD
from nescio.active.pool import Pool
from nescio.answers import Answers
from nescio.decisions import Bandit, Thompson, decide
from nescio.decisions import bandit as bandit_module
from nescio.evaluation import conformal, corruptions, detection, promise, risk_coverage, rotated, separation
from nescio.evaluation import selective as selective_module
from nescio.infer import Laplace
from nescio.infer.curvature import columns as columns_module
from nescio.infer.curvature import full
from nescio.laws import Normal
from nescio.likelihoods import Gaussian, Masked
from nescio.likelihoods.masked import PartlyNormal
from nescio.noise import Noise
from nescio.posterior import Draws
from nescio.predictive import Drawn, Predictive

DOUBLE = torch.float64


def labelled(p: object) -> Drawn:
    return Drawn(td.Categorical(probs=torch.as_tensor(p, dtype=DOUBLE)))


def close(got: object, want: object) -> None:
    np.testing.assert_allclose(np.asarray(got, dtype=float), np.asarray(want, dtype=float), rtol=1e-9, atol=1e-12)


# ---- checks ----------------------------------------------------------------------------------------------------------


def check_abstention() -> None:
    answers = labelled([[[0.96, 0.04], [0.7, 0.3], [0.02, 0.98]]]).abstain(risk=0.05)
    assert list(answers) == [0, None, 1], list(answers)
    close(answers.risk, [0.04, 0.3, 0.02])


def check_detection() -> None:
    """Against scikit-learn, with ties."""
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(0, 1, 200).round(1), rng.normal(1, 1, 300).round(1)
    got = separation(torch.as_tensor(inside), torch.as_tensor(outside), resamples=2)
    truth, score = np.r_[np.zeros(200), np.ones(300)], np.r_[inside, outside]
    false, true, _ = roc_curve(truth, score, drop_intermediate=False)
    want = [
        roc_auc_score(truth, score),
        average_precision_score(truth, score),
        average_precision_score(1 - truth, -score),
    ]
    close([e.value for e in got], [*want, false[np.argmax(true >= 0.95)]])


def check_order() -> None:
    close(risk_coverage(torch.tensor([0.1, 0.9, 0.5]), torch.tensor([0.0, 1.0, 0.0])).risk, [0.0, 0.0, 1 / 3])


def check_promise() -> None:
    """100 points without an error: 95 % confidence allows no promise below 3 / 100, and with 20 levels none below 0.058."""
    sure = labelled([[[0.9, 0.1]] * 100])
    assert promise(sure, torch.zeros(100, dtype=torch.long), risk=0.05).coverage == 0.0
    assert promise(sure, torch.zeros(100, dtype=torch.long), risk=0.07).coverage == 1.0


def check_conformal() -> None:
    """Ten scores at 90 %: the largest of them, ⌈(10 + 1) 0.9⌉ = 10."""
    predictive = Drawn(td.Normal(torch.zeros(1, 10, 1, dtype=DOUBLE), torch.ones(1, 10, 1, dtype=DOUBLE)))
    y = torch.arange(1.0, 11.0, dtype=DOUBLE)[:, None]
    rule = conformal(predictive, y, level=0.9)
    close(rule(predictive)[1], np.full((10, 1), 10.0))  # type: ignore[index]


def check_temperature() -> None:
    """Sixty-five in a hundred right, nine in ten stated: log odds are divided by log 9 / log(65 / 35)."""
    from nescio.evaluation import temperature

    predictive = labelled([[[0.9, 0.1]] * 100])
    y = (torch.arange(100) >= 65).long()
    found = temperature(predictive, y)
    assert abs(found.value - math.log(9) / math.log(65 / 35)) < 1e-4, found.value


def check_bald() -> None:
    """Two draws that disagree teach, two that agree on a half do not."""
    predictive = labelled([[[0.99, 0.01], [0.5, 0.5]], [[0.21, 0.79], [0.5, 0.5]]])
    assert BALD().choose(predictive, 1, Noise(0)).tolist() == [0]


def check_batch() -> None:
    """Two copies of the best point and one that teaches something else: a batch of two takes one copy and the other."""
    a, b = [[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]], [[0.8, 0.2], [0.2, 0.8], [0.8, 0.2], [0.2, 0.8]]
    p = torch.tensor([a, a, b], dtype=DOUBLE).movedim(1, 0)  # (draws, points, classes)
    assert 2 in BatchBALD().choose(labelled(p), 2, Noise(0)).tolist()


def check_pool() -> None:
    x = torch.arange(6.0)[:, None]
    pool = Pool.begin(x, x, torch.tensor([1, 4]), Noise(0))
    assert pool.left().tolist() == [0, 2, 3, 5]
    assert pool.bought(torch.tensor([0])).left().tolist() == [2, 3, 5]


def check_thompson() -> None:
    """Two members that disagree: 200 decisions, of which each takes about half (binomial); none or all by one draw for all."""
    model = Model(nn.Linear(3, 1, bias=False), Normal(0, 1), Gaussian(1.0))
    theta = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])[:, None]
    posterior = Draws(model, theta, torch.zeros(2, 1), {}, {})
    bandit = Bandit(torch.zeros(200, 1), lambda r, a, n: a.float(), torch.zeros(200, 2))
    ones = int(Thompson().choose(posterior, bandit, torch.arange(200), Noise(0)).sum())
    assert_probability(ones, 200, 0.5)


def check_costs() -> None:
    """A rare illness that is dear: treat although the patient is probably healthy."""
    found = decide(labelled([[[0.8, 0.2]]]), torch.tensor([[0.0, 1.0], [10.0, 1.0]]))
    assert found.action.tolist() == [1]
    close(found.perfect, [0.2])


def check_missing() -> None:
    """A missing label has no density, and the posterior of its weight is the prior's."""
    partly = PartlyNormal(torch.zeros(2, dtype=DOUBLE), torch.ones(2, dtype=DOUBLE), -1.0)
    assert partly.log_prob(torch.tensor([-1.0, 0.0], dtype=DOUBLE))[0] == 0


def check_missing_curvature() -> None:
    x = torch.ones(5, 1, dtype=DOUBLE)
    y = torch.cat([x, torch.full_like(x, -1.0)], 1)
    model = Model(nn.Linear(1, 2, bias=False, dtype=DOUBLE), Normal(0, 2), Masked(Gaussian(0.5), -1.0))
    posterior = fit(model, (x, y), Laplace(full))
    close(posterior.covariance.diagonal(), [1 / (0.25 + 5 / 0.25), 4.0])  # type: ignore[attr-defined]


def check_rotation() -> None:
    x = torch.arange(9.0, dtype=DOUBLE).reshape(1, 1, 3, 3)
    np.testing.assert_allclose(rotated(x, 90.0), torch.rot90(x, 1, (2, 3)), atol=1e-9)


# ---- faults ----------------------------------------------------------------------------------------------------------


def answers_all(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Predictive, risk: float = 0.05, within: float | None = None) -> Answers:
        best = self.mean.max(-1)
        return Answers(best.indices, best.values > 0.5, 1 - best.values)

    patch.setattr(Predictive, "abstain", wrong)


def ties_count_for_nothing(patch: pytest.MonkeyPatch) -> None:
    def wrong(x: Tensor) -> Tensor:
        _, place, counts = x.unique(return_inverse=True, return_counts=True)
        return (counts.cumsum(0).double() - counts.double() + 1)[place]

    patch.setattr(detection, "midranks", wrong)


def trapezoids(patch: pytest.MonkeyPatch) -> None:
    def wrong(true: Tensor, false: Tensor) -> Tensor:
        precision, recall = true / (true + false).clamp_min(1), true / true[:, -1:]
        return torch.trapezoid(precision, recall, dim=1)

    patch.setattr(detection, "average_precision", wrong)


def ninety_per_cent_found(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(detection, "FOUND", 0.90)


def most_doubtful_first(patch: pytest.MonkeyPatch) -> None:
    averaged = selective_module.averaged
    patch.setattr(selective_module, "averaged", lambda doubt, loss: averaged(-doubt, loss))


def empirical_risk(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(selective_module, "at_most", lambda hits, n, p: 0.0 if hits / n <= p else 1.0)
    patch.setattr(selective_module, "clopper_pearson", lambda hits, n, tail: hits / n)


def plain_quantile(patch: pytest.MonkeyPatch) -> None:
    """The ⌈n level⌉-th, which covers too little."""
    import sys

    module = sys.modules["nescio.evaluation.conformal"]
    real = math.ceil

    class Wrong:
        ceil = staticmethod(lambda v: real(v - 0.9))

    patch.setattr(module, "math", Wrong)


def heated_the_wrong_way(patch: pytest.MonkeyPatch) -> None:
    import sys

    module = sys.modules["nescio.evaluation.temperature"]
    cooled: Any = module.cooled  # type: ignore[attr-defined]
    patch.setattr(module, "cooled", lambda draws, t: cooled(draws, 1 / t))


def total_for_epistemic(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BALD, "scores", lambda self, predictive, noise: predictive.total)


def sum_of_marginals(patch: pytest.MonkeyPatch) -> None:
    """Joint information as if the points were independent: the n best by BALD."""
    patch.setattr(BatchBALD, "grown", lambda self, joint, weights, p, chosen, noise: (joint, weights))


def labels_bought_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pool, "left", lambda self: torch.arange(len(self.x)))


def one_draw_for_all(patch: pytest.MonkeyPatch) -> None:
    values = bandit_module.values
    patch.setattr(bandit_module, "values", lambda *args: values(*args)[:1])


def most_probable_class(patch: pytest.MonkeyPatch) -> None:
    from nescio.decisions import costs

    table = costs.costs
    patch.setattr(costs, "costs", lambda p, cost: 1 - torch.eye(2).to(table(p, cost)))


def missing_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartlyNormal, "log_prob", td.Normal.log_prob)


def curvature_of_what_is_missing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(columns_module, "known", lambda observed, eta, y: 1.0)


def clockwise(patch: pytest.MonkeyPatch) -> None:
    real = math.radians

    class Wrong:
        radians = staticmethod(lambda d: -real(d))
        cos, sin, ceil = math.cos, math.sin, math.ceil

    patch.setattr(corruptions, "math", Wrong)


FAULTS = [
    Fault("abstention that ignores the risk", answers_all, check_abstention),
    Fault("AUROC without half of the ties", ties_count_for_nothing, check_detection),
    Fault("average precision by trapezoids", trapezoids, check_detection),
    Fault("FPR where 90 % are found", ninety_per_cent_found, check_detection),
    Fault("risk of the most doubtful first", most_doubtful_first, check_order),
    Fault("a promise by the empirical risk", empirical_risk, check_promise),
    Fault("conformal rank of n, not of n + 1", plain_quantile, check_conformal),
    Fault("temperature multiplies", heated_the_wrong_way, check_temperature),
    Fault("BALD by the total entropy", total_for_epistemic, check_bald),
    Fault("BatchBALD that forgets the batch", sum_of_marginals, check_batch),
    Fault("labels bought twice", labels_bought_twice, check_pool),
    Fault("one draw of the weights for all decisions", one_draw_for_all, check_thompson),
    Fault("decisions by the most probable class", most_probable_class, check_costs),
    Fault("missing labels count", missing_counts, check_missing),
    Fault("missing labels curve", curvature_of_what_is_missing, check_missing_curvature),
    Fault("rotation clockwise", clockwise, check_rotation),
]
