"""What a gradient needs of the forward pass is computed again where it is needed, if that is cheaper than to write it and read it back.

A trace of log density and gradient is one straight graph, and a compiler that fuses neighbours would write every number that a much later
operation reads. Elementwise results can be made anew from what convolutions took and gave, which is there anyway: so does torch's own
partitioner between forward and backward graphs. The numbers are the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from nescio.narrow import BACKWARD, FORWARD

aten: Any = torch.ops.aten
KEPT = {*FORWARD, *BACKWARD, aten.mm.default, aten.bmm.default, aten.addmm.default}
CHEAP = {
    *(aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.rsub.Scalar, aten.mul.Tensor, aten.mul.Scalar),
    *(aten.div.Tensor, aten.div.Scalar, aten.neg.default, aten.pow.Tensor_Scalar, aten.exp.default),
    *(aten.where.self, aten.maximum.default, aten.lt.Tensor, aten.gt.Tensor, aten.le.Tensor, aten.eq.Tensor),
    *(aten.sigmoid.default, aten.silu.default, aten.relu.default, aten.tanh.default),
    *(aten._to_copy.default, aten.expand.default, aten.reshape.default, aten.unsqueeze.default, aten.detach.default),
}
MOST = 40  # operations that one number may cost again


def again(graph: Graph) -> None:
    """In place. Graphs without convolutions, whose intermediates are small, stay as they are; so do those that write into tensors."""
    nodes = list(graph.nodes)
    back = next((i for i, node in enumerate(nodes) if node.target in BACKWARD), None)
    if back is None:
        return
    last = max(i for i in range(back) if nodes[i].target in FORWARD)
    if any(writes(node) for node in nodes[:last]):
        return
    needed = {x for node in nodes if node.target in KEPT for x in node.all_input_nodes}
    cost: dict[Node, int] = {}
    for node in nodes[:last]:
        if node.op == "call_function" and node.target in CHEAP and node not in needed:
            operations = 1 + sum(cost.get(x, 0) for x in node.all_input_nodes)
            if operations <= MOST:
                cost[node] = operations
    copies: dict[Node, Node] = {}  # between two convolutions: what is made anew serves all that follows, up to the next
    for user in nodes[last + 1 :]:
        for x in user.all_input_nodes:
            if x in cost:
                user.replace_input_with(x, copied(graph, x, user, cost, copies))
        if user.target in KEPT:
            copies = {}


def writes(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def copied(graph: Graph, node: Node, user: Node, cost: dict[Node, int], copies: dict[Node, Node]) -> Node:
    """A copy of the node before its user, with copies of all that it is made from and that is not kept."""
    if node not in cost:
        return node
    if node not in copies:
        made = {x: copied(graph, x, user, cost, copies) for x in node.all_input_nodes}
        with graph.inserting_before(user):
            copies[node] = graph.node_copy(node, made.__getitem__)
    return copies[node]
