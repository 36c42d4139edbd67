r"""A network that is given means and variances instead of numbers, operation by operation, as `torch.export` sees it.

    y = W x + b,   all independent:     E y = M m + b,    Var y = (M² + S) v + S m² + Var b

so a pass costs a deterministic one and, for the variances, one or two products more. `factored`: where S meets m² it is replaced by the
product of a number for each output, one for each input and, of a convolution, one for each place in its kernel, which has the same sums
along each of them: S m² = s tᵀm² is one more input of the product with v, and a pass costs two deterministic ones. Exact where variances
are such a product, as those of a Kronecker-factored covariance nearly are.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torch.fx.graph import CodeGen
from torch.utils._pytree import tree_map

from nescio.errors import UnsupportedError
from nescio.moments.gaussian import Moments, Number, larger, parts
from nescio.moments.rules import RULES

aten = torch.ops.aten
LINEAR = (aten.linear.default, aten.conv1d.default, aten.conv2d.default, aten.conv2d.padding, aten.conv3d.default)
CHECKS = (aten._assert_tensor_metadata.default, aten._assert_async.msg, aten.sym_constrain_range_for_size.default)


class Weight(NamedTuple):
    """A weight's mean, variance and power M² + S. Where S is replaced by s tᵀ: t, and s as the power's last input."""

    mean: Tensor
    variance: Tensor
    power: Tensor
    column: Tensor | None = None


@final
class Propagation(nn.Module):
    """x to the mean and variance of the outputs. `exported`: a network with the means as its weights."""

    def __init__(self, exported: GraphModule, variances: dict[str, Tensor], factored: bool = False) -> None:
        super().__init__()
        self.graph, self.uncertain = exported.graph, frozenset(variances)
        self.graph.set_codegen(CodeGen())  # it is read, not run; what torch.export put there cannot be copied
        for node in self.graph.nodes:
            node.meta = {"nn_module_stack": node.meta.get("nn_module_stack")}
            if node.target is aten.view.default:
                node.target = aten.reshape.default  # numbers lie in another order here
        for name in {str(node.target) for node in self.graph.nodes if node.op == "get_attr"}:
            mean, key = laid_out(value_of(exported, name).detach()), keyed(name)
            self.register_buffer(key, mean)
            if name not in variances:
                continue
            variance = laid_out(variances[name])
            power = mean.square() + variance
            if factored and mean.dim() > 1:
                row, column = separated(variance)
                power = laid_out(torch.cat([power, row], 1))
                self.register_buffer(f"{key}_column", column)
            self.register_buffer(f"{key}_variance", variance)
            self.register_buffer(f"{key}_power", power)
        self.check()

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
        given = list(x.values()) if isinstance(x, dict) else list(x) if isinstance(x, tuple) else [x]
        values: dict[Node, Any] = {}
        waiting = {node: len(node.users) for node in self.graph.nodes}
        for node in self.graph.nodes:
            if node.op == "placeholder":
                values[node] = laid_out(given.pop(0))
            elif node.op == "get_attr":
                values[node] = self.weight(str(node.target))
            elif node.op == "output":
                (found,) = node.args[0] if isinstance(node.args[0], (tuple, list)) else (node.args[0],)
                mean, variance = parts(as_number(values[found]))
                return Moments(mean, torch.zeros_like(mean) if variance is None else variance)
            elif node.op == "call_function":  # a module is one of torch's own guards
                values[node] = self.call(node, values)
                for before in node.all_input_nodes:
                    waiting[before] -= 1
                    if not waiting[before]:
                        del values[before]  # what comes next may have its memory, which is near
        raise AssertionError("a graph ends in its output")

    def weight(self, name: str) -> Any:
        key = keyed(name)
        mean = getattr(self, key)
        if name not in self.uncertain:
            return mean
        names = [f"{key}_{part}" for part in ("variance", "power", "column")]
        return Weight(mean, *(getattr(self, part, None) for part in names))  # type: ignore[arg-type]

    def call(self, node: Node, values: dict[Node, Any]) -> Any:
        args, named = torch.fx.map_arg((node.args, node.kwargs), lambda n: values[n])
        if not any(isinstance(values[before], (Moments, Weight)) for before in node.all_input_nodes):
            return node.target(*args, **named)  # type: ignore[operator]
        if node.target in LINEAR:
            return linear(node.target, *args, **named)  # type: ignore[misc]
        if node.target in CHECKS or compared(node):
            return None
        args, named = tree_map(as_number, (args, named), is_leaf=lambda x: isinstance(x, (Moments, Weight)))
        if threshold(node):
            return larger(args[1], args[2])
        try:
            return RULES[node.target](*args, **named)
        except NotImplementedError:
            raise refused(node) from None


def linear(function: Any, x: Number, weight: Any, bias: Any = None, *options: Any) -> Number:
    (m, v), (b, d) = parts(x), (None, None) if bias is None else parts(as_number(bias))
    if not isinstance(weight, Weight):
        mean = function(m, weight, b, *options)
        return Moments(mean, function(v, weight.square(), d, *options)) if v is not None else total_of(mean, d, weight)
    mean = function(m, weight.mean, b, *options)
    column, power, inputs = weight.column, weight.power, -1 if function is aten.linear.default else 1
    if column is not None and m.shape[inputs] != len(column):  # of groups: each has inputs of its own
        column, power = None, power[:, :-1]
    if column is None:
        spread = function(m.square(), weight.variance, d, *options)
        return Moments(mean, spread if v is None else spread + function(v, power, None, *options))
    common = (m.square().movedim(inputs, -1) @ column[:, None]).movedim(-1, inputs)
    if v is None:
        return Moments(mean, function(common, power[:, -1:], d, *options))
    return Moments(mean, function(torch.cat([v, common], inputs), power, d, *options))


def separated(variance: Tensor) -> tuple[Tensor, Tensor]:
    """(outputs, 1, ...) and (inputs,) whose product has the same sums along outputs, inputs and places of a kernel."""
    places, whole = tuple(range(2, variance.dim())), variance.sum().clamp_min(torch.finfo(variance.dtype).tiny)
    rows = variance.sum((1, *places), keepdim=True)
    kernel = variance.sum((0, 1), keepdim=True) / whole if places else 1.0
    return rows * kernel, variance.sum((0, *places)) / whole


def laid_out(x: Any) -> Any:
    """Images and kernels channel by channel within a place: convolutions are faster so, and so is a sum over channels."""
    return x.contiguous(memory_format=torch.channels_last) if isinstance(x, Tensor) and x.dim() == 4 else x


def total_of(mean: Tensor, variance: Tensor | None, weight: Tensor) -> Number:
    """A map that is certain, of numbers that are, with a bias that is not."""
    if variance is None:
        return mean
    shape = (-1, *[1] * (mean.dim() - 2)) if weight.dim() > 2 else (-1,)
    return Moments(mean, variance.view(shape).expand_as(mean))


def as_number(x: Any) -> Any:
    return Moments(x.mean, x.variance) if isinstance(x, Weight) else x


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


def keyed(name: str) -> str:
    return f"mean_{name.replace('.', '_')}"


def value_of(exported: GraphModule, name: str) -> Tensor:
    owner: Any = exported
    for part in name.split("."):
        owner = getattr(owner, part)
    return owner
