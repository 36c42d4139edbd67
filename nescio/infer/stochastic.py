"""What samplers on minibatches share: the gradient of a batch, the step size of the moment, and which states are draws.

Cyclical (Zhang et al., 2020): under `step_size=Cycles(h, n)` a state is a draw only at the end of a cycle, where steps are small; the
run is longer by as much, so that there are still about `draws` of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from nescio.batch import Batch
from nescio.data.source import Source
from nescio.infer.begin import minibatch
from nescio.infer.sampler import LIMITS, POSITIVE, Limit, Sampler
from nescio.infer.schedule import Cycles, RMSprop
from nescio.target import Target


class Info(NamedTuple):
    log_density: Tensor  # (chains,), by the batch
    step_size: float
    gradients: int = 1


class Slope(NamedTuple):
    """What a step needs: its size h, the log density and gradient by the batch, and the preconditioner G with what it remembers."""

    size: float
    log_density: Tensor  # (chains,)
    gradient: Tensor  # (chains, dim)
    scale: Tensor  # (chains, dim)
    squares: Tensor  # (chains, dim), running mean of squared gradients


def sized(h: Any) -> bool:
    return callable(h) or (isinstance(h, POSITIVE.kind) and POSITIVE.holds(h))


@dataclass(frozen=True, kw_only=True)
class StochasticGradient(Sampler):
    """`step_size` is h, in units of the whole log density (of the order of 1 / N times a learning rate): a number, `Cycles`, or any
    function of the part of the run that is done. `precondition`: steps of each weight by the size of its gradients; h is then in
    units of (mean squared gradient of an observation)^½."""

    step_size: float | Callable[[float], float] = 1e-6
    batch_size: int | None = None
    precondition: RMSprop | None = None

    limits: ClassVar[dict[str, Limit]] = {
        **LIMITS,
        "step_size": Limit("a positive number, or a function such as Cycles(1e-6)", object, sized),
    }

    def size(self, t: float) -> float:
        """h, when so much of the run is done."""
        return self.step_size(t) if callable(self.step_size) else self.step_size

    def batch(self, source: Source) -> int:
        return minibatch(self.batch_size, source)

    def gradients(self) -> float:
        return 1.0

    def steps(self, per_epoch: int) -> int:
        sampling = 1 - self.step_size.explore if isinstance(self.step_size, Cycles) else 1.0
        return self.warmup + round(self.draws * self.thin / sampling)

    def keeps(self, step: int, total: int) -> bool:
        settled = not isinstance(self.step_size, Cycles) or self.step_size.samples(step / total)
        return settled and super().keeps(step, total)

    def slope(self, target: Target, u: Tensor, squares: Tensor, batch: Batch) -> Slope:
        log_density, gradient = target.value_and_grad(u, batch)
        scale = torch.ones_like(gradient)
        if self.precondition is not None:
            squares, scale = self.precondition(squares, gradient / target.size)
        return Slope(self.size(batch.part), log_density, gradient, scale, squares)

    def summary(self, infos: Sequence[Info]) -> dict[str, Any]:
        return {"step_size": infos[-1].step_size, "gradients": sum(i.gradients for i in infos)}
