"""Active learning: scores by hand, BatchBALD against enumeration, a loop that resumes and says what is wrong."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from chance import within
from targets import DOUBLE
from torch import Tensor
from torch import distributions as td

from nescio import FileError, InputError, Model, UnsupportedError
from nescio.active import (
    BALD,
    Acquisition,
    BatchBALD,
    Learning,
    MaxEntropy,
    MeanStd,
    Random,
    Round,
    VariationRatios,
    balanced,
    learn,
)
from nescio.active.acquisition import best
from nescio.functions import Functions
from nescio.infer import MAP, VI, Laplace, Method
from nescio.infer.curvature import full
from nescio.infer.families import MeanField
from nescio.laws import Normal
from nescio.likelihoods import Categorical, Gaussian
from nescio.links import Classes
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.predictive import Drawn


def random_predictive(draws: int = 6, points: int = 7, classes: int = 3, seed: int = 0) -> Drawn:
    logits = 2 * np.random.default_rng(seed).normal(size=(draws, points, classes))
    return Drawn(td.Categorical(logits=torch.as_tensor(logits)))


def information(p: np.ndarray, batch: tuple[int, ...]) -> float:
    """I(labels of the batch; draw) by enumeration; p (draws, points, classes)."""
    total = 0.0
    for labels in itertools.product(range(p.shape[2]), repeat=len(batch)):
        each = np.prod([p[:, i, y] for i, y in zip(batch, labels, strict=True)], axis=0)  # (draws,)
        total += float((each * np.log(each / each.mean())).mean())
    return total


# ---- scores ----------------------------------------------------------------------------------------------------------


def test_scores_by_hand() -> None:
    predictive, noise = random_predictive(), Noise(0)
    p = predictive.draws.probs.numpy()  # type: ignore[attr-defined]
    mean = p.mean(0)
    entropy = -(mean * np.log(mean)).sum(-1)
    np.testing.assert_allclose(BALD().scores(predictive, noise), [information(p, (i,)) for i in range(7)], rtol=1e-8)
    np.testing.assert_allclose(MaxEntropy().scores(predictive, noise), entropy, rtol=1e-8)
    np.testing.assert_allclose(VariationRatios().scores(predictive, noise), 1 - mean.max(-1), rtol=1e-8)
    np.testing.assert_allclose(MeanStd().scores(predictive, noise), p.std(0).mean(-1), rtol=1e-8)


def test_scores_of_real_outcomes() -> None:
    """A closed form: y = f + noise is Gaussian, I(y; f) = ½ log(1 + spread / noise)."""
    spread = torch.tensor([[[0.5]], [[2.0]]], dtype=DOUBLE)
    predictive, noise = (
        Functions(torch.zeros(2, 1, dtype=DOUBLE), spread, torch.full((2, 1), 0.5, dtype=DOUBLE)),
        Noise(0),
    )
    np.testing.assert_allclose(BALD().scores(predictive, noise), 0.5 * np.log1p([1.0, 4.0]))
    np.testing.assert_allclose(MeanStd().scores(predictive, noise), np.sqrt([0.5, 2.0]))
    want = [td.Normal(0.0, math.sqrt(v)).entropy().item() for v in (1.0, 2.5)]
    np.testing.assert_allclose(MaxEntropy().scores(predictive, noise), want, rtol=1e-6)
    with pytest.raises(UnsupportedError, match="max_probability is for classes"):
        VariationRatios().scores(predictive, noise)
    with pytest.raises(UnsupportedError, match="draws of class probabilities are needed"):
        BatchBALD().choose(predictive, 1, noise)


def test_pixels_and_steps_count_by_their_mean() -> None:
    logits = torch.as_tensor(np.random.default_rng(1).normal(size=(4, 5, 2, 3, 3)))
    scores = BALD().scores(Drawn(td.Categorical(logits=logits)), Noise(0))
    one = BALD().scores(Drawn(td.Categorical(logits=logits.flatten(1, 3))), Noise(0))
    np.testing.assert_allclose(scores, one.view(5, 6).mean(1), rtol=1e-10)
    with pytest.raises(UnsupportedError, match="one label a point"):
        BatchBALD().choose(Drawn(td.Categorical(logits=logits)), 1, Noise(0))


def test_the_best_come_first_and_ties_are_drawn() -> None:
    scores = torch.tensor([0.0, 3.0, 1.0, 3.0, 2.0])
    assert set(best(scores, 2, Noise(0)).tolist()) == {1, 3} and best(scores, 3, Noise(0))[2] == 4
    firsts = {int(best(scores, 1, Noise(seed))[0]) for seed in range(20)}
    assert firsts == {1, 3}  # by lot, not by place: missed by one in a million
    drawn = [tuple(Random().choose(random_predictive(), 3, Noise(seed)).tolist()) for seed in range(5)]
    assert len(set(drawn)) > 1 and all(len(set(d)) == 3 for d in drawn)


@pytest.mark.parametrize("n", [0, 8])
@pytest.mark.parametrize("acquire", [BALD(), BatchBALD(), Random()], ids=repr)
def test_an_acquisition_larger_than_the_pool(acquire: Acquisition, n: int) -> None:
    with pytest.raises(InputError, match=f"at most all points of the pool; got {n} of 7"):
        acquire.choose(random_predictive(), n, Noise(0))


# ---- BatchBALD -------------------------------------------------------------------------------------------------------


def greedy(p: np.ndarray, n: int) -> list[int]:
    chosen: list[int] = []
    for _ in range(n):
        rest = [i for i in range(p.shape[1]) if i not in chosen]
        chosen.append(max(rest, key=lambda i: information(p, (*chosen, i))))
    return chosen


@pytest.mark.parametrize("seed", range(4))
def test_batch_bald_is_the_greedy_choice_by_enumeration(seed: int) -> None:
    predictive = random_predictive(seed=seed)
    p = predictive.draws.probs.numpy()  # type: ignore[attr-defined]
    assert BatchBALD().choose(predictive, 4, Noise(0)).tolist() == greedy(p, 4)
    assert BatchBALD(shortlist=5).choose(predictive, 4, Noise(0)).numel() == 4


def test_drawn_configurations_agree_with_enumeration() -> None:
    """Exact up to the fourth point, then 80 drawn configurations: the batch has nine tenths of the greedy one's information at least.
    Two points are copies of the best: BALD takes them, BatchBALD does not."""
    p = random_predictive(draws=20, points=9, seed=5).draws.probs.numpy()  # type: ignore[attr-defined]
    first = max(range(9), key=lambda i: information(p, (i,)))
    p = np.concatenate([p, p[:, [first, first]]], 1)
    predictive = Drawn(td.Categorical(probs=torch.as_tensor(p)))
    good = BatchBALD(configurations=80).choose(predictive, 5, Noise(1)).tolist()
    want = information(p, tuple(greedy(p, 5)))
    assert len(set(good)) == 5 and information(p, tuple(good)) > 0.9 * want
    assert information(p, tuple(BALD().choose(predictive, 3, Noise(0)).tolist())) < information(p, tuple(good[:3]))


def test_estimated_entropies_are_right_on_average() -> None:
    """400 independent estimates with 7 of 8 configurations drawn; their mean by z."""
    from nescio.active.batch_bald import entropies

    p = random_predictive(draws=5, points=6, classes=2, seed=2).draws.probs  # type: ignore[attr-defined]
    each, chosen = p.movedim(0, 1), [0, 1, 2]
    exact = entropies(*grow(1000, each, chosen, Noise(0)), each)
    found = torch.stack([entropies(*grow(7, each, chosen, Noise(0).at(i)), each) for i in range(400)])
    within((found.mean(0) - exact) / (found.std(0) / 20))


def grow(configurations: int, p: Tensor, chosen: list[int], noise: Noise) -> tuple[Tensor, Tensor]:
    joint = torch.ones(1, p.shape[1], dtype=p.dtype)
    weights = torch.ones(1, dtype=p.dtype)
    for i in range(len(chosen)):
        joint, weights = BatchBALD(configurations).grown(joint, weights, p, chosen[: i + 1], noise.at(i))
    return joint, weights


# ---- the loop --------------------------------------------------------------------------------------------------------


def moons(n: int = 60) -> tuple[Tensor, Tensor]:
    x = Noise(0).normal(n, 2)
    return x, (x[:, 0] * x[:, 1] > 0).long()


def classifier() -> Model:
    torch.manual_seed(0)
    return Model(mlp(2, 8, 2), Normal(0, 1), Categorical())


TRAIN = 2 * MAP(epochs=2, batch_size=4)


def test_a_method_with_a_function_resumes_in_another_process(tmp_path: Path) -> None:
    """Where a function lies in memory is no part of a run; what it does is."""
    x, y = moons()

    def run(weight_decay: float) -> Learning:
        def optimizer(params: list[Tensor], lr: float) -> torch.optim.Optimizer:
            return torch.optim.SGD(params, lr, weight_decay=weight_decay)

        method = MAP(epochs=1, optimizer=optimizer)
        return learn(
            classifier(), x, y, method, BALD(), folder=tmp_path, start=balanced(y, 2), batch=3, rounds=1, draws=2
        )

    assert torch.equal(run(0.0).rows, run(0.0).rows)
    with pytest.raises(FileError, match="a folder belongs to one run"):
        run(0.1)


def test_the_loop_owns_the_pool_and_resumes_after_a_kill(tmp_path: Path) -> None:
    """Stopped in the middle and called again: the same rows, scores and posterior as without the stop."""
    x, y = moons()
    asked: list[int] = []

    def oracle(which: Tensor) -> Tensor:
        asked.extend(which.tolist())
        return y[which]

    common = {"start": balanced(y, 2), "batch": 3, "rounds": 3, "test": (x, y), "draws": 2}
    whole = learn(classifier(), x, y, TRAIN, BALD(), **common)  # type: ignore[arg-type]
    assert [r.labels for r in whole.rounds] == [4, 7, 10, 13]
    assert len(set(whole.rows.tolist())) == 13 and whole.rounds[-1].asked == []

    def stop(round: Round) -> None:
        if round.labels == 10:
            raise KeyboardInterrupt

    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        learn(classifier(), x, oracle, TRAIN, BALD(), folder=folder, progress=stop, **common)  # type: ignore[arg-type]
    again = learn(classifier(), x, oracle, TRAIN, BALD(), folder=folder, **common)  # type: ignore[arg-type]
    assert again.rounds == whole.rounds and torch.equal(again.rows, whole.rows)
    assert torch.equal(again.posterior.predict(x).mean, whole.posterior.predict(x).mean)
    assert len(asked) == 13 + 4  # labels that were paid for are not asked for again, but those to begin with
    with pytest.raises(FileError, match="a folder belongs to one run"):
        learn(classifier(), x, oracle, TRAIN, Random(), folder=folder, **common)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", [VI(MeanField(), epochs=3), MAP(epochs=3) >> Laplace()], ids=["VI", "Laplace"])
def test_any_method_and_real_outcomes(method: Method) -> None:
    x = Noise(1).normal(30, 1)
    torch.manual_seed(0)
    model = Model(mlp(1, 6, 1), Normal(0, 1), Gaussian(0.1))
    found = learn(
        model, x, torch.sin(x), method, BALD(), start=5, batch=2, rounds=2, candidates=10, test=(x, torch.sin(x))
    )
    assert len(found.rows) == 9 and found.needed("rmse", 0.0) == 5
    assert found.needed("rmse", 1e9) is None


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"rounds": 100}, r"the pool must not run dry; got 4 \+ 100 x 3 labels from 60 rows"),
        ({"rounds": -1}, "rounds is a whole number of at least 0; got -1"),
        ({"batch": 61, "rounds": 1}, "at most all points of the pool; got 61 of 60"),
        ({"start": torch.tensor([1, 1])}, "a start is at least one row of 0 ... 59, none twice; got 2 rows, 1"),
        ({"start": torch.tensor([60])}, "none twice"),
        ({"start": 0}, "a start is at least one row"),
        ({"labels": torch.zeros(3, dtype=torch.long)}, "3 labels and 60 rows"),
        ({"labels": torch.zeros(60, dtype=torch.long)}, r"every class that is tested must occur .* got class \[1\]"),
        ({"labels": lambda which: torch.zeros(1, dtype=torch.long)}, "4 labels were asked for; got 1 labels"),
        ({"labels": lambda which: torch.full((len(which),), 7)}, r"labels must lie in 0 \.\.\. 1"),
    ],
)
def test_the_loop_says_what_is_wrong(change: dict[str, object], match: str) -> None:
    x, y = moons()
    given = {"labels": y, "start": balanced(y, 2), "batch": 3, "rounds": 1, "test": (x, y), **change}
    with pytest.raises(InputError, match=match):
        learn(classifier(), x, method=TRAIN, acquire=BALD(), **given)  # type: ignore[arg-type]


def test_a_balanced_start_needs_every_class() -> None:
    assert torch.bincount(moons()[1][balanced(moons()[1], 3)]).tolist() == [3, 3]
    with pytest.raises(InputError, match=r"2 rows of every class; got \[0, 1\] rows of class \[1, 2\]"):
        balanced(torch.tensor([0, 0, 2]), 2)
    with pytest.raises(InputError, match="at least one row a class"):
        balanced(torch.tensor([0, 1]), 0)
    with pytest.raises(InputError, match="at least two configurations"):
        BatchBALD(configurations=1)


def test_classes_without_draws_have_bald_but_no_spread() -> None:
    linked = Classes(td.Categorical(probs=torch.tensor([[0.5, 0.5]])), lambda: torch.tensor([0.1]))
    assert BALD().scores(linked, Noise(0)).item() == pytest.approx(math.log(2) - 0.1)
    with pytest.raises(UnsupportedError, match="are needed"):
        MeanStd().scores(linked, Noise(0))


def test_asking_where_it_teaches_beats_asking_anywhere() -> None:
    """A line through 200 points near 0 and 8 far out: labels far out settle the slope. Exact posteriors, so nothing here is luck but
    which points `Random` draws: three seeds, each worse by more than a factor 4."""
    x = torch.cat([0.1 * Noise(2).normal(200, 1), torch.tensor([[-3.0], [3.0]]).repeat(4, 1)])
    model = Model(torch.nn.Linear(1, 1), Normal(0, 1), Gaussian(0.5))
    exact = MAP(epochs=1, batch_size=2) >> Laplace(full)
    far = torch.tensor([[3.0]])

    def variance(acquire: Acquisition, seed: int) -> float:
        found = learn(model, x, x, exact, acquire, start=2, batch=2, rounds=2, seed=seed)
        return found.posterior.linearize().predict(far).epistemic.item()  # type: ignore[attr-defined]

    asked = [variance(BALD(), seed) for seed in range(3)]
    assert min(variance(Random(), seed) for seed in range(3)) > 4 * max(asked)
