"""What samplers on minibatches share: the gradient of a batch, the step size of the moment, and which states are draws.

Cyclical (Zhang et al., 2020): under `step_size=Cycles(h, n)` a state is a draw only at the end of a cycle, where steps are small; the
run is longer by as much, so that there are still `draws` of them, as many from each cycle as can be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from nescio.batch import Batch
from nescio.data.source import Source
from nescio.errors import InputError
from nescio.infer.begin import minibatch
from nescio.infer.limits import LIMITS, POSITIVE, Limit
from nescio.infer.sampler import Sampler
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
    return (callable(h) and not isinstance(h, type)) or (isinstance(h, POSITIVE.kind) and POSITIVE.holds(h))


@dataclass(frozen=True, kw_only=True)
class StochasticGradient(Sampler):
    """`step_size` is h, in units of the whole log density (of the order of 1 / N times a learning rate): a number, `Cycles`, or any
    function of the part that is done of the run after its warm-up, which goes by the first size. `precondition`: steps of each weight
    by the size of its gradients; h is then in units of (mean squared gradient of an observation)^½."""

    step_size: float | Callable[[float], float] = 1e-6
    batch_size: int | None = None
    precondition: RMSprop | None = None

    limits: ClassVar[dict[str, Limit]] = {
        **LIMITS,
        "step_size": Limit("a positive number, or a function such as Cycles(1e-6)", object, sized),
        "precondition": Limit("RMSprop(...)", RMSprop, lambda x: True),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self.size(0.0)
        if isinstance(self.step_size, Cycles) and self.draws < self.step_size.n:
            got = f"draws={self.draws} of {self.step_size.n} cycles"
            raise InputError("every cycle needs a draw", got, "ask for more draws, or fewer cycles: Cycles(h, n=1)")

    def size(self, part: float) -> float:
        """h, when so much of the run is done, warm-up included."""
        if not callable(self.step_size):
            return self.step_size
        warm = self.warmup / self.steps(1)
        t = max(0.0, (part - warm) / (1 - warm))
        try:
            h = self.step_size(t)
        except TypeError as error:
            must = "a step size that is a function must take one number, the part of the run that is done"
            raise InputError(must, str(error), "write step_size=lambda t: 1e-6 * (1 - t)") from error
        if not (isinstance(h, POSITIVE.kind) and 0 <= h < math.inf):
            raise InputError("a step size must be a finite number, 0 or more", f"{h!r} at {t}", "write Cycles(1e-6)")
        return h

    def batch(self, source: Source) -> int:
        return minibatch(self.batch_size, source)

    def gradients(self) -> float:
        return 1.0

    def steps(self, per_epoch: int) -> int:
        if not isinstance(self.step_size, Cycles):
            return super().steps(per_epoch)
        return self.warmup + self.step_size.n * self.cycle(self.step_size)

    def cycle(self, cycles: Cycles) -> int:
        """Steps of one: the last part of it is long enough for its draws."""
        return math.ceil(-(-self.draws // cycles.n) * self.thin / (1 - cycles.explore))

    def keeps(self, step: int, total: int) -> bool:
        if not isinstance(self.step_size, Cycles):
            return super().keeps(step, total)
        n, length = self.step_size.n, self.cycle(self.step_size)
        which, at = divmod(step - self.warmup, length)
        wanted = (which + 1) * self.draws // n - which * self.draws // n  # of this cycle
        left = length - 1 - at
        return which >= 0 and left % self.thin == 0 and left // self.thin < wanted

    def slope(self, target: Target, u: Tensor, squares: Tensor, batch: Batch) -> Slope:
        log_density, gradient = target.value_and_grad(u, batch)
        scale = torch.ones_like(gradient)
        if self.precondition is not None:
            squares, scale = self.precondition(squares, gradient / target.size)
        return Slope(self.size(batch.part), log_density, gradient, scale, squares)

    def summary(self, infos: Sequence[Info]) -> dict[str, Any]:
        return {"step_size": infos[-1].step_size, "gradients": sum(i.gradients for i in infos)}
