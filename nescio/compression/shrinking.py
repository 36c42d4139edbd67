"""A network with zeros in its weights as a smaller dense network that computes the same function.

A unit or filter goes when no layer reads it (its outgoing weights are zero), or when it is constant whatever the input is (its incoming
weights are zero), and then its constant joins the biases of those that read it. Each removal may allow others, forwards and backwards.
Where channels cannot go at their source, as the pixels of an image, a linear layer picks those that it reads (`Picked`).
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nescio.compression.flow import Flow
from nescio.compression.modules import put, resized
from nescio.compression.spaces import Layer, settle
from nescio.compression.trace import traced
from nescio.errors import InputError, UnsupportedError

CLOSE = 1e-3  # of the largest output: beyond it the graph was not understood


class Shrunk(NamedTuple):
    """`net`: the small network. `places`: for each of its tensors that lost something, what is left of each axis of the old one.

    `picks`: the inputs that a linear layer reads, by its path. `added`: biases that the old network did not have.
    """

    net: nn.Module
    places: dict[str, tuple[Tensor, ...]]
    picks: dict[str, Tensor]
    added: frozenset[str]

    def cut(self, name: str, tensor: Tensor) -> Tensor:
        """What is left of a tensor of the old network's shape."""
        for axis, index in enumerate(self.places.get(name, ())):
            tensor = tensor.index_select(axis, index.to(tensor.device))
        return tensor


def shrink(net: nn.Module, x: Tensor, strict: bool = True) -> Shrunk:
    """Of a network in evaluation mode, which is not written to. `x`: an example of its input, two rows or more.

    `strict`: a node through which channels cannot be removed, though they could go, is an error; else they stay.

        small = shrink(net, x[:2]).net
    """
    if not isinstance(x, Tensor) or x.dim() < 2 or len(x) < 1:
        raise InputError("shrink needs rows of the input", type(x).__name__, "pass x[:2]")
    net = copy.deepcopy(net).eval()
    flow = Flow(net, traced(net, x))
    settle(flow.spaces)
    if strict:
        for space in flow.spaces:
            if space.stuck and not space.natural and space.layers and bool(space.removable().any()):
                must, got = "every node that channels pass must be known", space.stuck
                raise UnsupportedError(must, f"{got}, where some could be removed", "pass strict=False to keep them")
    shrunk = rebuilt(net, flow)
    check(net, shrunk.net, x)
    return shrunk


def rebuilt(net: nn.Module, flow: Flow) -> Shrunk:
    small, places, picks, added = copy.deepcopy(net), {}, {}, set()
    for layer in flow.layers:
        module = net.get_submodule(layer.path)
        rows = (~layer.makes.space.root().removed).nonzero()[:, 0]
        columns = (~layer.reads.space.root().removed).nonzero()[:, 0]
        weight: Tensor = module.weight  # type: ignore[assignment]
        bias = folded(layer)[rows]
        if layer.linear:
            repeat = layer.reads.repeat
            columns = (columns[:, None] * repeat + torch.arange(repeat)).reshape(-1)
        pick = None
        if layer.linear and (layer.reads.space.root().stuck or layer.reads.repeat > 1):
            live = (weight.detach().cpu()[rows][:, columns] != 0).any(0)
            if not bool(live.any()):
                live[:1] = True
            if not bool(live.all()):
                pick = live.nonzero()[:, 0]
                columns = columns[pick]
        tensors = {"weight": weight.detach()[rows.to(weight.device)][:, columns.to(weight.device)]}
        if module.bias is not None or bool(bias.any()):
            tensors["bias"] = bias.to(weight)
            if module.bias is None:
                added.add(f"{layer.path}.bias")
            else:
                places[f"{layer.path}.bias"] = (rows,)
        places[f"{layer.path}.weight"] = (rows, columns)
        if pick is not None:
            picks[layer.path] = pick.to(weight.device)
        put(small, layer.path, grown(module, tensors, picks.get(layer.path)))
    for space in flow.spaces:
        for path, repeat in space.root().carriers:
            kept = (~space.root().removed).nonzero()[:, 0]
            kept = (kept[:, None] * repeat + torch.arange(repeat)).reshape(-1)
            module = net.get_submodule(path)
            own = {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False))}
            cut = {name: t.detach()[kept.to(t.device)] if t.dim() else t for name, t in own.items()}
            places |= {f"{path}.{name}": (kept,) for name, t in own.items() if t.dim()}
            if cut:
                put(small, path, resized(module, cut, None))
    return Shrunk(small, places, picks, frozenset(added))


def grown(module: nn.Module, tensors: dict[str, Tensor], pick: Tensor | None) -> nn.Module:
    """A pick is of what comes in now; `resized` compares it with what the old module had, which is no less."""
    made = resized(module, tensors, pick)
    for name, old in module.named_parameters(recurse=False):
        getattr(made, name).requires_grad_(old.requires_grad)
    return made


def folded(layer: Layer) -> Tensor:
    """The bias with the constants of the channels that are gone."""
    gone = layer.reads.space.root().removed & layer.foldable()
    return layer.bias + (layer.weight.sum(2)[:, gone] * layer.reads.fill[gone]).sum(1)


def check(net: nn.Module, small: nn.Module, x: Tensor) -> None:
    """On the example, and on one row more than it has."""
    more = torch.cat([x, x[:1]])
    with torch.no_grad():
        right = net(more)
        try:
            found = small(more)
        except RuntimeError as error:
            must, got = "the network's code must follow the sizes of its layers", str(error).splitlines()[0]
            raise UnsupportedError(must, got, "write flatten(1) where a size is written as a number") from error
    scale = float(right.abs().max()) + 1e-12
    if found.shape != right.shape or float((found - right).abs().max()) > CLOSE * scale:
        must = "the small network must compute what the large one does"
        raise UnsupportedError(must, "another function", "its modules do more than their types say: remove hooks")
