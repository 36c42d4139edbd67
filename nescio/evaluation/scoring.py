"""All scores of a predictive that fit its kind, each with the standard error that finitely many rows leave."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from nescio.evaluation.calibration import crps, ece
from nescio.evaluation.metrics import expect_shape
from nescio.predictive import Predictive

LEVEL = 0.9


def scores(predictive: Predictive, y: Tensor) -> dict[str, dict[str, Any]]:
    """{name: {"value", "se"}}: NLL, RMSE, CRPS and coverage of the 90% interval, or NLL, accuracy, Brier score and ECE."""
    found = predictive.probabilities
    each = {"nll": -predictive.log_prob(y)} | (of_numbers(predictive, y) if found is None else of_classes(found, y))
    told = {name: mean(values) for name, values in each.items()}
    if found is None:  # the root of a mean: its error by the delta rule
        square = told.pop("squared_error")
        root = math.sqrt(square["value"])
        told["rmse"] = {"value": root, "se": None if square["se"] is None else square["se"] / (2 * max(root, 1e-300))}
    else:
        told["ece"] = {"value": ece(predictive, y), "se": None}
    return told


def of_numbers(predictive: Predictive, y: Tensor) -> dict[str, Tensor]:
    expect_shape(predictive.mean.shape, y)
    low, high = predictive.interval(LEVEL)
    return {
        "squared_error": (predictive.mean - y).square(),
        "crps": crps(predictive, y),
        "coverage": ((y >= low) & (y <= high)).double(),
    }


def of_classes(found: Tensor, y: Tensor) -> dict[str, Tensor]:
    expect_shape(found.shape[:-1], y)
    truth = torch.nn.functional.one_hot(y.long(), found.shape[-1]).to(found)
    return {
        "accuracy": (found.argmax(-1) == y).double(),
        "brier": (found - truth).square().sum(-1),
    }


def mean(values: Tensor) -> dict[str, Any]:
    """Over the rows; several outputs of a row are averaged first, as they are not independent."""
    rows = values.double().reshape(len(values), -1).mean(1)
    se = float(rows.std() / math.sqrt(len(rows))) if len(rows) > 1 else None
    return {"value": float(rows.mean()), "se": se}
