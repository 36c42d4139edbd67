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

from nescio.batch import Batch, Gradient, Move
from nescio.infer.adapt import Metric
from nescio.target import Target

MOST, WORK = 64, 1e8  # steps in one call, and multiplications
GIVEN = 7  # tensors that belong to the chains: as few as can be, for each turn of a loop takes time for each


def stride(work: float) -> int:
    """How many steps that each take so many multiplications: some milliseconds of them."""
    return max(1, min(MOST, int(WORK / work)))


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
    ) -> Records:
        """From (u, log density, gradient); `leaps`: in all of the steps."""
        u, log_density, slope = here
        chains, steps, dim = course.momenta.shape
        us, slopes = u.new_zeros(2, chains, steps + 1, dim)
        numbers = us.new_zeros(chains, steps + 1, 4, dtype=torch.float64)
        us[:, 0], slopes[:, 0], numbers[:, 0, 0] = u, slope, log_density
        start = [torch.zeros(chains, 3, dim, dtype=u.dtype), torch.zeros(chains, 2, dtype=torch.int64)]
        records, shared = Records(us, slopes, numbers), [torch.tensor(size, dtype=torch.float64), *metric.tensors()]
        target.advance(self, batch, [*start, *course, *records], shared, times=leaps)
        return records

    def __call__(self, gradient: Gradient, *given: Tensor) -> tuple[Tensor, ...]:
        """One leap. Handed on: u, p and gradient; and which step it is, and how many leaps it had, the same in all chains."""
        vectors, counts, momenta, fates, *records = given[:GIVEN]
        size, *metric = given[GIVEN:]
        (u, p, slope), (step, turn), place = vectors.unbind(1), counts.unbind(1), counts[:1, 0]
        p0, fate, u0, slope0, before = (x.index_select(1, place)[:, 0] for x in (momenta, fates, *records))
        first, log_density = (turn == 0)[:, None], before[:, 0]
        u, p, slope = (torch.where(first, a, b) for a, b in ((u0, u), (p0, p), (slope0, slope)))
        u, p, density, slope = self.leap(gradient, u, p, log_density, slope, size, *metric)
        ends = [u0, log_density.to(density), slope0, p0, u, density, slope, p]
        next_u, next_density, next_slope, *info = self.decide(gradient, *ends, fate[:, 0], *metric)
        made = torch.stack([x.double() for x in (next_density, *info)], 1)
        for record, x in zip(records, (next_u, next_slope, made), strict=True):  # that of the last leap stays
            record.index_copy_(1, place + 1, x[:, None])
        over = turn + 1 == fate[:, 1]
        return torch.stack([u, p, slope], 1), torch.stack([step + over, torch.where(over, 0, turn + 1)], 1)
