"""Rows of a table, looked up: what embeddings are. Only the rows that an example meets are held, however long the table is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.nn import functional as F

from nescio.jacobian.calls import Axes
from nescio.jacobian.pieces import Piece
from nescio.jacobian.watch import Call, Watched


class Looked(NamedTuple):
    """A call as a look-up: which rows, (N, R), and of which weight; `skipped`: the row that has no gradient."""

    tokens: Tensor
    weight: str
    skipped: int | None


def looked(call: Call, where: Axes) -> Looked | None:
    if call.function is not F.embedding:
        return None
    tokens, weight, skipped, plain = bound(*call.given[0], **call.given[1])
    axis = where.outputs[0]
    if not plain or not isinstance(weight, Watched) or axis is None or where.given[0] != axis:
        return None
    return Looked(tokens.movedim(axis, 0).reshape(tokens.shape[axis], -1), weight.label, skipped)


def bound(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: Any = None,
    norm_type: Any = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> tuple[Tensor, Tensor, int | None, bool]:
    rows = len(weight)
    skipped = padding_idx if padding_idx is None or padding_idx >= 0 else rows + padding_idx
    return input, weight, skipped, max_norm is None and not scale_grad_by_freq


@final
@dataclass(frozen=True, eq=False)
class Lookup(Piece):
    """Of a table (rows, columns), laid end to end at `index`: g at the row `tokens`, each row of an example once, where `first`."""

    tokens: Tensor  # (N, R)
    g: Tensor  # (K, N, R, columns)
    first: Tensor  # (N, R)

    @staticmethod
    def of(index: Tensor, tokens: Tensor, g: Tensor, skipped: int | None) -> Lookup:
        """What an example meets several times is summed up where it is met first."""
        counts = torch.ones_like(tokens, dtype=torch.bool) if skipped is None else tokens != skipped
        g = g * counts[..., None].to(g)
        owner = (tokens[:, :, None] == tokens[:, None, :]).int().argmax(-1)  # (N, R)
        together = torch.zeros_like(g).scatter_add(2, owner[None, :, :, None].expand_as(g), g)
        first = (owner == torch.arange(tokens.shape[1], device=tokens.device)) & counts
        return Lookup(index, tokens, together, first)

    @property
    def shape(self) -> tuple[int, int]:
        columns = self.g.shape[-1]
        return len(self.index) // columns, columns

    def cost(self) -> int:
        return 3 * self.g.nbytes + self.tokens.numel() * self.tokens.shape[1] * 4

    def jacobian(self) -> Tensor:
        k, n, r, columns = self.g.shape
        rows = self.g.new_zeros(k, n, self.shape[0], columns)
        return rows.scatter_add(2, self.tokens[None, :, :, None].expand(k, n, r, columns), self.g).flatten(2)

    def square(self) -> Tensor:
        return self.spread(self.g.square().sum(0)[..., None])[:, 0]

    def dot(self, vectors: Tensor) -> Tensor:
        met = vectors.view(*self.shape, -1)[self.tokens]  # (N, R, columns, v)
        return torch.einsum("knrc,nrcv->knv", self.g, met)

    def pull(self, numbers: Tensor) -> Tensor:
        return self.spread(torch.einsum("knrc,knv->nrcv", self.g, numbers))

    def spread(self, each: Tensor) -> Tensor:
        """Numbers (N, R, columns, v) to the places of the table, (p, v)."""
        total = each.new_zeros(self.shape[0], *each.shape[2:])
        return total.index_add(0, self.tokens.reshape(-1), each.flatten(0, 1)).flatten(0, 1)

    def weighted(self, d: Tensor) -> Tensor:
        g = self.g.transpose(0, 1)  # (N, K, R, columns)
        return (g * d.view(self.shape)[self.tokens][:, None]).flatten(2) @ g.flatten(2).mT

    def turned(self, left: Tensor, right: Tensor) -> Lookup:
        """J (left ⊗ right) for a diagonal left: a number for each row."""
        g = self.g * left[self.tokens][..., None]
        return Lookup(self.index, self.tokens, g * right if right.dim() == 1 else g @ right, self.first)
