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
& Jankowiak, 2019): leaf n is a stretch of length 1, and joins as many earlier ones as n has trailing one-bits. So all chains are at the
same leaf, one vectorised gradient serves them all, and a chain that has ended leaves the block. Step size (to the mean of min(1, w)
over all leaves) and Σ are adapted in the warm-up as in HMC, energies are those of HMC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from nescio.data.source import Source
from nescio.errors import InputError
from nescio.infer.adapt import Metric, Moments, StepSize, identity, remade
from nescio.infer.hmc import DIVERGENT, Began, State, adapt, energy_error, leap, summary
from nescio.infer.sampler import Sampler
from nescio.noise import Noise
from nescio.posterior.posterior import Ends
from nescio.target import Batch, Gradient, Target


class Info(NamedTuple):
    acceptance: Tensor  # (chains,), the mean of min(1, w) over the leaves
    divergent: Tensor  # (chains,)
    energy: Tensor  # (chains,), H where the trajectory begins, its momentum just drawn
    depth: Tensor  # (chains,), doublings that were kept
    leapfrogs: Tensor  # (chains,), those of thrown-away halves included
    step_size: float


class Point(NamedTuple):
    """Points in phase space; chains may be two ends by chains."""

    u: Tensor  # (chains, dim)
    p: Tensor
    log_density: Tensor  # (chains,)
    gradient: Tensor


class Stretch(NamedTuple):
    """Momenta of consecutive points, in the order in which they were made: their sum, the first, the last. (chains, dim)"""

    total: Tensor
    first: Tensor
    last: Tensor


class Block(NamedTuple):
    """The chains whose trajectories still grow, and where these began."""

    rows: Tensor  # which of all chains
    target: Target
    batch: Batch
    start: State
    p0: Tensor

    def at(self, keep: Tensor) -> Block:
        """Those of them that a mask keeps."""
        rest = None if self.target.rest is None else self.target.rest[keep]
        start = self.start._replace(log_density=self.start.log_density[keep])  # all that an energy error needs
        batch = self.batch
        if batch.own:
            x, y = tree_map(lambda t: t[keep], (batch.x, batch.y))
            batch = batch._replace(x=x, y=y)
        return Block(self.rows[keep], replace(self.target, rest=rest), batch, start, self.p0[keep])


class Half(NamedTuple):
    """A new half of a trajectory, of those chains where it is whole."""

    block: Block
    stretch: Stretch
    end: Point
    draw: Point
    weight: Tensor  # (rows,), log Σ w


class Tally(NamedTuple):
    """What the leaves of one transition add up to, (chains,), written in place."""

    acceptance: Tensor
    leapfrogs: Tensor
    divergent: Tensor

    def add(self, rows: Tensor, acceptance: Tensor, leapfrogs: int, divergent: Tensor) -> None:
        self.acceptance[rows] += acceptance
        self.leapfrogs[rows] += leapfrogs
        self.divergent[rows] = divergent


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
        return 16.0  # a guess: the length of a tree is not known before

    def init(self, target: Target, ends: Ends, noise: Noise) -> State:
        u = target.u(ends.theta)
        log_density, gradient = target.value_and_grad(u, target.batch(None))
        size = StepSize.start(self.step_size)
        return State(
            u, log_density, gradient, ends.statistics, 0, size, Moments.start(u, self.dense), identity(u, self.dense)
        )

    def step(self, target: Target, state: State, batch: Batch, noise: Noise) -> tuple[State, Info]:
        warm, chains, metric = state.step < self.warmup, len(state.u), state.metric
        size = state.step_size.now if warm else state.step_size.best
        p0 = metric.momentum(noise.at("momentum").normal(*state.u.shape))
        total, depth = p0.clone(), torch.zeros(chains, dtype=torch.long, device=p0.device)
        weight = torch.zeros(chains, dtype=torch.float64, device=p0.device)  # log Σ w of the trajectory
        tally = Tally(torch.zeros_like(weight), torch.zeros_like(depth), torch.zeros_like(depth, dtype=torch.bool))
        draw = tree_map(torch.clone, Point(state.u, p0, state.log_density, state.gradient))  # written in place
        ends = tree_map(lambda x: torch.stack([x, x]), draw)  # (2, chains, ...): the earliest, the latest
        block = Block(torch.arange(chains, device=p0.device), target, batch, state, p0)
        for level in range(self.max_depth):
            ahead = noise.at("direction", level).integers(0, 2, chains)
            near = Point(*(x[ahead[block.rows], block.rows] for x in ends))
            signed = size * (2 * ahead - 1).to(p0)[block.rows, None]
            half = grow(block, near, signed, level, noise, tally)
            rows, side = half.block.rows, ahead[half.block.rows]
            took = noise.at("half", level).uniform(chains)[rows] < half_chance(half.weight, weight[rows])
            for old, new in zip(draw, half.draw, strict=True):
                old[rows[took]] = new[took]
            stays = Stretch(total[rows], ends.p[1 - side, rows], ends.p[side, rows])  # from the far end to the near
            block = half.block.at(~turned(metric, stays, half.stretch))
            for old, new in zip(ends, half.end, strict=True):
                old[side, rows] = new
            total[rows] += half.stretch.total
            weight[rows] = torch.logaddexp(weight[rows], half.weight)
            depth[rows] += 1
            if not len(block.rows):
                break
        accept = tally.acceptance / tally.leapfrogs
        kinetic = 0.5 * (p0 * metric.velocity(p0)).sum(1, dtype=torch.float64)
        info = Info(accept, tally.divergent, kinetic - state.log_density, depth, tally.leapfrogs, size)
        new = state._replace(u=draw.u, log_density=draw.log_density, gradient=draw.gradient, step=state.step + 1)
        return (adapt(new, float(accept.mean()), self.acceptance, self.warmup, self.dense) if warm else new), info

    def summary(self, infos: Sequence[Info]) -> dict[str, Any]:
        """As for HMC; the gradients are those of a chain, on average."""
        depth = torch.stack([i.depth for i in infos])
        deepest = {"depth": float(depth.float().mean()), "at_max_depth": int((depth == self.max_depth).sum())}
        return {**summary([i._replace(leapfrogs=i.leapfrogs.float().mean()) for i in infos]), **deepest}


def grow(block: Block, point: Point, size: Tensor, level: int, noise: Noise, tally: Tally) -> Half:
    """2^level leaves beyond `point`. A chain whose half turns back or diverges drops out at once."""
    metric, draw, stack, chains = block.start.metric, point, [], len(tally.leapfrogs)
    weight = torch.full_like(block.start.log_density, -torch.inf, dtype=torch.float64)
    accept, coins = torch.zeros_like(weight), noise.at("leaf", level).uniform(2**level, chains)
    for n in range(2**level):
        here = [*point, *draw, weight, size, block.p0, block.start.log_density, coins[n, block.rows]]
        *both, weight, error = block.target.advance(leaf, block.batch, here, metric.tensors())
        point, draw = Point(*both[:4]), Point(*both[4:])
        accept = accept + (-error).exp().clamp(max=1.0)
        diverged = error > DIVERGENT
        whole = ~(join(metric, stack, point.p, n) | diverged)
        if not bool(whole.all()):
            tally.add(block.rows[~whole], accept[~whole], n + 1, diverged[~whole])
            held, block = (point, draw, size, weight, accept, stack), block.at(whole)
            point, draw, size, weight, accept, stack = tree_map(lambda x, whole=whole: x[whole], held)
            if not len(block.rows):
                break
    tally.add(block.rows, accept, 2**level, torch.zeros_like(block.rows, dtype=torch.bool))
    return Half(block, stack[0], point, draw, weight)


def leaf(gradient: Gradient, *given: Tensor) -> tuple[Tensor, ...]:
    """The next point, the draw after it, the weight of the half up to it, and its energy error."""
    point, draw = Point(*given[:4]), Point(*given[4:8])
    weight, size, p0, began, coin, *tensors = given[8:]
    metric = remade(tensors)
    point = Point(*leap(gradient, *point, size, *tensors))
    error = energy_error(Began(began, metric), p0, point.log_density, point.p)
    weight = torch.logaddexp(weight, -error)
    took = coin < leaf_chance(-error, weight)
    chosen = [torch.where(took if x.dim() == 1 else took[:, None], x, y) for x, y in zip(point, draw, strict=True)]
    return *point, *chosen, weight, error


def join(metric: Metric, stack: list[Stretch], p: Tensor, n: int) -> Tensor:
    """Leaf n, counted from 0, onto the stack of finished subtrees; whether one of those that it completes turns back. (chains,)"""
    stretch, bad = Stretch(p, p, p), torch.zeros(len(p), dtype=torch.bool, device=p.device)
    while n & 1:
        before = stack.pop()
        bad = bad | turned(metric, before, stretch)
        stretch, n = Stretch(before.total + stretch.total, before.first, stretch.last), n >> 1
    stack.append(stretch)
    return bad


def turned(metric: Metric, a: Stretch, b: Stretch) -> Tensor:
    """Whether a followed by b turns back on itself: the whole, a with the first of b, the last of a with b. (chains,)"""
    total = torch.stack([a.total + b.total, a.total + b.first, a.last + b.total])
    one = (total * metric.velocity(torch.stack([a.first, a.first, a.last]))).sum(-1)
    other = (total * metric.velocity(torch.stack([b.last, b.first, b.last]))).sum(-1)
    return ~((one > 0) & (other > 0)).all(0)


def leaf_chance(leaf: Tensor, half: Tensor) -> Tensor:
    """Of a leaf to become the draw of its half, given log weights: that half holds the leaf already."""
    return (leaf - half).exp()


def half_chance(new: Tensor, old: Tensor) -> Tensor:
    """Of the new half's draw to become the draw of the trajectory: old does not hold new, so the far half is favoured."""
    return (new - old).exp()
