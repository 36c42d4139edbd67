"""Several steps as one loop of machine code; of HMC leap after leap, of which some begin a trajectory and some end one.

What one step is, infer/hmc.py says; here it is only laid out in a row, with momenta, coins and lengths drawn before and the draws written
down on the way, so that Python is left out between the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from nescio.infer.adapt import Metric
from nescio.target import Batch, Gradient, Move, Target

CARRIED = 9  # tensors that a leap hands on to the next


def side_by_side(each: Sequence[Tensor], axis: int, most: int) -> Tensor:
    """What belongs to some steps, side by side along an axis, with room for `most`: machine code is made for one length."""
    if len(each) == most:
        return torch.stack(list(each), axis)
    return torch.stack([*each, *[torch.zeros_like(each[0])] * (most - len(each))], axis)


class Course(NamedTuple):
    """What is drawn for some steps before they are taken."""

    momenta: Tensor  # (chains, steps, dim)
    coins: Tensor  # (chains, steps)
    lengths: Tensor  # (chains, steps)


class Records(NamedTuple):
    """What is known after each step."""

    u: Tensor  # (chains, steps, dim)
    log_density: Tensor  # (chains, steps), and so are the others
    acceptance: Tensor
    divergent: Tensor
    energy: Tensor


@final
@dataclass(frozen=True)
class Journey:
    """Of leaps (u, p, log density, gradient, step size, metric), each trajectory ended by an accept step."""

    leap: Move
    decide: Move

    def go(
        self,
        target: Target,
        batch: Batch,
        here: Sequence[Tensor],
        course: Course,
        size: float,
        metric: Metric,
        leaps: int,
    ) -> tuple[Sequence[Tensor], Records]:
        """From (u, log density, gradient): where the last step ended, and the records of all; `leaps`: in all of the steps."""
        u, log_density, slope = here
        zero, like = torch.zeros(len(u), dtype=torch.int64), course.coins
        accepts, energies = like.new_empty(2, *like.shape, dtype=torch.float64)
        densities, divergent = torch.empty_like(like, dtype=log_density.dtype), torch.empty_like(like, dtype=torch.bool)
        records = Records(torch.empty_like(course.momenta), densities, accepts, divergent, energies)
        start = [u, torch.zeros_like(u), log_density, slope, u, log_density, slope, zero, zero]
        shared = [torch.tensor(size, dtype=torch.float64), *metric.tensors()]
        u, _, log_density, slope, *_ = target.advance(self, batch, [*start, *course, *records], shared, times=leaps)
        return (u, log_density, slope), records

    def __call__(self, gradient: Gradient, *given: Tensor) -> tuple[Tensor, ...]:
        """One leap of step `at`, after `turn` others; both are the same in all chains."""
        u, p, log_density, slope, u0, log_density0, slope0, at, turn = given[:CARRIED]
        momenta, coins, lengths, *records = given[CARRIED : CARRIED + 8]
        size, *metric = given[CARRIED + 8 :]
        place, begins = at[:1], turn == 0
        p0, coin, length = (x.index_select(1, place)[:, 0] for x in (momenta, coins, lengths))
        u0, p, slope0 = (torch.where(begins[:, None], a, b) for a, b in ((u, u0), (p0, p), (slope, slope0)))
        log_density0 = torch.where(begins, log_density, log_density0)
        u, p, log_density, slope = self.leap(gradient, u, p, log_density, slope, size, *metric)
        ends = [u0, log_density0, slope0, p0, u, log_density, slope, p]
        next_u, next_density, next_slope, *info = self.decide(gradient, *ends, coin, *metric)
        for record, x in zip(records, (next_u, next_density, *info), strict=True):  # that of the last leap stays
            record.index_copy_(1, place, x[:, None])
        over = turn + 1 == length
        u, slope = (torch.where(over[:, None], a, b) for a, b in ((next_u, u), (next_slope, slope)))
        log_density = torch.where(over, next_density, log_density)
        return u, p, log_density, slope, u0, log_density0, slope0, at + over, torch.where(over, 0, turn + 1)
