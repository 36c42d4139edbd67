"""Any function of examples and weights, differentiated by its weights example by example; and columns pulled back through a graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.func import vjp, vmap
from torch.utils._pytree import tree_flatten, tree_unflatten

from nescio.jacobian.calls import Axes
from nescio.jacobian.watch import Call, Watched, plain


def local(call: Call, where: Axes, grads: Sequence[Tensor]) -> dict[str, Tensor]:
    """Rows (K, N, *shape) of each weight in the call, from the gradients (K, *output) at its outputs."""
    given, form = tree_flatten(call.given)
    weights = [i for i, leaf in enumerate(given) if isinstance(leaf, Watched)]
    examples = [i for i, axis in enumerate(where.given) if axis is not None]
    places = [axis for axis in where.given if axis is not None]
    outs = [axis for axis in where.outputs if axis is not None]
    names = [given[i].label for i in weights]
    given = plain(given)

    def outputs(own: Sequence[Tensor], rows: Sequence[Tensor]) -> tuple[Tensor, ...]:
        filled = list(given)
        for i, x in (*zip(weights, own, strict=True), *zip(examples, rows, strict=True)):
            filled[i] = x
        args, named = tree_unflatten(filled, form)
        found = tree_flatten(call.function(*args, **named))[0]
        return tuple(t for t in found if isinstance(t, Tensor) and t.is_floating_point())

    def one(rows: list[Tensor], back: list[Tensor]) -> tuple[Tensor, ...]:
        rows = [row.unsqueeze(axis) for row, axis in zip(rows, places, strict=True)]
        back = [g.unsqueeze(axis + 1) for g, axis in zip(back, outs, strict=True)]
        pull = vjp(lambda *own: outputs(own, rows), *(given[i] for i in weights))[1]
        return vmap(pull)(tuple(back))

    rows, back = [given[i].detach() for i in examples], list(grads)
    try:
        with strict():
            each = vmap(one, in_dims=(places, [axis + 1 for axis in outs]))(rows, back)
    except (RuntimeError, ValueError, UserWarning):  # no batching rule
        each = by_hand(outputs, [given[i] for i in weights], (rows, places), (back, outs))
    return {name: x.transpose(0, 1) for name, x in zip(names, each, strict=True)}


def by_hand(
    outputs: Callable[..., tuple[Tensor, ...]],
    weights: list[Tensor],
    rows: tuple[list[Tensor], list[int]],
    back: tuple[list[Tensor], list[int]],
) -> list[Tensor]:
    """Example by example and column by column, (N, K, *shape) of each weight."""
    own = [w.detach().requires_grad_() for w in weights]
    each = []
    for n in range(rows[0][0].shape[rows[1][0]]):
        found = outputs(own, [x.narrow(axis, n, 1) for x, axis in zip(*rows, strict=True)])
        slopes = [g.narrow(axis + 1, n, 1) for g, axis in zip(*back, strict=True)]
        each.append(pulled(found, own, slopes, batched=False))
    return [torch.stack([row[i] for row in each]) for i in range(len(own))]


def pulled(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], columns: Sequence[Tensor], batched: bool
) -> list[Tensor]:
    """Gradients (K, *shape) by each input, of the outputs weighed by columns (K, *output); zero where nothing depends on it.

    Where the columns themselves depend on something, so do the gradients.
    """
    alive = [i for i, f in enumerate(outputs) if f.requires_grad]
    outputs, columns = [outputs[i] for i in alive], [columns[i] for i in alive]
    graph = any(c.requires_grad for c in columns)
    if batched and len(columns[0]) > 1:
        found = torch.autograd.grad(outputs, inputs, columns, True, graph, is_grads_batched=True, allow_unused=True)
        return [x.new_zeros(len(columns[0]), *x.shape) if g is None else g for g, x in zip(found, inputs, strict=True)]
    each = [
        torch.autograd.grad(outputs, inputs, [c[k] for c in columns], True, graph, allow_unused=True)
        for k in range(len(columns[0]))
    ]
    return [
        torch.stack([torch.zeros_like(x) if g is None else g for g in slopes])
        for x, slopes in zip(inputs, zip(*each, strict=True), strict=True)
    ]


@contextmanager
def strict() -> Iterator[None]:
    """Inside, torch's slow path under vmap is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message=".*batching rule")
        yield
