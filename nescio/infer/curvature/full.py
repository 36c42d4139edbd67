"""The whole matrix, for small networks and last layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from nescio.infer.curvature.structure import Structure, afford
from nescio.infer.curvature.sweep import Sweep
from nescio.jacobian import Outer, Piece, Plain
from nescio.linalg import Dense


@final
@dataclass(frozen=True)
class Full(Structure):
    """`hessian`: of minus the log likelihood itself, which need not be positive, in place of Gauss-Newton."""

    hessian: bool = False

    def measure(self, sweep: Sweep) -> Dense:
        afford(sweep, sweep.size**2, "the full matrix")
        return Dense(second(sweep) if self.hessian else gauss_newton(sweep))


def gauss_newton(sweep: Sweep) -> Tensor:
    total = torch.zeros(sweep.size, sweep.size, dtype=torch.float64, device=sweep.model.network.like.device)
    for part in sweep.multiplied():
        # products in double precision: those of single have negative eigenvalues, and a wide prior does not lift them
        maps = [Outer(p.index, p.a.double(), p.g.double()) for p in part.pieces if isinstance(p, Outer) and p.single]
        rest = [piece for piece in part.pieces if not (isinstance(piece, Outer) and piece.single)]
        together = (
            Plain(torch.cat([p.index for p in rest]), torch.cat([p.jacobian() for p in rest], -1).double())
            if rest
            else None
        )
        pieces: list[Piece] = [*maps, *([] if together is None else [together])]
        for i, one in enumerate(pieces):
            for two in pieces[i:]:
                block = product(one, two)
                total[one.index[:, None], two.index] += block
                if two is not one:
                    total[two.index[:, None], one.index] += block.mT
    return total


def product(one: Piece, two: Piece) -> Tensor:
    """Σ over columns and examples of the rows of one times those of the other, (p, q).

    Of outer products g aᵀ and h bᵀ it is Σ_n (Σ_k g hᵀ) ⊗ (a bᵀ): the columns are summed first, and no row is multiplied out.
    """
    if isinstance(one, Outer) and isinstance(two, Outer):
        back = torch.einsum("kno,knq->noq", one.g[:, :, 0], two.g[:, :, 0]).flatten(1)
        seen = (one.a[:, 0, :, None] * two.a[:, 0, None, :]).flatten(1)
        shape = (*one.shape, *two.shape)
        block = (back.mT @ seen).view(shape[0], shape[2], shape[1], shape[3])
        return block.transpose(1, 2).reshape(shape[0] * shape[1], -1)
    return one.jacobian().flatten(0, 1).mT @ two.jacobian().flatten(0, 1)


def second(sweep: Sweep) -> Tensor:
    """The Hessian, row by row, by differentiating twice through the network."""
    total = torch.zeros(sweep.size, sweep.size, dtype=torch.float64, device=sweep.model.network.like.device)
    jacobian, model = sweep.jacobian, sweep.model
    index = torch.cat(list(jacobian.index.values()))
    counts = index >= 0
    step = sweep.step(multiplied=False)
    sweep.log_likelihood = torch.zeros((), dtype=torch.float64)
    for start in range(0, sweep.source.size, step):
        x, y = sweep.source.span(start, min(start + step, sweep.source.size))
        own = {name: jacobian.params[name].detach().clone().requires_grad_() for name in jacobian.index}
        numbers = {f"likelihood.{name}": number for name, number in sweep.numbers.items()}
        loss = -model.log_likelihood({**jacobian.params, **own, **numbers}, x, y)
        sweep.log_likelihood = sweep.log_likelihood - (loss if sweep.graph else loss.detach()).cpu()
        slopes = torch.autograd.grad(loss, list(own.values()), create_graph=True, materialize_grads=True)
        flat = torch.cat([slope.reshape(-1) for slope in slopes])
        for i, one in enumerate(flat):
            if one.requires_grad and bool(counts[i]):
                row = torch.autograd.grad(one, list(own.values()), None, True, sweep.graph, materialize_grads=True)
                total[index[i], index[counts]] += torch.cat([x.reshape(-1) for x in row])[counts].double()
    return (total + total.mT) / 2


full = Full()
