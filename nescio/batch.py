"""Observations on their way to a target, and what samplers and optimisers do with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils._pytree import tree_map

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


def take(tree: Any) -> Any:
    """The only chain's own part of a batch."""
    return tree_map(lambda t: t[0], tree)
