"""A program in C as it grows: steps before a loop and in it, and what waits to become one.

Views cost nothing. What is computed elementwise waits until somebody needs it in memory, and then all that waits in the same shape is
one pass; what depends on nothing but shared arguments comes before the loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Node

from nescio.native.elementwise import TYPES
from nescio.native.graph import like
from nescio.native.loops import written
from nescio.native.pending import Fold, Pending, Step
from nescio.native.places import Access, Buffer, Unsupported, Value, dense

MANY = 256  # terms of a sum in single precision: of more the sum is in double


class Filled(NamedTuple):
    """A tensor of one number."""

    number: float
    shape: tuple[int, ...]
    dtype: torch.dtype


class Folded(NamedTuple):
    """What is being summed up, and what becomes of each sum."""

    pending: Pending
    after: str


class Program:
    """`values`: what stands for each node: a Value, a Pending, a Filled, a Folded, or several of them."""

    def __init__(self) -> None:
        self.before: list[Step] = []
        self.body: list[Step] = []
        self.values: dict[Node, Any] = {}
        self.waiting: dict[tuple[tuple[int, ...], bool], list[Pending]] = {}
        self.owner: dict[Pending, Node] = {}
        self.constants: list[Tensor] = []
        self.results: list[Value] = []
        self.written: set[Node] = set()  # tensors that are written into once they are made
        self.mutated: list[int] = []  # arguments among them
        self.work = 0  # multiplications of its products

    # ---- what is where ----------------------------------------------------------------------------------------

    def argument(self, tensor: Tensor, name: str, invariant: bool) -> Value:
        view = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
        return Value(Buffer(tensor.dtype, max(view.numel(), 1), invariant, name), view)

    def constant(self, tensor: Tensor) -> Value:
        self.constants.append(tensor.detach().contiguous())
        return self.argument(tensor, f"k{len(self.constants) - 1}", True)

    def room(self, like: Tensor, invariant: bool) -> Value:
        """New, without gaps."""
        view, length = dense(tuple(like.shape), range(like.dim()), like.dtype, False)
        return Value(Buffer(like.dtype, length, invariant), view)

    def known(self, x: Any) -> Any:
        """What stands for a node; a sum that was made gets its final form."""
        if not isinstance(x, Node):
            return x
        if isinstance(self.values[x], Folded):
            self.values[x] = self.unfolded(x, self.values[x])
        return self.values[x]

    def value(self, x: Any) -> Value:
        """In memory."""
        x = self.known(x)
        if isinstance(x, Filled):
            return self.constant(torch.full(x.shape, x.number, dtype=x.dtype))
        if isinstance(x, Pending):
            if x.value is None:
                x.stored = True
                self.flush(x.shape, x.invariant)
            assert x.value is not None
            return x.value
        if not isinstance(x, Value):
            raise Unsupported(f"a result that is no tensor: {x!r}")
        return x

    def writable(self, x: Any) -> Value:
        """What may be written into: it is a chain's own, or made anew at each turn."""
        value = self.value(x)
        if value.invariant:
            raise Unsupported("writing into what all chains share")
        return value

    # ---- what waits -------------------------------------------------------------------------------------------

    def wait(self, pending: Pending, node: Node | None = None) -> Pending:
        self.waiting.setdefault((pending.shape, pending.invariant), []).append(pending)
        if node is not None:
            self.owner[pending] = node
        return pending

    def flush(self, shape: tuple[int, ...], invariant: bool) -> None:
        """All that waits in this shape becomes one pass."""
        group = self.waiting.pop((shape, invariant), [])
        inside = {self.owner[p] for p in group if p in self.owner}
        for p in group:
            p.stored |= p in self.owner and any(user not in inside for user in self.owner[p].users)
        self.step(written(shape, group, invariant), invariant)

    def flush_all(self) -> None:
        for shape, invariant in list(self.waiting):
            self.flush(shape, invariant)

    def step(self, step: Step, invariant: bool) -> None:
        (self.before if invariant else self.body).append(step)

    # ---- elementwise ------------------------------------------------------------------------------------------

    def operand(self, x: Any, shape: tuple[int, ...], invariant: bool) -> Access | Pending | float:
        """For a loop over `shape`: what waits in it stays there, all else is in memory."""
        x = self.known(x)
        if not isinstance(x, Value | Pending):
            return x.number if isinstance(x, Filled) else x
        if isinstance(x, Pending) and x.value is None and x.shape == shape and x.invariant == invariant:
            return x
        return self.value(x).expanded(shape)

    def elementwise(
        self,
        text: str,
        operands: dict[str, Any],
        shape: tuple[int, ...],
        dtype: torch.dtype,
        computes: torch.dtype,
        fold: Fold | None = None,
    ) -> Pending:
        def fixed(x: Any) -> bool:
            x = self.known(x)
            return x.invariant if isinstance(x, Value | Pending) else True

        if dtype not in TYPES or computes not in TYPES:
            raise Unsupported(f"numbers of type {computes if dtype in TYPES else dtype}")
        invariant = all(fixed(x) for x in operands.values())
        own = {name: self.operand(x, shape, invariant) for name, x in operands.items()}
        if any(isinstance(x, Pending) and x.value is not None for x in own.values()):  # a later operand had a pass made
            own = {name: self.operand(x, shape, invariant) for name, x in operands.items()}
        return Pending(text, own, shape, dtype, computes, invariant, fold)

    def folded(self, node: Node, kind: str, x: Any, dims: Any, after: str = "{self}") -> Folded:
        """Over some dimensions, or all; `after`: what is done with each sum."""
        given = like(x) if isinstance(x, Node) else x
        shape, computes, out = tuple(given.shape), given.dtype, like(node)
        own = range(len(shape)) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
        over = frozenset(d % len(shape) for d in own if shape)
        if computes == torch.bool:
            computes = torch.int64
        elif kind == "sum" and (out.dtype != computes):
            computes = out.dtype
        many = kind == "sum" and math.prod(shape[d] for d in over) > MANY and computes == torch.float32
        dtype = torch.float64 if many else computes
        fold = Fold(kind, over)
        return Folded(self.wait(self.elementwise("{self}", {"self": x}, shape, dtype, computes, fold), node), after)

    def unfolded(self, node: Node, folded: Folded) -> Value | Pending:
        pending, out = folded.pending, like(node)
        if pending.value is None:
            self.flush(pending.shape, pending.invariant)
        assert pending.value is not None
        value = pending.value.like(pending.value.view.reshape(out.shape))
        if folded.after == "{self}" and pending.dtype == out.dtype:
            return value
        fields = {"self": value}
        return self.wait(self.elementwise(folded.after, fields, tuple(out.shape), out.dtype, pending.dtype), node)

    # ---- copies, at once --------------------------------------------------------------------------------------

    def copied(self, value: Value, order: Sequence[int], padded: bool) -> Value:
        """The same numbers in another layout."""
        view, length = dense(tuple(value.view.shape), order, value.buffer.dtype, padded)
        into = Value(Buffer(value.buffer.dtype, length, value.invariant), view)
        self.copy(value, into)
        return into

    def copy(self, value: Value, into: Value) -> None:
        shape = tuple(into.view.shape)
        pending = self.elementwise("{self}", {"self": value}, shape, into.buffer.dtype, value.buffer.dtype)
        pending.value = into
        self.step(written(shape, [pending], into.invariant), into.invariant)

    def put(self, source: Value, shape: tuple[int, ...], into: Access, add: bool) -> None:
        """Numbers to where they belong in memory, after all that comes before; or added to what is there."""
        self.flush_all()
        dtype = into.buffer.dtype
        pending = self.elementwise("{self}", {"self": source}, shape, dtype, source.buffer.dtype)
        self.step(written(shape, [pending], into.buffer.invariant, {pending: into}, add), into.buffer.invariant)

    def finish(self, results: Sequence[Any]) -> None:
        """All results in places of their own, for they are copied one after another to where the arguments were."""
        values = [self.value(x) for x in results]
        self.flush_all()
        self.results = [self.copied(x, range(x.view.dim()), False) if x.buffer.argument else x for x in values]
