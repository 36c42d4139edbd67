"""How much a predictive doubts each point: scores for finding what is unlike the training data, and for declining to answer.

All are larger where there is more doubt. Scores of images of labels, of sequences and of several outputs are per pixel, step and output;
`of_points` takes their mean.

    max_probability      1 - max_c E_w p_c                        (Hendrycks & Gimpel, 2017)
    entropy              H[E_w p]                                 total, in nats
    mutual_information   H[E_w p] - E_w H[p]                      epistemic (Houlsby et al., 2011)
    total_variance       Var[y] of real outcomes; of classes 1 - Σ_c (E_w p_c)², the trace of their covariance
    FeatureDensity       -log of a Gaussian density of the network's features, one mean a class (Lee et al., 2018)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical

from nescio.errors import InputError, UnsupportedError
from nescio.predictive import Drawn, Predictive

Doubt = Callable[[Predictive], Tensor]


def max_probability(predictive: Predictive) -> Tensor:
    """One minus the probability of the class that would be answered: the expected rate of errors."""
    return 1 - labels(predictive, "max_probability").amax(-1)


def entropy(predictive: Predictive) -> Tensor:
    labels(predictive, "entropy")
    return predictive.total


def mutual_information(predictive: Predictive) -> Tensor:
    labels(predictive, "mutual_information")
    return predictive.epistemic


def total_variance(predictive: Predictive) -> Tensor:
    found = predictive.probabilities
    return predictive.variance if found is None else 1 - found.square().sum(-1)


def labels(predictive: Predictive, what: str) -> Tensor:
    found = predictive.probabilities
    if found is None:
        raise UnsupportedError(f"{what} is for classes", "real outcomes", "use total_variance, or predictive.epistemic")
    return found


def drawn(predictive: Predictive) -> Tensor:
    """Class probabilities under each draw of the weights, (draws, points, ..., classes)."""
    draws = predictive.draws if isinstance(predictive, Drawn) else None
    if isinstance(draws, Categorical):
        return draws.probs
    if isinstance(draws, Bernoulli):
        return torch.stack([1 - draws.probs, draws.probs], -1)
    got, remedy = type(predictive).__name__, "use posterior.linearize(Sampled(100)), or BALD to choose"
    raise UnsupportedError("draws of class probabilities are needed", got, remedy)


def of_points(doubt: Tensor) -> Tensor:
    """The mean over outputs, pixels or steps: one number a point."""
    return doubt.flatten(1).mean(1) if doubt.dim() > 1 else doubt


@final
@dataclass(frozen=True, eq=False)
class FeatureDensity:
    """Gaussians of features with a mean for each class and one covariance; needs no posterior, only features of a network.

    `FeatureDensity.of(features, labels)` on training points; called with new features it gives minus the largest log density
    (half the squared Mahalanobis distance, up to a constant).
    """

    means: Tensor  # (classes, features)
    root: Tensor  # (features, features), lower Cholesky factor of the covariance

    @staticmethod
    def of(features: Tensor, y: Tensor, shrink: float = 1e-3) -> FeatureDensity:
        """`shrink`: the part of the mean variance that is added to each, for features that are combinations of others."""
        x, y = matrix(features).double(), y.long()
        if y.dim() != 1 or len(x) != len(y):
            got = f"{len(x)} features and labels {tuple(y.shape)}"
            raise InputError("every feature vector has one label", got, "give labels of shape (points,)")
        counts = torch.bincount(y)
        if bool((counts == 0).any()):
            missing = (counts == 0).nonzero()[:, 0].tolist()
            must = "every class needs an example"
            raise InputError(must, f"none of class {missing}", "renumber the labels, or add examples")
        means = torch.zeros(len(counts), x.shape[1], dtype=x.dtype, device=x.device).index_add_(0, y, x)
        means = means / counts[:, None]
        around = x - means[y]
        covariance = around.T @ around / len(x)
        ridge = shrink * covariance.diagonal().mean() + torch.finfo(x.dtype).tiny
        eye = torch.eye(len(covariance), dtype=x.dtype, device=x.device)
        return FeatureDensity(means, torch.linalg.cholesky(covariance + ridge * eye))

    def __call__(self, features: Tensor) -> Tensor:
        """(points,)"""
        x = matrix(features).double() - self.means.mean(0)  # near zero: distances lose no digits
        centres = self.means - self.means.mean(0)
        white, around = (torch.linalg.solve_triangular(self.root, t.T, upper=False).T for t in (x, centres))
        return 0.5 * torch.cdist(white, around).square().amin(1)


def matrix(features: Any) -> Tensor:
    if not isinstance(features, Tensor) or features.dim() < 2 or not len(features):
        got = str(tuple(features.shape)) if isinstance(features, Tensor) else type(features).__name__
        raise InputError("features must be (points, features)", got, "take what the last hidden layer gives")
    return features.flatten(1)
