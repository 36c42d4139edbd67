r"""How many bits a weight deserves: as fine as its posterior is narrow, and no finer.

Rounding to a grid of step Δ moves a weight by an error of variance Δ² / 12. At the optimum of mean field the precision 1 / σ² of a weight
is the curvature of the loss in it, so rounding a tensor of n weights costs about

    ½ Σ_i Δ² / (12 σ_i²)  nats,       and saves  n log Δ:     least in sum at     Δ² = 12 / mean(1 / σ²),

half a nat a weight. `fineness` f takes Δ f times as large: f² / 2 nats a weight, and 1/4 is two bits finer than the optimum: accuracy
is worth more than bits to most.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from nescio.errors import InputError
from nescio.noise import Noise

FALLBACK = 2.0**-16  # step of a tensor without a spread, relative to its largest number
ROUNDS = 50


class Levels(NamedTuple):
    """A tensor as whole numbers: level · step, or book[level]. Zero is zero in both."""

    level: Tensor  # int64
    step: float
    book: Tensor | None  # (size,) float32, with zero first

    def value(self) -> Tensor:
        if self.book is None:
            return (self.level.double() * self.step).float()
        return self.book[self.level]

    def bits(self) -> int:
        """The width of a fixed number of bits for each number that is not zero, sign included."""
        if self.book is not None:
            return max(1, math.ceil(math.log2(len(self.book))))
        top = int(self.level.abs().max()) if self.level.numel() else 0
        return 1 + max(1, top.bit_length())


class Precision(ABC):
    """How the weights that are kept are rounded."""

    @abstractmethod
    def levels(self, mean: Tensor, sd: Tensor) -> Levels:
        """mean: with zeros where weights were removed; the zeros stay."""

    @abstractmethod
    def finer(self) -> Precision:
        """With one bit more for each weight."""


@final
@dataclass(frozen=True)
class Steps(Precision):
    """A grid for each tensor, its step by the spread of its weights."""

    fineness: float = 0.25

    def __post_init__(self) -> None:
        if not self.fineness > 0:
            raise InputError("fineness must be positive", str(self.fineness), "1 is the optimum of description length")

    def finer(self) -> Steps:
        return Steps(self.fineness / 2)

    def step(self, mean: Tensor, sd: Tensor) -> float:
        kept = (mean != 0) & (sd > 0)
        top = float(mean.abs().max()) if mean.numel() else 0.0
        if not bool(kept.any()):
            return float(torch.tensor(FALLBACK * (top or 1.0)).float())
        best = math.sqrt(12 / float(sd[kept].double().square().reciprocal().mean()))
        finest = top * 2.0**-24  # single precision has no finer ones
        return float(torch.tensor(max(self.fineness * best, finest)).float())  # as it is stored

    def levels(self, mean: Tensor, sd: Tensor) -> Levels:
        step = self.step(mean, sd)
        return Levels((mean.double() / step).round().long().cpu(), step, None)


@final
@dataclass(frozen=True)
class Codebook(Precision):
    """`size` values for each tensor, zero among them, by k-means with weights 1 / σ²; tensors of less than 4 · size numbers: `Steps`."""

    size: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.size <= 4096:
            raise InputError("a codebook has from 2 to 4096 values", str(self.size), "16 are four bits")

    def finer(self) -> Codebook:
        return Codebook(min(2 * self.size, 4096), self.seed)

    def levels(self, mean: Tensor, sd: Tensor) -> Levels:
        some = mean != 0
        if int(some.sum()) < 4 * self.size:
            return Steps().levels(mean, sd)
        x = mean[some].double().cpu()
        spread = sd[some].double().cpu()
        trust = torch.where(spread > 0, spread.clamp_min(1e-12).square().reciprocal(), 0.0)
        centres = k_means(x, trust / trust.max() if bool(trust.any()) else torch.ones_like(x), self.size - 1, self.seed)
        book = torch.cat([torch.zeros(1), centres.float()])
        level = torch.zeros(mean.shape, dtype=torch.long)
        level[some.cpu()] = 1 + nearest(x, book[1:].double())
        return Levels(level, 0.0, book)


def predicted_loss(mean: Tensor, sd: Tensor, step: float) -> float:
    """Nats that rounding to a grid is expected to cost."""
    kept = (mean != 0) & (sd > 0)
    return 0.5 * step**2 / 12 * float(sd[kept].double().square().reciprocal().sum())


def k_means(x: Tensor, weight: Tensor, k: int, seed: int) -> Tensor:
    """Centres on the line, ascending (Lloyd, 1982), from evenly spaced quantiles; an empty cell takes a number at random."""
    centres = torch.quantile(x[: 2**20], (torch.arange(k, dtype=x.dtype) + 0.5) / k)
    for turn in range(ROUNDS):
        cell = nearest(x, centres)
        mass = torch.zeros(k, dtype=x.dtype).index_add(0, cell, weight)
        sums = torch.zeros(k, dtype=x.dtype).index_add(0, cell, weight * x)
        empty = mass == 0
        moved = torch.where(empty, centres, sums / mass.clamp_min(1e-300))
        if bool(empty.any()):
            other = Noise(seed, ("k-means", turn), dtype=torch.float64).integers(0, len(x), int(empty.sum()))
            moved[empty] = x[other]
        moved = moved.sort().values
        if torch.equal(moved, centres):
            break
        centres = moved
    return centres


def nearest(x: Tensor, centres: Tensor) -> Tensor:
    """Index of the nearest of ascending centres."""
    ascending, order = centres.sort()
    middle = (ascending[1:] + ascending[:-1]) / 2
    return order[torch.searchsorted(middle, x)]
