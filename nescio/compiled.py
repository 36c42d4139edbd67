"""Functions of tensors as machine code, made by torch's own compiler when a shape is first met.

A function is traced once, through vmap, autograd and torch.distributions alike, so what is compiled is one straight graph of array
operations, without Python and without guards. On the CPU it becomes one C++ function; on a GPU its kernels are recorded as one CUDA
graph. A version is compared with the plain function before it is trusted; where a function cannot be compiled, or the machine has no
C++ compiler, the plain one is used and `note` says why.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

VERSIONS = 12  # shapes of which code is kept; beyond, something varies that should not
SHRINK = 4  # a version serves this many times fewer chains before a narrower one is made
ROUNDING = 2000  # units of precision by which sums in another order may differ
Function = Callable[..., tuple[Tensor, ...]]


@final
class Compiled:
    """`function(*chains, *others)` -> tensors; few chains may be padded to many, so that one version serves both."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.versions: dict[Any, Function] = {}
        self.width = 0
        self.note: str | None = None

    def __call__(self, chains: Sequence[Tensor], others: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """`chains`: what has a leading axis of chains; so has every result. `others`: what all of them share."""
        rows = len(chains[0])
        self.width = max(self.width, rows)
        width = self.width
        while width >= SHRINK * rows:  # few of many chains are left: a narrower version, but not one for every number
            width //= SHRINK
        if width > rows:
            padding = torch.arange(width, device=chains[0].device).clamp_(max=rows - 1)
            chains = [x[padding] for x in chains]
        key = tuple([x.shape for x in chains] + [x.shape for x in others])
        version = self.versions.get(key)
        if version is None:
            version = self.versions[key] = self.make([*chains, *others])
        out = version(*chains, *others)
        return out if width == rows else tuple(x[:rows] for x in out)

    def make(self, inputs: Sequence[Tensor]) -> Function:
        """Code for these shapes, or the plain function."""
        if len(self.versions) >= VERSIONS:
            self.note = f"shapes vary: code was made for {VERSIONS} of them"
            return self.function
        try:
            version = machine_code(self.function, inputs)
            if not agree(version(*inputs), self.function(*inputs), torch.finfo(inputs[0].dtype).eps):
                raise ArithmeticError("compiled and plain results differ")
        except Exception as error:  # a compiler may fail in any way: the plain function never does
            self.note = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
            return self.function
        return version


def machine_code(function: Function, inputs: Sequence[Tensor]) -> Function:
    """Traced at these inputs and compiled; constants that the function closes over are kept by the code."""
    from torch._inductor import compile as inductor
    from torch.fx.experimental.proxy_tensor import make_fx

    cuda = inputs[0].is_cuda
    inputs = [x.clone() for x in inputs]  # a tensor given twice would be traced as one input
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the compiler's own parts
        quiet = logging.getLogger("torch._inductor")
        level = quiet.level
        quiet.setLevel(logging.CRITICAL)
        try:
            graph = make_fx(function, decomposition_table={torch.ops.aten.tanh.default: tanh})(*inputs)
            for node in graph.graph.nodes:
                node.meta.clear()  # each input was traced by itself, and the compiler asks for one trace
                if node.target is torch.ops.aten.view.default:
                    node.target = torch.ops.aten.reshape.default  # the compiler may lay a tensor out in another way
            code = inductor(graph, list(inputs), options={} if cuda else {"cpp_wrapper": True})
            with torch.no_grad():
                code(*inputs)  # compiled now, and heard now if it fails
        finally:
            quiet.setLevel(level)
    plain = torch.no_grad()(code)
    return recorded(plain, inputs) if cuda else plain


def tanh(x: Tensor) -> Tensor:
    """Through the logistic function, which compilers vectorise; right to rounding, but not near 0 relative to x."""
    return 2 * torch.sigmoid(2 * x) - 1


def recorded(code: Function, inputs: Sequence[Tensor]) -> Function:
    """The kernels of one call as a CUDA graph: replayed without the cost of launching them one by one."""
    places = [x.clone() for x in inputs]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            code(*places)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = code(*places)
    held: list[Tensor | None] = [None] * len(places)

    def replay(*arguments: Tensor) -> tuple[Tensor, ...]:
        for i, (place, x) in enumerate(zip(places, arguments, strict=True)):
            if i == 0 or held[i] is not x:  # data stay where they are from call to call
                place.copy_(x)
                held[i] = x
        graph.replay()
        return tuple(x.clone() for x in results)

    return replay


def agree(a: Sequence[Tensor], b: Sequence[Tensor], eps: float) -> bool:
    """Equal in shape, and in value to rounding on the scale of each tensor; where one is not finite, so is the other."""
    for x, y in zip(a, b, strict=True):
        if x.shape != y.shape or x.dtype != y.dtype or not torch.equal(x.isfinite(), y.isfinite()):
            return False
        if not x.is_floating_point():
            continue  # a decision: by rounding it may fall either way
        sound = y.isfinite()
        scale = y[sound].abs().max() if bool(sound.any()) else y.new_zeros(())
        if bool(((x - y)[sound].abs() > ROUNDING * eps * (scale + 1)).any()):
            return False
    return True
