"""One leaf more on each of the trees of NUTS, as one move: what infer/nuts.py says of a trajectory.

Each chain is at a leaf of its own, of a tree of its own: where one tree has ended the next leaf begins another. A chain that does not go
on is held still: what it would change goes to a row for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from itertools import accumulate
from operator import and_

import torch
from torch import Tensor

from nescio.batch import Gradient
from nescio.infer.adapt import remade
from nescio.infer.hmc import DIVERGENT, Began, energy_error, leap
from nescio.infer.tree import GOING, LEAVES, STATE, Stretch, Told, Trees, at, blocks, deepest, replaced

TENSORS = len(Trees._fields)
Written = tuple[Tensor, list[Tensor]]  # rows (chains, some), and what is to be in each


def leaf(gradient: Gradient, *given: Tensor) -> tuple[Tensor, ...]:
    """One leaf more of each tree, written into the tensors of `Trees`. Handed on are the counts."""
    trees = Trees(*given[:TENSORS])
    counts, going, written = grown(gradient, trees, given[TENSORS:])
    chain = torch.arange(len(going), device=going.device)[:, None]
    # one such operation for a tensor, and the store last, of which the others read: else machine code would make copies
    for x, (rows, values) in reversed(list(zip(trees[GOING + 1 : STATE], written, strict=True))):
        x.index_put_((chain, rows), torch.stack(values, 1))
    return counts, going


def leaf_anew(gradient: Gradient, *given: Tensor) -> tuple[Tensor, ...]:
    """`leaf`, into new tensors, all of which are handed on: where machine code cannot write into those that it is given."""
    trees = Trees(*given[:TENSORS])
    counts, going, written = grown(gradient, trees, given[TENSORS:])
    (rows, values), *records = written
    firsts, parts = [0, *accumulate(blocks(trees.store))], list(trees.store.split(blocks(trees.store), 1))
    for i, value in enumerate(values):
        block = i if i < 8 else i - 3  # a subtree and the trunk share theirs
        parts[block] = replaced(parts[block], rows[:, i] - firsts[block], value)
    new = (replaced(x, row[:, 0], value) for x, (row, (value,)) in zip(trees[GOING + 2 : STATE], records, strict=True))
    return counts, going, torch.cat(parts, 1), *new


def grown(gradient: Gradient, trees: Trees, held: Sequence[Tensor]) -> tuple[Tensor, Tensor, list[Written]]:
    """One leaf; if it is the last of a new half, that half joins the trajectory and the next one begins.

    Returns the counts, who goes on, and what is to be written into the store and the records.
    """
    metric, (tree, n), going, most = remade(held), trees.counts.unbind(1), trees.going, deepest(trees.store)
    us, ps, slopes, new_u, new_slope, *stack, _ = trees.store.split(blocks(trees.store), 1)
    first, p0, fate, began = n == 0, at(trees.momenta, tree), at(trees.fates, tree), at(trees.told, tree)[:, 0]
    told = Told(*map(partial(choose, first), Told.bare(began), at(trees.told, tree + 1).unbind(1)))
    depth, ends = told.depth.long(), told.ends.long()
    side, reached = ends & 1, ends >> 1
    mine = (reached >> side) & 1 == 1
    start = (at(trees.u, tree), p0, at(trees.gradient, tree))
    u, p, slope = (choose(mine, at(x, side), y) for x, y in zip((us, ps, slopes), start, strict=True))
    places = (depth, (depth + 1).clamp(max=most - 1), most + depth, 2 * most + (n & (LEAVES - 1)))
    size, next_size, half_coin, coin = (fate.gather(1, i[:, None])[:, 0] for i in places)
    u, p, log_density, slope = leap(gradient, u, p, began.to(u), slope, size.to(u)[:, None], *held)
    error = energy_error(Began(began, metric), p0, log_density, p)
    # the new half
    number, z = n + 1 - (1 << depth), metric.whiten(p)  # of the leaf, in that half
    half, place, bad, bent = join(Stretch(*stack), z, number)
    weight = torch.logaddexp(told.fresh, -error)
    chosen, diverged = coin < leaf_chance(-error, weight), error > DIVERGENT
    candidate = torch.where(chosen, log_density.double(), told.candidate)
    kept = ~bad & ~diverged & (number + 1 == 1 << depth)  # it is whole
    # the trajectory
    took = kept & (half_coin < half_chance(weight, told.weight))
    flips = kept & (next_size * size < 0)  # the next half grows at the other end
    over = bad | diverged | (kept & (bent | (depth + 1 == most)))
    row = Told(
        torch.where(took, candidate, told.density),
        told.acceptance + (-error).exp().clamp(max=1.0),
        n + 1,
        diverged,
        depth + kept,
        torch.where(kept, torch.logaddexp(told.weight, weight), told.weight),
        (side ^ flips) + 2 * (reached | (1 << side)),
        candidate,
        torch.where(kept, -torch.inf, weight),
    )
    # what comes next
    tree_next, n_next = tree + (going & over), torch.where(going, torch.where(over, 0, n + 1), n)
    more = (at(trees.fates, tree_next)[:, -1] > 0) & ((n_next & (LEAVES - 1) > 0) | (n_next == 0))
    fresh, trunk = metric.whiten(at(trees.momenta, tree_next)), Stretch(*(x[:, -1] for x in stack))
    longer = Stretch(trunk.total + half.total, choose(flips, z, trunk.first), choose(flips, trunk.first, z))
    values = [u, p, slope, u, slope, *half, *(choose(over, fresh, x) for x in longer)]
    after = torch.where(going, tree + 1, trees.told.shape[1] - 1)[:, None]
    drawn = (choose(chosen, u, new_u[:, 0]), choose(chosen, slope, new_slope[:, 0]))
    before = (at(x, tree + ~first) for x in (trees.u, trees.gradient))
    records = [(after, [choose(took, x, y)]) for x, y in zip(drawn, before, strict=True)]
    records.append((after, [columns([x.double() for x in row])]))
    written = [(rows_of(trees.store, going, side, chosen, place, kept | over), values), *records]
    return columns([tree_next, n_next]), going & more, written


def rows_of(store: Tensor, going: Tensor, side: Tensor, chosen: Tensor, place: Tensor, trunk: Tensor) -> Tensor:
    """Rows of a store that a leaf writes, or its last one, for nothing: at the end, of the draw, of subtrees, of the trunk. (chains, 11)"""
    i, most = torch.arange(11, device=store.device), deepest(store)
    end, draw, last = i < 3, (i == 3) | (i == 4), i > 7
    firsts = torch.where(end, 2 * i, torch.where(draw, i + 3, 8 + (most + 1) * ((i - 5) % 3)))
    rows = firsts + torch.where(end, side[:, None], torch.where(draw, 0, torch.where(last, most, place[:, None])))
    written = going[:, None] & (chosen[:, None] | ~draw) & (trunk[:, None] | ~last)
    return torch.where(written, rows, store.shape[1] - 1)


def columns(numbers: Sequence[Tensor]) -> Tensor:
    """Stacked, (chains, numbers): in other words than `torch.stack`, which in machine code takes a tensor for each."""
    i = torch.arange(len(numbers), device=numbers[0].device)
    return reduce(lambda x, y: torch.where(i > y[0], y[1][:, None], x), enumerate(numbers[1:]), numbers[0][:, None])


def join(stack: Stretch, z: Tensor, n: Tensor) -> tuple[Stretch, Tensor, Tensor, Tensor]:
    """Leaf n of a half and the finished subtrees that it completes; the place where the whole waits; whether one of them turns back;
    and whether that whole does with the trunk, which is behind the subtrees in the stack.

    It is joined to the subtrees in places 0, 1, ... as far as n has trailing one-bits, and the whole waits in the next place.
    """
    totals, firsts = stack.total.unbind(1)[:-1], stack.first[:, :-2]
    ones = (2 << torch.arange(len(totals), device=n.device)) - 1
    joins = (n[:, None] & ones) == ones  # (chains, depth)
    place = joins.sum(1)
    total = reduce(torch.add, (choose(joins[:, i], x, torch.zeros_like(x)) for i, x in enumerate(totals)), z)
    first = choose(place > 0, at(stack.first, (place - 1).clamp(min=0)), z)
    after = torch.stack(
        [*accumulate([z, *totals[:-1]], torch.add), total], 1
    )  # comes behind each subtree, and the trunk
    turns = turned(
        stack, Stretch(after, torch.cat([z[:, None], firsts, first[:, None]], 1), z[:, None].expand_as(after))
    )
    return Stretch(total, first, z), place, (turns[:, :-1] & joins).any(1), turns[:, -1]


def turned(a: Stretch, b: Stretch) -> Tensor:
    """Whether a followed by b turns back on itself: the whole, a with the first of b, the last of a with b."""
    whole, left, right = a.total + b.total, a.total + b.first, a.last + b.total
    ahead = [(whole, a.first), (whole, b.last), (left, a.first), (left, b.first), (right, a.last), (right, b.last)]
    return ~reduce(and_, ((x * y).sum(-1) > 0 for x, y in ahead))  # stacked, each would be one more tensor of a loop


def choose(mask: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """a where the mask (chains,) holds, else b."""
    return torch.where(mask.reshape(-1, *[1] * (a.dim() - 1)), a, b)


def leaf_chance(leaf: Tensor, half: Tensor) -> Tensor:
    """Of a leaf to become the draw of its half, given log weights: that half holds the leaf already."""
    return (leaf - half).exp()


def half_chance(new: Tensor, old: Tensor) -> Tensor:
    """Of the new half's draw to become the draw of the trajectory: old does not hold new, so the far half is favoured."""
    return (new - old).exp()
