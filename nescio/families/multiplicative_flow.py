r"""Multiplicative normalising flows: Gaussian weights times a random vector of any law (Louizos & Welling, 2017).

    z0 ~ N(m, v),  z = flow(z0),     W_ij | z ~ N(z_j μ_ij, σ_ij²)

One z_j for each input of a linear map, for each output of a convolution. q(W) = ∫ q(W | z) q(z) dz has no density, but with any
law r(z | W) there is a lower bound on its entropy, and so on the evidence:

    KL(q, p) <= E [KL(q(W | z), p(W)) + log q(z) - log r(z | W)]

tight when r(z | W) = q(z | W). r is a flow of z to a Gaussian whose numbers are read off W: as in the paper by tanh(c W), and by the
regression of W_j on μ_j, which is where a z_j that differs from the others shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal
from torch.nn import functional as F

from nescio.errors import InputError
from nescio.families.correlated import cross_entropy
from nescio.families.family import Block, Factor, Family
from nescio.families.flows import Autoregressive, Coupling, through
from nescio.families.independent import Gaussian, own_bias
from nescio.noise import Noise
from nescio.weights import Action, Convolve

MANY = 1000  # draws by which the mean of z is known
LEAST = 1e-16  # of a variance: its root has no slope at zero


@final
@dataclass(frozen=True)
class MultiplicativeFlow(Family):
    """`flows`: maps in q(z) and as many in r; `hidden`: units of each. `autoregressive`: IAF in the place of masked RealNVP.

    `sd`: the standard deviation that weights start with, given z; `z_sd`: that of z, about 1. Biases and scales are as in `MeanField`.
    """

    flows: int = 2
    hidden: int = 50
    autoregressive: bool = False
    sd: float = 0.05
    z_sd: float = 0.1

    def __post_init__(self) -> None:
        if self.flows < 0 or self.hidden < 1 or not self.sd > 0 or not self.z_sd > 0:
            got = f"flows={self.flows}, hidden={self.hidden}, sd={self.sd}, z_sd={self.z_sd}"
            raise InputError("hidden, sd and z_sd must be positive and flows not negative", got, "leave them out")

    def factors(self, blocks: Sequence[Block]) -> Sequence[Factor]:
        matrices = [block.site is not None and len(block.shape) > 1 for block in blocks]
        return [Multiplicative(b, self) if m else Gaussian(b, self.sd) for b, m in zip(blocks, matrices, strict=True)]


@final
class Multiplicative(Factor, Action):
    """The weights of one layer. Inside as (size of z, others)."""

    def __init__(self, block: Block, family: MultiplicativeFlow) -> None:
        super().__init__(block)
        self.transposed = len(block.shape) == 2  # z belongs to the inputs of a linear map, the second axis
        start = self.inside(block.start)
        size, like, noise = len(start), block.start, Noise(0, ("flows", block.name))
        self.loc = nn.Parameter(start.clone())
        self.rho = nn.Parameter(torch.full_like(start, family.sd + math.log(-math.expm1(-family.sd))))
        self.z_loc = nn.Parameter(like.new_ones(size))
        self.z_log_sd = nn.Parameter(like.new_full((size,), math.log(family.z_sd)))
        kind = Autoregressive if family.autoregressive else Coupling
        width = min(family.hidden, 4 * size)
        each = [[kind(size, width, i, noise.at(name, i)) for i in range(family.flows)] for name in ("q", "r")]
        self.of_q, self.of_r = (nn.ModuleList(flows).to(like) for flows in each)
        self.c = nn.Parameter((noise.at("c").normal(size) / size**0.5).to(like))
        self.b = nn.Parameter(torch.stack([noise.at("b").normal(size), torch.zeros(size)]).to(like) * 0.01)
        self.a, self.r_loc, self.r_log_sd = (nn.Parameter(x) for x in self.inverted(family))

    @torch.no_grad()
    def inverted(self, family: MultiplicativeFlow) -> tuple[Tensor, Tensor, Tensor]:
        """(a, r_loc, r_log_sd) with which r is about q(z | W) at the start, where z_j | W_j is Gaussian."""
        prior, slack = family.z_sd**2, family.sd**2 / (self.loc.square().sum(1) + LEAST)
        ends = through(self.of_r, torch.tensor([[0.0], [1.0]]).to(self.loc).expand(2, len(self.loc)))[0]
        slope = ends[1] - ends[0]
        trust = prior / (prior + slack)
        return slope * trust, ends[1] - slope * trust, (slope.abs() * (trust * slack).sqrt() + LEAST).log()

    def inside(self, u: Tensor) -> Tensor:
        matrix = u.view(self.blocks[0].shape[0], -1)
        return matrix.mT.contiguous() if self.transposed else matrix

    def outside(self, w: Tensor) -> Tensor:
        return (w.mT if self.transposed else w).reshape(-1)

    # ---- q -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self.sd = F.softplus(self.rho)
        self.latent: tuple[Tensor, Tensor] | None = None

    def latents(self, n: int) -> tuple[Tensor, Tensor]:
        """(z, log q(z)), (n, size) and (n,)."""
        noise = torch.randn(n, len(self.z_loc), dtype=self.loc.dtype, device=self.loc.device)
        z, log_det = through(self.of_q, self.z_loc + self.z_log_sd.exp() * noise)
        base = -0.5 * (noise.square() + math.log(2 * math.pi)) - self.z_log_sd
        return z, base.sum(1) - log_det

    def z(self) -> tuple[Tensor, Tensor]:
        """That of this call: (z, log q(z)), (size,) and ()."""
        if self.latent is None:
            z, log_q = self.latents(1)
            self.latent = z[0], log_q[0]
        return self.latent

    def draw(self) -> Tensor:
        return self.outside(self.z()[0][:, None] * self.loc + self.sd * torch.randn_like(self.loc))

    def mean(self) -> Tensor:
        """By a mean of z over many draws, always the same ones."""
        with Noise(0, ("mean",), self.loc.device).scope():
            return self.outside(self.latents(MANY)[0].mean(0)[:, None] * self.loc)

    # ---- the bound ---------------------------------------------------------------------------------------------

    def log_r(self, z: Tensor, w: Tensor) -> Tensor:
        """log r(z | W)."""
        base, log_det = through(self.of_r, z[None])
        shared = torch.tanh(self.c @ w).mean()
        regressed = (w * self.loc).sum(1) / (self.loc.square().sum(1) + LEAST)
        loc, log_sd = self.r_loc + self.a * regressed + self.b[0] * shared, self.r_log_sd + self.b[1] * shared
        white = (base[0] - loc) / log_sd.exp()
        return (-0.5 * (white.square() + math.log(2 * math.pi)) - log_sd).sum() + log_det[0]

    def log_prob(self, u: Tensor) -> Tensor:
        """log q(W | z) + log q(z) - log r(z | W), on average at least log q(W)."""
        (z, log_q), w = self.z(), self.inside(u)
        own = Normal(z[:, None] * self.loc, self.sd).log_prob(w).sum(dtype=torch.float64)
        return own + log_q - self.log_r(z, w)

    def kl(self, priors: Sequence[Distribution]) -> Tensor | None:
        """Closed given z; of z, and of W for r, there is one draw."""
        if not isinstance(priors[0], Normal):
            return None
        z, log_q = self.z()
        mean = z[:, None] * self.loc
        own = cross_entropy(priors[0], self.outside(mean), self.outside(self.sd.square()))
        entropy = self.sd.log().sum(dtype=torch.float64)
        return own - entropy + log_q - self.log_r(z, mean + self.sd * torch.randn_like(mean))

    # ---- how it acts -------------------------------------------------------------------------------------------

    def linear(self, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor]) -> Any:
        """Each example has a z of its own."""
        if x.dim() != 2:
            return NotImplemented
        mean = F.linear(x * self.latents(len(x))[0], self.loc.mT)
        spread = F.linear(x.square(), self.sd.square().mT).clamp_min(LEAST).sqrt()
        noisy = torch.addcmul(mean, spread, torch.randn_like(mean))
        return noisy if bias is None else noisy + own_bias(bias, noisy)

    def convolve(self, convolution: Convolve, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor]) -> Any:
        return NotImplemented
