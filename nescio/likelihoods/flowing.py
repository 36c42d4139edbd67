"""The exact density of data under an invertible network: change of variables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.distributions import Distribution

from nescio.errors import InputError
from nescio.likelihoods.likelihood import Likelihood, expect_float, expect_shape


@final
@dataclass(frozen=True, eq=False)
class Flowing(Likelihood):
    """log p(x) = log N(z(x); 0, I) + log |dz/dx| of `nescio.nets.flow`; the data are (x, x)."""

    def observe(self, f: dict[str, Tensor]) -> Distribution:
        return Changed(f["z"], f["log_det"])

    def check(self, f: Any, y: Any) -> None:
        if not isinstance(f, dict) or not {"z", "log_det", "x"} <= set(f):
            must, got = "the network must give z and its Jacobian", type(f).__name__
            raise InputError(must, got, "use nescio.nets.flow")
        expect_shape(tuple(f["z"].shape), y)
        expect_float(y, f["z"].dtype)
        if not torch.equal(f["x"], y[: len(f["x"])]):
            raise InputError("a flow explains what it is called on", "y that is not x", "fit it to (x, x)")


@final
class Changed(Distribution):
    """At the points that the network was called on, and nowhere else. z (..., points, size), log_det (..., points)."""

    arg_constraints = {}  # noqa: RUF012

    def __init__(self, z: Tensor, log_det: Tensor) -> None:
        self.z, self.log_det = z, log_det
        super().__init__(log_det.shape, z.shape[-1:], validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        size = self.z.shape[-1]
        return self.log_det - 0.5 * (self.z.square().sum(-1) + size * math.log(2 * math.pi))
