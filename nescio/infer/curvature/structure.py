"""How much of the curvature is kept: an object that makes an `Operator` of one or more sweeps over the data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from nescio.errors import InputError
from nescio.infer.curvature.sweep import Sweep
from nescio.linalg import Operator

LARGEST = 4 * 2**30  # bytes of a curvature, with its factor and its inverse
COPIES = 3 * 8  # bytes of a number: each in double precision, and three times
EXACT = 1024  # how large a block without a Kronecker rule may be to be kept as it is
RANK = 20  # of a suggestion


@dataclass(frozen=True)
class Structure(ABC):
    """Base of every structure."""

    @abstractmethod
    def measure(self, sweep: Sweep) -> Operator:
        """Of minus the log likelihood of all data, positive semidefinite, (sweep.size, sweep.size)."""


def afford(sweep: Sweep, numbers: int, what: str) -> None:
    """Before anything is allocated: would so many numbers fit? If not, what would?"""
    if COPIES * numbers <= LARGEST:
        return
    others = {"kfac": factors(sweep.shapes, EXACT), f"low_rank({RANK})": sweep.size * (RANK + 10), "diag": sweep.size}
    fits = {name: count for name, count in others.items() if COPIES * count <= LARGEST and count < numbers}
    told = " or ".join(f"{name} ({told_bytes(COPIES * count)})" for name, count in fits.items())
    remedy = f"use {told}, or .on(...) the last layer" if told else "use .on(...) a part of the weights"
    got = f"{sweep.size} weights, for which it takes {told_bytes(COPIES * numbers)}"
    raise InputError(f"{what} must fit into {told_bytes(LARGEST)}", got, remedy)


def factors(shapes: Sequence[tuple[int, ...]], exact: int) -> int:
    """Numbers in the Kronecker factors of weights in these shapes, and in the blocks of what has no rule, (size,)."""
    pairs = sum(a * a + b * b for a, b in (shape for shape in shapes if len(shape) == 2))
    tables = sum(shape[0] + shape[1] ** 2 for shape in shapes if len(shape) == 3)
    return pairs + tables + sum(p * p if p <= exact else p for (p,) in (s for s in shapes if len(s) == 1))


def told_bytes(count: int) -> str:
    return f"{count / 2**30:.1f} GB" if count >= 2**29 else f"{count / 2**20:.1f} MB"
