r"""Laws of random scales z that groups of weights have in common: log-normal, or Gaussian of either sign.

KL(q(z), p(z)) of a log-normal is taken by quadrature over log z; under p(z) ∝ 1 / z by the approximation of variational
dropout (nescio/families/variational_dropout.py), as in Louizos et al. (2017): a log-normal could widen for ever there. A z below zero is
the scale |z| with the sign in the weights, so half of the density 1 / |z| lies on each side; forgetting the sign can only lower the
divergence.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cache
from typing import final

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal
from torch.nn import functional as F

from nescio.families.variational_dropout import log_uniform_kl

NODES, REACH = 73, 9.0  # of the quadrature over log z, in standard deviations: E[z²] is far out


class Scales(nn.Module, ABC):
    """The law of the scales z of some groups, (groups,)."""

    def __init__(self, start: Tensor, sd: float) -> None:
        super().__init__()
        self.loc = nn.Parameter(start)
        self.rho = nn.Parameter(torch.full_like(start, sd + math.log(-math.expm1(-sd))))  # softplus(rho) = sd

    def begin(self) -> None:
        self.sd = F.softplus(self.rho)

    def noisy(self, index: Tensor | None, rows: int | None) -> Tensor:
        """A draw of the Gaussian inside: (groups,), or of the groups `index` for each of so many rows."""
        loc, sd = (self.loc, self.sd) if index is None else (self.loc[index], self.sd[index])
        shape = loc.shape if rows is None else (rows, *loc.shape)
        return torch.addcmul(loc, sd, torch.randn(shape, dtype=loc.dtype, device=loc.device))

    @abstractmethod
    def z(self, index: Tensor | None = None, rows: int | None = None) -> Tensor: ...

    @abstractmethod
    def u(self, z: Tensor) -> Tensor:
        """The number of the flat vector: the logarithm of what has the law."""

    @abstractmethod
    def log_prob(self, z: Tensor) -> Tensor:
        """Log density of u(z), summed."""

    @abstractmethod
    def moments(self) -> tuple[Tensor, Tensor]:
        """E[z] and E[z²]."""

    @abstractmethod
    def middle(self) -> Tensor:
        """The median of |z|, or near it."""

    @abstractmethod
    def kls(self, prior: Distribution) -> Tensor:
        """KL(q, p) of each, (groups,)."""

    def kl(self, prior: Distribution) -> Tensor:
        return self.kls(prior).sum(dtype=torch.float64)


@final
class LogNormal(Scales):
    """z = e^(power g), g Gaussian; power ½ where the law is that of z².

    Where the law's own scale is random, g is relative to the logarithm of that scale `above`, and the law that `kls` is given is the one at
    scale one. `under`: which of them each has.
    """

    nodes: Tensor
    masses: Tensor
    under: Tensor

    def __init__(
        self, start: Tensor, sd: float, power: float, above: LogNormal | None = None, under: Tensor | None = None
    ) -> None:
        super().__init__(start.clone(), sd)
        self.power, self.above = power, above
        self.register_buffer("under", under, persistent=False)
        self.drawn: Tensor | None = None
        for name, rule in zip(("nodes", "masses"), normal_rule(), strict=True):
            self.register_buffer(name, torch.tensor(rule).to(start)[:, None], persistent=False)  # (nodes, 1)

    def begin(self) -> None:
        super().begin()
        self.drawn = None
        if self.above is not None:
            self.above.begin()

    def g(self) -> Tensor:
        """One draw a call, (groups,): what lies below has the same."""
        if self.drawn is None:
            self.drawn = self.noisy(None, None)
        return self.drawn

    def level(self, index: Tensor | None = None) -> Tensor | float:
        """The logarithms of the scales above in this call, for each scale here, or for those of `index`."""
        if self.above is None:
            return 0.0
        return self.above.g()[self.under if index is None else self.under[index]]

    def z(self, index: Tensor | None = None, rows: int | None = None) -> Tensor:
        return (self.power * (self.noisy(index, rows) + self.level(index))).exp()

    def u(self, z: Tensor) -> Tensor:
        return z.log() / self.power

    def log_prob(self, z: Tensor) -> Tensor:
        """With that of the scales above."""
        own = Normal(self.loc, self.sd).log_prob(self.u(z) - self.level()).sum(dtype=torch.float64)
        if self.above is None:
            return own
        return own + Normal(self.above.loc, self.above.sd).log_prob(self.above.g()).sum(dtype=torch.float64)

    def moments(self) -> tuple[Tensor, Tensor]:
        m, v = self.power * self.loc, (self.power * self.sd).square()
        first, second = (m + v / 2).exp(), (2 * m + 2 * v).exp()
        if self.above is None:
            return first, second
        a, b = (moment[self.under] for moment in self.above.moments())
        return a * first, b * second

    def middle(self) -> Tensor:
        own = (self.power * self.loc).exp()
        return own if self.above is None else own * self.above.middle()[self.under]

    def kls(self, prior: Distribution) -> Tensor:
        g = self.loc + self.sd * self.nodes
        density = (self.masses * (prior.log_prob(g.exp()) + g)).sum(0)
        return -(density + self.sd.log() + 0.5 * math.log(2 * math.pi * math.e))


@final
class Signed(Scales):
    """z Gaussian, of either sign, under p(z) ∝ 1 / |z|."""

    def __init__(self, start: Tensor, sd: float) -> None:
        super().__init__(start.exp(), sd)

    def z(self, index: Tensor | None = None, rows: int | None = None) -> Tensor:
        return self.noisy(index, rows)

    def u(self, z: Tensor) -> Tensor:
        return z.abs().clamp_min(torch.finfo(z.dtype).tiny).log()

    def log_prob(self, z: Tensor) -> Tensor:
        """With the sign, which is one of two: log 2 is the prior's."""
        return (Normal(self.loc, self.sd).log_prob(z) + self.u(z) + math.log(2)).sum(dtype=torch.float64)

    def moments(self) -> tuple[Tensor, Tensor]:
        return self.loc, self.loc.square() + self.sd.square()

    def middle(self) -> Tensor:
        return self.loc.abs().clamp_min(torch.finfo(self.loc.dtype).tiny)

    def log_alpha(self) -> Tensor:
        return 2 * (self.sd.log() - self.loc.abs().clamp_min(1e-20).log())

    def kls(self, prior: Distribution) -> Tensor:
        return log_uniform_kl(self.log_alpha()) + math.log(2)


@cache
def normal_rule() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of a mean under N(0, 1): evenly spaced, which converges faster than any power, kinks or not far away."""
    nodes = np.linspace(-REACH, REACH, NODES)
    weights = np.exp(-0.5 * nodes**2)
    return nodes, weights / weights.sum()
