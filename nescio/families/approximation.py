"""q over the whole flat vector: the factors of a family, points for what is fitted, and the rest, which stays.

Centred: q is over the weights themselves and over the unconstrained scales.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import cast, final

import torch
from torch import Tensor, nn

from nescio.errors import InputError, UnsupportedError
from nescio.families.call import Call
from nescio.families.family import Factor, Family
from nescio.families.layout import Layout
from nescio.families.point import Point
from nescio.laws.law import unvalidated
from nescio.laws.prior import Params, Prior


@final
class Approximation(nn.Module):
    """`free`: which entries of the vector q is about, a mask; the others stay at the values `theta` (dim,)."""

    rest: Tensor
    free: Tensor

    def __init__(self, family: Family, prior: Prior, free: Tensor, theta: Tensor) -> None:
        super().__init__()
        self.family, self.begun = family, 0  # calls so far
        with unvalidated():
            self.register_buffer("rest", prior.pack(theta, centred=True).detach())
            self.register_buffer("free", free)
            self.layout = Layout(prior, free, self.rest)
        spread, still = [], []  # what is fitted only is a point in every family
        for block in self.layout.blocks:
            law = self.layout.variables[self.layout.place[block.name][0]].law
            (spread if getattr(law, "spread", True) else still).append(block)
        self.factors = nn.ModuleList([*family.factors(spread), *(Point(block) for block in still)])
        self.points = nn.ParameterList([block.start.clone() for block in self.layout.points])
        self.owner: dict[str, tuple[int, slice]] = {}  # the factor of each block, and where in its draw
        for i, factor in enumerate(self.parts()):
            ends = pairwise(accumulate((len(block.start) for block in factor.blocks), initial=0))
            self.owner |= {block.name: (i, slice(*end)) for block, end in zip(factor.blocks, ends, strict=True)}
        given = sorted(block.name for factor in self.parts() for block in factor.blocks)
        if given != sorted(block.name for block in self.layout.blocks):
            must, got = "a family must put each block into one factor", f"{family!r} with {given}"
            raise InputError(must, got, f"the blocks are {[block.name for block in self.layout.blocks]}")
        self.kinds: dict[type[Factor], list[int]] = {}  # factors whose divergence may have a closed form, by class
        for i, factor in enumerate(self.parts()):
            if factor.noncentred or self.layout.stands_alone(factor.blocks):
                self.kinds.setdefault(type(factor), []).append(i)

    def parts(self) -> list[Factor]:
        return cast("list[Factor]", list(self.factors))

    def named(self, n: int) -> Params:
        """Coherent draws by name, draw axis first. What no draw moves is one tensor that is seen n times (`expand`)."""

        def one() -> Params:
            call = self.call()
            return {**call.params(), **call.scales()}

        with torch.no_grad():
            each = [one() for _ in range(n)]
        still = self.still()
        named = {name: [drawn[name] for drawn in each] for name in each[0]}
        return {name: x[0].expand(n, *x[0].shape) if name in still else torch.stack(x) for name, x in named.items()}

    def still(self) -> frozenset[str]:
        """The names of the weights that have the same value in every draw."""
        moved = {block.name for factor in self.parts() if not isinstance(factor, Point) for block in factor.blocks}
        prior, found = self.layout.prior, set()
        for output, group in zip(prior.outputs, prior.groups, strict=True):
            if output.constant is None and output.gate is None:
                own = [block for block in self.layout.of[output.variable] if block.name in moved]
                found |= {s.name for s in group.sites if not any(b.site is None or b.name == s.name for b in own)}
        return frozenset(found)

    def draws(self, n: int) -> Tensor:
        """Coherent draws of all values, (n, dim), from torch's global generator."""
        if not self.family.of_weights:
            must, got = "a draw must be one of weights", f"{self.family!r}, which draws masks of the network's units"
            raise UnsupportedError(must, got, "use predict, whose draws are coherent functions, or BernoulliDropout")
        with torch.no_grad():
            return torch.stack([self.call().theta() for _ in range(n)])

    def mean(self) -> Tensor:
        """The values at the mean of the unconstrained vector, (dim,)."""
        with torch.no_grad():
            return self.call(at_mean=True).theta()

    def call(self, at_mean: bool = False) -> Call:
        """Values for one call of the network. It is good until the next one begins: factors remember what they drew."""
        self.begun += 1
        return Call(self, at_mean)
