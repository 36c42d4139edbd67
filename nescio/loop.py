"""A traced function so many times over, its results in the place of its first arguments, as one graph: a loop in machine code.

    loop(times, *arguments) = function(function(... function(*arguments) ...))

It may end before, when few chains have anything left to do. A function may write into those of its arguments that it does not return: so
a loop leaves a record of every turn. By hand, because tracing `while_loop` itself would trace the function through autograd once more.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

FEW = 4  # a loop ends when at most one chain in so many goes on: code for fewer chains serves those better


def writable() -> bool:
    """Whether this version of torch has loops that write into what they are given."""
    return "mutated_arg_indices" in inspect.signature(type(torch.ops.higher_order.while_loop).__call__).parameters


def repeated(graph: GraphModule, until: int | None = None, width: int = 1) -> tuple[GraphModule, list[Tensor]]:
    """Its first argument is how often, its last ones are the constants: a loop may close over nothing.

    `until`: which of the results tells of each of the `width` chains whether it goes on; without it, all turns are made.
    """
    gathered(graph)
    nodes = list(graph.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    results = nodes[-1].args[0]
    assert isinstance(results, Sequence)
    constants = list(dict.fromkeys(str(node.target) for node in nodes if node.op == "get_attr"))
    root, whole = nn.Module(), Graph()
    times = whole.placeholder("times")
    given = [whole.placeholder(f"x{i}") for i in range(len(inputs))]
    held = [whole.placeholder(name) for name in constants]
    root.going = going(len(results), len(inputs) + len(constants), until, width)
    root.body = body(nodes, len(results), constants)
    zero = whole.call_function(torch.ops.aten.full.default, ([], 0), {"dtype": torch.int64})
    carried = (zero, *given[: len(results)])
    others = (times, *given[len(results) :], *held)
    loop = torch.ops.higher_order.while_loop
    written = {node.args[0] for node in nodes if isinstance(node.target, OpOverload) and node.target._schema.is_mutable}
    places = [str(i + 2) for i, node in enumerate(inputs) if node in written]  # after the count of turns, and `times`
    after = whole.call_function(
        loop,
        (whole.get_attr("going"), whole.get_attr("body"), carried, others),
        {"mutated_arg_indices": ",".join(places)} if places else {},
    )
    whole.output(tuple(whole.call_function(operator.getitem, (after, i + 1)) for i in range(len(results))))
    return GraphModule(root, whole), [getattr(graph, name) for name in constants]


def gathered(graph: GraphModule) -> None:
    """Constants that are single numbers, of one kind, become one: each turn of a loop takes time for each of its arguments."""
    nodes = [node for node in graph.graph.nodes if node.op == "get_attr"]
    single = [node for node in nodes if getattr(graph, str(node.target)).dim() == 0]
    for dtype in {getattr(graph, str(node.target)).dtype for node in single}:
        own = [node for node in single if getattr(graph, str(node.target)).dtype == dtype]
        name = f"numbers_{str(dtype).removeprefix('torch.')}"
        setattr(graph, name, torch.stack([getattr(graph, str(node.target)) for node in own]))
        for i, node in enumerate(own):
            with graph.graph.inserting_before(node):
                all_of_them = graph.graph.get_attr(name)
                one = graph.graph.call_function(torch.ops.aten.select.int, (all_of_them, 0, i))
            node.replace_all_uses_with(one)
            graph.graph.erase_node(node)


def going(carried: int, count: int, until: int | None, width: int) -> GraphModule:
    """Whether fewer than `times` are done, and not too few chains go on, given the arguments of the body."""
    graph = Graph()
    done = graph.placeholder("done")
    given = [graph.placeholder(f"x{i}") for i in range(count + 1)]
    more = graph.call_function(torch.ops.aten.lt.Tensor, (done, given[carried]))
    if until is not None:
        many = graph.call_function(torch.ops.aten.sum.default, (given[until],))
        enough = graph.call_function(torch.ops.aten.gt.Scalar, (many, width // FEW))
        more = graph.call_function(torch.ops.aten.logical_and.default, (more, enough))
    graph.output(more)
    return GraphModule(nn.Module(), graph)


def body(nodes: Sequence[Node], carried: int, constants: Sequence[str]) -> GraphModule:
    """(done, carried, times, the other arguments, constants) -> (done + 1, results)."""
    graph, places = Graph(), {}
    done = graph.placeholder("done")
    for i, node in enumerate(node for node in nodes if node.op == "placeholder"):
        if i == carried:
            graph.placeholder("times")
        places[node] = graph.placeholder(f"x{i}")
    held = {name: graph.placeholder(name) for name in constants}
    for node in nodes:
        if node.op == "get_attr":
            places[node] = held[str(node.target)]
        elif node.op == "output":
            results = map_arg(node.args[0], places.__getitem__)
            assert isinstance(results, Sequence)
            graph.output((graph.call_function(torch.ops.aten.add.Tensor, (done, 1)), *results))
        elif node.op != "placeholder":
            places[node] = graph.node_copy(node, places.__getitem__)
    return GraphModule(nn.Module(), graph)
