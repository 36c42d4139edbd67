"""The ELBO of a batch and its gradient on a GPU: the kernels of the plain code, its draws among them, recorded as one CUDA graph.

A step of a small network costs little but the launching of its hundreds of kernels, and a recorded graph is launched as one. A replay
takes its random numbers from where the generator stands, as the plain code would, so both take the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.modules.conv import _ConvNd
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from nescio.compiled import VERSIONS, said
from nescio.infer.elbo import NegativeELBO
from nescio.machine import recording, silence
from nescio.rounding import agree, rounding

WARM = 3  # plain calls before one is recorded: libraries set themselves up in the first ones
Version = Callable[[Sequence[Tensor], float], Tensor]


@final
class RecordedELBO:
    """Stands for `loss.estimate` while `loss` is trained; by the plain code where nothing could be recorded, and `note` says why."""

    def __init__(self, loss: NegativeELBO) -> None:
        self.loss, self.parameters = loss, list(loss.parameters())
        self.generator = torch.cuda.default_generators[loss.q.rest.device.index or 0]
        self.versions: dict[Any, Version | None] = {}
        self.pool = torch.cuda.graph_pool_handle()
        self.note: str | None = None

    @property
    def made(self) -> set[str]:
        return {"plain" if version is None else "a compiler" for version in self.versions.values()}

    def estimate(self, x: Any, y: Any, part: float = 1.0) -> Tensor:
        leaves, form = tree_flatten((x, y))
        key = tuple((t.shape, t.dtype) for t in leaves)
        if key not in self.versions:
            self.versions[key] = self.make(leaves, form)
        version = self.versions[key]
        return self.loss.estimate(x, y, part) if version is None else version(leaves, part)

    def make(self, leaves: list[Tensor], form: TreeSpec) -> Version | None:
        """For rows of this shape. Generator and norm statistics are left as they were found."""
        before, kept = self.generator.get_state(), {name: b.clone() for name, b in self.loss.statistics.items()}

        def rewind() -> None:
            with torch.no_grad():
                self.loss.q.call()  # factors remember what they computed, and on which stream its gradients come back
            self.generator.set_state(before)
            for name, b in kept.items():
                self.loss.statistics[name].copy_(b)

        try:
            refuse(self.loss, leaves, form, len(self.versions))
            rewind()
            with silence():
                version = self.recorded(leaves, form)
            rewind()
            graph = [version(leaves, 0.7), *self.gradients()]
            rewind()
            plain = [self.plain(leaves, form, 0.7), *self.gradients()]
            net = self.loss.target.model.network.net
            convolves = any(isinstance(module, _ConvNd) for module in net.modules())
            if not agree(graph, plain, rounding(self.loss.q.rest.dtype, convolves)):
                raise ArithmeticError("recorded and plain results differ")
        except Exception as error:  # what a network does cannot always be recorded: the plain code never fails
            self.note = said(error)
            version = None
        torch.cuda.synchronize()
        rewind()
        for p in self.parameters:
            p.grad = None
        return version

    def recorded(self, leaves: Sequence[Tensor], form: TreeSpec) -> Version:
        places, share = [x.clone() for x in leaves], self.loss.q.rest.new_full((), 0.7, dtype=torch.float64)
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM):
                self.plain(places, form, share)
        torch.cuda.current_stream().wait_stream(side)
        for p in self.parameters:
            p.grad = None
        with recording(graph, self.pool, side):  # of one pool: a batch of another size overwrites what was between
            elbo = self.plain(places, form, share)
        slopes = [p.grad for p in self.parameters]

        def replay(leaves: Sequence[Tensor], part: float) -> Tensor:
            for place, x in zip(places, leaves, strict=True):
                place.copy_(x)
            share.fill_(part)
            graph.replay()
            for p, slope in zip(self.parameters, slopes, strict=True):
                p.grad = slope
            return elbo.clone()

        return replay

    def plain(self, leaves: Sequence[Tensor], form: TreeSpec, part: float | Tensor) -> Tensor:
        for p in self.parameters:
            p.grad = None
        x, y = tree_unflatten(list(leaves), form)
        return self.loss.estimate(x, y, part)

    def gradients(self) -> list[Tensor]:
        return [p.grad.clone() for p in self.parameters if p.grad is not None]


def refuse(loss: NegativeELBO, leaves: list[Tensor], form: TreeSpec, made: int) -> None:
    """What cannot be recorded, or not so that it stays true."""
    x = tree_unflatten(leaves, form)[0]
    for why, so in {
        "the network is checkpointed": loss.target.model.network.recomputes(x),
        f"shapes vary: {VERSIONS} of them were recorded": made >= VERSIONS,
        "casts of weights are kept under autocast": torch.is_autocast_enabled("cuda"),
    }.items():
        if so:
            raise NotImplementedError(why)
