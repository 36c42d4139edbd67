"""Decisions by expected cost, learning by acting, and which layers and inputs carry the uncertainty."""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chance import assert_probability, likely, within
from scipy import stats
from targets import DOUBLE
from torch import Tensor, nn
from torch import distributions as td

from nescio import InputError, Model, UnsupportedError, fit
from nescio.decisions import Bandit, Greedy, Thompson, decide, play, worth
from nescio.evaluation import inputs, layers
from nescio.functions import Functions
from nescio.infer import MAP, VI, Laplace
from nescio.infer.curvature import full
from nescio.infer.families import MeanField
from nescio.laws import Flat, Normal
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.predictive import Drawn

DRUG = torch.tensor([[0.0, 1.0], [10.0, 1.0]])  # rows: healthy, ill; columns: wait, treat


def labelled(p: object) -> Drawn:
    return Drawn(td.Categorical(probs=torch.as_tensor(p, dtype=DOUBLE)))


def test_should_i_give_the_drug() -> None:
    """At p(ill) = 0.2 waiting costs 2 and treating 1; the cut is at 0.1. The most probable class would always say wait."""
    found = decide(labelled([[[0.8, 0.2], [0.95, 0.05], [0.4, 0.6]]]), DRUG)
    assert found.action.tolist() == [1, 0, 1]
    np.testing.assert_allclose(found.cost, [1.0, 0.5, 1.0])
    np.testing.assert_allclose(found.every[0], [2.0, 1.0])
    np.testing.assert_allclose(found.perfect, [0.2, 0.05, 0.6])  # a perfect test: treat the ill only
    coin = Drawn(td.Bernoulli(probs=torch.tensor([[[0.2]]], dtype=DOUBLE)))
    np.testing.assert_allclose(decide(coin, DRUG).every, [[2.0, 1.0]])


def test_what_knowing_the_weights_is_worth() -> None:
    """Two draws, ill with 0 or 0.4: now treat for 1; knowing which, wait for 0 or treat for 1."""
    np.testing.assert_allclose(worth(labelled([[[1.0, 0.0]], [[0.6, 0.4]]]), DRUG), [0.5])
    np.testing.assert_allclose(worth(labelled([[[0.8, 0.2]], [[0.8, 0.2]]]), DRUG), [0.0], atol=1e-12)
    coin = Drawn(td.Bernoulli(probs=torch.tensor([[[0.0]], [[0.4]]], dtype=DOUBLE)))
    np.testing.assert_allclose(worth(coin, DRUG), [0.5])


def test_real_outcomes_are_decided_by_samples() -> None:
    """Order 1 or 3 newspapers: cost 3 a missing one, 1 a left one. 4000 samples; expected costs by z."""
    predictive = Functions(torch.tensor([[1.0], [3.0]]), torch.full((2, 1, 1), 0.5), torch.full((2, 1), 0.5))

    def cost(y: Tensor) -> Tensor:
        order = torch.tensor([1.0, 3.0])
        return 3 * (y - order).clamp_min(0) + (order - y).clamp_min(0)

    found = decide(predictive, cost, samples=4000)
    assert found.action.tolist() == [0, 1]
    want = 4 * 1.0 * (1 / math.sqrt(2 * math.pi))  # E|y - order| = sqrt(2/π), halves weighed 3 and 1
    within((found.every[0, 0].item() - want) / 2.0 * math.sqrt(4000))
    assert bool((found.perfect < found.cost).all())


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((labelled([[[0.5, 0.5]]]), torch.zeros(3, 2)), InputError, "a row for each of the 2 classes"),
        ((labelled([[[0.5, 0.5]]]), torch.tensor([[0.0, math.inf], [1.0, 1.0]])), InputError, "costs must be finite"),
        (
            (Functions(torch.zeros(1, 1), torch.ones(1, 1, 1), torch.ones(1, 1)), DRUG),
            UnsupportedError,
            "is for classes",
        ),
        (
            (Functions(torch.zeros(1, 1), torch.ones(1, 1, 1), torch.ones(1, 1)), lambda y: y[..., 0]),
            InputError,
            "must give .samples, points, actions.",
        ),
    ],
)
def test_costs_are_checked(arguments: tuple[object, ...], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        decide(*arguments)  # type: ignore[arg-type]


# ---- the bandit ------------------------------------------------------------------------------------------------------


def mushrooms(n: int = 200) -> Bandit:
    """Eat (1) or leave (0): x > 0 is good and pays 1; else it pays 1 or -5 by the toss of a coin."""
    x = Noise(0).normal(n, 1)
    good = x[:, 0] > 0

    def reward(rows: Tensor, actions: Tensor, noise: Noise) -> Tensor:
        lucky = noise.uniform(len(rows)) < 0.5
        return actions * torch.where(good[rows] | lucky, 1.0, -5.0)

    return Bandit(x, reward, torch.stack([torch.zeros(n), torch.where(good, 1.0, -2.0)], 1))


def test_thompson_sampling_learns_to_leave_the_bad_ones() -> None:
    torch.manual_seed(0)
    model = Model(mlp(3, 20, 1), Normal(0, 1), Gaussian(1.0))
    bandit = mushrooms()
    method = MAP(epochs=15, lr=0.05, batch_size=64) >> Laplace(full).on("2.*")
    seen: list[int] = []
    found = play(model, bandit, method, Thompson(), decisions=320, every=64, progress=lambda n, r: seen.append(n))
    assert seen == [64, 128, 192, 256, 320]
    assert found.regret[-1] - found.regret[-65] < 0.5 * found.regret[63]  # the last 64 against the first
    assert torch.equal(found.regret, found.regret.cummax(0).values) and len(found.rewards) == 320
    again = play(model, bandit, method, Thompson(), decisions=128, every=64)
    assert torch.equal(again.actions, found.actions[:128])  # from the seed


def test_a_draw_is_for_one_decision_and_stored_draws_come_by_lot() -> None:
    """Four members, two of whom love each action: over 400 decisions both are taken, by each about half the time (binomial)."""
    model = Model(nn.Linear(3, 1, bias=False), Normal(0, 1), Gaussian(1.0))
    from nescio.posterior import Draws

    theta = torch.tensor([[0.0, 1.0, 0.0]] * 2 + [[0.0, 0.0, 1.0]] * 2)[:, None]
    posterior = Draws(model, theta, torch.zeros(4, 1), {}, {})
    bandit = Bandit(torch.zeros(400, 1), lambda r, a, n: a.float(), torch.zeros(400, 2))
    rows = torch.arange(400)
    ones = int(Thompson().choose(posterior, bandit, rows, Noise(0)).sum())
    assert_probability(ones, 400, 0.5)
    assert int(Greedy().choose(posterior, bandit, rows, Noise(0)).sum()) in (0, 400)
    explored = int(Greedy(explore=0.5).choose(posterior, bandit, rows, Noise(0)).ne(0).sum())
    likely(stats.binom.cdf(explored, 400, 0.25))  # 300 where greed itself takes this one
    assert explored < 400


def test_bandits_are_checked() -> None:
    model = Model(nn.Linear(2, 1), Normal(0, 1), Gaussian(1.0))
    bandit = Bandit(torch.zeros(3, 1), lambda r, a, n: a.float(), torch.zeros(3, 1))
    with pytest.raises(InputError, match="two actions or more"):
        play(model, bandit, MAP(epochs=1), Thompson(), decisions=5)
    with pytest.raises(InputError, match="decisions and every are at least 1"):
        play(model, bandit, MAP(epochs=1), Thompson(), decisions=0)


# ---- who carries the uncertainty -------------------------------------------------------------------------------------


def test_layers_and_inputs_that_carry_the_uncertainty() -> None:
    """A linear model, exact: the second column was never moved, so its weight is as wide as the prior and carries all."""
    x = Noise(0).to(torch.device("cpu"), DOUBLE).normal(200, 2)
    x[:, 1] = 0
    model = Model(nn.Linear(2, 1, dtype=DOUBLE), Normal(0, 1), Gaussian(0.1))
    posterior = fit(model, (x, x[:, :1]), MAP(epochs=2) >> Laplace(full))
    new = torch.as_tensor(np.random.default_rng(1).normal(size=(50, 2)))
    (row,) = layers(posterior, new, draws=400)
    assert row.name == "" and row.weights == 3 and row.share == 1.0
    assert row.prior_sd == pytest.approx(1.0, rel=0.15)
    first, second = inputs(posterior, new, draws=400)
    assert second.share > 0.9 and abs(first.share) < 0.05


def test_a_layer_held_fixed_carries_nothing() -> None:
    torch.manual_seed(0)
    x = Noise(0).normal(40, 2)
    model = Model(mlp(2, 6, 1), {"0.*": Normal(0, 1), "*": Flat()}, Gaussian(0.1))
    posterior = fit(model, (x, x[:, :1]), MAP(epochs=2) >> VI(MeanField(), epochs=2).on("0.*"))
    hidden, head = layers(posterior, x, draws=20)
    assert (hidden.name, head.name) == ("0", "2")
    assert head.variance == 0 and head.sd == 0 and hidden.share == 1 and hidden.variance > 0
    assert math.isnan(head.prior_sd)  # improper
    with pytest.raises(InputError, match="column by column"):
        inputs(posterior, torch.zeros(3))


# ---- the page --------------------------------------------------------------------------------------------------------


def test_the_code_of_the_page_runs() -> None:
    page = (Path(__file__).resolve().parent.parent / "docs" / "uncertainty.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(snippet, names)
    assert names["sets"].shape == (50, 2) and 0 <= names["answers"].coverage <= 1
    assert names["found"].auroc.low <= names["found"].auroc.value <= names["found"].auroc.high
    assert set(names["action"].tolist()) <= {0, 1}


# ---- what the examples show ------------------------------------------------------------------------------------------


def example(name: str) -> Any:
    path = Path(__file__).resolve().parent.parent / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"at_work_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_of_decisions(capsys: pytest.CaptureFixture[str]) -> None:
    """Margins are several standard errors of 2000 patients."""
    found = example("decisions").main(quick=True)
    assert found["cost, by expected cost"] < 0.85 * found["cost, by the most probable class"]
    assert found["wrong among the answered"] < 0.7 * found["wrong if all are answered"]
    assert found["entropy, first measurement missing"] > 1.2 * found["entropy"]
    assert found["entropy, fourth measurement missing"] < 1.05 * found["entropy"]
    assert found["sets that hold the truth"] > 0.85
    assert len(capsys.readouterr().out.splitlines()) == len(found)


def test_the_example_of_the_stuck_sensor(capsys: pytest.CaptureFixture[str]) -> None:
    found = example("weight_report").main(quick=True)
    assert found["share of column 2"] > 0.8 > max(found[f"share of column {c}"] for c in (0, 1, 3))
    assert found["sd of the stuck column's weights"] == pytest.approx(1.0, rel=0.2)  # as under the prior
    assert "prior sd" in capsys.readouterr().out
