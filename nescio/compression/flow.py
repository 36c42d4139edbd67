"""How channels flow through each node of a graph: layers, norms, activations, pools, flattens, sums.

A node that is none of these holds its channels where they are: everything it touches stays, and it is named if something could have gone.
"""

from __future__ import annotations

import math
import operator
from typing import Any, final

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from nescio.compression.spaces import DOUBLE, Layer, Space, Wire, spread
from nescio.nets.norm import FilterResponseNorm

CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
CHANNELWISE = (*NORMS, FilterResponseNorm, nn.PReLU)
POINTWISE = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid),
    *(nn.Softplus, nn.Softsign, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.LogSigmoid, nn.Threshold, nn.Tanhshrink),
)
SAME = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
MAXIMA = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
MEANS = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
ADAPTIVE = (
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
    *(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
)
FUNCTIONS = {
    *(F.relu, torch.relu, torch.tanh, F.tanh, torch.sigmoid, F.sigmoid, F.silu, F.gelu, F.elu, F.selu, F.leaky_relu),
    *(F.softplus, F.mish, F.hardswish, F.hardtanh, F.relu6, torch.exp, torch.abs, torch.square, operator.neg),
}
METHODS = {"relu", "relu_", "tanh", "sigmoid", "exp", "abs", "square", "neg", "contiguous", "clone", "float", "double"}
SUMS = {operator.add, operator.iadd, torch.add}
PRODUCTS = {operator.mul, operator.imul, torch.mul}
ARITHMETIC = {*SUMS, *PRODUCTS, operator.sub, operator.truediv, torch.sub, torch.div}
FLATTENS = {"flatten", "view", "reshape", torch.flatten, torch.reshape}


@final
class Flow:
    """Wires and spaces of a traced graph."""

    def __init__(self, net: nn.Module, graph: fx.Graph) -> None:
        self.net, self.wires, self.layers = net, {}, []
        self.wires: dict[fx.Node, Wire] = {}
        self.layers: list[Layer] = []
        self.spaces: list[Space] = []
        self.uses: dict[str, list[Wire]] = {}  # of each module: what it met
        for node in graph.nodes:
            value = node.meta.get("value")
            wire = self.through(node) if node.op != "output" else self.end(node)
            if wire is not None and isinstance(value, Tensor):
                self.wires[node] = wire
                self.spaces.append(wire.space)
        self.spaces = list({id(root): root for root in (space.root() for space in self.spaces)}.values())

    # ---- nodes -------------------------------------------------------------------------------------------------

    def through(self, node: fx.Node) -> Wire | None:
        value = node.meta["value"]
        if not isinstance(value, Tensor):
            return self.held(node) if node.op.startswith("call") and not shape_only(value) else None
        if node.op == "placeholder":
            axis = 1 if value.dim() > 1 else 0
            return Wire.fresh(value.shape[axis], axis, "the input of the network", natural=True)
        if node.op == "get_attr":
            return None
        wire = None
        inside = [n for n in node.all_input_nodes if isinstance(n.meta["value"], Tensor)]
        given = [self.wires[n] for n in inside if n in self.wires]
        if len(given) == len(inside) and given:
            if node.op == "call_module":
                wire = self.module(node, self.net.get_submodule(str(node.target)), given[0])
            elif node.target in FLATTENS:
                wire = self.flat(node, given[0])
            elif len(given) == 2 and node.target in SUMS | PRODUCTS:
                wire = self.together(node, *given)
            elif len(given) == 1:
                wire = self.function(node, given[0])
        return self.held(node) if wire is None else wire

    def held(self, node: fx.Node) -> Wire:
        """Nothing is known of this node: what it reads stays, and so does what it makes."""
        where = f"{node.name} ({node.op} {getattr(node.target, '__name__', node.target)})"
        for before in node.all_input_nodes:
            if before in self.wires:
                self.wires[before].space.hold(where)
        shape = node.meta["value"].shape if isinstance(node.meta["value"], Tensor) else (1, 1)
        return Wire.fresh(shape[1] if len(shape) > 1 else 1, 1, where)

    def end(self, node: fx.Node) -> None:
        for before in node.all_input_nodes:
            if before in self.wires:
                self.wires[before].space.hold("the output of the network", natural=True)

    def module(self, node: fx.Node, module: nn.Module, wire: Wire) -> Wire | None:
        x, path = node.args[0].meta["value"], str(node.target)  # type: ignore[union-attr]
        if list(module.parameters()):
            before = self.uses.setdefault(path, [])
            before.append(wire)
            if len(before) > 1:  # one weight, two uses: it cannot have two sizes
                for used in (*before, *(layer.makes for layer in self.layers if layer.path == path)):
                    used.space.hold(f"{node.name} (module {path!r} is used twice)")
                return None
        if type(module) is nn.Linear:
            if wire.axis != x.dim() - 1 or len(wire.fill) * wire.repeat != module.in_features:
                wire.space.hold(f"{node.name} (a linear map along another axis)")
                wire = Wire.fresh(module.in_features, x.dim() - 1, f"{node.name} (a linear map along another axis)")
            weight = module.weight.detach().to("cpu", DOUBLE).view(module.out_features, -1, wire.repeat)
            return self.layer(node, path, weight, module.bias, wire, x.dim() - 1, padded=None)
        if type(module) in CONVS and module.groups == 1 and wire.axis == 1 and wire.repeat == 1:  # type: ignore[union-attr]
            weight = module.weight.detach().to("cpu", DOUBLE).flatten(2)  # type: ignore[union-attr,operator]
            padding = module.padding  # type: ignore[union-attr]
            padded = padding == "same" or (not isinstance(padding, str) and any(padding))  # type: ignore[arg-type]
            padded = padded and module.padding_mode == "zeros"  # type: ignore[union-attr]
            return self.layer(node, path, weight, module.bias, wire, 1, bool(padded))  # type: ignore[arg-type]
        if type(module) in CHANNELWISE and wire.axis == 1:
            return self.channelwise(path, module, wire, x.dim())
        if type(module) in POINTWISE:
            with torch.no_grad():
                return wire.after(module(wire.fill.clone()))
        if type(module) in SAME:
            return wire
        if type(module) in MAXIMA + ADAPTIVE and wire.axis == 1 and wire.repeat == 1 and not pair(node):
            return wire
        if type(module) in MEANS and wire.axis == 1 and wire.repeat == 1:
            padding = module.padding  # type: ignore[union-attr]
            some = bool(sum(padding) if isinstance(padding, tuple) else padding)  # type: ignore[arg-type]
            return wire.after(wire.fill, wire.fixed & (wire.fill == 0)) if some else wire
        return self.flat(node, wire) if type(module) is nn.Flatten else None

    def layer(
        self, node: fx.Node, path: str, weight: Tensor, bias: Tensor | None, wire: Wire, axis: int, padded: bool | None
    ) -> Wire:
        """`padded`: of a convolution; None of a linear map."""
        bias = torch.zeros(len(weight), dtype=DOUBLE) if bias is None else bias.detach().to("cpu", DOUBLE)
        usable = wire.fixed & (wire.fill == 0) if padded else wire.fixed
        fixed = ~(weight[:, ~usable] != 0).flatten(1).any(1)
        makes = Wire.fresh(len(weight), axis)
        makes = makes.after(bias + (weight.sum(2)[:, usable] * wire.fill[usable]).sum(1), fixed)
        found = Layer(node.name, path, weight, bias, wire, makes, bool(padded), linear=padded is None)
        self.layers.append(found)
        wire.space.root().layers.append(found)
        return makes

    def channelwise(self, path: str, module: nn.Module, wire: Wire, dims: int) -> Wire | None:
        if isinstance(module, nn.PReLU) and module.num_parameters == 1:
            with torch.no_grad():
                return wire.after(module(wire.fill.to(module.weight)).to("cpu", DOUBLE))
        if wire.repeat > 1:  # one number for each position of a channel: its constants differ
            wire.space.root().carriers.append((path, wire.repeat))
            return wire.after(wire.fill, torch.zeros_like(wire.fixed))
        wire.space.root().carriers.append((path, 1))
        return wire.after(spread(wire, module, dims))

    def function(self, node: fx.Node, wire: Wire) -> Wire | None:
        x = node.all_input_nodes[0].meta["value"]
        if node.target in ("mean", torch.mean):
            return self.mean(node, wire, x)
        if node.target in (F.max_pool1d, F.max_pool2d, F.max_pool3d, F.adaptive_avg_pool1d, F.adaptive_avg_pool2d):
            return wire if wire.axis == 1 and wire.repeat == 1 and not pair(node) else None
        if node.target in (torch.max_pool1d, torch.max_pool2d, torch.max_pool3d):
            return wire if wire.axis == 1 and wire.repeat == 1 else None
        if node.target in (F.dropout, F.dropout2d):
            return wire if node.kwargs.get("training") is False else None
        if node.target is F.pad:
            mode, value = node.kwargs.get("mode", "constant"), node.kwargs.get("value") or 0.0
            sides = node.args[1] if len(node.args) > 1 else node.kwargs.get("pad")
            spatial = isinstance(sides, (tuple, list)) and len(sides) // 2 <= x.dim() - 2 and len(node.args) < 3
            if spatial and mode == "constant" and wire.axis == 1 and wire.repeat == 1:
                return wire.after(wire.fill, wire.fixed & (wire.fill == value))
            return None
        known = node.target in FUNCTIONS or (node.op == "call_method" and node.target in METHODS)
        numbers = [a for a in (*node.args, *node.kwargs.values()) if not isinstance(a, fx.Node)]
        plain = all(isinstance(a, (int, float, bool, str, type(None))) for a in numbers)
        if not plain or not (known or node.target in ARITHMETIC) or ("float" in str(node.target) and not known):
            return None
        args, named = fx.node.map_arg((node.args, node.kwargs), lambda n: wire.fill.clone())
        with torch.no_grad():
            call: Any = node.target
            out = getattr(args[0], call)(*args[1:], **named) if node.op == "call_method" else call(*args, **named)
        return wire.after(out)

    def mean(self, node: fx.Node, wire: Wire, x: Tensor) -> Wire | None:
        given = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        axes = {int(a) % x.dim() for a in ([given] if isinstance(given, int) else given or [])}  # type: ignore[union-attr,arg-type]
        kept = not any(a <= wire.axis for a in axes)
        return wire if axes and kept and wire.repeat == 1 else None

    def flat(self, node: fx.Node, wire: Wire) -> Wire | None:
        x, out = node.all_input_nodes[0].meta["value"], node.meta["value"]
        if out.shape == x.shape:
            return wire
        if wire.axis != 1 or out.dim() != 2 or x.dim() < 3 or len(out) != len(x):
            return None
        return Wire(wire.space, 1, wire.repeat * math.prod(x.shape[2:]), wire.fixed, wire.fill)

    def together(self, node: fx.Node, a: Wire, b: Wire) -> Wire | None:
        x, y = (n.meta["value"] for n in node.all_input_nodes)
        alike = x.dim() == y.dim() and x.shape[a.axis] == y.shape[a.axis]
        if not alike or (a.axis, a.repeat, len(a.fill)) != (b.axis, b.repeat, len(b.fill)) or node.kwargs:
            return None
        a.space.unite(b.space)
        if node.target in SUMS:
            return a.after(a.fill + b.fill, a.fixed & b.fixed)
        zero = (a.fixed & (a.fill == 0)) | (b.fixed & (b.fill == 0))
        return a.after(torch.where(zero, 0.0, a.fill * b.fill), zero | (a.fixed & b.fixed))


def pair(node: fx.Node) -> bool:
    """Whether a pool gives indices, too."""
    return not isinstance(node.meta["value"], Tensor)


def shape_only(value: Any) -> bool:
    return isinstance(value, (int, float, bool, str, torch.Size, torch.dtype, torch.device, type(None)))
