"""Every use of a weight is seen: a tensor that stands in for a parameter and notes each function it is handed to.

For a call y = h(x, w) the derivative by w of what follows needs only x and the gradient at y, example by example. A `Log` keeps both
ends of each call. Nobody can change them behind its back: what the network goes on with is a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from nescio.jacobian.unrolled import UNROLLED
from nescio.weights import ASKED


class Call(NamedTuple):
    """One call of a function on watched weights."""

    function: Callable[..., Any]
    given: tuple[tuple[Any, ...], dict[str, Any]]  # arguments, the watched ones as they were
    outputs: list[Tensor]  # floating ones, with a graph behind or before them

    @property
    def names(self) -> list[str]:
        return [leaf.label for leaf in tree_flatten(self.given)[0] if isinstance(leaf, Watched)]


@final
class Log:
    """The calls of one pass through the network, in order."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if function in UNROLLED:  # a function of several weights, as simpler ones
            out = UNROLLED[function](*args, **named)
            if out is not NotImplemented:
                return out
        plain_args, plain_named = plain((args, named))
        leaves, form = tree_flatten(function(*plain_args, **plain_named))
        taps = []
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor) and leaf.is_floating_point():
                taps.append(leaf if leaf.requires_grad else leaf.detach().requires_grad_())
                leaves[i] = taps[-1].clone()
        self.calls.append(Call(function, (args, named), taps))
        return tree_unflatten(leaves, form)


@final
class Watched(Tensor):
    """Handed to a network in the place of a parameter."""

    label: str
    record: Log

    @staticmethod
    def of(name: str, weight: Tensor, log: Log) -> Watched:
        watched = weight.detach().as_subclass(Watched)
        watched.label, watched.record = name, log
        return watched

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in ASKED:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        log = next(leaf.record for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Watched))
        return log.run(func, args, kwargs)


def plain(tree: Any) -> Any:
    """The same with every watched weight an ordinary tensor."""

    def bare(x: Any) -> Any:
        if not isinstance(x, Watched):
            return x
        with torch._C.DisableTorchFunctionSubclass():
            return x.as_subclass(Tensor)

    return tree_map(bare, tree)
