"""What the settings of samplers must be."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, NamedTuple


class Limit(NamedTuple):
    """What a setting must be: in words, its kind, and the rest as a test."""

    said: str
    kind: type
    holds: Callable[[Any], bool]


COUNT = Limit("a whole number of at least 1", Integral, lambda x: x >= 1)
FLAG = Limit("True or False", bool, lambda x: True)
POSITIVE = Limit("a positive number", Real, lambda x: 0 < x < math.inf)
LIMITS = {  # by the name of a setting, which means the same in every sampler
    **dict.fromkeys(("draws", "thin", "leapfrog", "most_steps", "batch_size"), COUNT),
    **dict.fromkeys(("dense", "precondition"), FLAG),
    "max_depth": Limit("a whole number from 1 to 20", Integral, lambda x: 1 <= x <= 20),
    **dict.fromkeys(("step_size", "scale", "length", "energy_variance"), POSITIVE),
    "warmup": Limit("a whole number of at least 0", Integral, lambda x: x >= 0),
    "acceptance": Limit("a number between 0 and 1", Real, lambda x: 0 < x < 1),
    "friction": Limit("a number above 0 and at most 1", Real, lambda x: 0 < x <= 1),
}
