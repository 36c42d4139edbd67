r"""A normalising flow: an invertible network, so that the density of the data is known exactly (Dinh et al., 2017: real NVP).

    log p(x) = log N(z; 0, I) + log |dz/dx|,    z: half of x stays, the other half is scaled and shifted by networks of the first, in turns

Its likelihood is `Flowing`. Nothing is approximated, so every method takes it, samplers too.
"""

from __future__ import annotations

from typing import cast, final

import torch
from torch import Tensor, nn

from nescio.nets.mlp import mlp
from nescio.nets.sizes import require_sizes


@final
class Coupling(nn.Module):
    """z_b = x_b exp(s(x_a)) + t(x_a), z_a = x_a; s in (-2, 2). `swap`: which half is a."""

    def __init__(self, size: int, hidden: int, swap: bool) -> None:
        super().__init__()
        self.first, self.swap = size // 2, swap
        kept = size - self.first if swap else self.first
        self.net = mlp(kept, hidden, hidden, 2 * (size - kept), activation=nn.Tanh)

    def halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        left, right = x[..., : self.first], x[..., self.first :]
        return (right, left) if self.swap else (left, right)

    def join(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([b, a] if self.swap else [a, b], -1)

    def slopes(self, a: Tensor) -> tuple[Tensor, Tensor]:
        s, t = self.net(a).chunk(2, -1)
        return 2 * torch.tanh(s / 2), t

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self.halves(x)
        s, t = self.slopes(a)
        return self.join(a, b * s.exp() + t), s.sum(-1)

    def inverse(self, z: Tensor) -> Tensor:
        a, b = self.halves(z)
        s, t = self.slopes(a)
        return self.join(a, (b - t) * (-s).exp())


@final
class Flow(nn.Module):
    """Couplings one after the other. Called on x it gives z, log |dz/dx| and x; with `back`, x at z."""

    def __init__(self, couplings: list[Coupling], size: int) -> None:
        super().__init__()
        self.couplings, self.size = nn.ModuleList(couplings), size

    def forward(self, x: Tensor, back: bool = False) -> dict[str, Tensor]:
        parts = cast("list[Coupling]", list(self.couplings))
        if back:
            for coupling in reversed(parts):
                x = coupling.inverse(x)
            return {"x": x}
        z, total = x, x.new_zeros(x.shape[:-1])
        for coupling in parts:
            z, log_det = coupling(z)
            total = total + log_det
        return {"z": z, "log_det": total, "x": x}


def flow(inputs: int, hidden: int = 32, layers: int = 6) -> Flow:
    """Real NVP of so many couplings: `Model(flow(2), Normal(0, 1), Flowing())`, fitted to (x, x)."""
    require_sizes(("inputs", inputs), ("hidden", hidden), ("layers", layers))
    require_sizes(("half of the inputs", inputs // 2))
    return Flow([Coupling(inputs, hidden, bool(i % 2)) for i in range(layers)], inputs)
