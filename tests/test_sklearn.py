"""The scikit-learn estimators: its own checks, pipelines, searches, DataFrames, and answers in the units of the data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from nescio.errors import InputError
from nescio.infer import HMC, MAP
from nescio.laws import Normal
from nescio.likelihoods import Gaussian
from nescio.sklearn import BayesianClassifier, BayesianRegressor

FAST = {"hidden": (4,), "method": 1 * MAP(epochs=1), "draws": 3}


@parametrize_with_checks([BayesianRegressor(**FAST), BayesianClassifier(**FAST)])
def test_scikit_learns_own_checks(estimator: BaseEstimator, check) -> None:  # type: ignore[no-untyped-def]
    check(estimator)


def rows(n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 2))
    return x, 1000 + 50 * x[:, 0] + 2 * rng.normal(size=n)


def test_a_regressor_speaks_in_the_units_of_y() -> None:
    x, y = rows()
    model = BayesianRegressor(hidden=(8,), method=4 * MAP(epochs=20, lr=0.05)).fit(x, y)
    mean, sd = model.predict(x, return_std=True)
    assert mean.shape == sd.shape == (120,) and model.score(x, y) > 0.9
    low, high = model.predict_interval(x, 0.9)
    assert ((low < mean) & (mean < high)).all() and np.mean((y > low) & (y < high)) > 0.6
    epistemic, aleatoric = model.predict_uncertainty(x)
    np.testing.assert_allclose(np.sqrt(epistemic**2 + aleatoric**2), sd, rtol=1e-4)
    far, _ = model.predict_uncertainty(20 * x[:5])
    assert far.mean() > epistemic.mean()
    assert model.predictive(x[:3]).mean.shape == (3, 1)


def test_a_small_table_gets_one_noise_for_all_and_a_given_likelihood_is_kept() -> None:
    x, y = rows(40)
    small = BayesianRegressor(hidden=(3,), method=1 * MAP(epochs=2)).fit(x, y)
    assert isinstance(small.posterior_.model.likelihood, Gaussian)
    own = BayesianRegressor(hidden=(3,), likelihood=Gaussian(0.1), method=1 * MAP(epochs=2), prior=Normal(0, 2)).fit(
        x, y
    )
    assert own.posterior_.model.likelihood.noise == 0.1 and own.posterior_.model.laws.scale == 2


def test_several_targets() -> None:
    x, y = rows()
    model = BayesianRegressor(**FAST).fit(x, np.stack([y, -y], 1))
    assert model.predict(x).shape == (120, 2)


def test_a_classifier_may_abstain() -> None:
    x, _ = rows()
    y = np.where(x[:, 0] > 0, "yes", "no")
    model = BayesianClassifier(hidden=(8,), method=2 * MAP(epochs=20, lr=0.05)).fit(x, y)
    assert model.score(x, y) > 0.9 and list(model.classes_) == ["no", "yes"]
    probabilities = model.predict_proba(x)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    answers = model.predict_or_abstain(x, risk=0.01)
    silent = np.array([a is None for a in answers])
    assert 0 < silent.sum() < len(x) and (probabilities.max(1)[silent] < 0.99).all()
    epistemic, aleatoric = model.predict_uncertainty(x)
    assert (epistemic >= 0).all() and (aleatoric >= 0).all()


def test_pipelines_searches_and_frames() -> None:
    x, y = rows()
    frame = pd.DataFrame({"a": x[:, 0], "kind": np.where(x[:, 1] > 0, "p", "q")})
    columns = make_column_transformer((StandardScaler(), ["a"]), (OneHotEncoder(), ["kind"]))
    search = GridSearchCV(
        make_pipeline(columns, BayesianRegressor(**FAST)),
        {"bayesianregressor__prior": [Normal(0.0, 0.1), Normal(0.0, 2.0)]},
        cv=2,
    ).fit(frame, pd.Series(y))
    assert search.predict(frame).shape == (120,) and "bayesianregressor__prior" in search.best_params_
    named = BayesianRegressor(**FAST).fit(pd.DataFrame(x, columns=["a", "b"]), y)
    assert list(named.feature_names_in_) == ["a", "b"]
    with pytest.raises(ValueError, match="feature names"):
        named.predict(pd.DataFrame(x, columns=["a", "c"]))


def test_the_same_state_gives_the_same_answer() -> None:
    x, y = rows(60)
    first, second = (clone(BayesianRegressor(**FAST, random_state=3)).fit(x, y).predict(x) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    other = BayesianRegressor(**FAST, random_state=np.random.RandomState(0)).fit(x, y).predict(x)
    assert not np.array_equal(first, other)
    with pytest.raises(InputError, match="random_state"):
        BayesianRegressor(**FAST, random_state="a").fit(x, y)


def test_any_method() -> None:
    x, y = rows(40)
    model = BayesianRegressor(hidden=(2,), method=2 * HMC(draws=5, warmup=5, leapfrog=2)).fit(x, y)
    assert model.posterior_.theta.shape[:2] == (2, 5)
