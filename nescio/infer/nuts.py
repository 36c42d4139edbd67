r"""The No-U-Turn sampler (Hoffman & Gelman, 2014), multinomial (Betancourt, 2017), many chains at a time.

    p ~ N(0, Σ⁻¹);  a trajectory of one state z₀ = (u, p) is doubled, forwards or backwards by a fair coin, until
      - it turns back on itself:  ρ·Σp ≤ 0 at one of its ends, ρ = Σ_k p_k the sum of its momenta; or
      - the new half holds, itself, a subtree that turns back, or an energy error above 1000: the new half is thrown away; or
      - it has been doubled `max_depth` times.
    The next u is drawn from the trajectory with weights w(z) = exp(H(z₀) - H(z)), in two stages:
      within a new half    each leaf z replaces the draw with probability w(z) / Σ w, the leaves up to it: exactly multinomial;
      across the doublings the draw of the new half replaces the old one with probability min(1, W_new / W_old): biased outwards.

Targets p(u | D) exactly. Two stretches a, b that are joined are checked as Stan does: a + b, a + the first of b, the last of a + b: a
whole that spans nearly a period would not show the turn. Trees are not built by recursion but as a binary counter (after Phan, Pradhan
& Jankowiak, 2019): leaf n of a half is a stretch of length 1, and joins as many earlier ones as n has trailing one-bits. So all chains
are at the same leaf, one vectorised gradient serves them all, and a chain that has ended leaves the block. Step size (to the mean of
min(1, w) over all leaves) and Σ are adapted in the warm-up as in HMC, energies are those of HMC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from operator import and_
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from nescio.data.source import Source
from nescio.errors import InputError
from nescio.infer.adapt import Metric, Moments, StepSize, identity, remade
from nescio.infer.hmc import DIVERGENT, Began, State, adapt, energy_error, leap, summary
from nescio.infer.sampler import Sampler
from nescio.infer.tree import FLAT, GOING, LEAF, NUMBERS, Drawn, Grown, Point, Stretch, Tree
from nescio.noise import Noise
from nescio.posterior.posterior import Ends
from nescio.target import Batch, Gradient, Target

LEAVES = 64  # whose coins are drawn together, and that machine code may add in one call
LEAVES_GPU = 8  # where a call cannot end early: then chains that have ended are let go


class Info(NamedTuple):
    acceptance: Tensor  # (chains,), the mean of min(1, w) over the leaves
    divergent: Tensor  # (chains,)
    energy: Tensor  # (chains,), H where the trajectory begins, its momentum just drawn
    depth: Tensor  # (chains,), doublings that were kept
    leapfrogs: Tensor  # (chains,), those of thrown-away halves included
    step_size: float


@final
@dataclass(frozen=True)
class NUTS(Sampler):
    """`acceptance`: what the step size is adapted to. `max_depth`: at most 2^max_depth - 1 gradients. `dense`: a full inverse mass."""

    step_size: float = 0.1
    acceptance: float = 0.8
    max_depth: int = 10
    dense: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.step_size > 0 and 0 < self.acceptance < 1 and self.max_depth >= 1):
            got = f"step_size={self.step_size}, acceptance={self.acceptance}, max_depth={self.max_depth}"
            raise InputError("step_size > 0, 0 < acceptance < 1 and max_depth >= 1", got, "leave them out")

    def batch(self, source: Source) -> int:
        return source.size  # a density is compared with itself: all data, always

    def gradients(self) -> float:
        return min(
            2.0**self.max_depth - 1, 7.0
        )  # a guess, and a low one: its code has versions for fewer chains, slow to make

    def init(self, target: Target, ends: Ends, noise: Noise) -> State:
        u = target.u(ends.theta)
        log_density, gradient = target.value_and_grad(u, target.batch(None))
        size = StepSize.start(self.step_size)
        return State(
            u, log_density, gradient, ends.statistics, 0, size, Moments.start(u, self.dense), identity(u, self.dense)
        )

    def step(self, target: Target, state: State, batch: Batch, noise: Noise) -> tuple[State, Info]:
        warm, shape, metric = state.step < self.warmup, (len(state.u), self.max_depth), state.metric
        size = state.step_size.now if warm else state.step_size.best
        p0 = metric.momentum(noise.at("momentum").normal(*state.u.shape))
        sizes = size * (2 * noise.at("direction").integers(0, 2, *shape) - 1).to(
            p0
        )  # back in time or ahead, by doubling
        given = [sizes, noise.at("half").uniform(*shape), p0, state.log_density]
        grown = grow(target, batch, Tree.start(state, p0, self.max_depth), given, metric, noise)
        kinetic = 0.5 * (p0 * metric.velocity(p0)).sum(1, dtype=torch.float64)
        u, log_density, gradient, accept, divergent, depth, leapfrogs = grown
        info = Info(accept, divergent, kinetic - state.log_density, depth, leapfrogs, size)
        new = state._replace(u=u, log_density=log_density, gradient=gradient, step=state.step + 1)
        return (adapt(new, float(accept.mean()), self.acceptance, self.warmup, self.dense) if warm else new), info

    def summary(self, infos: Sequence[Info]) -> dict[str, Any]:
        """As for HMC; the gradients are those of a chain, on average."""
        depth = torch.stack([i.depth for i in infos])
        deepest = {"depth": float(depth.float().mean()), "at_max_depth": int((depth == self.max_depth).sum())}
        return {**summary([i._replace(leapfrogs=i.leapfrogs.float().mean()) for i in infos]), **deepest}


def grow(target: Target, batch: Batch, tree: Tree, given: Sequence[Tensor], metric: Metric, noise: Noise) -> Grown:
    """Leaf by leaf until the trajectories of all chains have ended; those that have are let go."""
    flat, like = tree.flat(), tree.old.log_density
    chains, leaves, whole = len(like), 0, flat
    rows, coins = torch.arange(chains, device=like.device), torch.empty(0)
    while True:
        if leaves % LEAVES == 0:
            coins = noise.at("leaf", leaves // LEAVES).uniform(chains, LEAVES)
        here = [*flat, *given, coins if len(rows) == chains else coins[rows]]
        most = 1 if target.code is None else LEAVES_GPU if rows.is_cuda else LEAVES - leaves % LEAVES
        flat = target.advance(leaf, batch, here, metric.tensors(), times=most, until=GOING)
        leaves, going = leaves + most if rows.is_cuda else int(flat[NUMBERS][0, LEAF]), flat[GOING]
        if not bool(going.all()):
            all_here = len(rows) == chains
            whole = flat if all_here else [x.index_copy(0, rows, y) for x, y in zip(whole, flat, strict=True)]
            if not bool(going.any()):
                return Grown.of(whole, like)
            rows, target, batch = rows[going], target.chains(going), batch.chains(going)
            flat, given = ([x[going] for x in tensors] for tensors in (flat, given))


def leaf(gradient: Gradient, *tensors: Tensor) -> tuple[Tensor, ...]:
    """One leaf more; if it is the last of a new half, that half joins the trajectory and the next one begins."""
    tree, (sizes, halves, p0, began, coins), held = (
        Tree.of(tensors[:FLAT], tensors[FLAT + 3]),
        tensors[FLAT : FLAT + 5],
        tensors[FLAT + 5 :],
    )
    metric = remade(held)
    n, places, level, last = where(tree.leaf, sizes.shape[1])
    size = (sizes * level).sum(1)
    u, p, log_density, slope = leap(gradient, *tree.end[:2], began, tree.end.gradient, size[:, None], *held)
    end = Point(u, p, slope)
    error, z = energy_error(Began(began, metric), p0, log_density, p), metric.whiten(p)
    weight = torch.logaddexp(tree.new.weight, -error)
    coin = coins.gather(1, tree.leaf[:, None] % LEAVES)[:, 0]
    new = choose(coin < leaf_chance(-error, weight), Drawn(u, log_density, slope, weight), tree.new)._replace(
        weight=weight
    )
    stack, bad = join(tree.stack, z, n, places)
    diverged = tree.going & (error > DIVERGENT)
    going = tree.going & ~bad & ~diverged
    kept = going & last  # the new half is whole
    half = Stretch(*(torch.where(level[..., None], x, 0).sum(1) for x in stack))
    took = kept & ((halves * level).sum(1) < half_chance(weight, tree.old.weight))
    old = choose(took, new, tree.old)
    old = old._replace(weight=torch.where(kept, torch.logaddexp(tree.old.weight, weight), tree.old.weight))
    bent = turned(Stretch(tree.total, metric.whiten(tree.other.p), tree.near), half)
    depth = tree.depth + kept
    flips = kept & ((sizes[:, 1:] * level[:, :-1]).sum(1) * size < 0)  # the next half grows at the other end
    after = Tree(
        choose(flips, tree.other, end),
        choose(flips, end, tree.other),
        old,
        new._replace(weight=torch.where(kept, -torch.inf, weight)),
        torch.where(kept[:, None], tree.total + half.total, tree.total),
        torch.where(kept[:, None], metric.whiten(torch.where(flips[:, None], tree.other.p, end.p)), tree.near),
        stack,
        tree.acceptance + torch.where(tree.going, (-error).exp().clamp(max=1.0), 0.0),
        tree.leapfrogs + tree.going,
        tree.divergent | diverged,
        depth,
        going & ~(kept & (bent | (depth == sizes.shape[1]))),
        tree.leaf + 1,
    )
    return after.flat()


def where(leaf: Tensor, depth: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of a leaf of the trajectory: its number in its half, from 0; 2^k (depth,); which k is its half's (chains, depth); is it the last?

    The half of 2^k leaves begins at leaf 2^k - 1 of the trajectory, all counted from 0.
    """
    places = 1 << torch.arange(depth, device=leaf.device)
    number = leaf[:, None] + 1
    level = (places <= number) & (number < 2 * places)
    return leaf + 1 - (level * places).sum(1), places, level, (number == 2 * places - 1).any(1)


def join(stack: Stretch, z: Tensor, n: Tensor, places: Tensor) -> tuple[Stretch, Tensor]:
    """Leaf n of a half onto its finished subtrees; whether one of those that it completes turns back. (chains,)

    It is joined to the subtrees in places 0, 1, ... as far as n has trailing one-bits, and the whole waits in the next place.
    """
    low = n[:, None] % (2 * places)
    joins, waits = low == 2 * places - 1, low == places - 1  # (chains, depth)
    sums = list(accumulate([z, *stack.total.unbind(1)[:-1]], torch.add))
    total = torch.stack(sums, 1)  # of what comes after the subtree in each place
    first = torch.cat([z[:, None], stack.first[:, :-1]], 1)
    after = Stretch(total, first, z[:, None].expand_as(total))
    bad = (turned(stack, after) & joins).any(1)
    return choose(waits, after, stack), bad


def turned(a: Stretch, b: Stretch) -> Tensor:
    """Whether a followed by b turns back on itself: the whole, a with the first of b, the last of a with b."""
    whole, left, right = a.total + b.total, a.total + b.first, a.last + b.total
    ahead = [(whole, a.first), (whole, b.last), (left, a.first), (left, b.first), (right, a.last), (right, b.last)]
    return ~reduce(and_, ((x * y).sum(-1) > 0 for x, y in ahead))  # stacked, each would be one more tensor of a loop


def choose(mask: Tensor, a: Any, b: Any) -> Any:
    """a where the mask holds, else b, tensor by tensor."""
    return tree_map(lambda x, y: torch.where(mask.reshape(*mask.shape, *[1] * (x.dim() - mask.dim())), x, y), a, b)


def leaf_chance(leaf: Tensor, half: Tensor) -> Tensor:
    """Of a leaf to become the draw of its half, given log weights: that half holds the leaf already."""
    return (leaf - half).exp()


def half_chance(new: Tensor, old: Tensor) -> Tensor:
    """Of the new half's draw to become the draw of the trajectory: old does not hold new, so the far half is favoured."""
    return (new - old).exp()
