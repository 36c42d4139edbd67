"""A function of chains as machine code for one of them, taken through all."""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from nescio.cores import each
from nescio.native.build import PRELUDE, built, compiler
from nescio.native.places import Unsupported
from nescio.native.translate import translated
from nescio.native.write import text
from nescio.rewritten import native_table
from nescio.tracing import trace

ALONE = 5e7  # multiplications of one turn: more are better divided among cores, where there are fewer chains than those
LONGEST = 150_000  # characters: of some five seconds; networks are shorter, but for recurrent ones of many steps
INLINED = 500  # characters that a function of these counts for, which is written out where it is called
HEAVY = re.compile(r"\b(?:exp|expm1|log|log1p|softplus|softplus_backward|logaddexp|sigmoid|erf|lgamma)_f(?:32|64)\(")
Tensors = Sequence[Tensor]
Function = Callable[..., tuple[Tensor, ...]]


class Chainwise:
    """`function(*chains, *others)`, of chains that go their own ways: traced with the first of them.

    `fed`: results take the place of the first arguments for the next turn; `until`: a chain stops when this one of them is false.
    """

    def __init__(self, function: Function, chains: Tensors, others: Tensors, fed: bool, until: int | None) -> None:
        if compiler() is None:
            raise Unsupported("no C compiler")
        if not len(chains[0]):
            raise Unsupported("no chain to trace")
        one = [x[:1].clone() for x in chains]
        graph = trace(function, [*one, *(x.clone() for x in others)], native_table())
        shared = [False] * len(chains) + [True] * len(others)
        program = translated(graph, shared)
        if program.work > ALONE and len(chains[0]) < torch.get_num_threads():
            raise Unsupported("products so large that all cores are to share in one")
        code, self.room = text(program, shared, [*one, *others], fed, until)
        length = len(code) + INLINED * len(HEAVY.findall(code))
        if length > LONGEST:
            raise Unsupported(f"{length} characters of C, more than {LONGEST}: compiling would take long")
        self.run = built(f"{PRELUDE.read_text()}\n{code}")
        self.constants, self.mutated = program.constants, program.mutated
        self.results = [(tuple(value.view.shape[1:]), value.buffer.dtype) for value in program.results]
        self.even = until is None
        self.local = threading.local()

    def __call__(self, chains: Tensors, others: Tensors, times: int) -> tuple[Tensor, ...]:
        count = len(chains[0])
        own = {id(x): x.contiguous() for x in (*chains, *others)}  # what is given twice stays one
        given = [own[id(x)] for x in (*chains, *others)]
        results = [torch.empty(count, *shape, dtype=dtype) for shape, dtype in self.results]
        held = given, self.constants, results
        parts = min(torch.get_num_threads(), count) if self.even else count  # those that may end early: one by one
        bounds = [i * count // max(parts, 1) for i in range(parts + 1)]
        if any(each([partial(self.some, held, a, b, times) for a, b in pairwise(bounds)])):
            raise IndexError("index out of range in the network or the likelihood")
        for n in self.mutated:
            original = [*chains, *others][n]
            if given[n] is not original:
                original.copy_(given[n])
        return tuple(results)

    def some(self, held: Sequence[Tensors], first: int, last: int, times: int) -> int:
        """Some of the chains; the tensors are held as long as they are written into."""
        if not hasattr(self.local, "work"):
            self.local.work = torch.zeros(self.room, dtype=torch.uint8)
        tables = [pointers(tensors) for tensors in held]
        return int(self.run(*tables, self.local.work.data_ptr(), first, last, times))


def single(function: Function, inputs: Tensors) -> Callable[[Tensors, int], tuple[Tensor, ...]]:
    """Of a function that knows no chains: (arguments, how often) -> results. What it writes into its arguments is lost."""

    def one(*chains: Tensor) -> tuple[Tensor, ...]:
        return tuple(x[None] for x in function(*(x[0] for x in chains)))

    code = Chainwise(one, [x[None] for x in inputs], (), False, None)

    def run(inputs: Tensors, times: int) -> tuple[Tensor, ...]:
        return tuple(x[0] for x in code([x[None] for x in inputs], (), times))

    return run


def pointers(tensors: Tensors) -> Any:
    return (ctypes.c_void_p * max(len(tensors), 1))(*(x.data_ptr() for x in tensors))
