r"""Groups of weights with a random scale in common, not centred (Louizos, Ullrich & Welling, 2017).

    prior   z ~ p(z),  w | z ~ N(0, z²)  for all weights of a group     Normal(0, HalfCauchy(1.).per("input"))
    q       w = z w̃,   w̃ ~ N(μ, σ²) each,   z log-normal, or z ~ N(m, s²) of either sign under the log-uniform law

    KL(q, p) = KL(q(z), p(z)) + Σ KL(N(μ, σ²), N(0, 1)),     for w̃ = w / z has the law at scale one, whatever z is.

A group that the data do not ask for lets w̃ go to its prior, which costs nothing, and z to zero or into noise: it has switched itself off.
KL(q(z), p(z)) of a log-normal is taken by quadrature over log z; under p(z) ∝ 1 / z by the approximation of variational
dropout (nescio/families/variational_dropout.py), as in the paper: a log-normal could widen for ever there. A z below zero is the scale
|z| with the sign in w̃, so half of the density 1 / |z| lies on each side; forgetting the sign can only lower the divergence.

In training each example has a z of its own, F.linear(x * z, ·) or z * F.linear(x, ·), with the rule of `Gaussian` for w̃ inside.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal
from torch.nn import functional as F

from nescio.families.family import Block, Factor, Scaling
from nescio.families.mean_field import Gaussian, own_bias
from nescio.families.variational_dropout import log_uniform_kl
from nescio.laws.site import TRANSPOSED
from nescio.laws.sparse import HalfLogUniform
from nescio.weights import Action, Convolve, RandomWeight, values

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
    def kl(self, prior: Distribution) -> Tensor: ...


@final
class LogNormal(Scales):
    """z = e^(power g), g Gaussian; power ½ where the law is that of z²."""

    nodes: Tensor
    masses: Tensor

    def __init__(self, start: Tensor, sd: float, power: float) -> None:
        super().__init__(start.clone(), sd)
        self.power = power
        for name, rule in zip(("nodes", "masses"), normal_rule(), strict=True):
            self.register_buffer(name, torch.tensor(rule).to(start)[:, None], persistent=False)  # (nodes, 1)

    def z(self, index: Tensor | None = None, rows: int | None = None) -> Tensor:
        return (self.power * self.noisy(index, rows)).exp()

    def u(self, z: Tensor) -> Tensor:
        return z.log() / self.power

    def log_prob(self, z: Tensor) -> Tensor:
        return Normal(self.loc, self.sd).log_prob(self.u(z)).sum(dtype=torch.float64)

    def moments(self) -> tuple[Tensor, Tensor]:
        m, v = self.power * self.loc, (self.power * self.sd).square()
        return (m + v / 2).exp(), (2 * m + 2 * v).exp()

    def middle(self) -> Tensor:
        return (self.power * self.loc).exp()

    def kl(self, prior: Distribution) -> Tensor:
        g = self.loc + self.sd * self.nodes
        density = (self.masses * (prior.log_prob(g.exp()) + g)).sum(0)
        return -(density + self.sd.log() + 0.5 * math.log(2 * math.pi * math.e)).sum(dtype=torch.float64)


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

    def kl(self, prior: Distribution) -> Tensor:
        return (log_uniform_kl(self.log_alpha()) + math.log(2)).sum(dtype=torch.float64)


@final
class Scaled(Factor):
    """`scale`: the block of the scales; `weights`: those that they scale, each with its `scale`."""

    noncentred = True

    def __init__(self, scale: Block, weights: Sequence[Block], sd: float, everywhere: bool) -> None:
        super().__init__(scale, *weights)
        given = [cast(Scaling, block.scale) for block in weights]
        flat, root = isinstance(given[0].law, HalfLogUniform), given[0].root
        power = 0.5 if root else 1.0
        self.scales: Scales = (
            Signed(scale.start, sd) if flat and not root else LogNormal(scale.start, sd, 0.5 if root else 1.0)
        )
        start = (power * scale.start).exp()
        self.parts = nn.ModuleList(
            [
                Gaussian(Block(b.name, b.site, b.start / start[s.index]), sd, everywhere)
                for b, s in zip(weights, given, strict=True)
            ]
        )
        for i, s in enumerate(given):
            self.register_buffer(f"index{i}", s.index, persistent=False)
        self.roles = [role(block) for block in weights]
        self.mates = {  # which biases have the scales of which outputs
            (i, j)
            for i, own in enumerate(self.roles)
            for j, s in enumerate(given)
            if own is not None and not own[0] and torch.equal(own[1], s.index)
        }
        self.latent: tuple[Tensor, list[Tensor]] | None = None

    def index(self, i: int) -> Tensor:
        return getattr(self, f"index{i}")

    def inner(self) -> list[Gaussian]:
        return cast("list[Gaussian]", list(self.parts))

    def begin(self) -> None:
        self.latent = None
        self.scales.begin()
        for part in self.inner():
            part.begin()

    def latents(self) -> tuple[Tensor, list[Tensor]]:
        """Those of this call: z (groups,) and each w̃, flat."""
        if self.latent is None:
            self.latent = self.scales.z(), [part.draw() for part in self.inner()]
        return self.latent

    def draw(self) -> Tensor:
        z, tildes = self.latents()
        return torch.cat([self.scales.u(z), *(z[self.index(i)] * w for i, w in enumerate(tildes))])

    def mean(self) -> Tensor:
        first = self.scales.moments()[0]
        means = [first[self.index(i)] * part.mean() for i, part in enumerate(self.inner())]
        power = self.scales.power if isinstance(self.scales, LogNormal) else 1.0
        return torch.cat([self.scales.middle().log() / power, *means])

    def variances(self) -> dict[str, Tensor]:
        """Var w by name, in the shapes of the weights."""
        first, second = self.scales.moments()
        found = {}
        for i, (part, block) in enumerate(zip(self.inner(), self.blocks[1:], strict=True)):
            a, b = (m[self.index(i)].view(block.shape) for m in (first, second))
            found[block.name] = b * (part.loc.square() + part.sd.square()) - (a * part.loc).square()
        return found

    def log_prob(self, u: Tensor) -> Tensor:
        z, tildes = self.latents()
        own = sum(part.log_prob(w) for part, w in zip(self.inner(), tildes, strict=True))
        spread = sum(z.abs().log()[self.index(i)].sum(dtype=torch.float64) for i in range(len(tildes)))
        return self.scales.log_prob(z) + own - spread

    def kl(self, priors: Sequence[Distribution]) -> Tensor:
        """Given the law of the scales, then the laws of the weights at scale one."""
        closed = Gaussian.kls(self.inner(), [[prior] for prior in priors[1:]])
        total = self.scales.kl(priors[0])
        for i, (part, kl, prior) in enumerate(zip(self.inner(), closed, priors[1:], strict=True)):
            if kl is None:  # by the draw of this call
                w = self.latents()[1][i]
                kl = part.log_prob(w) - prior.log_prob(w).expand(w.shape).sum(dtype=torch.float64)
            total = total + kl
        return total

    def action(self, block: Block) -> Action:
        return Group(self, [b.name for b in self.blocks[1:]].index(block.name))


@final
class Group(Action):
    """How the weights of one tensor act, a scale of its own for each example."""

    def __init__(self, factor: Scaled, i: int) -> None:
        self.factor, self.i, self.part = factor, i, factor.inner()[i]

    def tilde(self) -> Tensor:
        return self.factor.latents()[1][self.i].view(self.part.loc.shape)

    def linear(self, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor]) -> Any:
        return self.act(self.part.linear, x, bias, -1)

    def convolve(self, convolution: Convolve, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor]) -> Any:
        return self.act(lambda *given: self.part.convolve(convolution, *given), x, bias, 1)

    def act(self, rule: Callable[..., Tensor], x: Tensor, bias: Tensor | None, axis: int) -> Any:
        own = self.factor.roles[self.i]
        if own is None:
            return NotImplemented
        inputs, index = own
        z = self.factor.scales.z(index.to(x.device), len(x))  # (examples, inputs or outputs)
        if inputs:
            return rule(x * along(z, x, axis), bias, self.tilde)
        mate = self.mate(bias)
        out = rule(x, mate, self.tilde)
        out = out * along(z, out, axis)
        if bias is None or mate is not None:
            return out
        if out.dim() == 2:
            return out + own_bias(bias, out)
        return out + along(values(bias)[None], out, axis)

    def mate(self, bias: Tensor | None) -> Tensor | None:
        """The bias before it is scaled, where it has the scales of these outputs."""
        if not isinstance(bias, RandomWeight) or not isinstance(bias.action, Group):
            return None
        other = bias.action
        if other.factor is not self.factor or (self.i, other.i) not in self.factor.mates:
            return None
        bias.used()
        return RandomWeight.of(other.part, other.tilde, other.part.loc)


def along(z: Tensor, like: Tensor, axis: int) -> Tensor:
    """(examples, n) to a shape that multiplies that axis of `like`."""
    shape = [1] * like.dim()
    shape[0], shape[axis] = z.shape
    return z.view(shape).to(like.dtype)


def role(block: Block) -> tuple[bool, Tensor] | None:
    """(whether the scales belong to the inputs of the layer, which scale each of them has), or None: neither inputs nor outputs."""
    assert block.site is not None and block.scale is not None
    index = block.scale.index.view(block.shape)
    for axis in range(min(2, index.dim())):
        first = index.movedim(axis, 0).reshape(index.shape[axis], -1)[:, 0]
        shape = [-1 if a == axis else 1 for a in range(index.dim())]
        if torch.equal(first.view(shape).expand_as(index), index):
            return (index.dim() > 1 and axis == (0 if isinstance(block.site.module, TRANSPOSED) else 1)), first
    return None


def grouped(blocks: Sequence[Block]) -> dict[str, list[Block]]:
    """The blocks of scales that several weights, but not whole tensors, have in common, with the weights that they scale."""
    found: dict[str, list[Block]] = {}
    for block in blocks:
        if block.scale is not None:
            found.setdefault(block.scale.block, []).append(block)
    sizes = {block.name: len(block.start) for block in blocks}
    return {
        name: own
        for name, own in found.items()
        if sizes[name] < sum(len(block.start) for block in own) and any(finer(block) for block in own)
    }


def finer(block: Block) -> bool:
    """Whether its weights have more than one scale."""
    return block.scale is not None and len(block.scale.index.unique()) > 1


@cache
def normal_rule() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of a mean under N(0, 1): evenly spaced, which converges faster than any power, kinks or not far away."""
    nodes = np.linspace(-REACH, REACH, NODES)
    weights = np.exp(-0.5 * nodes**2)
    return nodes, weights / weights.sum()
