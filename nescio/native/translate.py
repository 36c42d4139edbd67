"""From a traced function of one chain to a program: each operation of torch in its turn."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from nescio.native import indexed
from nescio.native.elementwise import COMPARISONS, template
from nescio.native.graph import RESHAPES, SHAPE_ONLY, VIEWS, arguments, base, like, mutates, name_of, needed
from nescio.native.pending import Pending
from nescio.native.places import Access, Buffer, Unsupported, Value, dense
from nescio.native.products import product, solved
from nescio.native.program import Filled, Folded, Program

FILLED = {"zeros": 0, "ones": 1, "zeros_like": 0, "ones_like": 1, "new_zeros": 0, "new_ones": 1}
FILLED_WITH = {"full": "fill_value", "full_like": "fill_value", "new_full": "fill_value", "scalar_tensor": "s"}
FOLDS = {"sum": "sum", "any": "any", "amax": "amax", "amin": "amin", "mean": "sum"}
Rule = Callable[[Program, Node, dict[str, Any]], Any]


def translated(graph: GraphModule, shared: Sequence[bool]) -> Program:
    """`shared`: which arguments all chains have in common; the others have a leading axis of chains, of which there is one here."""
    program, nodes = Program(), needed(graph)
    inputs = [node for node in nodes if node.op == "placeholder"]
    program.written = {base(node.args[0]) for node in nodes if mutates(node)}
    program.mutated = [n for n, node in enumerate(inputs) if node in program.written]
    for n, node in enumerate(inputs):
        program.values[node] = program.argument(like(node), f"x{n}", shared[n])
    for node in nodes:
        if node.op == "get_attr":
            program.values[node] = program.constant(getattr(graph, str(node.target)))
        elif node.op == "output":
            program.finish(node.args[0])  # type: ignore[arg-type]
        elif node.target is operator.getitem:
            program.values[node] = program.values[node.args[0]][node.args[1]]  # type: ignore[index]
        elif node.op != "placeholder":
            program.values[node] = operation(program, node)
    return program


def operation(program: Program, node: Node) -> Any:
    name = name_of(node)
    if not name:
        raise Unsupported(str(node.target))
    if name in VIEWS or name in SHAPE_ONLY:
        return viewed(program, node, name)
    given = arguments(node)
    if name in RULES:
        return RULES[name](program, node, given)
    out = like(node)
    if not isinstance(out, Tensor) or not out.numel():
        raise Unsupported(f"{node.target}: several results, or none")
    if node.target._overloadname.endswith("out"):  # type: ignore[union-attr]
        raise Unsupported(f"{node.target}: a result in a place that is given")
    if mutates(node):
        return in_place(program, node, name.removesuffix("_"), given)
    if name in ("amax", "amin") and not out.is_floating_point():
        raise Unsupported(f"{node.target} of whole numbers")
    if name == "any" and like(given["self"]).dtype != torch.bool:
        raise Unsupported(f"{node.target} of numbers")
    if name in FOLDS:
        after = f"({{self}} / {like(given['self']).numel() / out.numel()})" if name == "mean" else "{self}"
        return program.folded(node, FOLDS[name], given["self"], given.get("dim"), after)
    if name in FILLED or name in FILLED_WITH:
        number = FILLED[name] if name in FILLED else given[FILLED_WITH[name]]
        return Filled(torch.full((), number, dtype=out.dtype).item(), tuple(out.shape), out.dtype)
    return elementwise(program, node, name, given)


def elementwise(program: Program, node: Node, name: str, given: dict[str, Any]) -> Pending:
    out = like(node)
    text = template(name, node.target._overloadname, given, out.dtype)  # type: ignore[union-attr]
    if text is None:
        raise Unsupported(str(node.target))
    fields = {field: given[field] for field in given if f"{{{field}}}" in text}
    if name == "remainder" and not out.is_floating_point() and isinstance(given["other"], Node):
        raise Unsupported("whole numbers by others, of which one may be 0")
    computes = out.dtype
    if name in COMPARISONS:
        tensors = [like(x) if isinstance(x, Node) else x for x in fields.values()]
        computes = torch.result_type(*tensors) if len(tensors) == 2 else tensors[0].dtype
    elif name == "_to_copy":
        computes = like(given["self"]).dtype
    return program.wait(program.elementwise(text, fields, tuple(out.shape), out.dtype, computes), node)


def in_place(program: Program, node: Node, name: str, given: dict[str, Any]) -> Value:
    """An operation on single numbers whose results take the place of its first argument."""
    into = program.writable(given["self"])
    source = program.value(given["src"] if name == "copy" else elementwise(program, node, name, given))
    program.flush_all()
    program.copy(source.like(source.view.expand(into.view.shape)), into)
    return into


def viewed(program: Program, node: Node, name: str) -> Any:
    value, out = program.value(node.args[0]), node.meta["val"]
    if name in RESHAPES:
        if not value.owns(value.view.reshape(out.shape)):
            if base(node) in program.written:
                raise Unsupported("a view that is written through, of numbers that lie otherwise here")
            value = program.copied(value, range(value.view.dim()), False)
        return value.like(value.view.reshape(out.shape))
    view = getattr(SHAPE_ONLY[name], node.target._overloadname) if name in SHAPE_ONLY else node.target  # type: ignore[union-attr]
    made = view(value.view, *node.args[1:], **node.kwargs)  # type: ignore[operator, misc]
    return [value.like(view) for view in made] if isinstance(out, list | tuple) else value.like(made)


def norm(program: Program, node: Node, given: dict[str, Any]) -> Folded:
    if given.get("ord", 2) != 2:
        raise Unsupported("a norm other than the Euclidean")
    out, x = like(node), given["self"]
    square = program.elementwise("({self} * {self})", {"self": x}, tuple(like(x).shape), out.dtype, out.dtype)
    return program.folded(node, "sum", program.wait(square), given.get("dim"), "sqrt{_}({self})")


def multiplied(program: Program, a: Value, b: Value) -> Value:
    def pack(value: Value, dim: int) -> Value:
        return program.copied(value, (1 - dim, dim), True)

    c, step = product(a, b, pack)
    program.step(step, c.invariant)
    program.work += a.view.numel() * b.view.shape[1]
    return c


def mm(program: Program, node: Node, given: dict[str, Any]) -> Value:
    return multiplied(program, program.value(given["self"]), program.value(given["mat2"]))


def bmm(program: Program, node: Node, given: dict[str, Any]) -> Value:
    a, b = program.value(given["self"]), program.value(given["mat2"])
    if len(a.view) != 1:
        raise Unsupported("several products at once")
    c = multiplied(program, a.like(a.view[0]), b.like(b.view[0]))
    return c.like(c.view[None])


def flip(program: Program, node: Node, given: dict[str, Any]) -> Pending:
    value, out = program.value(given["self"]), like(node)
    turned = [d % out.dim() for d in given["dims"]]
    strides = [-n if d in turned else n for d, n in enumerate(value.view.stride())]
    first = sum((out.shape[d] - 1) * value.view.stride(d) for d in turned)
    access = Access(value.buffer, strides, int(value.view.storage_offset()) + first, ())
    return program.wait(
        Pending("{self}", {"self": access}, tuple(out.shape), out.dtype, out.dtype, value.invariant), node
    )


def linalg_solve_triangular(program: Program, node: Node, given: dict[str, Any]) -> Value:
    a, b = program.value(given["self"]), program.value(given["B"])
    if any(len(v.view) != 1 for v in (a, b) if v.view.dim() == 3):
        raise Unsupported("several triangular systems at once")
    a = a.like(a.view[0] if a.view.dim() == 3 else a.view)
    x = program.room(like(node), a.invariant and b.invariant)
    program.copy(b, x)
    matrix, upper = x.like(x.view[0] if x.view.dim() == 3 else x.view), given["upper"]
    if not given["left"]:  # X A = B: Aᵀ Xᵀ = Bᵀ
        a, matrix, upper = a.mirrored, matrix.mirrored, not upper
    program.step(solved(a, matrix, upper, given["unitriangular"]), x.invariant)
    return x


def addmm(program: Program, node: Node, given: dict[str, Any]) -> Pending:
    out, c = like(node), multiplied(program, program.value(given["mat1"]), program.value(given["mat2"]))
    fields, text = {"product": c, "alpha": given["alpha"]}, "({alpha} * {product})"
    if given["beta"]:  # 0 of NaN is nothing
        fields |= {"self": given["self"], "beta": given["beta"]}
        text = "({beta} * {self} + {alpha} * {product})"
    return program.wait(program.elementwise(text, fields, tuple(out.shape), out.dtype, out.dtype), node)


def arange(program: Program, node: Node, given: dict[str, Any]) -> Value:
    return program.constant(node.target(*node.args, **node.kwargs))  # type: ignore[operator, misc]


def cat(program: Program, node: Node, given: dict[str, Any]) -> Value:
    return joined(program, node, [program.value(x) for x in given["tensors"]], given["dim"])


def stack(program: Program, node: Node, given: dict[str, Any]) -> Value:
    dim, parts = given["dim"] % like(node).dim(), [program.value(x) for x in given["tensors"]]
    return joined(program, node, [part.like(part.view.unsqueeze(dim)) for part in parts], dim)


def slice_scatter(program: Program, node: Node, given: dict[str, Any]) -> Value:
    into, source = indexed.anew(program, given, [given["src"]]), program.value(given["src"])
    cut = torch.ops.aten.slice.Tensor(into.view, *(given[field] for field in ("dim", "start", "end", "step")))
    program.copy(source, into.like(cut))
    return into


def select_scatter(program: Program, node: Node, given: dict[str, Any]) -> Value:
    into, source = indexed.anew(program, given, [given["src"]]), program.value(given["src"])
    program.copy(source, into.like(into.view.select(given["dim"], given["index"])))
    return into


def diagonal_scatter(program: Program, node: Node, given: dict[str, Any]) -> Value:
    into, source = indexed.anew(program, given, [given["src"]]), program.value(given["src"])
    program.copy(source, into.like(into.view.diagonal(given["offset"], given["dim1"], given["dim2"])))
    return into


def joined(program: Program, node: Node, parts: Sequence[Value], dim: int) -> Value:
    out, lies = like(node), parts[0].view  # as the first of them
    order = sorted(range(out.dim()), key=lambda d: (lies.shape[d] > 1, -lies.stride(d)))
    view, length = dense(tuple(out.shape), order, out.dtype, False)
    into, first = Value(Buffer(out.dtype, length, all(part.invariant for part in parts)), view), 0
    for part in parts:
        length = part.view.shape[dim]
        if part.view.numel():
            program.copy(part, into.like(into.view.narrow(dim, first, length)))
        first += length
    return into


RULES: dict[str, Rule] = {
    "linalg_vector_norm": norm,
    "mm": mm,
    "bmm": bmm,
    "addmm": addmm,
    "arange": arange,
    "flip": flip,
    "linalg_solve_triangular": linalg_solve_triangular,
    "slice_scatter": slice_scatter,
    "select_scatter": select_scatter,
    "diagonal_scatter": diagonal_scatter,
    "cat": cat,
    "stack": stack,
    **indexed.RULES,
}
