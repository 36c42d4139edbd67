"""Which numbers of the flat vector belong together: each tensor of weights, and what is free of every other variable."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, cast, final

import torch
from torch import Tensor
from torch.distributions import Distribution

from nescio.families.family import Block, Scaling
from nescio.laws.law import Elementwise, Law
from nescio.laws.prior import Prior
from nescio.laws.variable import Reading, Variable

Where = slice | Tensor  # some entries of a variable


@final
class Layout:
    """`u`: the centred vector (dim,), where everything starts. `free`: a mask over it."""

    def __init__(self, prior: Prior, free: Tensor, u: Tensor) -> None:
        self.prior, self.variables = prior, prior.variables
        self.bounds = [slice(*ends) for ends in pairwise(accumulate(prior.sizes, initial=0))]
        self.parents = [parents(variable) for variable in self.variables]
        self.elementwise = {i for i, variable in enumerate(self.variables) if isinstance(variable.law, Elementwise)}
        self.blocks: list[Block] = []  # what is random: the family's
        self.points: list[Block] = []  # what is learned
        self.of: list[list[Block]] = []  # the blocks of each variable, in order
        self.fixed: list[Tensor | None] = []  # its entries that stay
        self.place: dict[str, tuple[int, Where]] = {}  # of a block: variable and entries
        weights = {
            o.variable for o in prior.outputs if o.constant is None and one_for_one(o, self.variables[o.variable])
        }
        for position, (variable, bounds) in enumerate(zip(self.variables, self.bounds, strict=True)):
            mask, start = free[bounds], u[bounds]
            self.fixed.append(None if bool(mask.all()) else (~mask).nonzero()[:, 0].to(u.device))
            self.of.append([])
            if position in weights:  # site by site
                ends = pairwise(accumulate((site.size for site in variable.group.sites), initial=0))
                found = [(site.name, site, slice(*end)) for site, end in zip(variable.group.sites, ends, strict=True)]
            else:
                found = [(variable.name, None, slice(None) if bool(mask.all()) else mask.nonzero()[:, 0].to(u.device))]
            scale = self.scaling(position, u.device) if self.fixed[-1] is None else None
            for name, site, where in found:
                if bool(mask[where if isinstance(where, slice) else where.to(mask.device)].any()):
                    own = None if scale is None else scale._replace(index=scale.index[where])
                    self.of[-1].append(Block(name, site, start[where], own))
                    self.place[name] = position, where
            (self.blocks if variable.random else self.points).extend(self.of[-1])
        place = {block.name: self.place[block.name] for block in self.blocks}
        known = {name: p for name, p in place.items() if p[0] in self.elementwise and not self.parents[p[0]]}
        self.constant = {name: self.law(*p, ()) for name, p in known.items()}

    def scaling(self, position: int, device: Any) -> Scaling | None:
        """The random scales of a variable with location zero or none, where they are a block of their own and all free."""
        if position not in self.elementwise:
            return None
        variable = self.variables[position]
        readings = cast("dict[str, Reading]", dict(variable.readings.items()))
        loc, scale = readings.get("loc"), readings.get("scale")
        if not isinstance(variable.law, Law) or not variable.law.location_scale or scale is None:
            return None
        if loc is not None and (loc.constant is None or bool(loc.constant.any())):
            return None
        if scale.constant is not None or scale.gate is not None:
            return None
        above = self.variables[scale.variable]
        if not above.random or not above.positive or scale.variable not in self.elementwise or not above.nested:
            return None
        if self.fixed[scale.variable] is not None or len(self.of[scale.variable]) != 1:
            return None
        each = torch.arange(above.size) if above.size == variable.size else torch.zeros(variable.size, dtype=torch.long)
        index = each.to(device) if scale.index is None else scale.index
        return Scaling(above.name, index, cast(Law, above.law), scale.root)

    def standard(self, block: Block, values: Any) -> Distribution:
        """The law of the weights in a block, were their scale one."""
        position, where = self.place[block.name]
        variable = self.variables[position]
        numbers = variable.standard(variable.numbers(values))[2].items()
        cut = {name: x[where] if x.numel() > 1 else x.reshape(()) for name, x in numbers}
        return cast(Elementwise, variable.law).distribution(**cut)

    def stands_alone(self, blocks: Sequence[Block]) -> bool:
        """Whether each block has a law over the line that is given once the values outside of these blocks are."""
        own = {self.place[block.name][0] for block in blocks}
        return own <= self.elementwise and all(self.variables[i].free and not self.parents[i] & own for i in own)

    def law(self, position: int, where: Where, values: Any) -> Distribution:
        """The prior of some entries of a variable, given the values that it depends on."""
        variable = self.variables[position]
        each = variable.numbers(values).items()
        numbers = {name: x[where] if x.numel() > 1 else x.reshape(()) for name, x in each}
        if not self.parents[position]:  # a number that is the same for all entries is one number
            numbers = {name: x[0] if x.dim() and bool((x == x[0]).all()) else x for name, x in numbers.items()}
        return cast(Elementwise, variable.law).distribution(**numbers)


def parents(variable: Variable) -> set[int]:
    """The variables that the numbers of a law are read from."""
    readings = cast("list[Reading]", list(variable.readings.values()))
    return {reading.variable for reading in readings if reading.constant is None}


def one_for_one(output: Reading, variable: Variable) -> bool:
    """Whether the weights of a group are the numbers of the variable, as they are and in their order."""
    direct = output.index is None and not output.root and output.gate is None
    return direct and variable.free and variable.random and variable.size == variable.group.size
