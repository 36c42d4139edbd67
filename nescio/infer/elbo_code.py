"""The ELBO of a batch and its gradient as machine code: one straight graph for network, divergence and slopes.

For the CPU: C of our own for small networks (nescio/native), torch's compiler for others, where the run is long enough for it. On a GPU
it is elbo_graph.py that saves the launching of kernels.

What a step draws is drawn outside, in the order in which the plain code would, and handed in: compiled and plain runs take the same
steps to rounding, and torch's own generators are faster than a compiler's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from nescio.compiled import VERSIONS, confirm, said
from nescio.handed import Draw, Handed, Recorder
from nescio.infer.elbo import NegativeELBO
from nescio.machine import Version, machine_code
from nescio.native import single
from nescio.noise import Noise

MOST = 4  # samples in one graph
Function = Callable[..., tuple[Tensor, ...]]


@final
class CompiledELBO:
    """Stands for `loss.estimate` while `loss` is trained; by the plain code where none could be made, and `note` says why.

    `compiler`: whether torch's may be called, where ours is not for it."""

    def __init__(self, loss: NegativeELBO, compiler: bool = True) -> None:
        self.loss, self.compiler = loss, compiler
        self.named = dict(loss.named_parameters())
        self.versions: dict[Any, tuple[Version, list[Draw]] | None] = {}
        self.note: str | None = None
        self.made: set[str] = set()  # by what, as in nescio/compiled.py

    def estimate(self, x: Any, y: Any, part: float) -> Tensor:
        leaves, form = tree_flatten((x, y))
        key = tuple((t.shape, t.dtype) for t in leaves)
        if key not in self.versions:
            self.versions[key] = self.make(leaves, form)
        version = self.versions[key]
        if version is None:
            return self.loss.estimate(x, y, part)
        code, draws = version
        elbo, *gradients = code([*self.inputs(leaves, part), *(draw() for draw in draws)], 1)
        for p, gradient in zip(self.named.values(), gradients, strict=True):
            # laid out as p is: fused optimisers go through memory, and compilers lay out as they like
            p.grad = gradient.contiguous()
        return elbo

    def inputs(self, leaves: Sequence[Tensor], part: float) -> list[Tensor]:
        return [*(p.detach() for p in self.named.values()), *leaves, torch.tensor(part, dtype=torch.float64)]

    def make(self, leaves: list[Tensor], form: TreeSpec) -> tuple[Version, list[Draw]] | None:
        """Code for rows of this shape."""
        try:
            refuse(self.loss, leaves, form, len(self.versions))
            own = self.inputs(leaves, 0.7)
            with Noise(0).scope():
                recorder = Recorder()
                self.function(form, recorder)(*own)
                given = [*own, *(draw() for draw in recorder.draws)]
            function = self.function(form, None)
            code = self.own(function, given)
            self.made.add("a compiler" if code is None else "C")
            if code is None:
                code, eps = machine_code(function, given, fed=False)
                confirm(code, function, given, eps)
        except Exception as error:  # a compiler may fail in any way: the plain code never does
            self.note = said(error)
            self.made.add("plain")
            return None
        return code, recorder.draws

    def own(self, function: Function, given: Sequence[Tensor]) -> Version | None:
        """Code of our own; None where torch's compiler is to try."""
        try:
            eps = next(torch.finfo(x.dtype).eps for x in given if x.is_floating_point())
            code = single(function, given)
            confirm(code, function, given, eps)
            return code
        except Exception:
            if not self.compiler:
                raise
            return None

    def function(self, form: TreeSpec, recorder: Recorder | None) -> Function:
        """(parameters, rows, part, what is drawn) -> (ELBO, gradients of the loss)."""

        def run(*inputs: Tensor) -> tuple[Tensor, ...]:
            many, rows = len(self.named), form.num_leaves
            parameters = [p.detach().requires_grad_() for p in inputs[:many]]
            x, y = tree_unflatten(list(inputs[many : many + rows]), form)
            losses: list[Tensor] = []
            mode = Handed(iter(inputs[many + rows + 1 :])) if recorder is None else recorder
            with torch.enable_grad(), mode:
                swapped = {f"loss.{name}": p for name, p in zip(self.named, parameters, strict=True)}
                elbo = functional_call(Whole(self.loss), swapped, (x, y, inputs[many + rows], losses.append))
                loss = torch.stack(losses).sum()
                slopes = torch.autograd.grad(loss, parameters, allow_unused=True)
            filled = [torch.zeros_like(p) if s is None else s for p, s in zip(parameters, slopes, strict=True)]
            return elbo.detach(), *(x.detach() for x in filled)

        return run


def refuse(loss: NegativeELBO, leaves: list[Tensor], form: TreeSpec, made: int) -> None:
    """What a straight graph cannot hold."""
    x = tree_unflatten(leaves, form)[0]
    for why, so in {
        "norm statistics change": bool(loss.statistics),
        "the network is checkpointed": loss.target.model.network.recomputes(x),
        f"more than {MOST} samples a step": loss.samples > MOST and not loss.alone,
        f"shapes vary: code was made for {VERSIONS} of them": made >= VERSIONS,
        "under autocast steps are plain": torch.is_autocast_enabled("cpu"),
    }.items():
        if so:
            raise NotImplementedError(why)


@final
class Whole(nn.Module):
    """The loss as a module whose parameters can be swapped."""

    def __init__(self, loss: NegativeELBO) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, x: Any, y: Any, part: Tensor, follow: Callable[[Tensor], Any]) -> Tensor:
        return self.loss.estimate(x, y, part, follow)
