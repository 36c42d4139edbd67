"""The leading directions of the Gauss-Newton matrix, by subspace iteration from random vectors (Halko et al., 2011).

    V ← orthonormal basis of (Σ_n J_nᵀ Λ_n J_n) V,  again and again;  then the eigenvectors inside the last V

A product costs one sweep and about as much as a pass through the network for each direction: no Jacobian is held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from nescio.errors import InputError
from nescio.infer.curvature.structure import Structure, afford
from nescio.infer.curvature.sweep import Sweep
from nescio.linalg import LowRank

SPARE = 10  # directions more than are kept


@final
@dataclass(frozen=True)
class Leading(Structure):
    """`rank` directions after so many sweeps; what is left out has no curvature, so the posterior errs to the wide side."""

    rank: int
    sweeps: int = 4

    def __post_init__(self) -> None:
        if self.rank < 1 or self.sweeps < 2:
            got = f"rank={self.rank}, sweeps={self.sweeps}"
            raise InputError("a rank is at least 1, and it takes 2 sweeps or more", got, "use low_rank(20)")

    def measure(self, sweep: Sweep) -> LowRank:
        width = min(sweep.size, self.rank + SPARE)
        afford(sweep, sweep.size * width, f"{width} directions")
        noise = sweep.noise.at("directions").to(sweep.model.network.like.device, torch.float64)
        basis = torch.linalg.qr(noise.normal(sweep.size, width))[0]
        product = basis
        for i in range(self.sweeps):
            product = times(sweep, basis)
            if i + 1 < self.sweeps:
                basis = torch.linalg.qr(product.detach())[0]
        inside = (basis.mT @ product + product.mT @ basis) / 2
        turn = torch.linalg.eigh(inside.detach())[1][:, -min(self.rank, width) :]
        values = (turn * (inside @ turn)).sum(0)  # with a slope, where there is one; directions are held
        return LowRank(torch.zeros_like(basis[:, 0]), basis @ turn, values.clamp_min(0))


def times(sweep: Sweep, vectors: Tensor) -> Tensor:
    """The Gauss-Newton matrix times vectors (size, v)."""
    total = torch.zeros_like(vectors)
    for part in sweep:
        dots = [piece.dot(vectors[piece.index].to(sweep.model.network.like.dtype)) for piece in part.pieces]
        if dots:
            numbers = torch.stack(dots).sum(0)  # (K, N, v)
            for piece in part.pieces:
                total[piece.index] += piece.pull(numbers).double()
    return total


def low_rank(rank: int, sweeps: int = 4) -> Leading:
    return Leading(rank, sweeps)
