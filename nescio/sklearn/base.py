"""What both estimators share: parameters, the model that they build, and the posterior that they fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data  # type: ignore[missing-module-attribute]
from torch import Tensor, nn

from nescio.data import Scaling, standardize
from nescio.errors import InputError
from nescio.infer.default import default
from nescio.infer.method import Method, fit
from nescio.laws.catalogue import Normal
from nescio.laws.law import Law
from nescio.likelihoods.likelihood import Likelihood
from nescio.model import Model
from nescio.nets.mlp import Hidden, mlp
from nescio.noise import Noise
from nescio.posterior import Posterior
from nescio.predictive import Predictive

CHUNK = 4096  # rows a time


class Bayesian(BaseEstimator):
    """Parameters are the library's own values: `method=5 * MAP()`, `prior=Normal(0, 1)`."""

    posterior_: Posterior
    n_features_in_: int

    def __init__(
        self,
        hidden: Sequence[int] | None = None,
        prior: Law | None = None,
        likelihood: Likelihood | None = None,
        method: Method | None = None,
        draws: int = 200,
        random_state: Any = 0,
    ) -> None:
        """`hidden`: widths of layers. What is None is chosen: widths and likelihood by the target, Normal(0, 1), a method by size."""
        self.hidden = hidden
        self.prior = prior
        self.likelihood = likelihood
        self.method = method
        self.draws = draws
        self.random_state = random_state

    def _seed(self) -> int:
        """A whole number is itself, None a new one each time, and a RandomState is asked."""
        state = self.random_state
        if state is None:
            return int(np.random.default_rng().integers(2**31))
        if isinstance(state, np.random.RandomState):
            return int(state.randint(2**31 - 1))
        if isinstance(state, np.random.Generator):
            return int(state.integers(2**31))
        if isinstance(state, bool) or not isinstance(state, (int, np.integer)):
            raise InputError(
                "random_state must be a whole number, None or a generator", repr(state), "use random_state=0"
            )
        return int(state)

    def _fit(self, x: Tensor, y: Tensor, begin: Hidden, outputs: int, likelihood: Likelihood) -> None:
        seed, widths = self._seed(), begin.widths if self.hidden is None else self.hidden
        with Noise(seed).at("net").scope():
            layers = mlp(x.shape[1], *widths, outputs, activation=begin.activation)
        net = nn.Sequential(standardize(Scaling.of(x)), layers).float()
        model = Model(net, Normal(0.0, 1.0) if self.prior is None else self.prior, likelihood)
        method = default(model, (x, y)) if self.method is None else self.method
        self.posterior_ = fit(model, (x, y), method, seed=seed)

    def _inputs(self, X: Any) -> Tensor:
        check_is_fitted(self, "posterior_")
        return single(validate_data(self, X, reset=False, dtype=np.float64))

    def predictive(self, X: Any) -> Predictive:
        """The whole answer: densities, quantiles, samples, both kinds of uncertainty."""
        return self.posterior_.predict(self._inputs(X), draws=self.draws)

    def _parts(self, X: Any) -> list[Predictive]:
        """In parts, so that many rows do not take many times the memory."""
        x = self._inputs(X)
        return [self.posterior_.predict(x[i : i + CHUNK], draws=self.draws) for i in range(0, len(x), CHUNK)]


def single(x: np.ndarray) -> Tensor:
    """float32, which must hold the numbers."""
    if not np.isfinite(x.astype(np.float32)).all():
        raise InputError(
            "X must fit float32 (at most 3.4e38)", f"{np.abs(x).max():.3g}", "change the unit of the column"
        )
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
