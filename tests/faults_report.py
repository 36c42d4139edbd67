"""Faults planted in scores, figures and verdicts, each with the check that must notice it."""

from __future__ import annotations

from typing import Any

import numpy as np
import test_report as proof
import torch
from fault import Fault
from faults_laws import instead
from torch import Tensor

import nescio.evaluation.calibration as calibration
import nescio.evaluation.scoring as scoring
from nescio.predictive import Drawn
from nescio.report import words


def uncorrected(right: Any, predictive: Any, y: Tensor, seed: int = 0) -> Tensor:
    """E|X - y| alone, without half the spread of X."""
    return (predictive.sample(calibration.SAMPLES, seed).double() - y).abs().mean(0)


def of_the_mean(right: Any, self: Drawn, y: Tensor) -> Tensor:
    """The distribution function of one Gaussian with the mixture's mean and noise, not of the mixture."""
    return torch.distributions.Normal(self.mean, self.aleatoric.sqrt()).cdf(y)


def second_best(right: Any, predictive: Any, y: Tensor, bins: int = 15) -> Any:
    found = right(predictive, y, bins)
    return found._replace(right=found.right.flip(0))


def per_cell(right: Any, values: Tensor) -> dict[str, Any]:
    """A standard deviation in place of a standard error."""
    found = right(values)
    return {**found, "se": float(values.double().std())}


def one_tail(right: Any, n: int, p: np.ndarray, rate: float) -> tuple[np.ndarray, np.ndarray]:
    return right(n, p, 2 * rate)


def generous(right: Any, n: int, p: np.ndarray, rate: float) -> tuple[np.ndarray, np.ndarray]:
    low, high = right(n, p, rate)
    return low - 0.3, high + 0.3


def confident(right: Any, rows: int, stated: float) -> bool:
    """Any number of rows will do."""
    return False


FAULTS = [
    Fault("CRPS without the spread", instead(proof, "crps", uncorrected), proof.check_crps),
    Fault("the transform of one Gaussian", instead(Drawn, "cdf", of_the_mean), proof.check_pit),
    Fault("reliability in the wrong order", instead(proof, "reliability", second_best), proof.check_reliability),
    Fault("spread in place of standard error", instead(scoring, "mean", per_cell), proof.check_scores),
    Fault("one tail in place of two", instead(proof, "binomial_band", one_tail), proof.check_band),
    Fault("a verdict that forgives", instead(words, "binomial_band", generous), proof.check_verdict_on_intervals),
    Fault("a verdict on a dozen rows", instead(words, "too_few", confident), proof.check_verdict_on_intervals),
]
