"""ResNet-20 for small images, as in Izmailov et al. (2021), "What are Bayesian neural network posteriors really like?"

It follows google-research's bnn_hmc/utils/models.py (`resnet20_frn_swish`): every convolution has a bias and a norm,
the shortcut's too; and the stride-2 convolutions pad as there, less at the top left than at the bottom right, so that
weights carry over. The initial weights are torch's own, not the He normal ones there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from torch import Tensor, nn
from torch.nn import functional as F

from nescio.nets.norm import FilterResponseNorm
from nescio.nets.sizes import require_sizes


@final
class _ConvNorm(nn.Module):
    """A convolution with "same" padding (output pixels = input pixels / stride, rounded up), then its norm."""

    def __init__(self, c_in: int, c_out: int, kernel: int, stride: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, kernel, stride, padding=kernel // 2 if stride == 1 else 0)
        self.norm = norm(c_out)
        self.kernel, self.stride = kernel, stride

    def _padding(self, pixels: int) -> tuple[int, int]:
        total = max((-(-pixels // self.stride) - 1) * self.stride + self.kernel - pixels, 0)
        return total // 2, total - total // 2

    def forward(self, x: Tensor) -> Tensor:  # (images, c_in, h, w) to (images, c_out, h / stride, w / stride)
        if self.stride > 1:  # one side more than the other, which Conv2d cannot do by itself
            x = F.pad(x, (*self._padding(x.shape[3]), *self._padding(x.shape[2])))
        return self.norm(self.conv(x))


@final
class _Block(nn.Module):
    """Two 3x3 convolutions and a shortcut; the shortcut is a 1x1 convolution where the shape changes."""

    def __init__(
        self, c_in: int, c_out: int, stride: int, norm: Callable[[int], nn.Module], activation: Callable[[], nn.Module]
    ) -> None:
        super().__init__()
        self.first = _ConvNorm(c_in, c_out, 3, stride, norm)
        self.inner = activation()
        self.second = _ConvNorm(c_out, c_out, 3, 1, norm)
        same = c_in == c_out and stride == 1
        self.shortcut = nn.Identity() if same else _ConvNorm(c_in, c_out, 1, stride, norm)
        self.outer = activation()

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.shortcut(x) + self.second(self.inner(self.first(x))))


def resnet20(
    classes: int = 10,
    channels: int = 3,
    norm: Callable[[int], nn.Module] = FilterResponseNorm,
    activation: Callable[[], nn.Module] = nn.SiLU,
) -> nn.Sequential:
    """Three stages of three blocks with 16, 32 and 64 channels: 274,042 parameters on CIFAR-10 with the defaults.

    `norm` is called with the number of channels. `resnet20(norm=nn.BatchNorm2d, activation=nn.ReLU)` is the usual
    network, but batch normalisation makes examples depend on one another, and in training mode `vmap` refuses it unless
    its running statistics are stacked too.
    """
    require_sizes(("classes", classes), ("channels", channels))
    layers: list[nn.Module] = [_ConvNorm(channels, 16, 3, 1, norm), activation()]
    c_in = 16
    for c_out in (16, 32, 64):
        for block in range(3):
            layers.append(_Block(c_in, c_out, 2 if block == 0 and c_out > 16 else 1, norm, activation))
            c_in = c_out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))
