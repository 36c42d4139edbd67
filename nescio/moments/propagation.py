"""A network that is given means and variances instead of numbers, operation by operation, as `torch.export` sees it.

A linear map takes along the norm that follows it (maps.py). For the variances it costs one or two deterministic ones more, one if it is
factored. What means and variances become elsewhere is in rules.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.func import functionalize
from torch.fx import GraphModule, Node
from torch.fx.graph import CodeGen
from torch.utils._pytree import tree_leaves

from nescio.errors import UnsupportedError
from nescio.moments.gaussian import Moments, Number, larger, parts
from nescio.moments.maps import LINEAR, Map, Norm, apply, laid_out, mapped
from nescio.moments.rules import RULES

aten = torch.ops.aten
CHECKS = (aten._assert_tensor_metadata.default, aten._assert_async.msg, aten.sym_constrain_range_for_size.default)
LEAST = 1e-3  # of γ beside β: what γ multiplies is found again from both


@final
class Propagation(nn.Module):
    """x to the mean and variance of the outputs. `exported`: a network with the means as its weights."""

    def __init__(self, exported: GraphModule, variances: dict[str, Tensor], factored: bool = False) -> None:
        super().__init__()
        exported.graph.set_codegen(CodeGen())  # it is read, not run; what torch.export put there cannot be copied
        for node in exported.graph.nodes:
            shape = getattr(node.meta.get("val"), "shape", ())
            node.meta = {"nn_module_stack": node.meta.get("nn_module_stack"), "axes": node.meta.get("axes", len(shape))}
            if node.target is aten.view.default:
                node.target = aten.reshape.default  # numbers lie in another order here
        self.graph, self.uncertain, self.maps = deepcopy(exported.graph), frozenset(variances), set[str]()
        self.check()
        known = {node: number(exported, variances, node) for node in self.graph.nodes if node.op == "get_attr"}
        for node in list(self.graph.nodes):
            if node.target in LINEAR and all(n is None or n in known for n in node.args[1:3]):
                self.fold(node, known, factored)
        for node, value in known.items():
            if node.users:
                self.keep(node, Moments(*parts(value)))  # type: ignore[arg-type]
            else:
                self.graph.erase_node(node)

    def fold(self, node: Node, known: dict[Node, Number], factored: bool) -> None:
        """A linear map whose weights are known, and the norm after it: what of both does not depend on x."""
        x, weight, bias, *options = arguments(node.args)
        dense, users, norm = node.target is aten.linear.default, list(node.users), None
        if len(users) == 1 and (not dense or node.meta["axes"] == 2):  # a norm's channels are along the second axis
            norm = norm_of(users[0], known)
        if norm is not None:
            users[0].replace_all_uses_with(node)
            self.graph.erase_node(users[0])
        if not dense and options[3:] not in ([], [1]):  # groups have inputs of their own
            factored = False
        node.args = (x, *options)
        self.keep(node, mapped(known[weight], None if bias is None else known[bias], norm, factored))
        self.maps.add(node.name)

    def keep(self, node: Node, numbers: NamedTuple) -> None:
        for name, tensor in numbers._asdict().items():
            self.register_buffer(f"{node.name}_{name}", laid_out(tensor))

    def kept(self, node: Node, names: tuple[str, ...]) -> list[Any]:
        return [getattr(self, f"{node.name}_{name}") for name in names]

    def check(self) -> None:
        """Refuse at once what a pass would meet: every node that an uncertain number can reach must be known."""
        reached: set[Node] = set()
        for node in self.graph.nodes:
            uncertain = any(before in reached for before in node.all_input_nodes)
            if (node.op == "get_attr" and node.target in self.uncertain) or uncertain:
                reached.add(node)
            if uncertain and node.op == "call_function":
                known = node.target in RULES or node.target in (*LINEAR, *CHECKS)
                if not known and not threshold(node) and not compared(node):
                    raise refused(node)

    def forward(self, x: Any) -> Moments:
        if torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in tree_leaves(x)):
            return Moments(*functionalize(self.run)(x))  # numbers that a gradient needs are not written over
        return self.run(x)

    def run(self, x: Any) -> Moments:
        given = list(x.values()) if isinstance(x, dict) else list(x) if isinstance(x, tuple) else [x]
        values: dict[Node, Any] = {}
        waiting = {node: len(node.users) for node in self.graph.nodes}
        for node in self.graph.nodes:
            if node.op == "placeholder":
                values[node] = laid_out(given.pop(0))
            elif node.op == "get_attr":
                mean, variance = self.kept(node, Moments._fields)
                values[node] = mean if variance is None else Moments(mean, variance)
            elif node.op == "output":
                (found,) = node.args[0] if isinstance(node.args[0], (tuple, list)) else (node.args[0],)
                mean, variance = parts(values[found])
                return Moments(mean, torch.zeros_like(mean) if variance is None else variance)
            elif node.op == "call_function":  # a module is one of torch's own guards
                values[node] = self.call(node, values)
                for before in node.all_input_nodes:
                    waiting[before] -= 1
                    if not waiting[before]:
                        del values[before]  # what comes next may have its memory, which is near
        raise AssertionError("a graph ends in its output")

    def call(self, node: Node, values: dict[Node, Any]) -> Any:
        found: Any = torch.fx.map_arg((node.args, node.kwargs), lambda n: values[n])
        args, named = found
        if node.name in self.maps:
            return apply(node.target, Map(*self.kept(node, Map._fields)), *args)
        if not any(isinstance(values[before], Moments) for before in node.all_input_nodes):
            return node.target(*args, **named)  # type: ignore[operator]
        if node.target in LINEAR:
            x, weight, bias, *options = arguments(args)
            return apply(node.target, mapped(weight, bias), x, *options)
        if node.target in CHECKS or compared(node):
            return None
        if threshold(node):
            return larger(args[1], args[2])
        try:
            return RULES[node.target](*args, **named)
        except NotImplementedError:
            raise refused(node) from None


def arguments(given: Sequence[Any]) -> list[Any]:
    """Input, weight, bias and options of a linear map; the bias may be left out."""
    return [*given, None] if len(given) == 2 else list(given)


def norm_of(node: Node, known: dict[Node, Number]) -> Norm | None:
    """What the node does to each channel by itself, if it does no more than that."""
    if node.target is not aten.batch_norm.default or node.args[5]:
        return None
    given: Any = node.args
    _, gamma, beta, centre, square, _, _, eps, *_ = given
    if any(n is not None and n not in known for n in (gamma, beta, centre, square)):
        return None
    middle, width = known[centre], known[square]
    assert isinstance(middle, Tensor) and isinstance(width, Tensor)
    scale = torch.ones_like(middle) if gamma is None else known[gamma]
    shift = torch.zeros_like(middle) if beta is None else known[beta]
    small = parts(scale)[0].abs() <= LEAST * parts(shift)[0].abs()
    return None if bool(small.any()) else Norm(scale, shift, middle, width + eps)


def number(exported: GraphModule, variances: dict[str, Tensor], node: Node) -> Number:
    owner: Any = exported
    for part in str(node.target).split("."):
        owner = getattr(owner, part)
    mean = owner.detach()
    return Moments(mean, variances[str(node.target)]) if node.target in variances else mean


def compared(node: Node) -> bool:
    """A comparison that only serves a threshold."""
    return node.target in (aten.lt.Tensor, aten.gt.Tensor) and all(threshold(user) for user in node.users)


def threshold(node: Node) -> bool:
    """where(y < t, t, y): the larger of both."""
    if node.target is not aten.where.self:
        return False
    condition, one, two = node.args
    return isinstance(condition, Node) and condition.target is aten.lt.Tensor and condition.args == (two, one)


def refused(node: Node) -> UnsupportedError:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    where = f" in {stack[-1][0]!r}" if stack else ""
    must = "moments are known for linear maps, convolutions, activations, norms, pools, sums and products"
    got = f"the node {node.name!r} ({node.target}){where}"
    return UnsupportedError(must, got, "use predict, or Laplace on the last layer")
