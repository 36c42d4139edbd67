"""The diagonal of the Gauss-Newton matrix, exact for every layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from nescio.infer.curvature.structure import Structure
from nescio.infer.curvature.sweep import Sweep
from nescio.linalg import Diag


@final
@dataclass(frozen=True)
class Diagonal(Structure):
    """Each weight by itself: Σ over examples and columns of the square of its derivative."""

    def measure(self, sweep: Sweep) -> Diag:
        total = torch.zeros(sweep.size, dtype=torch.float64, device=sweep.model.network.like.device)
        sums: list[Tensor] = []
        places: list[Tensor] = []
        for part in sweep:  # the pieces of all parts are of the same weights
            places = [piece.index for piece in part.pieces]
            found = [piece.square().double() for piece in part.take()]
            sums = [a + b for a, b in zip(sums, found, strict=True)] if sums else found
        for place, values in zip(places, sums, strict=True):
            total[place] += values
        return Diag(total)


diag = Diagonal()

__all__ = ["Diagonal", "diag"]
