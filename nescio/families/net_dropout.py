r"""The network's own dropout layers, switched on in prediction: MC dropout after the fact (Gal & Ghahramani, 2016).

The weights are points under their prior; what is random are the masks of the `nn.Dropout` layers, wherever the network has them, with the
rates that it has: unit by unit (`nn.Dropout`) or by channel (`nn.Dropout2d`). Training is as ever with such layers.

    posterior = Variational.around(NetDropout(), model)             a network that was trained before, as it is
    posterior = fit(model, data, VI(NetDropout(), epochs=30))       or trained here; hand it over in train mode

A draw is weights and one mask for each dropout layer, the same for all inputs, so predictions are coherent functions. Their masks have the
shape of what the layers meet, which depends on the inputs: there is no draw of named weights, and `posterior.sample` refuses.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from nescio.errors import UnsupportedError
from nescio.families.family import Block, Factor, Family
from nescio.families.independent import Gaussian
from nescio.families.point import Point
from nescio.noise import Noise

KINDS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
SHIFTING = (nn.AlphaDropout, nn.FeatureAlphaDropout)  # what they drop is not zero


@final
@dataclass(frozen=True)
class NetDropout(Family):
    """Points for the weights; the masks are in the network."""

    of_weights: ClassVar[bool] = False

    def factors(self, blocks: Sequence[Block]) -> Sequence[Factor]:
        return [Gaussian(block) if block.site is None else Point(block) for block in blocks]


@final
class Masked(nn.Module):
    """In the place of a dropout layer: x · slope + shift with numbers of its own for each use in a call, as buffers."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = copy.deepcopy(layer)
        self.met: list[tuple[int, ...]] = []  # shapes, in the order of the uses
        self.used = 0
        self.ready = False

    def forward(self, x: Tensor) -> Tensor:
        self.used += 1
        if not self.ready:
            self.met.append(tuple(x.shape))
            return x
        x = x * getattr(self, f"slope{self.used - 1}")
        return x + getattr(self, f"shift{self.used - 1}") if isinstance(self.layer, SHIFTING) else x

    def buffer(self, use: int, kind: str, value: Tensor) -> str:
        self.register_buffer(f"{kind}{use}", value)
        return f"{kind}{use}"


def begin(net: nn.Module, args: Any) -> None:
    """A new call: every layer counts its uses from one."""
    for layer in masked(net).values():
        layer.used = 0


def masked(net: nn.Module) -> dict[str, Masked]:
    return {path: module for path, module in net.named_modules() if isinstance(module, Masked)}


def with_masks(net: nn.Module) -> nn.Module:
    """A copy that shares its tensors, with `Masked` in the place of every dropout layer whose rate is not zero."""
    shared = {id(t): t for t in (*net.parameters(), *net.buffers())}
    net = copy.deepcopy(net, memo=shared)
    hidden = [path for path, module in net.named_modules() if drops_inside(module)]
    if hidden:
        raise UnsupportedError(
            "dropout must be a layer to be switched on", f"dropout inside {hidden[0]!r}", "set its dropout to 0"
        )
    modules = dict(net.named_modules(remove_duplicate=False))
    found = [path for path, module in modules.items() if isinstance(module, KINDS) and module.p and path]
    for path in found:
        parent, _, name = path.rpartition(".")
        setattr(modules[parent], name, Masked(modules[path]))
    if not found:
        raise UnsupportedError(
            "NetDropout needs a network with dropout layers", "none", "add nn.Dropout, or use BernoulliDropout"
        )
    net.register_forward_pre_hook(begin)
    return net


def drops_inside(module: nn.Module) -> bool:
    """Whether a kernel drops units where no layer is seen."""
    rate = getattr(module, "dropout", 0.0)
    return isinstance(module, (nn.RNNBase, nn.MultiheadAttention)) and isinstance(rate, float) and rate > 0


def draw_masks(net: nn.Module, call: Callable[[int], Any], n: int, noise: Noise) -> dict[str, Tensor]:
    """n masks for each use of each layer in a call, as named buffers of `net`, (n, 1, ...). call(rows) runs it on so many rows."""
    layers = masked(net)
    for rows in (2, 3):
        for layer in layers.values():
            layer.met, layer.ready = [], False
        call(rows)
        for path, layer in layers.items():
            if not layer.met or any(not shape or shape[0] != rows for shape in layer.met):
                got = f"{path!r} met {layer.met} on {rows} rows" if layer.met else f"{path!r} was not met"
                remedy = "dropout after rows and time were folded, or inside a fused transformer layer, is out of reach"
                raise UnsupportedError("every dropout layer must meet the examples on its first axis", got, remedy)
    named: dict[str, Tensor] = {}
    for path, layer in layers.items():
        layer.ready = True
        layer.layer.train()  # whoever put the network into evaluation mode
        for use, (_, *shape) in enumerate(layer.met):
            ends = []
            for value in (0.0, 1.0):  # every kind of dropout is affine, given its noise
                with noise.at(path, use).scope():
                    start = torch.full((n, *shape), value, dtype=noise.dtype, device=noise.device)
                    ends.append(layer.layer(start)[:, None])
            for kind, mask in {"slope": ends[1] - ends[0], "shift": ends[0]}.items():
                named[f"{path}.{layer.buffer(use, kind, mask[0])}"] = mask
    return named
