"""A target on one batch of observations, as the moves of samplers and optimisers see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from nescio.errors import UnsupportedError
from nescio.network import Params

if TYPE_CHECKING:
    from nescio.target import Target

Gradient = Callable[[Tensor], tuple[Tensor, Tensor]]
Move = Callable[..., tuple[Tensor, ...]]  # (Bound, *tensors) -> tensors; defined in a module, for code is kept for each


class Batch(NamedTuple):
    """Observations and their weight N / B, and when they come: after this part of the run, last of their epoch or not."""

    x: Any
    y: Any
    weight: float
    own: bool = False  # each chain has its own, on a leading axis
    part: float = 0.0
    closes: bool = True

    def chains(self, which: Tensor) -> Batch:
        """For some of the chains, by a mask."""
        if not self.own:
            return self
        x, y = tree_map(lambda t: t[which], (self.x, self.y))
        return self._replace(x=x, y=y)


class Bound(NamedTuple):
    """A target on one batch, as moves see it: a Gradient."""

    target: Target
    batch: Batch
    prior: bool  # whether it counts here: rows in shards have it once

    def __call__(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Log density and gradient."""
        if self.target.shards(self.batch) > 1:
            return self.target.value_and_grad(u, self.batch)
        return self.gradient(u, {}, training=False)[:2]

    def gradient(self, u: Tensor, statistics: Params, training: bool) -> tuple[Tensor, Tensor, Params]:
        self.check()
        # written down once: a compiler that melts it into its uses would work it out again for every row of the data
        u = u.detach().as_strided(u.shape, u.stride()).requires_grad_()
        if training:
            value, after = self.target.log_posterior(u, self.batch, statistics)
        else:
            value, after = self.target._evaluate(u, self.batch, {}, jacobian=True, training=False, prior=self.prior)
        (gradient,) = torch.autograd.grad(value.sum(), u)
        return value.detach(), gradient, {name: b.detach() for name, b in after.items()}

    def check(self) -> None:
        if self.target.model.network.recomputes(take(self.batch.x) if self.batch.own else self.batch.x):
            raise UnsupportedError(
                "a network must not be called again on the way back, when its weights are others",
                "torch.utils.checkpoint in it",
                "switch it off (rows are summed in parts where memory is short), or use VI",
            )


def evaluate(gradient: Gradient, u: Tensor) -> tuple[Tensor, Tensor]:
    """The move that goes nowhere."""
    return gradient(u)


def train(bound: Bound, u: Tensor, *buffers: Tensor) -> tuple[Tensor, ...]:
    """Log density in training mode, its gradient, and the buffers after it."""
    names = [name for name, _ in bound.target.model.network.net.named_buffers()]
    value, gradient, after = bound.gradient(u, dict(zip(names, buffers, strict=True)), training=True)
    return value, gradient, *(after[name] for name in names)


def take(tree: Any) -> Any:
    """The only chain's own part of a batch."""
    return tree_map(lambda t: t[0], tree)
