"""What a newcomer tries in the first hour: it works, or a sentence says what would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import nescio
from nescio import InputError, Model, fit, laws
from nescio.infer import MAP, VI, Laplace, NeuralLinear
from nescio.infer.curvature import kfac
from nescio.laws import Normal
from nescio.likelihoods import Categorical, Gaussian
from nescio.nets import mlp
from nescio.noise import Noise

X = Noise(0).at("x").normal(12, 3)
Y, LABELS = X[:, :1] + 0.1, (X[:, 0] > 0).long()
ONE = MAP(epochs=1)


def model() -> Model:
    with Noise(0).at("net").scope():
        return Model(mlp(3, 4, 1), Normal(0, 1), Gaussian(0.1))


def test_numpy_counts_like_python() -> None:
    one, other = (fit(model(), (X, Y), 2 * ONE, seed=seed) for seed in (np.int64(3), 3))
    assert torch.equal(one.point()["0.weight"], other.point()["0.weight"]) and one.info["seed"] == 3
    for wrong in ("a", 1.5, None):
        with pytest.raises(InputError, match="a seed must be a whole number"):
            fit(model(), (X, Y), ONE, seed=wrong)  # type: ignore[arg-type]


def test_the_prior_laplace_is_not_the_method() -> None:
    for wrong in (lambda: ONE >> laws.Laplace(0.0, 1.0), lambda: fit(model(), (X, Y), laws.Laplace(0.0, 1.0))):
        with pytest.raises(InputError, match="import that of nescio.infer"):
            wrong()  # type: ignore[operator]
    with pytest.raises(InputError, match=r"what follows >> must be a Method; got .*; write VI\(\)"):
        ONE >> VI  # type: ignore[operator]


TEXT = ["up" if label else "down" for label in LABELS]
WRONG: dict[str, tuple[Any, str]] = {
    "arrays": ((X.numpy(), Y.numpy()), r"got ndarray; use torch.as_tensor\(x\)$"),
    "tables": ((pd.DataFrame(X.numpy()), Y), r"got DataFrame; use torch.as_tensor\(x.to_numpy\(\)\)$"),
    "words": ((X, TEXT), "number the classes from 0, or use nescio.sklearn.BayesianClassifier"),
    "an array of words": ((X, np.array(TEXT)), "number the classes from 0"),
    "a column of words": ((X, pd.Series(TEXT)), "number the classes from 0"),
    "lists": ((X.tolist(), Y.tolist()), "got list of length 12; pass tensors"),
}


@pytest.mark.parametrize("name", WRONG)
def test_data_of_other_kinds_are_told_how_to_become_tensors(name: str) -> None:
    data, said = WRONG[name]
    classes = Model(mlp(3, 4, 2), Normal(0, 1), Categorical())
    with pytest.raises(InputError, match=said):
        fit(classes, data, ONE)


def test_holes_are_not_predicted() -> None:
    holes = X.clone()
    holes[3, 1] = float("nan")
    linear: Any = fit(model(), (X, Y), Laplace(kfac))
    for posterior in (fit(model(), (X, Y), ONE), linear, linear.linearize(), fit(model(), (X, Y), NeuralLinear())):
        with pytest.raises(InputError, match=r"inputs must be finite; got 1 NaN or infinite cells, first at \(3, 1\)"):
            posterior.predict(holes)
        assert posterior.predict(X * 1e30).mean.shape == (12, 1)  # large is not infinite


def test_rooms_are_there_without_a_second_import() -> None:
    assert all(getattr(nescio, room).__name__ == f"nescio.{room}" for room in nescio._ROOMS)
    with pytest.raises(AttributeError, match="no attribute 'kitchen'"):
        nescio.kitchen  # noqa: B018


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(InputError, match="the device must be one of this machine; got gpu; use cpu"):
        fit(model(), (X, Y), ONE, device="gpu")
