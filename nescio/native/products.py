"""Products of small matrices, in one of three ways: the one that takes the fewest operations, copies included.

columns: C[:, j] = Σ_p A[:, p] B[p, j], vectors along the rows of C; or along its columns, with the roles exchanged
dots:    C[i, j] = Σ_p A[i, p] B[p, j], vectors along the sum
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from nescio.native.elementwise import TYPES
from nescio.native.pending import Step, Writer
from nescio.native.places import LANE, Buffer, Unsupported, Value, dense, whole_vectors

COPY = 8  # multiplications that take as long as copying a number askew
WIDE = torch.backends.cpu.get_cpu_capability() == "AVX512"  # 32 registers of 64 bytes; else tiles fit into 16 of 32
TILES = {"columns": (4, 6), "dots": (4, 4)} if WIDE else {"columns": (2, 2), "dots": (3, 3)}
# of columns: stretches of 64 bytes along the rows, by columns; of dots: rows by columns


def product(a: Value, b: Value, pack: Callable[[Value, int], Value]) -> tuple[Value, Step]:
    """a (m, k) times b (k, n). `pack(value, dim)` copies a matrix so that this dimension lies in whole vectors; one that is
    shorter than a vector is followed by the next row, which a product's own columns, stored in their order, make good."""
    dtype, (m, k), n = a.buffer.dtype, a.view.shape, b.view.shape[1]
    if dtype not in (torch.float32, torch.float64) or b.buffer.dtype != dtype:
        raise Unsupported(f"products of {dtype}")
    lane = LANE // dtype.itemsize

    def copy(value: Value, dim: int) -> int:
        return 0 if whole_vectors(value, dim) or value.invariant else COPY * value.view.numel()

    def vectors(count: int) -> int:
        return -(-count // lane)

    along_rows = vectors(m) * n * k * 1.2 + copy(a, 0)
    along_columns = vectors(n) * m * k * 1.2 + copy(b, 1) + (COPY * m * n if m > n else 0)  # read askew by others
    along_sum = (vectors(k) + 12) * m * n + copy(a, 1) + copy(b, 0)
    least = min(along_rows, along_columns, along_sum)
    invariant = a.invariant and b.invariant
    if least == along_sum:
        a, b = (v if whole_vectors(v, d) else pack(v, d) for v, d in ((a, 1), (b, 0)))
        view, length = dense((m, n), (0, 1), dtype, padded=True)
        c = Value(Buffer(dtype, length, invariant), view)
        return c, tiled("dots", a, b, c, m, n, k)
    if least == along_rows:
        a = a if whole_vectors(a, 0) else pack(a, 0)
        view, length = dense((m, n), (1, 0), dtype, padded=True)
        c = Value(Buffer(dtype, length + lane, invariant), view)
        return c, tiled("columns", a, b, c, vectors(m), n, k)
    b = b if whole_vectors(b, 1) else pack(b, 1)
    view, length = dense((m, n), (0, 1), dtype, padded=True)
    c = Value(Buffer(dtype, length + lane, invariant), view)
    return c, tiled("columns", b.mirrored, a.mirrored, c.mirrored, vectors(n), m, k)


def tiled(kind: str, a: Value, b: Value, c: Value, m: int, n: int, k: int) -> Step:
    """Tiles that fill registers, then what is left over."""
    writer = Writer()
    dtype = c.buffer.dtype
    ending, lane = TYPES[dtype][1], LANE // dtype.itemsize
    scale = lane if kind == "columns" else 1
    (ai, ap), (bp, bj), (ci, cj) = (v.view.stride() for v in (a, b, c))
    ai, ci = (scale, scale) if kind == "columns" else (ai, ci)
    steps = (ai, ap, bp, bj, ci, cj)
    lines = []
    for i, rows, some in strips(m, TILES[kind][0]):
        for j, columns, others in strips(n, TILES[kind][1]):
            firsts = ((a, i * ai), (b, j * bj), (c, i * ci + j * cj))
            at = [f"{writer.name(v.buffer)} + {v.view.storage_offset() + first}" for v, first in firsts]
            given = ", ".join(map(str, (some, others, k, *at, *steps)))
            lines.append(f"{kind}{ending}_{rows}_{columns}({given});")
    return Step("\n".join(lines), tuple(writer.buffers))


def solved(a: Value, x: Value, upper: bool, unit: bool) -> Step:
    """A X = B, of which X takes the place."""
    writer, (m, n) = Writer(), x.view.shape
    name = f"solve{TYPES[x.buffer.dtype][1]}"
    given = [
        f"{writer.name(v.buffer)} + {v.view.storage_offset()}, {v.view.stride(0)}, {v.view.stride(1)}" for v in (a, x)
    ]
    return Step(f"{name}({int(upper)}, {int(unit)}, {m}, {n}, {', '.join(given)});", tuple(writer.buffers))


def strips(length: int, most: int) -> list[tuple[int, int, int]]:
    """(first, width, how many): as wide as may be, then one for the rest."""
    whole = length // most
    left = length - whole * most
    return [strip for strip in ((0, most, whole), (whole * most, left, 1)) if strip[1] and strip[2]]
