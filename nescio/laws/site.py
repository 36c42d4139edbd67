"""Where a law is used: a parameter of the network with its axes and fans, and the weights that one law speaks for.

Sharing is an index. For a group of sites laid end to end, `Group.index("input")` says for every weight which input it
belongs to; a random scale per input is then one gather, whatever the layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from nescio.errors import InputError

Sharing = Literal["weight", "input", "output", "unit", "layer", "net"]

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Embedding, nn.EmbeddingBag)


@dataclass(frozen=True)
class Site:
    """One tensor of numbers: a network parameter (or a likelihood's number) as a law sees it."""

    name: str
    shape: tuple[int, ...]
    fan_in: int = 1
    fan_out: int = 1
    module: nn.Module | None = None
    unit: str = ""  # sites with the same `unit` describe the same units, row by row

    @property
    def size(self) -> int:
        return prod(self.shape)

    def index(self, what: Sharing) -> Tensor:
        """For each element the number of its group inside this tensor, flattened."""
        if what == "weight":
            return torch.arange(self.size)
        if what in ("layer", "net") or not self.shape or (what == "input" and len(self.shape) < 2):
            return torch.zeros(self.size, dtype=torch.long)  # a bias has no input axis: one for the tensor
        if len(self.shape) == 1:
            return torch.arange(self.size)
        rows = torch.arange(self.shape[0])[:, None]
        if (what == "input") is isinstance(self.module, TRANSPOSED):
            table = rows.expand(-1, self.shape[1])
        else:  # the second axis counts from the start of the row's own block, in grouped convolutions
            table = rows // (self.shape[0] // blocks(self.module)) * self.shape[1] + torch.arange(self.shape[1])
        return table.view(*self.shape[:2], *[1] * (len(self.shape) - 2)).expand(self.shape).reshape(-1)


@dataclass(frozen=True)
class Group:
    """The tensors that one law matches, flattened and laid end to end in the order of the network."""

    sites: tuple[Site, ...]

    @property
    def size(self) -> int:
        return sum(site.size for site in self.sites)

    def index(self, what: Sharing) -> tuple[Tensor, int]:
        """(which group each weight belongs to, how many groups there are)."""
        if what not in get_args(Sharing):
            raise InputError(
                f".per(...) takes one of {list(get_args(Sharing))}", repr(what), "choose one of these axes"
            )
        if what == "net":
            return torch.zeros(self.size, dtype=torch.long), 1
        indices = [site.index("output" if what == "unit" else what) for site in self.sites]
        keys = [site.unit if what == "unit" else site.name for site in self.sites]
        sizes: dict[str, int] = {}
        for key, index in zip(keys, indices, strict=True):
            sizes[key] = max(sizes.get(key, 0), int(index.max()) + 1)
        offsets = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
        parts = [index + offsets[key] for key, index in zip(keys, indices, strict=True)]
        return torch.cat(parts), sum(sizes.values())

    def split(self, flat: Tensor) -> Iterator[tuple[Site, Tensor]]:
        """The tensors again, in their shapes; one split, so that its backward pass is one concatenation."""
        pieces = flat.split([site.size for site in self.sites])
        return ((site, piece.view(site.shape)) for site, piece in zip(self.sites, pieces, strict=True))


def sites(net: nn.Module) -> list[Site]:
    """One site for each trainable parameter; a parameter with requires_grad=False is part of the network, not of the model."""
    modules = dict(net.named_modules())
    found = []
    for name, parameter in net.named_parameters():
        if not parameter.requires_grad:
            continue
        path, _, leaf = name.rpartition(".")
        module = modules[path]
        partner = getattr(module, leaf.replace("bias", "weight"), None)  # a bias has the fans of its weight
        fan_in, fan_out = fans(module, tuple(partner.shape) if isinstance(partner, Tensor) else tuple(parameter.shape))
        unit = f"{path}:{re.sub(r'(weight|bias)(_ih|_hh)?', '', leaf)}"
        found.append(Site(name, tuple(parameter.shape), fan_in, fan_out, module, unit))
    return found


def fans(module: nn.Module, shape: tuple[int, ...]) -> tuple[int, int]:
    """Inputs that one output sums over, and outputs that one input feeds."""
    if len(shape) < 2 or isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return 1, 1  # norm layers scale one number each; an embedding looks one row up
    kernel, groups = prod(shape[2:]), blocks(module)
    if isinstance(module, TRANSPOSED):
        return shape[0] // groups * kernel, shape[1] * kernel
    return shape[1] * kernel, shape[0] // groups * kernel


def blocks(module: nn.Module | None) -> int:
    """Groups of a convolution: blocks of inputs and outputs that do not see each other."""
    return module.groups if isinstance(module, nn.modules.conv._ConvNd) else 1


def fan_in(site: Site) -> float:
    """The scale 1 / sqrt(fan-in), which keeps the variance of a layer's output at that of its input."""
    return site.fan_in**-0.5
