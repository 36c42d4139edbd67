"""A trajectory of NUTS while it grows, many chains at a time; infer/nuts.py lets it grow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nescio.infer.hmc import State

FLAT, NUMBERS, GOING = 3, 1, 2  # tensors of a flat Tree, and which of them are its numbers, and tell that it grows
LEAF = -1  # the number that counts leaves
VECTORS = 12  # that it has beside its stack


class Point(NamedTuple):
    """In phase space."""

    u: Tensor  # (chains, dim)
    p: Tensor
    gradient: Tensor


class Drawn(NamedTuple):
    """From some points: the draw among them, and log Σ w."""

    u: Tensor
    log_density: Tensor
    gradient: Tensor
    weight: Tensor  # (chains,), in double precision


class Stretch(NamedTuple):
    """Momenta of consecutive points, white (Lᵀp, whose products are those of Σ), in the order in which they were made. (..., dim)"""

    total: Tensor
    first: Tensor
    last: Tensor


class Tree(NamedTuple):
    """A trajectory while it grows by a new half."""

    end: Point  # where it grows: the newest leaf
    other: Point  # the other end
    old: Drawn  # without the new half
    new: Drawn  # from the new half
    total: Tensor  # (chains, dim), of the white momenta without the new half
    near: Tensor  # (chains, dim), that of the point at which the new half began
    stack: Stretch  # (chains, depth, dim), finished subtrees of the new half: that of 2^k leaves waits in place k
    acceptance: Tensor  # (chains,), Σ min(1, w)
    leapfrogs: Tensor
    divergent: Tensor
    depth: Tensor
    going: Tensor  # once it has ended, nothing more is counted
    leaf: Tensor  # how many there were: the same in all chains that still grow

    def flat(self) -> tuple[Tensor, ...]:
        """As few tensors as can be, for each turn of a loop in machine code takes time for each: vectors, numbers, and who grows."""
        end, other, old, new = self[:4]
        vectors = [*end, *other, old.u, old.gradient, new.u, new.gradient, self.total, self.near]
        vectors = torch.cat([*vectors, *(x.flatten(1) for x in self.stack)], 1).unflatten(1, (-1, old.u.shape[1]))
        numbers = [old.log_density, new.log_density, old.weight, new.weight]
        numbers += [self.acceptance, self.leapfrogs, self.divergent, self.depth, self.leaf]
        return vectors, torch.stack([x.double() for x in numbers], 1), self.going

    @staticmethod
    def of(flat: Sequence[Tensor], like: Tensor) -> Tree:
        """`like` is a log density."""
        vectors, numbers, going = flat
        rows, stack = vectors[:, :VECTORS].unbind(1), Stretch(*vectors[:, VECTORS:].chunk(3, 1))
        own = numbers.unbind(1)
        old, new = (Drawn(rows[i], own[j].to(like), rows[i + 1], own[j + 2]) for i, j in ((6, 0), (8, 1)))
        leapfrogs, depth, leaf = (own[i].long() for i in (5, 7, 8))
        ends, divergent = (Point(*rows[:3]), Point(*rows[3:6])), own[6] > 0
        return Tree(*ends, old, new, rows[10], rows[11], stack, own[4], leapfrogs, divergent, depth, going, leaf)

    @staticmethod
    def start(state: State, p: Tensor, depth: int) -> Tree:
        """Its numbers are all in double precision: it is about to become flat."""
        zero = torch.zeros(len(p), dtype=torch.float64, device=p.device)  # also log w of the first point
        here, z = Point(state.u, p, state.gradient), state.metric.whiten(p)
        drawn = Drawn(state.u, state.log_density, state.gradient, zero)
        nothing, stack = drawn._replace(weight=zero - torch.inf), Stretch(*[p.new_zeros(len(p), depth, p.shape[1])] * 3)
        return Tree(here, here, drawn, nothing, z, z, stack, zero, zero, zero, zero, zero == 0, zero)


class Grown(NamedTuple):
    """What a trajectory leaves: the next state, in memory of its own, and what is told of it. (chains,)"""

    u: Tensor  # (chains, dim)
    log_density: Tensor
    gradient: Tensor  # (chains, dim)
    acceptance: Tensor  # the mean of min(1, w) over the leaves
    divergent: Tensor
    depth: Tensor
    leapfrogs: Tensor

    @staticmethod
    def of(flat: Sequence[Tensor], like: Tensor) -> Grown:
        """As `Tree.of`, but of few tensors: where chains are few, each takes as long as a part of a gradient."""
        vectors, numbers, _ = flat
        density, _, _, _, total, leapfrogs, divergent, depth, _ = numbers.unbind(1)
        (u, gradient), density = vectors[:, 6:8].unbind(1), density.to(like, copy=True)
        told = (total / leapfrogs, divergent > 0, depth.long(), leapfrogs.long())
        return Grown(u.clone(), density, gradient.clone(), *told)
