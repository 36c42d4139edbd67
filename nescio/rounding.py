"""By how much two ways to compute the same may differ: what is compiled or recorded is compared with the plain function.

Sums in another order differ by units of the coarsest precision within: that of the numbers, of halves, or of the format in which a GPU
multiplies what it convolves.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.fx import GraphModule

from nescio.narrow import FORWARD

HALVES = {torch.bfloat16, torch.float16}
TF32 = 2.0**-10  # unit of the format in which a GPU multiplies single-precision numbers of convolutions
ROUNDING = 2000  # units of precision by which sums in another order may differ
COARSE = 32  # where that many say nothing: units of a tensor's length that rounding may turn away
SHAKEN = 100  # by so many times what the last digit of the inputs does


def unit(graph: GraphModule, inputs: Sequence[Tensor]) -> float:
    """Of the coarsest precision in a graph: that of its inputs (counts have none), of halves within, or of what a GPU multiplies in."""
    own = next(x.dtype for x in inputs if x.is_floating_point())
    nodes = graph.graph.nodes
    coarsest = {own, *(node.kwargs.get("dtype") for node in nodes)} & HALVES
    convolves = any(node.target in FORWARD for node in nodes)
    return rounding(coarsest.pop() if coarsest else own, inputs[0].is_cuda and convolves)


def rounding(dtype: torch.dtype, convolves: bool) -> float:
    """The unit of `dtype`, or of TF32, to which torch lets a GPU round what it `convolves` in single precision."""
    coarse = convolves and dtype == torch.float32 and torch.backends.cudnn.allow_tf32
    return TF32 if coarse else torch.finfo(dtype).eps


def agree(a: Sequence[Tensor], b: Sequence[Tensor], eps: float, shaken: Sequence[Tensor] = ()) -> bool:
    """Equal in shape, and in value to rounding; where one is not finite, so is the other.

    Rounding is on the scale of each tensor; but numbers of one a chain are densities and their differences, and share theirs. In coarse
    precision single numbers may be all rounding, and tensors are compared as vectors. `shaken`: b again, from inputs that differ in
    their last digit; chains for which that makes a difference may differ by some times as much.
    """
    coarse = ROUNDING * eps > 1
    relative = min(ROUNDING * eps, 0.25)
    densities = max((size(y) for y in b if y.dim() == 1), default=0.0)
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if x.shape != y.shape or x.dtype != y.dtype or not torch.equal(x.isfinite(), y.isfinite()):
            return False
        if not x.is_floating_point():
            continue  # a decision: by rounding it may fall either way
        off, sound = torch.where(y.isfinite(), x - y, 0.0).double(), y[y.isfinite()].double()
        if coarse and y.dim() > 1:
            if bool(off.norm() > COARSE * eps * sound.norm()):
                return False
            continue
        most = torch.full_like(off, relative * (1 + (densities if y.dim() == 1 else size(y))))
        if shaken and y.dim():
            moved = (shaken[i] - y).double().abs().nan_to_num(0.0, 0.0, 0.0).flatten(1 if y.dim() > 1 else 0)
            moved = moved.amax(1) if y.dim() > 1 else moved
            most += SHAKEN * moved.reshape(-1, *[1] * (y.dim() - 1))
        if bool((off.abs() > most).any()):
            return False
    return True


def size(x: Tensor) -> float:
    """Of its largest finite number."""
    sound = x[x.isfinite()]
    return float(sound.detach().abs().max()) if sound.numel() and x.is_floating_point() else 0.0
