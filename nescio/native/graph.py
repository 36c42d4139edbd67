"""What is asked of a traced function: its nodes in order, without those that change nothing."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

RESHAPES = {"view", "reshape", "_unsafe_view"}
VIEWS = {
    *RESHAPES,
    *("select", "slice", "unsqueeze", "squeeze", "expand", "permute", "transpose", "t", "split", "split_with_sizes"),
    *("unbind", "narrow", "diagonal", "movedim", "expand_as"),
}
IDENTITIES = {"detach", "alias", "lift_fresh_copy", "lift_fresh"}
# said to change a tensor, of which they change the shape; and the same as views
SHAPE_ONLY = {"squeeze_": torch.ops.aten.squeeze}


def like(node: Any) -> Tensor:
    """Shape and type of what a node gives."""
    return node.meta["val"]


def name_of(node: Node) -> str:
    """Of torch's operation; empty for anything else."""
    return node.target.overloadpacket.__name__ if isinstance(node.target, torch._ops.OpOverload) else ""


def arguments(node: Node) -> dict[str, Any]:
    """By name, with defaults."""
    names = node.target._schema.arguments  # type: ignore[union-attr]
    given = {argument.name: argument.default_value for argument in names}
    given |= dict(zip((argument.name for argument in names), node.args, strict=False))
    return {**given, **node.kwargs}


def mutates(node: Node) -> bool:
    return (
        isinstance(node.target, torch._ops.OpOverload)
        and node.target._schema.is_mutable
        and name_of(node) not in SHAPE_ONLY
    )


def root(node: Any) -> Node:
    """What a view is a view of; of anything else, what it was first made of."""
    while node.op == "call_function" and node.args and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


def base(node: Any) -> Node:
    """What shares its memory: of a view, or of what was written into, the tensor that was made."""
    while node.op == "call_function" and (
        node.target is operator.getitem or mutates(node) or name_of(node) in VIEWS | IDENTITIES | SHAPE_ONLY.keys()
    ):
        node = node.args[0]
    return node


def idle(node: Node, written: set[Node]) -> bool:
    """Whether it gives what it is given. A copy does, unless it or its origin is `written` to."""
    name, source = name_of(node), node.args[0] if node.args else None
    if not name or not isinstance(source, Node):
        return False
    if name in ("clone", "_to_copy"):
        return root(source) not in written and like(source).dtype == like(node).dtype
    if name == "as_strided":
        size, stride, offset = (arguments(node)[field] for field in ("size", "stride", "storage_offset"))
        before = like(source)
        same = tuple(size) == tuple(before.shape) and tuple(stride) == before.stride()
        return same and offset in (None, before.storage_offset())
    return name in IDENTITIES


def needed(graph: GraphModule) -> list[Node]:
    """The nodes that results or writes depend on, in order; those that change nothing are passed over."""
    nodes = list(graph.graph.nodes)
    written = {root(node.args[0]) for node in nodes if mutates(node)}
    for node in nodes:
        if idle(node, written):
            node.replace_all_uses_with(node.args[0])
    wanted: set[Node] = set()
    for node in reversed(nodes):
        if node.op in ("placeholder", "output") or mutates(node) or node in wanted:
            wanted.update(node.all_input_nodes)
            wanted.add(node)
    for node in reversed(nodes):
        if node not in wanted:
            graph.graph.erase_node(node)
    return list(graph.graph.nodes)
