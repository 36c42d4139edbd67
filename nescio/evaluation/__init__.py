"""Scores of a predictive against what was observed."""

from nescio.evaluation.agreement import Closeness, agreement, ceiling, closeness, total_variation
from nescio.evaluation.metrics import accuracy, brier, coverage, evaluate, nll, rmse

__all__ = [
    "Closeness",
    "accuracy",
    "agreement",
    "brier",
    "ceiling",
    "closeness",
    "coverage",
    "evaluate",
    "nll",
    "rmse",
    "total_variation",
]
