"""Scores of a predictive against what was observed."""

from nescio.evaluation.agreement import Closeness, agreement, ceiling, closeness, total_variation
from nescio.evaluation.calibration import Reliability, crps, ece, pit, reliability
from nescio.evaluation.carriers import inputs, layers
from nescio.evaluation.conformal import Intervals, Sets, conformal
from nescio.evaluation.corruptions import blurred, noisy, rotated, sweep
from nescio.evaluation.detection import Estimate, Separation, auroc, separation
from nescio.evaluation.doubt import (
    FeatureDensity,
    entropy,
    max_probability,
    mutual_information,
    of_points,
    total_variance,
)
from nescio.evaluation.metrics import accuracy, brier, coverage, evaluate, nll, rmse
from nescio.evaluation.scoring import scores
from nescio.evaluation.selective import Promise, RiskCoverage, losses, promise, risk_coverage
from nescio.evaluation.temperature import Temperature, temperature

__all__ = [
    "Closeness",
    "Estimate",
    "FeatureDensity",
    "Intervals",
    "Promise",
    "Reliability",
    "RiskCoverage",
    "Separation",
    "Sets",
    "Temperature",
    "accuracy",
    "agreement",
    "auroc",
    "blurred",
    "brier",
    "ceiling",
    "closeness",
    "conformal",
    "coverage",
    "crps",
    "ece",
    "entropy",
    "evaluate",
    "inputs",
    "layers",
    "losses",
    "max_probability",
    "mutual_information",
    "nll",
    "noisy",
    "of_points",
    "pit",
    "promise",
    "reliability",
    "risk_coverage",
    "rmse",
    "rotated",
    "scores",
    "separation",
    "sweep",
    "temperature",
    "total_variance",
    "total_variation",
]
