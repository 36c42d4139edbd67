"""An encoder and decoder with skips for images of labels, depths and the like (after U-Net, Ronneberger et al., 2015), small and plain.

Each level halves the image and doubles the channels; the way back takes up what the way down had at that size. Sides need not be even.
`drop`: dropout after each level of the encoder and decoder, as Bayesian SegNet has it (Kendall et al., 2015), for `VI(NetDropout())`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nescio.errors import InputError
from nescio.nets.norm import FilterResponseNorm
from nescio.nets.sizes import require_sizes

Norm = Callable[[int], nn.Module]


def _level(c_in: int, c_out: int, norm: Norm, drop: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for c in (c_in, c_out):
        layers += [nn.Conv2d(c, c_out, 3, padding=1), norm(c_out), nn.SiLU()]
    return nn.Sequential(*layers, nn.Dropout(drop)) if drop else nn.Sequential(*layers)


@final
class _Segmenter(nn.Module):
    """Images (N, channels, H, W) to (N, outputs, H, W), or a dictionary of such."""

    def __init__(
        self, channels: int, outputs: Mapping[str, int] | int, width: int, levels: int, norm: Norm, drop: float
    ) -> None:
        super().__init__()
        self.channels, self.levels = channels, levels
        sizes = [width * 2**i for i in range(levels + 1)]
        self.down = nn.ModuleList(_level(a, b, norm, drop) for a, b in zip([channels, *sizes[:-1]], sizes, strict=True))
        self.up = nn.ModuleList(_level(a + b, a, norm, drop) for a, b in pairwise(sizes))
        heads = {"": outputs} if isinstance(outputs, int) else dict(outputs)
        self.heads = nn.ModuleDict({name or "only": nn.Conv2d(width, n, 1) for name, n in heads.items()})
        self.single = isinstance(outputs, int)

    def forward(self, x: Tensor) -> Tensor | dict[str, Tensor]:
        least = 2**self.levels
        if x.ndim != 4 or x.shape[1] != self.channels or min(x.shape[2:]) < least:
            raise InputError(
                f"segmenter takes (images, {self.channels}, height, width) of at least {least} pixels a side",
                f"shape {tuple(x.shape)}",
                "use fewer levels, or images (N, C, H, W)",
            )
        kept: list[Tensor] = []
        for i, level in enumerate(self.down):
            x = level(x if i == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        for skip, level in zip(kept[-2::-1], list(self.up)[::-1], strict=True):
            wide = F.interpolate(x, size=skip.shape[2:], mode="nearest")
            x = level(torch.cat([skip, wide], 1))
        found = {name: head(x) for name, head in self.heads.items()}
        return found["only"] if self.single else found


def segmenter(
    channels: int = 3,
    outputs: Mapping[str, int] | int = 11,
    width: int = 16,
    levels: int = 3,
    norm: Norm = FilterResponseNorm,
    drop: float = 0.0,
) -> nn.Module:
    """`outputs`: channels of the result, or several by name for `MultiTask`: `segmenter(3, {"seg": 11, "depth": 1})`.

    Labels (N, H, W) go with `Categorical(axis=-3)`, images (N, 1, H, W) with `Gaussian(...)`.
    """
    require_sizes(("channels", channels), ("width", width), ("levels", levels))
    heads = {"outputs": outputs} if isinstance(outputs, int) else dict(outputs)
    if not heads or "only" in heads:
        raise InputError("outputs need at least one name, and not 'only'", str(heads), "write {'seg': 11, 'depth': 1}")
    require_sizes(*heads.items())
    if not 0 <= drop < 1:
        raise InputError("drop is a probability below 1", str(drop), "use 0.2")
    return _Segmenter(channels, outputs, width, levels, norm, drop)
