"""Random networks with random zeros, for the property tests of shrinking."""

from __future__ import annotations

import random

import torch
from torch import Tensor, nn

from nescio.nets import FilterResponseNorm
from nescio.noise import Noise


class Residual(nn.Module):
    """x + branch(x), or a projection of x."""

    def __init__(self, branch: nn.Module, project: nn.Module) -> None:
        super().__init__()
        self.branch, self.project = branch, project

    def forward(self, x: Tensor) -> Tensor:
        return self.project(x) + self.branch(x)


class Viewed(nn.Module):
    """Flattens by hand."""

    def forward(self, x: Tensor) -> Tensor:
        return x.view(x.size(0), -1)


ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.SiLU, nn.ELU)  # of some, f(0) is not 0


def norm(chance: random.Random, channels: int, images: bool) -> list[nn.Module]:
    if not images:
        return chance.choice([[], [], [nn.BatchNorm1d(channels)]])
    return chance.choice([[], [nn.BatchNorm2d(channels)], [FilterResponseNorm(channels)], [nn.PReLU(channels)]])


def conv(chance: random.Random, a: int, b: int, same: bool = False) -> nn.Module:
    kernel = chance.choice([1, 3])
    padding = kernel // 2 if same else chance.choice([0, kernel // 2])
    return nn.Conv2d(a, b, kernel, padding=padding, bias=chance.random() < 0.7)


def random_net(seed: int) -> tuple[nn.Module, Tensor]:
    """In double precision and evaluation mode, with an input; norms have statistics, and rows, columns and single weights are zero."""
    chance = random.Random(seed)
    layers: list[nn.Module] = []
    with Noise(seed).scope():
        if chance.random() < 0.7:
            width, side = chance.choice([1, 3]), 9
            x = torch.randn(3, width, side, side, dtype=torch.float64)
            for _ in range(chance.randint(1, 3)):
                after = chance.randint(2, 6)
                kind = chance.random()
                if kind < 0.35:  # a block whose sum keeps its size
                    branch = [
                        conv(chance, width, after, True),
                        chance.choice(ACTIVATIONS)(),
                        conv(chance, after, width, True),
                    ]
                    layers.append(Residual(nn.Sequential(*branch, *norm(chance, width, True)), nn.Identity()))
                    layers.append(chance.choice(ACTIVATIONS)())
                    continue
                if kind < 0.5:
                    project = nn.Conv2d(width, after, 1)
                    layers.append(Residual(nn.Sequential(conv(chance, width, after, True)), project))
                else:
                    layers += [conv(chance, width, after), *norm(chance, after, True), chance.choice(ACTIVATIONS)()]
                width = after
            layers += chance.choice([[], [nn.MaxPool2d(2)], [nn.AvgPool2d(2, padding=1)], [nn.Dropout2d(0.5)]])
            layers += chance.choice([[nn.Flatten()], [Viewed()], [nn.AdaptiveAvgPool2d(1), nn.Flatten()]])
        else:
            width = 5
            x = torch.randn(3, width, dtype=torch.float64)
        with torch.no_grad():
            width = nn.Sequential(*layers).double().eval()(x).shape[1]
        for _ in range(chance.randint(0, 2)):
            after = chance.randint(2, 8)
            layers += [nn.Linear(width, after, bias=chance.random() < 0.7), *norm(chance, after, False)]
            layers.append(chance.choice(ACTIVATIONS)())
            width = after
            if chance.random() < 0.3:
                inner = nn.Sequential(nn.Linear(width, 4), nn.Sigmoid(), nn.Linear(4, width))
                layers.append(Residual(inner, nn.Identity()))
        net = nn.Sequential(*layers, nn.Linear(width, 2)).double().eval()
        for buffer in net.buffers():
            if buffer.is_floating_point():
                buffer.copy_(torch.rand_like(buffer) + 0.5)
        for name, p in net.named_parameters():
            if p.dim() < 2:
                nn.init.normal_(p, 0.3, 0.5)
                if "weight" not in name and chance.random() < 0.5:
                    nn.init.zeros_(p)
                continue
            with torch.no_grad():
                p[torch.rand(p.shape[0]) < 0.4] = 0
                p[:, torch.rand(p.shape[1]) < 0.4] = 0
                p[torch.rand_like(p) < 0.3] = 0
    return net, x
