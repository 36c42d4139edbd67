"""Random weights for one call of the network, and the divergence of q from the prior, which goes down the tree of laws:

    KL(q, p) = Σ  E_q [KL(q(w), p(w | s))]     or, where no closed form is known,     E_q [log q(w) - log p(w | s)]

with the scales s drawn; under constant scales, and with closed forms, nothing is.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING, cast, final

import torch
from torch import Tensor
from torch.distributions import Distribution

from nescio.families.family import Block, Factor
from nescio.laws.law import unvalidated
from nescio.laws.prior import Params
from nescio.weights import RandomWeight

if TYPE_CHECKING:
    from nescio.families.approximation import Approximation


@final
class Call:
    """Every factor is drawn at most once, when it is first asked: one call, one draw of each random variable."""

    def __init__(self, q: Approximation, at_mean: bool = False) -> None:
        self.q, self.layout, self.at_mean, self.turn = q, q.layout, at_mean, q.begun
        self.factors = q.parts()
        self.points = dict(zip((block.name for block in q.layout.points), q.points, strict=True))
        self.drawn: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}
        for factor in self.factors:
            factor.begin()

    # ---- values ------------------------------------------------------------------------------------------------

    def draw(self, i: int) -> Tensor:
        """Of factor i."""
        assert self.turn == self.q.begun, "another call has begun"
        if i not in self.drawn:
            self.drawn[i] = self.factors[i].mean() if self.at_mean else self.factors[i].draw()
        return self.drawn[i]

    def u(self, block: Block) -> Tensor:
        """Unconstrained, (size,)."""
        if block.name in self.points:
            return self.points[block.name]
        i, own = self.q.owner[block.name]
        return self.draw(i)[own]

    def __getitem__(self, position: int) -> Tensor:
        """The values of a variable, which a `Reading` reads off."""
        if position not in self.values:
            blocks = self.layout.of[position]
            if self.layout.fixed[position] is None:
                u = torch.cat([self.u(block) for block in blocks]) if len(blocks) > 1 else self.u(blocks[0])
            else:
                u = self.q.rest[self.layout.bounds[position]].clone()
                for block in blocks:
                    u[self.layout.place[block.name][1]] = self.u(block)
            self.values[position] = cast(Tensor, self.layout.variables[position].transform(u))
        return self.values[position]

    def theta(self) -> Tensor:
        """All values, (dim,)."""
        return torch.cat([self[position] for position in range(len(self.layout.variables))])

    def params(self, acting: Set[str] = frozenset()) -> Params:
        """Named numbers as network and likelihood use them; those in `acting` as random weights."""
        named: Params = {}
        for output, group in zip(self.layout.prior.outputs, self.layout.prior.groups, strict=True):
            blocks = {block.name: block for block in self.layout.of[output.variable] if block.site is not None}
            if output.constant is None and blocks:
                rest = self.q.rest[self.layout.bounds[output.variable]]
                pairs = [(blocks.get(site.name), site.name, fixed) for site, fixed in group.split(rest)]
                named |= {name: fixed if b is None else self.weight(b, fixed, acting) for b, name, fixed in pairs}
            else:
                named |= {site.name: x for site, x in group.split(output(cast(list, self)).expand(group.size))}
        return named

    def scales(self) -> Params:
        """The random or learned numbers inside the prior, by name."""
        found = [(v, self[i]) for i, v in enumerate(self.layout.variables) if v.nested]
        return {v.name: x.sqrt() if getattr(v.law, "root", False) else x for v, x in found}

    def weight(self, block: Block, like: Tensor, acting: Set[str]) -> Tensor:
        factor = self.factors[self.q.owner[block.name][0]]
        action = factor.action(block) if block.name in acting else None
        if action is not None:
            return RandomWeight.of(action, lambda: self.u(block).view(block.shape), like)
        return self.u(block).view(block.shape)

    # ---- divergence --------------------------------------------------------------------------------------------

    def divergence(self, temperature: float = 1.0) -> Tensor:
        """KL(q, p), or an unbiased estimate of it. At a temperature T it is E_q [log q - log p / T], of the values."""
        layout, total = self.layout, torch.zeros((), dtype=torch.float64, device=self.q.rest.device)
        jointly: set[int] = set()  # variables with one density for all of their entries
        with unvalidated():
            closed = self.closed_forms()
            for i, factor in enumerate(self.factors):
                kl = closed.get(i)
                if kl is None:
                    kl = factor.log_prob(self.draw(i)) - sum(self.log_prior(block) for block in factor.blocks)
                    jointly |= {layout.place[b.name][0] for b in factor.blocks} - layout.elementwise
                if temperature != 1:
                    entropy = sum(self.log_jacobian(block) for block in factor.blocks) - factor.log_prob(self.draw(i))
                    kl = kl / temperature - (1 - 1 / temperature) * entropy
                total = total + kl
            for position, fixed in enumerate(layout.fixed):  # fixed weights are data to the scales above them
                if fixed is None or not layout.parents[position]:
                    continue
                if position in layout.elementwise:
                    law = layout.law(position, fixed, self)
                    total = total - law.log_prob(self[position][fixed]).sum(dtype=torch.float64) / temperature
                else:
                    jointly.add(position)
            for position in jointly:
                variable = layout.variables[position]
                assert variable.bound is not None
                total = (
                    total - variable.bound.log_prob(self[position], variable.numbers(cast(list, self))) / temperature
                )
        return total

    def closed_forms(self) -> dict[int, Tensor | None]:
        """Of the factors that may have one; factors of a class are asked together."""
        found: dict[int, Tensor | None] = {}
        for kind, indices in self.q.kinds.items():
            factors = [self.factors[i] for i in indices]
            laws = [[self.law_for(factor, block) for block in factor.blocks] for factor in factors]
            found |= zip(indices, kind.kls(factors, laws), strict=True)
        return found

    def law_for(self, factor: Factor, block: Block) -> Distribution:
        """As `Factor.kl` wants it."""
        own = {b.name for b in factor.blocks} if factor.noncentred else set()
        inside = block.scale is not None and block.scale.block in own
        return self.layout.standard(block, self) if inside else self.law(block)

    def law(self, block: Block) -> Distribution:
        """The prior of the values in a block."""
        known = self.layout.constant.get(block.name)
        return self.layout.law(*self.layout.place[block.name], self) if known is None else known

    def log_prior(self, block: Block) -> Tensor | float:
        """Log density of the unconstrained numbers of a block; zero where it is counted for the whole variable."""
        position, where = self.layout.place[block.name]
        if position not in self.layout.elementwise:
            return 0.0
        return self.law(block).log_prob(self[position][where]).sum(dtype=torch.float64) + self.log_jacobian(block)

    def log_jacobian(self, block: Block) -> Tensor | float:
        position, where = self.layout.place[block.name]
        variable = self.layout.variables[position]
        return (
            0.0
            if variable.free
            else variable.transform.log_abs_det_jacobian(self.u(block), self[position][where]).sum()
        )
