"""A method whose length goes by the number of rows: a hundred epochs are 400 steps on a toy and 5000 on a large table.

Optimisers need steps, and tables differ in size; what is compared on many of them has to be trained to its end on each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from nescio.infer.begin import sixteenth
from nescio.infer.method import Method, Run, Start
from nescio.posterior import Posterior
from nescio.target import Target

STEPS = 5000  # at the least


@final
@dataclass(frozen=True)
class ByRows(Method):
    """`of(rows)`: the method for so many."""

    of: Callable[[int], Method]

    def run(self, target: Target, start: Start, run: Run) -> Posterior:
        return self.of(target.size).run(target, start, run)


def epochs(rows: int) -> int:
    """A hundred, and more where batches of the default size make fewer than 5000 steps of them."""
    return max(100, -(-STEPS * sixteenth(rows) // rows))
