"""Numbers that are found, or put, by the numbers of other tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from nescio.native.graph import like
from nescio.native.pending import Pending
from nescio.native.places import Access, Index, Unsupported, Value
from nescio.native.program import Program

Indices = dict[int, tuple[Value, Sequence[int]]]  # for a dimension: the index, and the loops that it varies with


def access(value: Value, shape: Sequence[int], own: Sequence[int | None], by: Indices, wraps: bool) -> Access:
    """Into `value` from loops over `shape`; `own`: the dimension that each loop goes along; `wraps`: whether indices may be negative."""
    strides = [0 if dim is None or n == 1 else value.view.stride(dim) for n, dim in zip(shape, own, strict=True)]
    far = []
    for dim, (index, loops) in by.items():
        view = index.view.expand([shape[loop] for loop in loops])
        along = dict(zip(loops, view.stride(), strict=True))
        where = Access(index.buffer, [along.get(d, 0) for d in range(len(shape))], int(view.storage_offset()), ())
        far.append(Index(where, value.view.stride(dim), value.view.shape[dim], wraps))
    return Access(value.buffer, strides, int(value.view.storage_offset()), tuple(far))


def along(value: Value, shape: Sequence[int], dim: int, index: Value, everywhere: bool) -> Access:
    """By one index in the place of one dimension; it varies along that one, or everywhere."""
    if not shape:
        raise Unsupported("an index into a single number")
    dim %= len(shape)
    own = [None if d == dim else d for d in range(len(shape))]
    return access(value, shape, own, {dim: (index, range(len(shape)) if everywhere else (dim,))}, False)


def together(program: Program, value: Value, shape: Sequence[int], indices: Sequence[Any], wraps: bool) -> Access:
    """By several indices in the place of neighbouring dimensions, as torch.Tensor's x[i, j] has them."""
    dims = [d for d, index in enumerate(indices) if index is not None]
    if not dims or dims != list(range(dims[0], dims[-1] + 1)):
        raise Unsupported("indices apart from each other")
    found = {d: program.value(indices[d]) for d in dims}
    if any(index.buffer.dtype != torch.int64 for index in found.values()):
        raise Unsupported("an index that is no whole number")
    rank = max(index.view.dim() for index in found.values())
    loops = range(dims[0], dims[0] + rank)
    rest = range(dims[-1] + 1, value.view.dim())
    own = [*range(dims[0]), *[None] * rank, *rest]
    return access(value, shape, own, {d: (index, loops) for d, index in found.items()}, wraps)


# ---- read -------------------------------------------------------------------------------------------------------------


def taken(program: Program, node: Node, found: Access) -> Pending:
    out = like(node)
    fixed = all(buffer.invariant for buffer in found.buffers)
    shape = tuple(out.shape)
    return program.wait(Pending("{self}", {"self": found}, shape, out.dtype, out.dtype, fixed), node)


def index_select(program: Program, node: Node, given: dict[str, Any]) -> Pending:
    value, index = program.value(given["self"]), program.value(given["index"])
    return taken(program, node, along(value, like(node).shape, given["dim"], index, False))


def gather(program: Program, node: Node, given: dict[str, Any]) -> Pending:
    value, index = program.value(given["self"]), program.value(given["index"])
    return taken(program, node, along(value, like(node).shape, given["dim"], index, True))


def index(program: Program, node: Node, given: dict[str, Any]) -> Pending:
    value = program.value(given["self"])
    return taken(program, node, together(program, value, like(node).shape, given["indices"], True))


def embedding(program: Program, node: Node, given: dict[str, Any]) -> Pending:
    value, out = program.value(given["weight"]), like(node)
    return taken(program, node, together(program, value, out.shape, [given["indices"]], False))


# ---- written ----------------------------------------------------------------------------------------------------------


def anew(program: Program, given: dict[str, Any], sources: Sequence[Any]) -> Value:
    """A copy to write into."""
    value = program.value(given["self"])
    into = program.room(like(given["self"]), value.invariant and all(program.value(x).invariant for x in sources))
    program.copy(value, into)
    return into


def index_put_(program: Program, node: Node, given: dict[str, Any]) -> Value:
    return filled(program, program.writable(given["self"]), given)


def index_put(program: Program, node: Node, given: dict[str, Any]) -> Value:
    sources = [given["values"], *(x for x in given["indices"] if x is not None)]
    return filled(program, anew(program, given, sources), given)


def filled(program: Program, into: Value, given: dict[str, Any]) -> Value:
    indices, source = given["indices"], program.value(given["values"])
    dims = [d for d, index in enumerate(indices) if index is not None]
    sizes = torch.broadcast_shapes(*(like(indices[d]).shape for d in dims))
    shape = (*into.view.shape[: dims[0]], *sizes, *into.view.shape[dims[-1] + 1 :])
    program.put(source, shape, together(program, into, shape, indices, True), bool(given["accumulate"]))
    return into


def scatter_add(program: Program, node: Node, given: dict[str, Any]) -> Value:
    into, source = anew(program, given, [given["index"], given["src"]]), program.value(given["src"])
    index = program.value(given["index"])
    shape = tuple(index.view.shape)
    part = source.like(source.view[tuple(slice(n) for n in shape)])
    program.put(part, shape, along(into, shape, given["dim"], index, True), True)
    return into


RULES = {
    "index_select": index_select,
    "gather": gather,
    "index": index,
    "embedding": embedding,
    "index_put_": index_put_,
    "index_put": index_put,
    "scatter_add": scatter_add,
}
