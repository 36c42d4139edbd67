"""Kronecker factors (Martens & Grosse, 2015; convolutions and tokens as in Eschenhagen et al., 2023, "expand").

    Σ_n J_nᵀ Λ_n J_n  ≈  (Σ g gᵀ) ⊗ (1/NR Σ a aᵀ)      of a linear map with inputs a and what comes back g, at R positions of N examples

with the bias as one more input, always one. Exact for one example met once, and for deep linear networks. Of an embedding the second factor
is the diagonal of how often each row is met. A weight without such a rule (norm layers, positional embeddings, weights tied in
different ways) keeps its exact block, or where that would have more than `exact` entries a side its exact diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from nescio.errors import InputError
from nescio.infer.curvature.structure import EXACT, Structure, afford, factors
from nescio.infer.curvature.sweep import Sweep
from nescio.jacobian import Lookup, Outer, Piece
from nescio.linalg import Blocks, Dense, Diag, Kron, Operator
from nescio.linalg.symmetric import gram


@final
class Block:
    """What is summed up for the weights of one piece."""

    def __init__(self, first: Piece, exact: int) -> None:
        self.index = first.index
        new: dict[str, Any] = {"dtype": torch.float64, "device": first.index.device}
        self.met = 0
        if isinstance(first, Outer):
            self.sums = [torch.zeros(n, n, **new) for n in first.shape]
        elif isinstance(first, Lookup):  # what went in is one of the rows: their products are a diagonal, of counts
            rows, columns = first.shape
            self.sums = [torch.zeros(rows, **new), torch.zeros(columns, columns, **new)]
        else:
            size = len(first.index)
            self.sums = [torch.zeros((size, size) if size <= exact else size, **new)]

    def add(self, piece: Piece, fresh: bool) -> None:
        if isinstance(piece, Lookup):
            back = piece.g.flatten(0, 2)
            self.sums[1] += gram(back)
            if fresh:
                met = piece.tokens[piece.first]
                self.sums[0] += torch.bincount(met, minlength=len(self.sums[0]))
                self.met += len(met)
        elif isinstance(piece, Outer):
            self.sums[0] += gram(piece.g.flatten(0, 2))
            if fresh:
                seen = piece.seen.flatten(0, 1)
                self.met += len(seen)
                inputs = seen.shape[1]
                self.sums[1][:inputs, :inputs] += gram(seen)
                if piece.biased:  # one more input, always one
                    self.sums[1][-1, :-1] += seen.new_ones(len(seen)) @ seen
                    self.sums[1][:-1, -1] = self.sums[1][-1, :-1]
                    self.sums[1][-1, -1] = self.met
        elif self.sums[0].dim() == 1:
            self.sums[0] += piece.square().double()
        else:
            rows = (
                piece.jacobian().flatten(0, 1).double()
            )  # a product in single precision would have negative eigenvalues
            self.sums[0] += gram(rows)

    def operator(self) -> Operator:
        if len(self.sums) == 2:
            if self.sums[0].dim() == 1:
                return Kron(self.sums[0] / self.met, self.sums[1])
            return Kron(self.sums[0], self.sums[1] / self.met)
        return Diag(self.sums[0]) if self.sums[0].dim() == 1 else Dense(self.sums[0])


@final
@dataclass(frozen=True)
class KFAC(Structure):
    """`exact`: how large a block without a Kronecker rule may be to be kept as it is."""

    exact: int = EXACT

    def __post_init__(self) -> None:
        if self.exact < 0:
            raise InputError("exact is a number of weights", str(self.exact), "0 keeps the diagonal of such blocks")

    def measure(self, sweep: Sweep) -> Blocks:
        afford(sweep, factors(sweep.shapes, self.exact), "the Kronecker factors")
        blocks: list[Block] = []
        for part in sweep:
            blocks = blocks or [Block(piece, self.exact) for piece in part.pieces]
            for block, piece in zip(blocks, part.take(), strict=True):
                block.add(piece, part.fresh)
        operators, places = [block.operator() for block in blocks], [block.index for block in blocks]
        unmet = missing(places, sweep)
        if len(unmet):  # weights that no output depends on: no curvature
            operators.append(Diag(torch.zeros(len(unmet), dtype=torch.float64, device=unmet.device)))
            places.append(unmet)
        return Blocks(tuple(operators), tuple(places))


def missing(places: list[Tensor], sweep: Sweep) -> Tensor:
    seen = torch.zeros(sweep.size, dtype=torch.bool, device=sweep.model.network.like.device)
    for place in places:
        seen[place] = True
    return (~seen).nonzero()[:, 0]


kfac = KFAC()
