"""From tensors to the arrays that figures are drawn from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nescio.errors import InputError


def array(x: Any) -> np.ndarray:
    """A float64 array, wherever the tensor lives."""
    if isinstance(x, Tensor):
        return x.detach().cpu().double().numpy()
    try:
        return np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            "numbers must come as a tensor or an array", type(x).__name__, "see docs/diagnostics.md"
        ) from None


def expect_names(names: Sequence[str], rows: int, what: str) -> None:
    if len(names) != rows:
        raise InputError(f"every {what} must have a name", f"{len(names)} for {rows}", "pass as many names")


def column(x: Any, what: str) -> np.ndarray:
    """(points,) from (points,) or (points, 1)."""
    flat = array(x)
    if flat.ndim == 2 and flat.shape[1] == 1:
        flat = flat[:, 0]
    if flat.ndim != 1:
        raise InputError(
            f"{what} must be one number a point", f"shape {flat.shape}", "draw one output at a time: pick a column"
        )
    return flat


def half_width(level: float) -> float:
    """How many standard deviations to each side hold a normal variable with this probability."""
    if not 0 < level < 1:
        raise InputError("a level lies strictly between 0 and 1", str(level), "use 0.9 for a 90% interval")
    return math.sqrt(2.0) * float(torch.erfinv(torch.tensor(level, dtype=torch.float64)))
