"""Loops over the numbers of tensors of one shape: what is computed elementwise and what is summed up, in one pass.

The numbers of a pass that nobody else needs stay in registers. Sums of many numbers are taken in double precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from nescio.native.elementwise import KEPT_AS_IT_IS, TYPES, literal
from nescio.native.places import Access, Buffer, Strides, Value, dense

MANY = 256  # terms of a sum
FOLDS = {  # what is summed up: first value, operation, reduction of OpenMP
    "sum": ("0", "{0} += {1}", "+"),
    "any": ("0", "{0} |= {1}", "|"),
    "all": ("1", "{0} &= {1}", "&"),
    "amax": ("-INFINITY", "{0} = {1} > {0} || {1} != {1} ? {1} : {0}", "max"),
    "amin": ("INFINITY", "{0} = {1} < {0} || {1} != {1} ? {1} : {0}", "min"),
}


class Fold(NamedTuple):
    """A reduction over some dimensions."""

    kind: str
    dims: frozenset[int]


@dataclass(eq=False)
class Pending:
    """An operation whose numbers are not computed yet. A fold's own value is that of the numbers summed up, in `dtype`."""

    text: str
    operands: dict[str, Access | Pending | float]
    shape: tuple[int, ...]  # of the loop
    dtype: torch.dtype
    computes: torch.dtype  # the type in which it computes
    invariant: bool  # whether it comes before the loop
    fold: Fold | None = None
    stored: bool = False  # whether anybody outside of the pass needs it
    value: Value | None = None


class Step(NamedTuple):
    """A piece of text; buffers are named in it by their place in `buffers`, and pointed to when all are known."""

    text: str
    buffers: tuple[Buffer, ...]


class Writer:
    """Names of the buffers of one step."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []

    def name(self, buffer: Buffer) -> str:
        if buffer not in self.buffers:
            self.buffers.append(buffer)
        return f"b{self.buffers.index(buffer)}"

    def at(self, access: Access, places: Sequence[tuple[str, int]]) -> str:
        """An element, given the names of the loops and which dimension each runs over."""
        terms = [f"{name} * {access.strides[dim]}" for name, dim in places if access.strides[dim]]
        for index, stride, size in access.by:
            where = self.at(index, places)
            terms.append(f"place({where}, {size}, &outside) * {stride}")
        return f"{self.name(access.buffer)}[{' + '.join([str(access.offset), *terms])}]"


def best_order(shape: Sequence[int], group: Sequence[Pending]) -> list[int]:
    """Dimensions from the outermost loop to the innermost: as one of the operands lies that have most of them, the one whose innermost
    dimension suits the others best."""
    reads = [x for p in group for x in p.operands.values() if isinstance(x, Access)]
    own = [d for d in range(len(shape)) if shape[d] > 1]
    moves = [sum(bool(x.strides[d]) for d in own) for x in reads]
    orders = [own]
    for x, count in zip(reads, moves, strict=True):
        if count == max(moves):
            orders.append(sorted(own, key=lambda d: (-abs(x.strides[d]), d)))
    return min(
        orders[1:] or orders, key=lambda order: sum(bool(order) and x.strides[order[-1]] not in (0, 1) for x in reads)
    )


def collapsed(shape: Sequence[int], order: Sequence[int], accesses: Sequence[Strides], folds: Sequence[Fold]) -> list:
    """Loops (dimension, length): neighbours that are one stretch for everybody become one."""
    loops: list[list[int]] = []
    for dim in order:
        if loops:
            outer = loops[-1]
            joint = all(strides[outer[0]] == strides[dim] * shape[dim] for strides in accesses)
            if joint and all((outer[0] in fold.dims) == (dim in fold.dims) for fold in folds):
                loops[-1] = [dim, outer[1] * shape[dim]]
                continue
        loops.append([dim, shape[dim]])
    return loops


def written(
    shape: tuple[int, ...],
    group: Sequence[Pending],
    invariant: bool,
    into: Mapping[Pending, Access] | None = None,
    add: bool = False,
) -> Step:
    """One pass over `shape` for all of the group; sets the values of what is stored or summed up. `into`: where the caller wants it,
    added to what is there if `add`, for which one number after another is taken: several may belong to one place."""
    order = best_order(shape, group)
    writer, stores, folds = Writer(), dict(into or {}), {}
    for pending in group:
        if pending in stores:
            continue
        if pending.fold is not None:
            folds[pending] = folded_into(pending, order, invariant)
        elif pending.value is not None:
            stores[pending] = pending.value.expanded(shape)
        elif pending.stored:
            view, length = dense(shape, order, pending.dtype, padded=True)
            pending.value = Value(Buffer(pending.dtype, length, invariant), view)
            stores[pending] = pending.value.expanded(shape)
    read = [x for p in group for x in p.operands.values() if isinstance(x, Access)]
    every = [*read, *(index for x in read for index, _, _ in x.by), *stores.values(), *folds.values()]
    loops = collapsed(shape, order, [x.strides for x in every], [p.fold for p in folds if p.fold])
    places = [(f"i{n}", dim) for n, (dim, _) in enumerate(loops)]
    trailing = {p: inner(p.fold, [dim for dim, _ in loops]) for p in folds}
    lines, innermost = [], len(loops) - 1
    names = {p: f"v{n}" for n, p in enumerate(group)}
    for p, access in folds.items():
        if trailing[p] < len(loops):
            lines.append(
                f"for (long z = 0; z < {access.buffer.length}; z++) {writer.name(access.buffer)}[z] = {FOLDS[p.fold.kind][0]};"
            )  # type: ignore[union-attr]
    loads: dict[str, str] = {}
    for n, (_, length) in enumerate([*loops, (None, 0)]):
        for p in folds:
            if trailing[p] and trailing[p] == len(loops) - n:
                kind = TYPES[p.value.buffer.dtype][0]  # type: ignore[union-attr]
                lines.append(f"{kind} a{names[p]} = {FOLDS[p.fold.kind][0]};")  # type: ignore[union-attr]
        if n == innermost or not loops:
            lines += outer_loads(group, writer, places, loads)
        if n == innermost and not add and not any(wanders(x, places[-1][1]) for x in every):
            lines += pragma(folds, trailing, names)
        if n < len(loops):
            lines.append(f"for (long i{n} = 0; i{n} < {length}; i{n}++) {{")
    for p in group:
        kind = TYPES[p.dtype][0] if p.fold is None else TYPES[p.computes][0]
        lines.append(f"{kind} {names[p]} = {expression(p, names, writer, places, loads)};")
        if p in stores:
            lines.append(f"{writer.at(stores[p], places)} {'+=' if add else '='} {names[p]};")
        if p in folds and loops:
            place = f"a{names[p]}" if trailing[p] else writer.at(folds[p], places)
            lines.append(FOLDS[p.fold.kind][1].format(place, names[p]) + ";")  # type: ignore[union-attr]
    for n in range(len(loops), -1, -1):
        for p, access in folds.items():
            if trailing[p] and trailing[p] == len(loops) - n:
                target = writer.at(access, places[:n])
                whole = trailing[p] == len(loops)
                fold = f"{target} = a{names[p]}" if whole else FOLDS[p.fold.kind][1].format(target, f"a{names[p]}")  # type: ignore[union-attr]
                lines.append(fold + ";")
        if n:
            lines.append("}")
    if not loops:
        lines += [f"{writer.at(folds[p], [])} = {names[p]};" for p in folds]
    return Step("\n".join(lines), tuple(writer.buffers))


def folded_into(pending: Pending, order: Sequence[int], invariant: bool) -> Access:
    """Room for what is summed up, a number for each place that is not summed over."""
    fold, shape = pending.fold, pending.shape
    assert fold is not None
    kept = [1 if d in fold.dims else n for d, n in enumerate(shape)]
    view, length = dense(kept, order, pending.dtype, padded=False)
    buffer = Buffer(pending.dtype, length, invariant)
    pending.value = Value(buffer, view)
    strides = [0 if d in fold.dims or shape[d] == 1 else view.stride(d) for d in range(len(shape))]
    return Access(buffer, strides, 0, ())


def inner(fold: Fold | None, dims: Sequence[int]) -> int:
    """How many of the innermost loops are summed over."""
    count = 0
    for dim in reversed(dims):
        if fold is None or dim not in fold.dims:
            break
        count += 1
    return count


def outer_loads(group: Sequence[Pending], writer: Writer, places: Sequence[tuple[str, int]], loads: dict) -> list[str]:
    """What is the same all along the innermost loop is read before it."""
    lines = []
    for p in group:
        for x in p.operands.values():
            if isinstance(x, Access) and places and still(x, places[-1][1]):
                text = writer.at(x, places[:-1])
                if text not in loads:
                    loads[text] = f"c{len(loads)}"
                    lines.append(f"const {TYPES[x.buffer.dtype][0]} {loads[text]} = {text};")
    return lines


def still(access: Access, dim: int) -> bool:
    """Whether it is the same all along a dimension."""
    return not access.strides[dim] and all(still(index, dim) for index, _, _ in access.by)


def wanders(access: Access, dim: int) -> bool:
    """Whether its index changes along a dimension."""
    return not all(still(index, dim) for index, _, _ in access.by)


def pragma(folds: dict, trailing: dict, names: dict) -> list[str]:
    kinds: dict[str, list[str]] = {}
    for p in folds:
        if trailing[p]:
            kinds.setdefault(FOLDS[p.fold.kind][2], []).append(f"a{names[p]}")
    return ["#pragma omp simd" + "".join(f" reduction({kind}: {', '.join(own)})" for kind, own in kinds.items())]


def expression(
    p: Pending, names: dict[Pending, str], writer: Writer, places: Sequence[tuple[str, int]], loads: dict[str, str]
) -> str:
    kind, ending = TYPES[p.computes]

    def operand(name: str, x: Access | Pending | float) -> str:
        if isinstance(x, Pending):
            text, dtype = names[x], x.dtype
        elif isinstance(x, Access):
            text, dtype = writer.at(x, places), x.buffer.dtype
            outside = writer.at(x, places[:-1]) if places and still(x, places[-1][1]) else text
            text = loads.get(outside, text)
        else:
            return literal(x, p.computes)
        return text if name in KEPT_AS_IT_IS or dtype == p.computes else f"(({kind}){text})"

    return p.text.format(_=ending, **{name: operand(name, x) for name, x in p.operands.items()})
