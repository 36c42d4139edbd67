"""A target on one batch, as the moves of samplers and optimisers see it; a move is run plainly, or as machine code."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from nescio.batch import Batch, Gradient, Move, take
from nescio.compiled import Compiled
from nescio.errors import UnsupportedError
from nescio.handed import Handed, Recorder
from nescio.machine import looped
from nescio.network import Params

if TYPE_CHECKING:
    from nescio.target.target import Target


class Bound(NamedTuple):
    """A target on one batch, as moves see it: a Gradient."""

    target: Target
    batch: Batch
    prior: bool  # whether it counts here: rows in shards have it once

    def __call__(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Log density and gradient."""
        if self.target.shards(self.batch) > 1:
            return self.target.value_and_grad(u, self.batch)
        return self.gradient(u, {}, training=False)[:2]

    def gradient(self, u: Tensor, statistics: Params, training: bool) -> tuple[Tensor, Tensor, Params]:
        self.check()
        # written down once: a compiler that melts it into its uses would work it out again for every row of the data
        u = u.detach().as_strided(u.shape, u.stride()).requires_grad_()
        if training:
            value, after = self.target.log_posterior(u, self.batch, statistics)
        else:
            value, after = self.target.tempered(u, self.batch, {}, jacobian=True, training=False, prior=self.prior)
        (gradient,) = torch.autograd.grad(value.sum(), u)
        return value.detach(), gradient, {name: b.detach() for name, b in after.items()}

    def check(self) -> None:
        if self.target.model.network.recomputes(take(self.batch.x) if self.batch.own else self.batch.x):
            raise UnsupportedError(
                "a network must not be called again on the way back, when its weights are others",
                "torch.utils.checkpoint in it",
                "switch it off (rows are summed in parts where memory is short), or use VI",
            )


def evaluate(gradient: Gradient, u: Tensor) -> tuple[Tensor, Tensor]:
    """The move that goes nowhere."""
    return gradient(u)


def train(bound: Bound, u: Tensor, *buffers: Tensor) -> tuple[Tensor, ...]:
    """Log density in training mode, its gradient, and the buffers after it."""
    names = [name for name, _ in bound.target.model.network.net.named_buffers()]
    value, gradient, after = bound.gradient(u, dict(zip(names, buffers, strict=True)), training=True)
    return value, gradient, *(after[name] for name in names)


def plain(move: Move, bound: Bound, tensors: Sequence[Tensor], times: int | None, until: int | None) -> Any:
    """A move without machine code, so often."""
    return looped(partial(move, bound), until)(tensors, times or 1)


def run(
    target: Target,
    move: Move,
    batch: Batch,
    prior: bool,
    chains: Sequence[Tensor],
    shared: Sequence[Tensor],
    times: int | None = None,
    until: int | None = None,
) -> Any:
    """A move on this batch: as machine code where the target has some, made when a move is first met."""
    if target.code is None:
        return move(Bound(target, batch, prior), *chains, *shared)
    data, form = tree_flatten((batch.x, batch.y))
    own = [*([] if target.rest is None else [target.rest]), *(data if batch.own else [])]
    others = [] if batch.own else data
    key = (move, batch.weight, batch.own, prior)
    if key not in target.code:
        Bound(target, batch, prior).check()  # before tracing, which knows no numbers
        counts = (len(chains), len(own), len(shared), len(others))

        def function(*tensors: Tensor) -> tuple[Tensor, ...]:
            first, mine, given, rows = split(tensors, counts)
            here = target if target.rest is None else replace(target, rest=mine[0])
            x, y = tree_unflatten(list(rows if rows else mine[-len(data) :]), form)
            drawn = tensors[sum(counts) :]
            with Handed(iter(drawn)) if drawn else nullcontext():
                bound = Bound(replace(here, code=None), batch._replace(x=x, y=y), prior)
                return tuple(move(bound, *first, *given))

        recorder, refused = Recorder(), None
        if target.model.likelihood.estimated:  # what it draws by itself is to be handed in
            try:
                with target.model.noise(0, "recorded").scope(), recorder:
                    function(*chains, *own, *shared, *others)
            except NotImplementedError as error:  # dropout, say
                refused = str(error)
        target.code.setdefault(key, Compiled(function, recorder.draws, refused, target.compiler))
    if target.code[key].refused:
        return plain(move, Bound(target, batch, prior), [*chains, *shared], times, until)
    return target.code[key]([*chains, *own], [*shared, *others], times, until)


def split(tensors: Sequence[Tensor], counts: Sequence[int]) -> list[Sequence[Tensor]]:
    """One sequence as several, of these lengths."""
    ends = [sum(counts[: i + 1]) for i in range(len(counts))]
    return [tensors[end - count : end] for end, count in zip(ends, counts, strict=True)]
