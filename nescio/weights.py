"""A weight is a distribution: a tensor that stands for a random weight in any unmodified network.

`functional_call(net, {name: RandomWeight.of(...)}, (x,))` runs the network with random weights. Where a function and the weight's
`Action` know a rule (a linear map, a convolution), the output is drawn by its own law, with noise of its own for each example.
Everywhere else the weight is drawn once for the whole call, so a weight used twice is one random variable.

Rules are for weights that each example meets in one call of one function; `per_example` finds those by two dry runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_map

CONVOLUTIONS = (
    *(torch.conv1d, torch.conv2d, torch.conv3d),
    *(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d),
)
NAMES = ("shape", "dtype", "device", "layout", "ndim", "requires_grad", "is_cuda", "is_leaf", "is_meta", "is_sparse")
ASKED = {getattr(Tensor, name).__get__ for name in NAMES} | {
    *(Tensor.dim, Tensor.size, Tensor.numel, Tensor.stride, Tensor.__len__, Tensor.is_floating_point),
    *(Tensor.element_size, Tensor.is_contiguous, torch.numel, torch.is_floating_point),
}  # questions that a draw would not answer better
Convolve = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class Action(ABC):
    """How a random weight acts on x, whose first axis is the examples. NotImplemented: as a draw that they share.

    `value()` is that draw, made when it is first asked for. A bias may be random, too.
    """

    @abstractmethod
    def linear(self, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor]) -> Any:
        """x (examples, ..., inputs) to (examples, ..., outputs)."""

    @abstractmethod
    def convolve(self, convolution: Convolve, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor]) -> Any:
        """x (examples, channels, ...); convolution(x, weight, bias) has the module's stride, padding and groups."""


@final
class RandomWeight(Tensor):
    """Handed to a network in the place of a parameter. Asked for its shape it has one; asked for numbers it is drawn."""

    action: Action
    draw: Callable[[], Tensor]
    drawn: Tensor | None
    uses: int

    @staticmethod
    def of(action: Action, draw: Callable[[], Tensor], like: Tensor) -> RandomWeight:
        """`draw`: a value of the weight, with its gradient; called at most once. `like`: shape, precision and device."""
        weight = like.detach().as_subclass(RandomWeight)
        weight.action, weight.draw, weight.drawn, weight.uses = action, draw, None, 0
        return weight

    def used(self) -> RandomWeight:
        self.uses += 1
        return self

    def by_rule(self, out: Any) -> Any:
        """What an action gave, as a use; without a rule the use is counted where the weight is drawn."""
        if out is not NotImplemented:
            self.used()
        return out

    def value(self) -> Tensor:
        if self.drawn is None:
            self.drawn = self.draw()
        return self.drawn

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if func in ASKED:
                return func(*args, **kwargs)
            rule = RULES.get(func)
            out = NotImplemented if rule is None else rule(func, *args, **kwargs)
            return func(*values(args), **values(kwargs)) if out is NotImplemented else out


def values(tree: Any) -> Any:
    """The same with every random weight drawn, and used."""
    return tree_map(lambda x: x.used().value() if isinstance(x, RandomWeight) else x, tree)


def linear(func: Any, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if not isinstance(weight, RandomWeight) or isinstance(input, RandomWeight):
        return NotImplemented
    return weight.by_rule(weight.action.linear(input, bias, weight.value))


def convolve(func: Any, input: Tensor, weight: Tensor, bias: Tensor | None = None, *rest: Any, **named: Any) -> Any:
    if not isinstance(weight, RandomWeight) or isinstance(input, RandomWeight):
        return NotImplemented
    act = weight.action.convolve
    return weight.by_rule(act(lambda x, w, b: func(x, w, b, *rest, **named), input, bias, weight.value))


RULES: dict[Any, Callable[..., Any]] = {F.linear: linear, **dict.fromkeys(CONVOLUTIONS, convolve)}


@final
class Recorder(Action):
    """Stands in for a weight and notes its uses: the length of the first axis that it meets, or None outside the rules."""

    def __init__(self, plain: Tensor) -> None:
        self.plain = plain
        self.met: list[int | None] = []

    def draw(self) -> Tensor:
        self.met.append(None)
        return self.plain

    def meet(self, x: Tensor) -> Tensor:
        self.met.append(len(x) if x.dim() > 1 else None)
        return self.plain

    def linear(self, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor]) -> Tensor:
        return F.linear(x, self.meet(x), met_as_bias(x, bias))

    def convolve(self, convolution: Convolve, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor]) -> Tensor:
        return convolution(x, self.meet(x), met_as_bias(x, bias))


def met_as_bias(x: Tensor, bias: Tensor | None) -> Tensor | None:
    random = isinstance(bias, RandomWeight) and isinstance(bias.action, Recorder)
    return bias.action.meet(x) if random else bias  # type: ignore[union-attr]


def per_example(call: Callable[[int, dict[str, Tensor]], Any], weights: Mapping[str, Tensor]) -> frozenset[str]:
    """Names of the weights that act by a rule once in a call, on the axis of the examples. call(rows, weights) runs the network.

    Two dry runs, of two and three rows: an axis of tokens or time does not grow with the rows, and rows folded into one axis with
    them grow faster.
    """
    found = set(weights)
    for rows in (2, 3):
        recorders = {name: Recorder(weight.detach()) for name, weight in weights.items()}
        with torch.no_grad():
            call(rows, {name: RandomWeight.of(r, r.draw, r.plain) for name, r in recorders.items()})
        found = {name for name in found if recorders[name].met == [rows]}
    return frozenset(found)
