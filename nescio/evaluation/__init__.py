"""Scores of a predictive against what was observed."""

from nescio.evaluation.metrics import accuracy, brier, coverage, evaluate, nll, rmse

__all__ = ["accuracy", "brier", "coverage", "evaluate", "nll", "rmse"]
