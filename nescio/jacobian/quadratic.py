"""J Σ Jᵀ: what an uncertainty about weights means for outputs, for each example by itself or for all together."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nescio.jacobian.lookup import Lookup
from nescio.jacobian.pieces import Outer, Piece
from nescio.linalg import Blocks, Dense, Diag, Kron, Operator, Spectral


def each(pieces: Sequence[Piece], covariance: Operator) -> Tensor:
    """(N, K, K): the covariance of the K outputs of each example. Nothing is multiplied out where the structure allows it."""
    if isinstance(covariance, Diag):
        parts = [piece.weighted(covariance.values[piece.index].to(dtype(piece))) for piece in pieces]
        return torch.stack(parts).sum(0)
    if isinstance(covariance, Blocks):
        found = [block(pieces, operator, place) for operator, place in covariance.pairs()]
        return torch.stack([x for x in found if x is not None]).sum(0)
    found = block(pieces, covariance, torch.arange(covariance.size, device=pieces[0].index.device))
    assert found is not None
    return found


def block(pieces: Sequence[Piece], operator: Operator, place: Tensor) -> Tensor | None:
    inside = [piece for piece in pieces if meet(piece.index, place)]
    if not inside:  # weights that the outputs do not see
        return None
    if len(inside) == 1 and torch.equal(inside[0].index, place):
        (piece,) = inside
        if isinstance(operator, Diag):
            return piece.weighted(operator.values.to(dtype(piece)))
        if isinstance(piece, (Outer, Lookup)) and isinstance(operator, (Spectral, Kron)):
            left, right, values = spectrum(operator, dtype(piece))
            if isinstance(piece, Outer) or left.dim() == 1:
                return piece.turned(left, right).weighted(values)
    if (
        len(inside) == 1
        and isinstance(inside[0], Outer)
        and isinstance(operator, Dense)
        and len(place) == len(inside[0].index)
    ):
        order = torch.argsort(place)[torch.argsort(torch.argsort(inside[0].index))]  # the same weights in another order
        return inside[0].between(operator.matrix[order][:, order].to(dtype(inside[0])))
    rows = assembled(inside, place).transpose(0, 1)  # (N, K, p)
    return rows @ through(operator, rows)


def meet(a: Tensor, b: Tensor) -> bool:
    """Whether they have a number in common. That of layers is told by their ends, which takes no sorting."""
    if a.equal(b):
        return True
    (low, high), (least, most) = a.aminmax(), b.aminmax()
    return bool((low <= most) & (least <= high)) and bool(torch.isin(a, b).any())


def joint(pieces: Sequence[Piece], covariance: Operator) -> Tensor:
    """(N, K, N, K): the covariance of all outputs of all examples."""
    parts = covariance.pairs() if isinstance(covariance, Blocks) else [(covariance, None)]
    total: Tensor | None = None
    for operator, place in parts:
        place = torch.arange(covariance.size, device=pieces[0].index.device) if place is None else place
        rows = assembled(pieces, place).transpose(0, 1)
        flat = rows.flatten(0, 1)
        found = (flat @ (operator @ flat.mT.to(operator.like.dtype)).to(flat)).view(*rows.shape[:2], *rows.shape[:2])
        total = found if total is None else total + found
    assert total is not None
    return total


def assembled(pieces: Sequence[Piece], place: Tensor) -> Tensor:
    """The rows (K, N, p) for the weights at these places, in their order; zero where no piece has one."""
    rank = torch.full((int(max(place.max(), *(piece.index.max() for piece in pieces))) + 1,), -1, device=place.device)
    rank[place] = torch.arange(len(place), device=place.device)
    rows: Tensor | None = None
    for piece in pieces:
        own = rank[piece.index]
        if bool((own >= 0).any()):
            jacobian = piece.jacobian()
            rows = jacobian.new_zeros(*jacobian.shape[:2], len(place)) if rows is None else rows
            rows[..., own[own >= 0]] = jacobian[..., own >= 0]
    return pieces[0].jacobian().new_zeros(1) if rows is None else rows


def through(operator: Operator, rows: Tensor) -> Tensor:
    """Σ Jᵀ, (N, p, K)."""
    flat = rows.flatten(0, 1).mT.to(operator.like.dtype)  # (p, N K)
    return (operator @ flat).to(rows).unflatten(1, rows.shape[:2]).movedim(1, 0)


def spectrum(operator: Spectral | Kron, precision: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Factors and values with operator = (left ⊗ right) diag(values) (left ⊗ right)ᵀ."""
    if isinstance(operator, Kron):
        left, right = (f.sqrt() if f.dim() == 1 else torch.linalg.cholesky(f) for f in (operator.left, operator.right))
        return left.to(precision), right.to(precision), torch.ones(operator.size).to(left.to(precision))
    return operator.left.to(precision), operator.right.to(precision), operator.values.reshape(-1).to(precision)


def dtype(piece: Piece) -> torch.dtype:
    return piece.g.dtype if isinstance(piece, (Outer, Lookup)) else piece.jacobian().dtype
