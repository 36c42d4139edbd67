"""Answers that may be "I do not know": what a predictive says where it would be right often enough, and nothing elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor


@final
@dataclass(frozen=True, eq=False)
class Answers:
    """One answer for each point. `answers[i]` is a number, a tensor for a point with several outputs, or None: I do not know.

    `value`: classes, or medians. `known`: where the answer is given. `risk`: the probability of being wrong, by the predictive's own word.
    """

    value: Tensor  # (points, ...)
    known: Tensor  # (points, ...), bool
    risk: Tensor  # (points, ...)

    @property
    def coverage(self) -> float:
        """Part of the questions that are answered."""
        return float(self.known.double().mean())

    @property
    def expected_risk(self) -> float:
        """Mean stated risk of what is answered; nothing is risked by who says nothing."""
        return float(self.risk[self.known].double().mean()) if bool(self.known.any()) else 0.0

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, i: int) -> Tensor | float | int | None:
        if not bool(self.known[i].any()):
            return None
        if self.value[i].dim():  # pixels that are not known hold NaN
            return torch.where(self.known[i], self.value[i].to(self.risk), torch.nan)
        return self.value[i].item()

    def __iter__(self) -> Iterator[Tensor | float | int | None]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        known, asked = int(self.known.sum()), self.known.numel()
        return f"Answers({known} of {asked} known, expected risk {self.expected_risk:.3g})"
