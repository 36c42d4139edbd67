r"""Normalising flows: invertible maps of a vector with a known log determinant, for latent factors of weights.

Both mix each number with a value that others propose, through a gate in (0, 1) (Dinh et al., 2017; Kingma et al., 2016):

    z'_i = g_i z_i + (1 - g_i) μ_i,     log |det| = Σ log g_i

`Coupling` (masked RealNVP): half of the numbers stay, and μ and g of the others depend on them; the halves take turns.
`Autoregressive` (IAF): μ and g of number i depend on the numbers before it; the order is turned from one map to the next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nescio.noise import Noise

OPEN = 2.0  # logit of the gates at the start: not far from the identity


class Flow(nn.Module, ABC):
    """One map, z (draws, size)."""

    first: Tensor
    second: Tensor

    def __init__(self, first: Tensor, second: Tensor, noise: Noise) -> None:
        """`first` (hidden, size), `second` (size, hidden): which weights of the small network there are."""
        super().__init__()
        hidden, size = first.shape
        self.register_buffer("first", first, persistent=False)
        self.register_buffer("second", second, persistent=False)
        self.inner = nn.Parameter(noise.at("inner").normal(hidden, size) / size**0.5)
        self.inner_bias = nn.Parameter(torch.zeros(hidden))
        self.outer = nn.Parameter(0.1 * noise.at("outer").normal(2, size, hidden) / hidden**0.5)
        self.outer_bias = nn.Parameter(torch.tensor([[1.0], [OPEN]]).repeat(1, size))  # 1 stays where it is

    def propose(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """(μ, log g / (1 - g)), each (draws, size)."""
        h = torch.tanh(F.linear(z, self.first * self.inner, self.inner_bias))
        mu, gate = (F.linear(h, self.second * w, b) for w, b in zip(self.outer, self.outer_bias, strict=True))
        return mu, gate

    @abstractmethod
    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """(z', log |det dz'/dz|), (draws, size) and (draws,)."""

    @abstractmethod
    def inverse(self, z: Tensor) -> Tensor:
        """z from z'."""


@final
class Coupling(Flow):
    def __init__(self, size: int, hidden: int, turn: int, noise: Noise) -> None:
        kept = (torch.arange(size) + turn) % 2 == 0 if size > 1 else torch.zeros(1, dtype=torch.bool)
        super().__init__(kept.float().expand(hidden, size), (~kept).float()[:, None].expand(size, hidden), noise)
        self.register_buffer("kept", kept, persistent=False)

    kept: Tensor

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        mu, gate = self.propose(z)
        moved = mu + torch.sigmoid(gate) * (z - mu)
        return torch.where(self.kept, z, moved), (F.logsigmoid(gate) * ~self.kept).sum(1)

    def inverse(self, z: Tensor) -> Tensor:
        mu, gate = self.propose(z)
        return torch.where(self.kept, z, mu + (z - mu) / torch.sigmoid(gate))


@final
class Autoregressive(Flow):
    def __init__(self, size: int, hidden: int, turn: int, noise: Noise) -> None:
        place = torch.arange(size).flip(0) if turn % 2 else torch.arange(size)
        unit = torch.arange(hidden) % max(1, size - 1)  # a hidden unit sees the numbers up to this place
        sees = (place[None, :] <= unit[:, None]).float() if size > 1 else torch.zeros(hidden, size)
        super().__init__(sees, (unit[None, :] < place[:, None]).float(), noise)
        self.register_buffer("place", place, persistent=False)

    place: Tensor

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        mu, gate = self.propose(z)
        return mu + torch.sigmoid(gate) * (z - mu), F.logsigmoid(gate).sum(1)

    def inverse(self, z: Tensor) -> Tensor:
        """Number by number."""
        out = torch.zeros_like(z)
        for i in self.place.argsort().tolist():
            mu, gate = self.propose(out)
            out[:, i] = mu[:, i] + (z[:, i] - mu[:, i]) / torch.sigmoid(gate[:, i])
        return out


def through(flows: nn.ModuleList, z: Tensor) -> tuple[Tensor, Tensor]:
    """One after the other, the log determinants summed."""
    total = z.new_zeros(len(z))
    for flow in flows:
        z, log_det = flow(z)
        total = total + log_det
    return z, total
