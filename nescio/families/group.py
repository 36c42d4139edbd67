"""How weights act that have a random scale in common, each example with a scale of its own.

F.linear(x * z, ·) where the scales belong to the inputs of a layer, z * F.linear(x, ·) where they belong to its outputs, with the rule
of `Gaussian` for the weights before they are scaled inside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from nescio.families.family import Block
from nescio.families.independent import own_bias
from nescio.laws.site import TRANSPOSED
from nescio.weights import Action, Convolve, RandomWeight, values

if TYPE_CHECKING:
    from nescio.families.scaled import Scaled


@final
class Group(Action):
    """How the weights of one tensor act, a scale of its own for each example."""

    def __init__(self, factor: Scaled, i: int) -> None:
        self.factor, self.i, self.part = factor, i, factor.inner()[i]

    def tilde(self) -> Tensor:
        return self.factor.latents()[1][self.i].view(self.part.loc.shape)

    def linear(self, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor]) -> Any:
        return self.act(self.part.linear, x, bias, -1)

    def convolve(self, convolution: Convolve, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor]) -> Any:
        return self.act(lambda *given: self.part.convolve(convolution, *given), x, bias, 1)

    def act(self, rule: Callable[..., Tensor], x: Tensor, bias: Tensor | None, axis: int) -> Any:
        own = self.factor.roles[self.i]
        if own is None:
            return NotImplemented
        inputs, index = own
        z = self.factor.scales.z(index.to(x.device), len(x))  # (examples, inputs or outputs)
        if inputs:
            return rule(x * along(z, x, axis), bias, self.tilde)
        mate = self.mate(bias)
        out = rule(x, mate, self.tilde)
        out = out * along(z, out, axis)
        if bias is None or mate is not None:
            return out
        if out.dim() == 2:
            return out + own_bias(bias, out)
        return out + along(values(bias)[None], out, axis)

    def mate(self, bias: Tensor | None) -> Tensor | None:
        """The bias before it is scaled, where it has the scales of these outputs."""
        if not isinstance(bias, RandomWeight) or not isinstance(bias.action, Group):
            return None
        other = bias.action
        if other.factor is not self.factor or (self.i, other.i) not in self.factor.mates:
            return None
        bias.used()
        return RandomWeight.of(other.part, other.tilde, other.part.loc)


def along(z: Tensor, like: Tensor, axis: int) -> Tensor:
    """(examples, n) to a shape that multiplies that axis of `like`."""
    shape = [1] * like.dim()
    shape[0], shape[axis] = z.shape
    return z.view(shape).to(like.dtype)


def role(block: Block) -> tuple[bool, Tensor] | None:
    """(whether the scales belong to the inputs of the layer, which scale each of them has), or None: neither inputs nor outputs."""
    assert block.site is not None and block.scale is not None
    index = block.scale.index.view(block.shape)
    for axis in range(min(2, index.dim())):
        first = index.movedim(axis, 0).reshape(index.shape[axis], -1)[:, 0]
        shape = [-1 if a == axis else 1 for a in range(index.dim())]
        if torch.equal(first.view(shape).expand_as(index), index):
            return (index.dim() > 1 and axis == (0 if isinstance(block.site.module, TRANSPOSED) else 1)), first
    return None
