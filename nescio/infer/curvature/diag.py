"""The diagonal of the Gauss-Newton matrix, exact for every layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch

from nescio.infer.curvature.structure import Structure
from nescio.infer.curvature.sweep import Sweep
from nescio.linalg import Diag


@final
@dataclass(frozen=True)
class Diagonal(Structure):
    """Each weight by itself: Σ over examples and columns of the square of its derivative."""

    def measure(self, sweep: Sweep) -> Diag:
        total = torch.zeros(sweep.size, dtype=torch.float64, device=sweep.model.network.like.device)
        for part in sweep:
            for piece in part.pieces:
                total[piece.index] += piece.square().double()
        return Diag(total)


diag = Diagonal()

__all__ = ["Diagonal", "diag"]
