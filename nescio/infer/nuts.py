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
& Jankowiak, 2019): leaf n of a half is a stretch of length 1, and joins as many earlier ones as n has trailing one-bits. So one
vectorised gradient serves all chains, whichever leaf they are at (infer/leaf.py); several trees grow in one call of machine code, and a
chain that has grown all of its own leaves the block. Step size (to the mean of
min(1, w) over all leaves) and Σ are adapted in the warm-up as in HMC, energies are those of HMC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from nescio.batch import Batch
from nescio.data.source import Source
from nescio.infer.adapt import Moments, StepSize, identity
from nescio.infer.hmc import State, adapt, summary
from nescio.infer.journey import stride
from nescio.infer.leaf import leaf, leaf_anew
from nescio.infer.sampler import Sampler
from nescio.infer.tree import COUNTS, FATES, GOING, LEAVES, STATE, Told, Trees
from nescio.machine import FEW
from nescio.noise import Noise
from nescio.posterior.posterior import Ends
from nescio.target import Target

LEAVES_GPU = 8  # in a call that cannot end early: then chains that have ended are let go
ENDLESS = 2**40  # in one that ends when few chains go on


class Info(NamedTuple):
    acceptance: Tensor  # (chains,), the mean of min(1, w) over the leaves
    divergent: Tensor  # (chains,)
    energy: Tensor  # (chains,), H where the trajectory begins, its momentum just drawn
    depth: Tensor  # (chains,), doublings that were kept
    leapfrogs: Tensor  # (chains,), those of thrown-away halves included
    step_size: float


@final
@dataclass(frozen=True, kw_only=True)
class NUTS(Sampler):
    """`acceptance`: what the step size is adapted to. `max_depth`: at most 2^max_depth - 1 gradients. `dense`: a full inverse mass."""

    step_size: float = 0.1
    acceptance: float = 0.8
    max_depth: int = 10
    dense: bool = False

    def batch(self, source: Source) -> int:
        return source.size  # a density is compared with itself: all data, always

    def gradients(self) -> float:
        return min(2.0**self.max_depth - 1, 15.0)  # a guess: trees of small models have 7 leaves, of networks 63

    def init(self, target: Target, ends: Ends, noise: Noise) -> State:
        u = target.u(ends.theta)
        log_density, gradient = target.value_and_grad(u, target.batch(None))
        size = StepSize.start(self.step_size)
        return State(
            u, log_density, gradient, ends.statistics, 0, size, Moments.start(u, self.dense), identity(u, self.dense)
        )

    def step(self, target: Target, state: State, batch: Batch, noise: Noise) -> tuple[State, Info]:
        last, _, (info,) = self.trees(target, state, batch, [noise], 1)
        return last, info

    def together(self, step: int, work: float) -> int:
        return 1 if step < self.warmup else stride(self.gradients() * work)

    def several(
        self, target: Target, state: State, batch: Batch, noises: Sequence[Noise]
    ) -> tuple[State, list[State], list[Info]]:
        return self.trees(target, state, batch, noises, self.together(self.warmup, target.work(len(state.u))))

    def trees(
        self, target: Target, state: State, batch: Batch, noises: Sequence[Noise], most: int
    ) -> tuple[State, list[State], list[Info]]:
        """`several`, with room for `most`."""
        warm, many, metric = state.step < self.warmup, len(noises), state.metric
        size, shape = state.step_size.now if warm else state.step_size.best, (len(state.u), self.max_depth)
        momenta, fates = [], []
        for noise in noises:
            momenta.append(metric.momentum(noise.at("momentum").normal(*state.u.shape)))
            ahead = (2 * noise.at("direction").integers(0, 2, *shape) - 1).to(state.u)  # or back in time
            fates.append(torch.cat([size * ahead, noise.at("half").uniform(*shape), coins(noise, 0, len(state.u))], 1))
        trees = grow(target, batch, Trees.plant(state, momenta, fates, self.max_depth, most), metric.tensors(), noises)
        told = Told(*trees.told[:, 1 : many + 1].unbind(2))
        p0 = trees.momenta[:, :many]
        kinetic = 0.5 * (p0 * metric.velocity(p0)).sum(2, dtype=torch.float64)
        each = (trees.u[:, 1 : many + 1], told.density.to(state.log_density), told.acceptance / told.leapfrogs)
        each += (told.divergent > 0, kinetic - trees.told[:, :many, 0], told.depth.long(), told.leapfrogs.long())
        rows = list(zip(*(x.unbind(1) for x in each), strict=True))
        infos = [Info(a, d, e, depth, count, size) for _, _, a, d, e, depth, count in rows]
        new = [state._replace(u=row[0], log_density=row[1], step=state.step + i + 1) for i, row in enumerate(rows)]
        u, log_density, gradient = (x.clone() for x in (*rows[-1][:2], trees.gradient[:, many]))
        last = new[-1]._replace(u=u, log_density=log_density, gradient=gradient)
        if warm:
            last = adapt(last, float(infos[0].acceptance.mean()), self.acceptance, self.warmup, self.dense)
        return last, new, infos

    def summary(self, infos: Sequence[Info]) -> dict[str, Any]:
        """As for HMC; the gradients are those of a chain, on average."""
        depth = torch.stack([i.depth for i in infos])
        deepest = {"depth": float(depth.float().mean()), "at_max_depth": int((depth == self.max_depth).sum())}
        return {**summary([i._replace(leapfrogs=i.leapfrogs.float().mean()) for i in infos]), **deepest}


def coins(noise: Noise, part: int, chains: int) -> Tensor:
    """For so many leaves of a tree, the first of which is number part * LEAVES."""
    return noise.at("leaf", part).uniform(chains, LEAVES)


def grow(target: Target, batch: Batch, trees: Trees, metric: Sequence[Tensor], noises: Sequence[Noise]) -> Trees:
    """Leaf by leaf until all trees of all chains have ended; chains that have no more are let go."""
    cuda, quick, chains = trees.u.is_cuda, target.code is not None, len(trees.u)
    move = leaf_anew if quick and cuda else leaf
    times = 1 if not quick else LEAVES_GPU if cuda else ENDLESS
    whole, here, rows = trees, list(trees), torch.arange(chains, device=trees.u.device)
    while True:
        changed = target.advance(move, batch, here, metric, times=times, until=GOING)
        here[: len(changed)] = changed
        left = here[COUNTS][:, 0] < len(noises)
        unfinished, waiting = torch.stack([left, left & ~here[GOING]]).sum(1).tolist()
        if unfinished < len(rows):
            if len(rows) == chains:
                whole = Trees(*here)
            else:
                for x, y in zip(whole[:STATE], here, strict=False):
                    x[rows] = y
            if not unfinished:
                return whole
            width = narrower(len(rows), unfinished) if quick else unfinished
            if width < len(rows):
                some = left.argsort(descending=True, stable=True)[:width]
                rows, left, target, batch = rows[some], left[some], target.chains(some), batch.chains(some)
                here = [x[some] for x in here]
        if waiting:
            here[FATES] = tossed(here, left & ~here[GOING], rows, chains, noises)
        here[GOING] = left


def tossed(here: Sequence[Tensor], waiting: Tensor, rows: Tensor, chains: int, noises: Sequence[Noise]) -> Tensor:
    """Fates, with more coins for those that wait for them. A new tensor: one that code on a GPU has seen it takes for unchanged."""
    fates, part = here[FATES].clone(), torch.stack([here[COUNTS][:, 0], here[COUNTS][:, 1] // LEAVES], 1)
    for tree, number in part[waiting].unique(dim=0).tolist():
        who = waiting & (part[:, 0] == tree) & (part[:, 1] == number)
        fates[who, tree, -1 - LEAVES : -1] = coins(noises[tree], number, chains)[rows[who]].double()
    return fates


def narrower(width: int, count: int) -> int:
    """For how many chains there is code that is not much too wide for so many."""
    while width // FEW >= count:
        width //= FEW
    return width
