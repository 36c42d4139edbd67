"""Trajectories of NUTS while they grow, many chains at a time and each at its own pace; infer/nuts.py lets them grow.

What a chain knows of its tree lies in rows of a few tensors, and a leaf writes those rows that it changes. So a loop in machine code
need not hand everything from turn to turn: that would take as long as a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nescio.infer.hmc import State

LEAVES = 64  # whose coins are drawn together
FIXED = 12  # rows of a store, beside three for each doubling
COUNTS, GOING, FATES = 0, 1, 6  # places in `Trees`
STATE = 6  # tensors of `Trees` that a leaf changes: the first ones


class Stretch(NamedTuple):
    """Momenta of consecutive points, white (Lᵀp, whose products are those of Σ), in the order in which they were made. (..., dim)"""

    total: Tensor
    first: Tensor
    last: Tensor


class Told(NamedTuple):
    """What numbers tell of a tree. (chains,), in double precision"""

    density: Tensor  # log, of its draw
    acceptance: Tensor  # Σ min(1, w)
    leapfrogs: Tensor
    divergent: Tensor
    depth: Tensor
    weight: Tensor  # log Σ w, without the new half
    ends: Tensor  # which of the two grows, and 2 and 4 if the first and the second have been reached: else they are the start
    candidate: Tensor  # log density of the new half's draw
    fresh: Tensor  # log Σ w of the new half

    @staticmethod
    def bare(density: Tensor) -> Told:
        """Of a tree without leaves."""
        none = torch.zeros_like(density)
        return Told(density, none, none, none, none, none, none, none, none - torch.inf)


def blocks(store: Tensor) -> tuple[int, ...]:
    """How many rows of a store there are of each kind.

    u, p and gradient at both ends; u and gradient of the new half's draw; totals, firsts and lasts of its finished subtrees (that of 2^k
    leaves in place k) and, behind them, of the trunk: of the trajectory without that half; and a row for what is not kept.
    """
    return 2, 2, 2, 1, 1, *[deepest(store) + 1] * 3, 1


def deepest(store: Tensor) -> int:
    """How often a tree may be doubled for which there is this room."""
    return (store.shape[1] - FIXED) // 3


class Trees(NamedTuple):
    """Of some chains that each grow one tree after the other."""

    counts: Tensor  # (chains, 2): which tree, and how many leaves it has
    going: Tensor  # (chains,); not, if there are no coins left for this tree, or no trees
    store: Tensor  # (chains, rows, dim)
    u: Tensor  # (chains, trees + 2, dim), where each tree starts: in the row below is its draw; the last is for nothing
    gradient: Tensor  # there
    told: Tensor  # (chains, trees + 2, 9), likewise
    fates: Tensor  # (chains, trees + 1, ...), in double precision: step sizes and coins of halves, coins of leaves, is there a tree?
    momenta: Tensor  # (chains, trees + 1, dim)

    @staticmethod
    def plant(state: State, momenta: Sequence[Tensor], fates: Sequence[Tensor], depth: int, most: int) -> Trees:
        """`fates`: (chains, 2 depth + LEAVES) for each tree. `most`: room for so many, for machine code is made for one number."""
        (chains, dim), many = state.u.shape, len(momenta)
        u, gradient, p = state.u.new_zeros(3, chains, most + 2, dim)
        u[:, 0], gradient[:, 0], p[:, :many] = state.u, state.gradient, torch.stack(list(momenta), 1)
        told = u.new_zeros(chains, most + 2, len(Told._fields), dtype=torch.float64)
        told[:, 0, 0] = state.log_density
        fate = told.new_zeros(chains, most + 1, 2 * depth + LEAVES + 1)
        fate[:, :many, :-1], fate[:, :many, -1] = torch.stack(list(fates), 1), 1.0
        counts, store = u.new_zeros(chains, 2, dtype=torch.int64), u.new_zeros(chains, FIXED + 3 * depth, dim)
        for x in store.split(blocks(store), 1)[5:8]:
            x[:, -1] = state.metric.whiten(momenta[0])
        return Trees(counts, counts[:, 0] == 0, store, u, gradient, told, fate, p[:, :-1].contiguous())


def at(x: Tensor, row: Tensor) -> Tensor:
    """Of each chain its row: (chains, rows, n), (chains,) -> (chains, n)."""
    return x.gather(1, row[:, None, None].expand(-1, 1, x.shape[2]))[:, 0]


def replaced(x: Tensor, row: Tensor, value: Tensor) -> Tensor:
    """x with this value in its row (chains,), if there is such a row."""
    here = torch.arange(x.shape[1], device=x.device) == row[:, None]
    return torch.where(here[..., None], value[:, None], x)
