"""A program's text: a function of pointers that takes some chains through some turns of a loop.

    run(arguments, constants, results, work, first, last, times) -> whether an index was out of range

Results of one turn are the first arguments of the next where it is a loop. Chains go one after another, so that the numbers of one stay
in the memory near a core; buffers whose lives do not meet share their room.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from nescio.native.elementwise import TYPES
from nescio.native.loops import written
from nescio.native.pending import Pending, Step
from nescio.native.places import LANE, Buffer, Unsupported, Value
from nescio.native.program import Program

HEAD = "int64_t run(char *const *in, char *const *constants, char *const *out, char *work, long first, long last, long times) {"


def text(
    program: Program, shared: Sequence[bool], given: Sequence[Tensor], fed: bool, until: int | None
) -> tuple[str, int]:
    """The function and how many bytes of workspace it needs. `given`: arguments of one chain."""
    if fed and len(program.results) > shared.count(False):
        raise Unsupported("more results than chains have arguments")
    if fed and any(
        x.dtype != r.buffer.dtype or x.numel() != r.view.numel() for x, r in zip(given, program.results, strict=False)
    ):
        raise Unsupported("results that do not fit the arguments whose place they take")
    ends = [last(value, f"x{n}" if fed else f"r{n}") for n, value in enumerate(program.results)]
    body = [*program.body, *ends]
    room = arranged(program.before, body)
    carried = range(len(ends)) if fed else range(0)
    lines = [HEAD, "int64_t outside = 0;"]
    lines += [f"char *x{n} = in[{n}];" for n, every in enumerate(shared) if every]
    lines += [f"char *k{n} = constants[{n}];" for n in range(len(program.constants))]
    lines += map(block, program.before)
    lines.append("for (long chain = first; chain < last; chain++) {")
    for n, size in enumerate(x.numel() * x.element_size() for x in given):
        if n in carried:
            lines.append(f"char *x{n} = out[{n}] + chain * {size};")
            lines.append(f"memcpy(x{n}, in[{n}] + chain * {size}, {size});")
        elif not shared[n]:
            lines.append(f"char *x{n} = in[{n}] + chain * {size};")
    if not fed:
        for n, value in enumerate(program.results):
            lines.append(f"char *r{n} = out[{n}] + chain * {value.view.numel() * value.view.element_size()};")
    lines.append("for (long turn = 0; turn < times; turn++) {")
    if until is not None:
        lines.append(f"if (!*(_Bool *)x{until}) break;")
    lines += map(block, body)
    lines += ["}", "}", "return outside;", "}", ""]
    return "\n".join([*tiles("\n".join(lines)), *lines]), room


def tiles(text: str) -> list[str]:
    """A function for each size of tile that is called for (prelude.h)."""
    kinds = {ending: kind for kind, ending in TYPES.values()}
    sizes = sorted(set(re.findall(r"\b(columns|dots)(_f32|_f64)_(\d)_(\d)\(", text)))
    return [f"TILES({kind}, {kinds[ending]}, {ending}, {m}, {n})" for kind, ending, m, n in sizes]


def last(value: Value, name: str) -> Step:
    """A result goes to where the caller finds it."""
    shape, dtype = tuple(value.view.shape), value.buffer.dtype
    into = Value(Buffer(dtype, value.view.numel(), False, name), torch.empty(shape, dtype=dtype, device="meta"))
    pending = Pending("{self}", {"self": value.expanded(shape)}, shape, dtype, dtype, False, value=into)
    return written(shape, [pending], False)


def block(step: Step) -> str:
    names = "".join(f" {b.kind} *b{n} = {b.pointer};" for n, b in enumerate(step.buffers))
    return f"{{{names}\n{step.text}\n}}"


def arranged(before: Sequence[Step], body: Sequence[Step]) -> int:
    """Each buffer's place in the workspace: what was made before the loop stays, the rest makes room when it is not needed any more."""
    top, taken = 0, set()
    for step in before:
        for buffer in step.buffers:
            if not buffer.argument and buffer not in taken:
                taken.add(buffer)
                buffer.offset, top = top, top + buffer.bytes
    ends = {
        buffer: n
        for n, step in enumerate(body)
        for buffer in step.buffers
        if not buffer.argument and buffer not in taken
    }
    live: list[Buffer] = []
    floor, most = top, top
    for n, step in enumerate(body):
        for buffer in step.buffers:
            if buffer in ends and buffer not in taken:
                taken.add(buffer)
                place = floor
                for other in sorted(live, key=lambda b: b.offset):
                    if place + buffer.bytes <= other.offset:
                        break
                    place = max(place, other.offset + other.bytes)
                buffer.offset = place
                live.append(buffer)
                most = max(most, place + buffer.bytes)
        live = [buffer for buffer in live if ends[buffer] > n]
    return most + LANE
