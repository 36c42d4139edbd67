r"""Groups of weights with a random scale in common, not centred (Louizos, Ullrich & Welling, 2017).

    prior   z ~ p(z),  w | z ~ N(0, z²)  for all weights of a group     Normal(0, HalfCauchy(1.).per("input"))
    q       w = z w̃,   w̃ ~ N(μ, σ²) each,   z log-normal, or z ~ N(m, s²) of either sign under the log-uniform law

    KL(q, p) = KL(q(z), p(z)) + Σ KL(N(μ, σ²), N(0, 1)),     for w̃ = w / z has the law at scale one, whatever z is.

Where the scale s of p(z) is random, too, z = s z̃ with s and z̃ independent, by the same argument: were it s and z, neither could go down
without the other, and groups would not switch off. s starts where it is, or if that is far off, as the median of a very narrow law is
before anything was fitted, at the size that the weights have.

A group that the data do not ask for lets w̃ go to its prior, which costs nothing, and z to zero or into noise: it has switched itself off.
The laws of z are in scales.py, how such weights act in group.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast, final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from nescio.families.family import Block, Factor, Scaling
from nescio.families.group import Group, role
from nescio.families.independent import Gaussian
from nescio.families.scales import LogNormal, Scales, Signed
from nescio.laws.sparse import HalfLogUniform
from nescio.weights import Action

FAR = 6.0  # nats


@final
class Scaled(Factor):
    """`scale`: the block of the scales; `weights`: those that they scale, each with its `scale`; `above`: what scales the scales."""

    noncentred = True

    def __init__(
        self, scale: Block, weights: Sequence[Block], sd: float, everywhere: bool, above: Block | None = None
    ) -> None:
        super().__init__(scale, *weights, *([] if above is None else [above]))
        self.weights = tuple(weights)
        given = [cast(Scaling, block.scale) for block in weights]
        flat, root = isinstance(given[0].law, HalfLogUniform), given[0].root
        power = 0.5 if root else 1.0
        self.scales: Scales
        if above is not None and scale.scale is not None:
            under = scale.scale.index
            size = sizes(weights, under, power * above.start) / power
            level = torch.where((size - above.start).abs() > FAR, size, above.start)
            self.scales = LogNormal(scale.start - above.start[under], sd, power, LogNormal(level, sd, power), under)
            start = self.scales.middle().detach()
        else:
            self.scales = Signed(scale.start, sd) if flat and not root else LogNormal(scale.start, sd, power)
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
        each = [self.scales.u(z), *(z[self.index(i)] * w for i, w in enumerate(tildes))]
        above = self.above()
        return torch.cat(each if above is None else [*each, above.g()])

    def above(self) -> LogNormal | None:
        return self.scales.above if isinstance(self.scales, LogNormal) else None

    def mean(self) -> Tensor:
        first = self.scales.moments()[0]
        means = [first[self.index(i)] * part.mean() for i, part in enumerate(self.inner())]
        power = self.scales.power if isinstance(self.scales, LogNormal) else 1.0
        above = self.above()
        return torch.cat([self.scales.middle().log() / power, *means, *([] if above is None else [above.loc])])

    def variances(self) -> dict[str, Tensor]:
        """Var w by name, in the shapes of the weights."""
        first, second = self.scales.moments()
        found = {}
        for i, (part, block) in enumerate(zip(self.inner(), self.weights, strict=True)):
            a, b = (m[self.index(i)].view(block.shape) for m in (first, second))
            found[block.name] = b * (part.loc.square() + part.sd.square()) - (a * part.loc).square()
        return found

    def log_prob(self, u: Tensor) -> Tensor:
        z, tildes = self.latents()
        own = sum(part.log_prob(w) for part, w in zip(self.inner(), tildes, strict=True))
        spread = sum(z.abs().log()[self.index(i)].sum(dtype=torch.float64) for i in range(len(tildes)))
        return self.scales.log_prob(z) + own - spread

    def kl(self, priors: Sequence[Distribution]) -> Tensor:
        """Given the law of the scales, at scale one if that is random, then the laws of the weights at scale one, then what is above."""
        own, above = priors[1 : len(self.weights) + 1], self.above()
        closed = Gaussian.kls(self.inner(), [[prior] for prior in own])
        total = self.scales.kl(priors[0])
        if above is not None:
            total = total + above.kl(priors[-1])
        for i, (part, kl, prior) in enumerate(zip(self.inner(), closed, own, strict=True)):
            if kl is None:  # by the draw of this call
                w = self.latents()[1][i]
                kl = part.log_prob(w) - prior.log_prob(w).expand(w.shape).sum(dtype=torch.float64)
            total = total + kl
        return total

    def action(self, block: Block) -> Action:
        return Group(self, [b.name for b in self.weights].index(block.name))


def sizes(weights: Sequence[Block], under: Tensor, otherwise: Tensor) -> Tensor:
    """Log root mean square of the weights under each of the scales that scale their scales; `otherwise` where all are zero."""
    squares, counts = torch.zeros_like(otherwise), torch.zeros_like(otherwise)
    for block in weights:
        index = under[cast(Scaling, block.scale).index]
        squares.index_add_(0, index, block.start.square())
        counts.index_add_(0, index, torch.ones_like(block.start))
    return torch.where(squares > 0, (squares / counts.clamp_min(1)).log() / 2, otherwise)


def grouped(blocks: Sequence[Block]) -> dict[str, list[Block]]:
    """The blocks of scales that several weights, but not whole tensors, have in common, with the weights that they scale."""
    found: dict[str, list[Block]] = {}
    for block in blocks:
        if block.scale is not None and block.site is not None:
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


def above(scale: Block, blocks: Mapping[str, Block]) -> Block | None:
    """The block of random scales that the law of these scales has."""
    return None if scale.scale is None or scale.scale.root else blocks.get(scale.scale.block)
