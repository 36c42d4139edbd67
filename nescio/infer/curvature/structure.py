"""How much of the curvature is kept: an object that makes an `Operator` of one or more sweeps over the data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from nescio.errors import InputError
from nescio.infer.curvature.sweep import Sweep
from nescio.linalg import Operator

LARGEST = 4 * 2**30  # bytes of one matrix


@dataclass(frozen=True)
class Structure(ABC):
    """Base of every structure."""

    @abstractmethod
    def measure(self, sweep: Sweep) -> Operator:
        """Of minus the log likelihood of all data, positive semidefinite, (sweep.size, sweep.size)."""


def afford(size: int, columns: int, what: str, remedy: str) -> None:
    """Before anything is allocated: would it fit?"""
    needed = 3 * 8 * size * columns  # the matrix, its factor and its inverse
    if needed > LARGEST:
        got = f"{size} weights, which take {needed / 2**30:.1f} GB"
        raise InputError(f"{what} must fit into {LARGEST / 2**30:.0f} GB", got, remedy)
