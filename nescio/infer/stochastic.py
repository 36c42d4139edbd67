"""What samplers on minibatches share: the gradient of a batch, the step size of the moment, and which states are draws.

Cyclical (Zhang et al., 2020): under `schedule=Cycles(n)` a state is a draw only at the end of a cycle, where steps are small; the run
is longer by as much, so that there are still about `draws` of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nescio.batch import Batch
from nescio.data.source import Source
from nescio.errors import InputError
from nescio.infer.iterative import minibatch
from nescio.infer.sampler import Sampler
from nescio.infer.schedule import Constant, Cycles, RMSprop
from nescio.target import Target


class Info(NamedTuple):
    log_density: Tensor  # (chains,), by the batch
    step_size: float


class Slope(NamedTuple):
    """What a step needs: its size h, the log density and gradient by the batch, and the preconditioner G with what it remembers."""

    size: float
    log_density: Tensor  # (chains,)
    gradient: Tensor  # (chains, dim)
    scale: Tensor  # (chains, dim)
    squares: Tensor  # (chains, dim), running mean of squared gradients


@dataclass(frozen=True)
class StochasticGradient(Sampler):
    """`step_size` is h, in units of the whole log density (of the order of 1 / N times a learning rate), times `schedule`."""

    step_size: float = 1e-6
    batch_size: int | None = None
    schedule: Callable[[float], float] = Constant()
    precondition: RMSprop | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.step_size > 0:
            raise InputError("step_size must be positive", str(self.step_size), "try 1e-5")

    def batch(self, source: Source) -> int:
        return minibatch(self.batch_size, source)

    def gradients(self) -> float:
        return 1.0

    def steps(self, per_epoch: int) -> int:
        sampling = 1 - self.schedule.explore if isinstance(self.schedule, Cycles) else 1.0
        return self.warmup + round(self.draws * self.thin / sampling)

    def keeps(self, step: int, total: int) -> bool:
        settled = not isinstance(self.schedule, Cycles) or self.schedule.samples(step / total)
        return settled and super().keeps(step, total)

    def slope(self, target: Target, u: Tensor, squares: Tensor, batch: Batch) -> Slope:
        log_density, gradient = target.value_and_grad(u, batch)
        scale = torch.ones_like(gradient)
        if self.precondition is not None:
            squares, scale = self.precondition(squares, gradient / target.size)
        return Slope(self.step_size * self.schedule(batch.part), log_density, gradient, scale, squares)

    def summary(self, infos: Sequence[Info]) -> dict[str, Any]:
        return {"step_size": infos[-1].step_size, "gradients": len(infos)}
