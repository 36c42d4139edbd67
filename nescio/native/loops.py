"""One pass over numbers of one shape: loops in which some operations are computed, stored and summed up.

The numbers of a pass that nobody else needs stay in registers. Sums of many numbers are taken in double precision (program.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nescio.native.elementwise import KEPT_AS_IT_IS, TYPES, literal
from nescio.native.pending import Fold, Pending, Step, Writer
from nescio.native.places import Access, Buffer, Value, dense


def written(
    shape: tuple[int, ...],
    group: Sequence[Pending],
    invariant: bool,
    into: Mapping[Pending, Access] | None = None,
    add: bool = False,
) -> Step:
    """For all of the group; sets the values of what is stored or summed up. `into`: where the caller wants it, added to what is there if
    `add`, for which one number after another is taken: several may belong to one place."""
    made = Pass(shape, group, invariant, into or {}, add)
    return Step("\n".join(made.lines()), tuple(made.writer.buffers))


class Pass:
    """`stores`: where a number goes; `folds`: where a sum does; `inner`: over how many of the innermost loops it is taken."""

    def __init__(
        self,
        shape: tuple[int, ...],
        group: Sequence[Pending],
        invariant: bool,
        into: Mapping[Pending, Access],
        add: bool,
    ) -> None:
        order = best_order(shape, group)
        self.group, self.add, self.writer = group, add, Writer()
        self.stores, self.folds = dict(into), dict[Pending, Access]()
        for p in group:
            if p in into:
                continue
            if p.fold is not None:
                self.folds[p] = summed_into(p, p.fold, order, invariant)
                continue
            if p.value is None and p.stored:
                view, length = dense(shape, order, p.dtype, padded=True)
                p.value = Value(Buffer(p.dtype, length, invariant), view)
            if p.value is not None:
                self.stores[p] = p.value.expanded(shape)
        own = [*(x for p in group for x in p.reads), *self.stores.values(), *self.folds.values()]
        every = [*own, *(index.where for x in own for index in x.by)]
        loops = collapsed(shape, order, every, [p.fold for p in self.folds if p.fold])
        self.lengths, dims = [length for _, length in loops], [dim for dim, _ in loops]
        self.places = [(f"i{n}", dim) for n, dim in enumerate(dims)]
        self.inner = {p: p.fold.inner(dims) for p in self.folds if p.fold}
        self.names = {p: f"v{n}" for n, p in enumerate(group)}
        self.loaded: dict[str, str] = {}  # what is the same all along the innermost loop: its text, its name
        self.even = not add and bool(dims) and all(still(i.where, dims[-1]) for x in own for i in x.by)

    def lines(self) -> list[str]:
        depth = len(self.lengths)
        lines = []
        for p, place in self.folds.items():
            if self.inner[p] < depth:  # of whose numbers there are several
                name = self.writer.name(place.buffer)
                lines.append(f"for (long z = 0; z < {place.buffer.length}; z++) {name}[z] = {p.fold.first};")  # type: ignore[union-attr]
        for n, length in enumerate(self.lengths):
            lines += self.totals(n)
            if n == depth - 1:
                lines += self.loads()
                lines += self.pragma() if self.even else []
            lines.append(f"for (long i{n} = 0; i{n} < {length}; i{n}++) {{")
        lines += self.body()
        for n in reversed(range(depth)):
            lines += ["}", *self.ends(n)]
        return lines

    def totals(self, depth: int) -> list[str]:
        """Sums that begin inside so many loops."""
        some = [p for p in self.folds if self.inner[p] and self.inner[p] == len(self.lengths) - depth]
        return [f"{TYPES[p.dtype][0]} a{self.names[p]} = {p.fold.first};" for p in some]  # type: ignore[union-attr]

    def ends(self, depth: int) -> list[str]:
        """Sums that end there."""
        lines = []
        for p, access in self.folds.items():
            if self.inner[p] and self.inner[p] == len(self.lengths) - depth:
                assert p.fold is not None
                place, total = self.writer.at(access, self.places[:depth]), f"a{self.names[p]}"
                lines.append(p.fold.joined(place, total) if depth else f"{place} = {total};")
        return lines

    def body(self) -> list[str]:
        lines = []
        for p in self.group:
            kind, name = TYPES[p.dtype if p.fold is None else p.computes][0], self.names[p]
            lines.append(f"{kind} {name} = {self.expression(p)};")
            if p in self.stores:
                lines.append(f"{self.writer.at(self.stores[p], self.places)} {'+=' if self.add else '='} {name};")
            if p in self.folds:
                assert p.fold is not None
                place = self.writer.at(self.folds[p], self.places)
                alone = f"{place} = {name};"  # a sum of one number
                total = f"a{name}" if self.inner[p] else place
                lines.append(p.fold.joined(total, name) if self.lengths else alone)
        return lines

    def loads(self) -> list[str]:
        """What is the same all along the innermost loop is read before it."""
        lines = []
        for x in (x for p in self.group for x in p.reads):
            if still(x, self.places[-1][1]):
                text = self.writer.at(x, self.places[:-1])
                if text not in self.loaded:
                    self.loaded[text] = f"c{len(self.loaded)}"
                    lines.append(f"const {TYPES[x.buffer.dtype][0]} {self.loaded[text]} = {text};")
        return lines

    def pragma(self) -> list[str]:
        kinds: dict[str, list[str]] = {}
        for p in self.folds:
            if self.inner[p] and p.fold is not None:
                kinds.setdefault(p.fold.reduction, []).append(f"a{self.names[p]}")
        return ["#pragma omp simd" + "".join(f" reduction({kind}: {', '.join(own)})" for kind, own in kinds.items())]

    def expression(self, p: Pending) -> str:
        kind, ending = TYPES[p.computes]

        def operand(name: str, x: Access | Pending | float) -> str:
            if isinstance(x, Pending):
                text, dtype = self.names[x], x.dtype
            elif isinstance(x, Access):
                before = self.writer.at(x, self.places[:-1])
                same = bool(self.places) and still(x, self.places[-1][1])
                text = self.loaded[before] if same else self.writer.at(x, self.places)
                dtype = x.buffer.dtype
            else:
                return literal(x, p.computes)
            return text if name in KEPT_AS_IT_IS or dtype == p.computes else f"(({kind}){text})"

        return p.text.format(_=ending, **{name: operand(name, x) for name, x in p.operands.items()})


def best_order(shape: Sequence[int], group: Sequence[Pending]) -> list[int]:
    """Dimensions from the outermost loop to the innermost: as one of the operands lies that have most of them, the one whose innermost
    dimension suits the others best."""
    reads = [x for p in group for x in p.reads]
    own = [d for d in range(len(shape)) if shape[d] != 1]
    moves = [sum(bool(x.strides[d]) for d in own) for x in reads]
    widest = [x for x, count in zip(reads, moves, strict=True) if count == max(moves)]
    orders = [sorted(own, key=lambda d, x=x: (-abs(x.strides[d]), d)) for x in widest] or [own]

    def askew(order: Sequence[int]) -> int:
        return sum(x.strides[order[-1]] not in (0, 1) for x in reads) if order else 0

    return min(orders, key=askew)


def collapsed(
    shape: Sequence[int], order: Sequence[int], accesses: Sequence[Access], folds: Sequence[Fold]
) -> list[tuple[int, int]]:
    """Loops (dimension, length): neighbours that are one stretch for everybody become one."""
    loops: list[tuple[int, int]] = []
    for dim in order:
        length = shape[dim]
        if loops:
            outer = loops[-1][0]
            joint = all(x.strides[outer] == x.strides[dim] * length for x in accesses)
            if joint and all((outer in fold.dims) == (dim in fold.dims) for fold in folds):
                length *= loops.pop()[1]
        loops.append((dim, length))
    return loops


def summed_into(pending: Pending, fold: Fold, order: Sequence[int], invariant: bool) -> Access:
    """Room for what is summed up, a number for each place that is not summed over."""
    shape = pending.shape
    view, length = dense([1 if d in fold.dims else n for d, n in enumerate(shape)], order, pending.dtype, padded=False)
    buffer = Buffer(pending.dtype, length, invariant)
    pending.value = Value(buffer, view)
    strides = [0 if d in fold.dims or shape[d] == 1 else view.stride(d) for d in range(len(shape))]
    return Access(buffer, strides, 0, ())


def still(access: Access, dim: int) -> bool:
    """Whether it is the same all along a dimension."""
    return not access.strides[dim] and all(still(index.where, dim) for index in access.by)
