"""Channels and units as spaces: which layers must lose a channel together, and which layers read it.

A space is a set of channels that several tensors have in common: the outputs of a layer, of the norms, activations and pools behind it, and
of every branch that is added to them. A tensor is a `Wire`: its space, the axis of the channels, how many numbers in a row belong to one
channel (after a flatten), and which channels are constant whatever the input is, with their values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor, nn

DOUBLE = torch.float64


@final
@dataclass
class Layer:
    """A linear map or convolution that reads one wire and makes another."""

    node: str
    path: str
    weight: Tensor  # (outputs, inputs, numbers for each input): kernel positions, or what a flatten put in a row
    bias: Tensor  # (outputs,)
    reads: Wire
    makes: Wire
    padded: bool  # zeros beside the image: a constant is not seen as one at the edges
    linear: bool

    def foldable(self) -> Tensor:
        """Channels that are read and could be a part of the bias instead, (inputs,)."""
        return self.reads.fixed & (self.reads.fill == 0) if self.padded else self.reads.fixed

    def unread(self) -> Tensor:
        """Channels whose weights are all zero, in the rows that remain, (inputs,)."""
        kept = ~self.makes.space.root().removed
        return ~(self.weight[kept] != 0).flatten(2).any(2).any(0) if self.weight.numel() else torch.ones(0).bool()


@final
@dataclass(eq=False)
class Space:
    """`stuck`: why its channels must stay; "" if they may go. `natural`: it is an input or an output, where nobody expects otherwise."""

    size: int
    stuck: str = ""
    natural: bool = False
    parent: Space | None = None
    layers: list[Layer] = field(default_factory=list)  # that read it
    carriers: list[tuple[str, int]] = field(default_factory=list)  # norms in it: path, numbers for each channel
    removed: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.removed = torch.zeros(self.size, dtype=torch.bool)

    def root(self) -> Space:
        return self if self.parent is None else self.parent.root()

    def hold(self, why: str, natural: bool = False) -> None:
        root = self.root()
        if not root.stuck or (root.natural and not natural):
            root.stuck, root.natural = why, natural

    def unite(self, other: Space) -> None:
        a, b = self.root(), other.root()
        if a is b:
            return
        b.parent = a
        a.layers += b.layers
        a.carriers += b.carriers
        if b.stuck:
            a.hold(b.stuck, b.natural)

    def removable(self) -> Tensor:
        """Channels that no layer would miss, (size,)."""
        free = torch.ones(self.size, dtype=torch.bool)
        for layer in self.layers:
            free &= layer.unread() | layer.foldable()
        return free


@final
@dataclass
class Wire:
    space: Space
    axis: int
    repeat: int
    fixed: Tensor  # (channels,)
    fill: Tensor  # (channels,), where fixed

    @staticmethod
    def fresh(size: int, axis: int, stuck: str = "", natural: bool = False) -> Wire:
        zeros = torch.zeros(size, dtype=DOUBLE)
        return Wire(Space(size, stuck, natural), axis, 1, zeros.bool(), zeros)

    def after(self, fill: Tensor, fixed: Tensor | None = None) -> Wire:
        """The same channels with other constants."""
        fixed = self.fixed if fixed is None else fixed
        return Wire(self.space, self.axis, self.repeat, fixed, torch.where(fixed, fill.to(DOUBLE), 0.0))


def spread(wire: Wire, module: nn.Module, dims: int) -> Tensor:
    """What a channelwise module makes of constant channels, (channels,)."""
    shape = [1, len(wire.fill)] + [2] * (dims - 2)
    given = wire.fill.view(1, -1, *[1] * (dims - 2)).expand(shape)
    parameter = next((p for p in (*module.parameters(), *module.buffers()) if p.is_floating_point()), wire.fill)
    with torch.no_grad():
        out = module(given.to(parameter))
    return out.reshape(len(wire.fill), -1)[:, 0].to("cpu", DOUBLE)


def settle(spaces: list[Space]) -> None:
    """Remove what can go until nothing more does; a space keeps one channel."""
    moved = True
    while moved:
        moved = False
        for space in spaces:
            if space.stuck:
                continue
            free = space.removable()
            if bool(free.all()) and len(free):
                free[int((~space.removed).nonzero()[0])] = False
            if bool((free & ~space.removed).any()):
                space.removed, moved = free | space.removed, True
