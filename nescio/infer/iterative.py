"""Algorithms that go step by step, optimisers, samplers and accumulators alike; the driver (driver.py) runs them all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nescio.batch import Batch
from nescio.data.source import Source
from nescio.infer.driver import drive
from nescio.infer.method import Method, Run, Start
from nescio.laws.prior import Prior
from nescio.model import Model
from nescio.noise import Noise
from nescio.posterior.posterior import Ends, Posterior
from nescio.target import Target


@dataclass(frozen=True)
class Iterative(Method):
    """One algorithm, one file, one final dataclass. The driver calls these in the order they stand."""

    @abstractmethod
    def batch(self, source: Source) -> int:
        """How many rows a step sees."""

    @abstractmethod
    def separable(self) -> bool:
        """Whether chains stacked on the leading axis go their own ways; if not, they are run one by one."""

    @abstractmethod
    def view(self, target: Target, noise: Noise) -> Target:
        """The target as this method sees it: centred or not, some data held out."""

    @abstractmethod
    def moves(self, prior: Prior, only: Tensor | None = None) -> Tensor:
        """Which entries of the vector it moves, as a mask; refuses what it cannot handle among those that may move, `only`."""

    @abstractmethod
    def begin(self, model: Model, start: Start, noise: Noise) -> Ends:
        """Where chains start that were given no start."""

    @abstractmethod
    def steps(self, per_epoch: int) -> int:
        """How many steps in all, given the number of batches in an epoch."""

    @abstractmethod
    def init(self, target: Target, ends: Ends, noise: Noise) -> Any:
        """The first State: what the next step needs, a NamedTuple."""

    @abstractmethod
    def step(self, target: Target, state: Any, batch: Batch, noise: Noise) -> tuple[Any, Any]:
        """(next State, Info for the diagnostics or None)."""

    def together(self, step: int, work: float) -> int:
        """How many steps, this one the first, `several` takes in one call of machine code: some milliseconds of them, for nobody can be
        told or stop it meanwhile. `work`: about how many multiplications a gradient takes. 0 for a method that has no `several`."""
        return 0

    def several(
        self, target: Target, state: Any, batch: Batch, noises: Sequence[Noise]
    ) -> tuple[Any, Sequence[Any], Sequence[Any]]:
        """`step`, once for each noise and with the same results: the last State, what `keep` needs of the State after each, their Infos."""
        raise NotImplementedError

    def gradients(self) -> float:
        """About how many gradients a step takes: whether machine code pays. 0 for a method that has no use for it."""
        return 0.0

    def freeze(self, state: Any) -> Any:
        """The State as a tree of tensors and numbers that can be stored; most are one."""
        return state

    def thaw(self, tree: Any, state: Any) -> Any:
        """The State from such a tree; `state` is a first one, and may be used up."""
        return tree

    @abstractmethod
    def keeps(self, step: int, total: int) -> bool:
        """Whether the State after this step belongs to the result."""

    @abstractmethod
    def keep(self, target: Target, state: Any) -> Any:
        """What is kept of such a State: a `Kept` if it is a draw, anything if only the last is kept."""

    @abstractmethod
    def finished(self, state: Any) -> bool:
        """Whether to stop early."""

    def sound(self, state: Any, step: int) -> None:
        """Raises where no chain can go on from this State, which so many steps led to."""

    def remember(self, infos: list[Any], step: int, info: Any) -> None:
        """Adds to the Infos that the result is made of what this step had to say."""
        infos.append(info)

    @abstractmethod
    def posterior(self, target: Target, states: Sequence[Any], infos: Sequence[Any]) -> Posterior:
        """From what was kept to the result, for one block of chains."""

    def suits(self, model: Model, only: Tensor | None = None) -> None:
        self.moves(model.prior, only)

    def run(self, target: Target, start: Start, run: Run) -> Posterior:
        return drive(self, target, start, run)
