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

GIVEN = 10  # tensors that belong to the chains: as few as can be, for each turn of a loop takes time for each


class Course(NamedTuple):
    """What is drawn for some steps before they are taken."""

    momenta: Tensor  # (chains, steps, dim)
    fates: Tensor  # (chains, steps, 2), in double precision: coins for the accept steps, and the numbers of leaps


class Records(NamedTuple):
    """What is known after each step. (chains, steps + 1, ...), the first from before them all"""

    u: Tensor
    gradient: Tensor
    numbers: Tensor  # in double precision: log density, acceptance, divergence, energy


def side_by_side(each: Sequence[Tensor], axis: int, most: int) -> Tensor:
    """What belongs to some steps, along an axis, with room for `most`: machine code is made for one length."""
    return torch.stack([*each, *[torch.zeros_like(each[0])] * (most - len(each))], axis)


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
        (chains, steps, dim), at = course.momenta.shape, torch.zeros(len(u), 2, dtype=torch.int64)
        us, slopes = u.new_empty(2, chains, steps + 1, dim)
        numbers = us.new_empty(chains, steps + 1, 4, dtype=torch.float64)
        us[:, 0], slopes[:, 0], numbers[:, 0, 0] = u, slope, log_density
        start, records = [u, torch.zeros_like(u), log_density, slope, at], Records(us, slopes, numbers)
        shared = [torch.tensor(size, dtype=torch.float64), *metric.tensors()]
        u, _, log_density, slope, _ = target.advance(self, batch, [*start, *course, *records], shared, times=leaps)
        return (u, log_density, slope), records

    def __call__(self, gradient: Gradient, *given: Tensor) -> tuple[Tensor, ...]:
        """One leap of step at[:, 0], after at[:, 1] others; both are the same in all chains."""
        u, p, log_density, slope, at, momenta, fates, *records = given[:GIVEN]
        size, *metric = given[GIVEN:]
        place, begins = at[:1, 0], at[:, 1] == 0
        p0, fate, u0, slope0, before = (x.index_select(1, place)[:, 0] for x in (momenta, fates, *records))
        p = torch.where(begins[:, None], p0, p)
        u, p, log_density, slope = self.leap(gradient, u, p, log_density, slope, size, *metric)
        ends = [u0, before[:, 0].to(log_density), slope0, p0, u, log_density, slope, p]
        next_u, next_density, next_slope, *info = self.decide(gradient, *ends, fate[:, 0], *metric)
        numbers = torch.stack([x.double() for x in (next_density, *info)], 1)
        for record, x in zip(records, (next_u, next_slope, numbers), strict=True):  # that of the last leap stays
            record.index_copy_(1, place + 1, x[:, None])
        over = at[:, 1] + 1 == fate[:, 1]
        u, slope = (torch.where(over[:, None], a, b) for a, b in ((next_u, u), (next_slope, slope)))
        log_density = torch.where(over, next_density, log_density)
        return u, p, log_density, slope, torch.stack([at[:, 0] + over, torch.where(over, 0, at[:, 1] + 1)], 1)
