"""Classification with probabilities and an answer that may be "I do not know", as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data  # type: ignore[missing-module-attribute]

from nescio.likelihoods import Categorical
from nescio.nets.mlp import CLASSES
from nescio.sklearn.base import Bayesian, single


@final
class BayesianClassifier(ClassifierMixin, Bayesian):
    """Two or more classes of any kind of label."""

    classes_: np.ndarray

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[missing-attribute]
        tags.classifier_tags.poor_score = True
        return tags

    def fit(self, X: Any, y: Any) -> BayesianClassifier:
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y must hold two classes or more; got one class, {self.classes_[0]!r}; add rows of another"
            )
        likelihood = Categorical() if self.likelihood is None else self.likelihood
        self._fit(single(X), torch.from_numpy(numbers.astype(np.int64)), CLASSES, len(self.classes_), likelihood)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """(rows, classes), in the order of `classes_`."""
        found = torch.cat([part.mean for part in self._parts(X)]).double().cpu().numpy()
        return found / found.sum(1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    def predict_or_abstain(self, X: Any, risk: float = 0.05) -> np.ndarray:
        """The most probable class where it is wrong with probability at most `risk`, by the model's own word; None elsewhere."""
        probabilities = self.predict_proba(X)
        answers = self.classes_[probabilities.argmax(1)].astype(object)
        answers[1 - probabilities.max(1) > risk] = None
        return answers

    def predict_uncertainty(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Epistemic and aleatoric parts of the entropy, in nats."""
        parts = self._parts(X)
        epistemic, aleatoric = (torch.cat([getattr(p, name) for p in parts]) for name in ("epistemic", "aleatoric"))
        return epistemic.double().cpu().numpy(), aleatoric.double().cpu().numpy()
