"""Filter response normalisation (Singh and Krishnan, 2020): a norm whose output for one image depends on no other.

Batch normalisation ties the examples of a batch together, so that the likelihood is no product over examples; this
norm does not, which is why Izmailov et al. (2021) put it into the ResNet that they ran Hamiltonian Monte Carlo on.
"""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn

from nescio.errors import InputError
from nescio.nets.sizes import require_sizes


@final
class FilterResponseNorm(nn.Module):
    """y = γ x / sqrt(mean over h, w of x² + ε) + β, then max(y, τ), the thresholded linear unit; ε is not learnt.

    γ starts at 1, β and τ at 0, as in google-research's bnn_hmc/utils/models.py (`FeatureResponseNorm`). Where y = τ, the slope is
    that of y. Half-precision images are normalised in single precision and come out as halves, as from torch's batch norm.
    """

    def __init__(self, channels: int, eps: float = 1e-6) -> None:
        require_sizes(("channels", channels))
        if not (math.isfinite(eps) and eps > 0):
            raise InputError("eps must be positive and finite", repr(eps), "keep the default 1e-6")
        super().__init__()
        self.channels, self.eps = channels, eps
        # One dimension each, made (1, C, 1, 1) in forward: for parameters that are (1, C, 1, 1) themselves, a compiled
        # vmap(grad) of torch 2.11 returns gradients of the wrong shape.
        self.gamma = nn.Parameter(torch.empty(channels))
        self.beta = nn.Parameter(torch.empty(channels))
        self.tau = nn.Parameter(torch.empty(channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.gamma)
        nn.init.zeros_(self.beta)
        nn.init.zeros_(self.tau)

    def forward(self, x: Tensor) -> Tensor:  # (images, channels, h, w), in and out
        if x.ndim != 4 or x.shape[1] != self.channels:
            raise InputError(
                f"FilterResponseNorm({self.channels}) takes (images, {self.channels}, height, width)",
                f"shape {tuple(x.shape)}",
                "add the missing dimensions or build the norm for these channels",
            )
        wide = x.to(torch.promote_types(x.dtype, torch.float32))  # squares of halves overflow or round
        scale = torch.rsqrt(wide.square().mean((2, 3), keepdim=True) + self.eps)  # (images, channels, 1, 1)
        # One of each for every image: their gradients are summed within images, beside that of the scale, not over all.
        gamma, beta, tau = (p.reshape(1, -1, 1, 1).expand_as(scale) for p in (self.gamma, self.beta, self.tau))
        y = wide * (gamma * scale) + beta
        return torch.where(y < tau, tau, y).to(x.dtype)  # maximum's gradient, compiled, forgets the layout of x

    def extra_repr(self) -> str:
        return f"{self.channels}, eps={self.eps}"
