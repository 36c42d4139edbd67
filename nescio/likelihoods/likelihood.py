"""A likelihood turns the network's output into the distribution of an observation.

Its numbers (a noise scale, a temperature) follow the same rule as a prior's: constant | `Learned` | a law. An own likelihood is a
frozen dataclass with its numbers declared by `real`, `positive` or `unit`, and one method:

    @dataclass(frozen=True, eq=False)
    class Robust(Likelihood):
        scale: Number = positive(1.0)

        def observe(self, f, scale):
            return StudentT(3.0, f, scale)

Rules: the batch shape of what `observe` returns is that of one observation with any leading axes (draws, points), so use negative
axes only. Densities are summed over all axes behind the points by whoever evaluates them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from nescio.errors import InputError
from nescio.laws.law import Constraint, Law, Number, numbers


@dataclass(frozen=True, eq=False)
class Likelihood(ABC):
    """Base of every likelihood: `observe(f, **numbers)` is the distribution of y given the network's output f."""

    estimated: ClassVar[bool] = False  # whether densities are estimates, with noise of their own at every call

    def prepared(self, net: nn.Module) -> nn.Module:
        """The network as this likelihood needs it, a copy where it differs; refuses one that cannot serve."""
        return net

    def laws(self, prior: Law | Mapping[str, Law], names: Sequence[str]) -> Law | Mapping[str, Law]:
        """The prior of a network with parameters of these names, where some of them are the likelihood's business."""
        return prior

    @abstractmethod
    def observe(self, *args: Any, **numbers: Any) -> Distribution:
        """The distribution of y, called as observe(f, **numbers) with the declared numbers."""

    def numbers(self) -> dict[str, tuple[Number, Constraint]]:
        return numbers(self)

    def check(self, f: Any, y: Any) -> None:
        """Refuse outputs and observations that do not fit, before any of them meets the other by broadcasting."""
        expect_shape(tuple(f.shape), y)
        expect_float(y, f.dtype)


def expect_shape(shape: tuple[int, ...], y: Any) -> None:
    """y must have the shape of one observation per row; (N,) against (N, 1) would broadcast to (N, N)."""
    if not isinstance(y, Tensor):
        raise InputError("y must be a tensor", type(y).__name__, "use torch.as_tensor(y)")
    if tuple(y.shape[1:]) != shape[1:]:
        remedy = (
            "use y[:, None]" if y.dim() == 1 and shape[1:] == (1,) else "change the network's last layer or reshape y"
        )
        raise InputError(
            f"y must have shape (N, {', '.join(map(str, shape[1:]))})".replace(", )", ",)"), str(tuple(y.shape)), remedy
        )


def expect_float(y: Tensor, dtype: torch.dtype) -> None:
    if y.dtype != dtype:
        raise InputError(f"y must be {dtype} like the network's output", str(y.dtype), f"use y.to({dtype})")
