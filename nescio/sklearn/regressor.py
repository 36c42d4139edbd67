"""Regression with intervals and the two kinds of uncertainty, as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data  # type: ignore[missing-module-attribute]

from nescio.data import Scaling, steps
from nescio.likelihoods import Heteroscedastic
from nescio.likelihoods.numbers import in_units, to_begin_with
from nescio.nets.mlp import NUMBERS
from nescio.sklearn.base import Bayesian, single


@final
class BayesianRegressor(RegressorMixin, Bayesian):
    """One or several numeric targets."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[missing-attribute]
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # on the few rows of its checks, a method that is right is not yet good
        return tags

    def fit(self, X: Any, y: Any) -> BayesianRegressor:
        """Standardises inputs and targets; everything that is predicted is in the units of y."""
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        self._flat = np.ndim(y) == 1
        target = single(np.asarray(y, dtype=np.float64).reshape(len(y), -1))
        likelihood = to_begin_with(len(target), steps(target)) if self.likelihood is None else self.likelihood
        outputs = target.shape[1] * (2 if isinstance(likelihood, Heteroscedastic) else 1)
        units = Scaling.of(target)
        self._fit(single(X), target, NUMBERS, outputs, in_units(likelihood, units.loc, units.scale))
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean, and with `return_std` the standard deviation: noise and not knowing together."""
        parts = self._parts(X)
        mean = self._shaped([part.mean for part in parts])
        return (mean, self._shaped([part.std for part in parts])) if return_std else mean

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The central interval that holds y with probability `level`."""
        ends = [part.interval(level) for part in self._parts(X)]
        return self._shaped([low for low, _ in ends]), self._shaped([high for _, high in ends])

    def predict_uncertainty(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Epistemic and aleatoric standard deviations: what data would teach, and noise that stays."""
        parts = self._parts(X)
        return tuple(  # type: ignore[return-value]
            self._shaped([getattr(part, name).sqrt() for part in parts]) for name in ("epistemic", "aleatoric")
        )

    def _shaped(self, parts: list[torch.Tensor]) -> np.ndarray:
        values = torch.cat(parts).double().cpu().numpy()
        return values[:, 0] if self._flat else values
