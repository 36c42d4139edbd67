"""How a traced function becomes machine code by others than ourselves: torch's compiler, and on a GPU kernels recorded as one CUDA graph.

A function is traced once, through vmap, autograd and torch.distributions alike, so what is compiled is one straight graph of array
operations, without Python and without guards. compiled.py decides what is made, and trusts none of it unseen.
"""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from nescio.again import again
from nescio.rewritten import rewritten
from nescio.rounding import unit
from nescio.tracing import trace

FEW = 4  # of so many chains one is left, or fewer: a narrower version serves those better
Function = Callable[..., tuple[Tensor, ...]]
Version = Callable[[Sequence[Tensor], int], tuple[Tensor, ...]]  # (arguments, how often)


def machine_code(
    function: Function, inputs: Sequence[Tensor], fed: bool, until: int | None = None
) -> tuple[Version, float]:
    """Traced at these inputs and compiled, and the unit of its coarsest precision. What the function closes over is a constant."""
    cuda = inputs[0].is_cuda
    inputs = [x.clone() for x in inputs]  # a tensor given twice would be traced as one input
    with silence():
        graph = traced(function, inputs, rewritten(cuda))
        eps = unit(graph, inputs)
        if cuda:
            again(graph.graph)
            with torch.backends.cudnn.flags(
                True, True, allow_tf32=torch.backends.cudnn.allow_tf32
            ):  # the fastest convolutions
                return recorded(built(graph, inputs), inputs, fed), eps
        code = built(graph, inputs)
        # laid out as arguments are, for they become some
        return looped(lambda *given: tuple(x.contiguous() for x in code(*given)), until), eps


def replayed(
    function: Function, inputs: Sequence[Tensor], fed: bool, until: int | None = None
) -> tuple[Version, float]:
    """The plain function's own kernels, recorded: made in the time of a few calls, and as fast where launching is what takes time."""
    with silence():
        graph = traced(function, [x.clone() for x in inputs], {})
        return recorded(torch.no_grad()(graph), inputs, fed), unit(graph, inputs)


@contextmanager
def silence() -> Iterator[None]:
    """Of the compiler's own parts, which warn and log."""
    quiet = logging.getLogger("torch._inductor")
    level = quiet.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quiet.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            quiet.setLevel(level)


def traced(function: Function, inputs: Sequence[Tensor], table: dict[Any, Callable[..., Any]]) -> GraphModule:
    """`table`: operations that are to be written in other words."""
    cuda = inputs[0].is_cuda
    graph = trace(function, inputs, table)
    for node in graph.graph.nodes:
        constant = getattr(graph, node.target) if node.op == "get_attr" else None
        if cuda and isinstance(constant, Tensor):
            setattr(graph, node.target, constant.to(inputs[0].device))  # copying from the CPU cannot be recorded
        node.meta.clear()  # each input was traced by itself, and the compiler asks for one trace
        if node.target is torch.ops.aten.view.default:
            node.target = torch.ops.aten.reshape.default  # the compiler may lay a tensor out in another way
    graph.recompile()
    return graph


def built(graph: GraphModule, inputs: Sequence[Tensor]) -> Function:
    from torch._inductor import standalone_compile

    plain = {
        "cpp_wrapper": True,
        "cpp.enable_floating_point_contract_flag": "fast",  # a product and a sum as one operation, rounded once
        "cpp.vec_isa_ok": True,  # what the processor says of itself is taken for true: trying it out takes seconds
    }
    options = {} if inputs[-1].is_cuda else plain
    code = standalone_compile(
        graph, list(inputs), dynamic_shapes="from_example_inputs", options={"config_patches": options}
    )
    code = torch.no_grad()(code)
    code(*inputs)  # compiled now, and heard now if it fails
    return code


def looped(code: Function, until: int | None = None) -> Version:
    def run(inputs: Sequence[Tensor], times: int) -> tuple[Tensor, ...]:
        results = code(*inputs)
        for _ in range(times - 1):
            if until is not None and int(results[until].sum()) <= len(results[until]) // FEW:
                break
            results = code(*results, *inputs[len(results) :])
        return results

    return run


@contextmanager
def recording(graph: torch.cuda.CUDAGraph, pool: Any = None, stream: torch.cuda.Stream | None = None) -> Iterator[None]:
    """Kernels are recorded, not run; other threads may go on. Garbage is collected before: freeing a graph meanwhile would end it."""
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
            yield
    finally:
        if collects:
            gc.enable()


def recorded(code: Function, inputs: Sequence[Tensor], fed: bool) -> Version:
    """The kernels of one call as a CUDA graph: replayed without the cost of launching them one by one."""
    places = [x.clone() for x in inputs]
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            code(*places)
    torch.cuda.current_stream().wait_stream(side)
    with recording(graph):
        results = code(*places)
        for place, result in zip(places, results if fed else (), strict=False):
            place.copy_(result)
    held: list[Tensor | None] = [None] * len(places)

    def run(inputs: Sequence[Tensor], times: int, code: Function = code) -> tuple[Tensor, ...]:
        """`code` stays alive with the graph, which knows no more than the addresses of its constants."""
        for i, (place, x) in enumerate(zip(places, inputs, strict=True)):
            if i < len(results) or held[i] is not x:  # data stay where they are from call to call
                place.copy_(x)
                held[i] = x
        for _ in range(times):
            graph.replay()
        return tuple(x.clone() for x in results)

    return run
