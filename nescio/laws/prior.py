"""The law of everything random in a model, laid out as one flat vector.

Bound to its sites (laws/binding.py) every law is a `Variable`, a block of the vector, parents before children, and every argument a
`Reading`. A prior is then arithmetic on a flat tensor, fit for vmap and compilation.

    values = prior.unpack(u).values      named parameters: prior.params(values)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor, nn

from nescio.errors import InputError
from nescio.laws.binding import Binding, match
from nescio.laws.law import Constraint, Elementwise, Law, Learned, Number, shape_of
from nescio.laws.site import Group, Site
from nescio.laws.variable import Reading, Variable
from nescio.noise import Noise

Params = dict[str, Tensor]


class Unpacked(NamedTuple):
    """The variables' values at one u, and the log density of u; minus `log_jacobian` it is that of the values."""

    values: list[Tensor]
    log_density: Tensor | float
    log_jacobian: Tensor | float


@final
class Prior(nn.Module):
    """`laws`: a law for all weights or {name pattern: law}, first match wins. `free_numbers`: the likelihood's numbers."""

    def __init__(
        self,
        laws: Law | Mapping[str, Law],
        sites: Sequence[Site],
        free_numbers: Mapping[str, tuple[Number, Constraint]],
    ) -> None:
        super().__init__()
        bound = Binding()
        for pattern, (law, group) in match(laws, sites).items():
            bound.add(law, law.support, group, f"prior.{pattern}")
        for name, (number, constraint) in free_numbers.items():
            if isinstance(number, (Law, Learned)) and number.sharing not in ("weight", None):
                remedy = "give a tensor: Learned(torch.ones(3)) or HalfCauchy(torch.ones(3)) has three"
                raise InputError(f"likelihood.{name} has no layer to share over", f'.per("{number.sharing}")', remedy)
            site = Site(f"likelihood.{name}", tuple(shape_of(number)))
            bound.add(number, constraint, Group((site,)), site.name)
        self.groups = bound.groups
        self._variables, self._outputs = nn.ModuleList(bound.variables), nn.ModuleList(bound.outputs)
        self.sizes = [variable.size for variable in bound.variables]
        found = (
            (o.variable, plain_numbers(o, bound.variables[o.variable])) for o in bound.outputs if o.constant is None
        )
        self.plain = {i: given for i, given in found if given is not None}

    @property
    def variables(self) -> list[Variable]:
        """In an order in which each depends only on those before it; the flat vector is laid out so."""
        return cast("list[Variable]", list(self._variables))

    @property
    def outputs(self) -> list[Reading]:
        """How the numbers of each group are read."""
        return cast("list[Reading]", list(self._outputs))

    @property
    def dim(self) -> int:
        return sum(self.sizes)

    # ---- density and draws -------------------------------------------------------------------------------------

    def unpack(self, u: Tensor, centred: bool = False) -> Unpacked:
        values: list[Tensor] = []
        log_density: Tensor | float = 0.0
        log_jacobian: Tensor | float = 0.0
        for variable, piece in zip(self.variables, u.split(self.sizes), strict=True):
            part = variable.constrain(piece, values, centred)
            values.append(part.value)
            log_density = log_density + part.log_density
            log_jacobian = log_jacobian + part.log_jacobian
        return Unpacked(values, log_density, log_jacobian)

    def trained(self, u: Tensor) -> tuple[Params, Tensor | float]:
        """Named numbers, and the log density of the values, at a centred u: what optimisers need at every step.

        Weights that stand for themselves under one law are judged at once and cut out of it once, so the way back is one concatenation.
        """
        named: Params = {}
        values: list[Tensor] = []
        log_density: Tensor | float = 0.0
        for i, (variable, block) in enumerate(zip(self.variables, u.split(self.sizes), strict=True)):
            if i in self.plain:
                log_density = log_density + cast(Elementwise, variable.law).total(block, self.plain[i])
                own = zip(variable.group.sites, block.split([s.size for s in variable.group.sites]), strict=True)
                named |= {site.name: x.view(site.shape) for site, x in own}
                values.append(block)  # nobody reads it
            else:
                part = variable.constrain(block, values, centred=True)
                log_density = log_density + part.log_density - part.log_jacobian
                values.append(part.value)
        for output, group in zip(self.outputs, self.groups, strict=True):
            if output.constant is not None or output.variable not in self.plain:
                named |= {site.name: x for site, x in group.split(output(values).expand(group.size))}
        return named, log_density

    def pack(self, theta: Tensor, centred: bool = False) -> Tensor:
        """The unconstrained vector of the values theta; the inverse of `unpack`."""
        values = self.split(theta)
        return torch.cat([v.unconstrain(x, values, centred) for v, x in zip(self.variables, values, strict=True)])

    def split(self, theta: Tensor) -> list[Tensor]:
        return list(theta.split(self.sizes))

    def draw(self, noise: Noise) -> Tensor:
        """Ancestral draw of all values: scales first, then what they scale."""
        values: list[Tensor] = []
        with noise.scope():
            for variable in self.variables:
                values.append(variable.sample(values))
        return torch.cat(values)

    def at(self, params: Mapping[str, Tensor], noise: Noise) -> Tensor:
        """The values at given weights; scales at their typical values, learned numbers where they start."""
        values: list[Tensor] = []
        tops = {output.variable: group for output, group in zip(self.outputs, self.groups, strict=True)}
        with noise.scope():
            for position, variable in enumerate(self.variables):
                names = [site.name for site in tops[position].sites] if position in tops else []
                if names and all(name in params for name in names):
                    weights = torch.cat([params[name].reshape(-1) for name in names]).to(variable.like)
                    value = weights.new_empty(variable.size)
                    value[variable.reach.to(value.device)] = weights  # a shared draw takes the last of its weights
                    values.append(variable.nearest(value))
                else:
                    values.append(variable.typical(values))
        return torch.cat(values)

    # ---- names -------------------------------------------------------------------------------------------------

    def params(self, values: Sequence[Tensor]) -> Params:
        """Named numbers as network and likelihood use them."""
        named = {}
        for output, group in zip(self.outputs, self.groups, strict=True):
            flat = output(values)
            named.update({site.name: x for site, x in group.split(flat.expand(group.size))})
        return named

    def scales(self, values: Sequence[Tensor]) -> Params:
        """The random or learned numbers inside the prior, by name: `prior.<pattern>.scale`."""
        named = zip(self.variables, values, strict=True)
        return {v.name: x.sqrt() if getattr(v.law, "root", False) else x for v, x in named if v.nested}

    def names(self) -> list[str]:
        """Everything that a pattern can select."""
        return [site.name for group in self.groups for site in group.sites] + [
            v.name for v in self.variables if v.nested
        ]

    def slots(self, pattern: str) -> Tensor:
        """Which entries of the vector `.on(pattern)` frees: the matching weights and the scales of their own prior."""
        free = []
        for variable in self.variables:
            hit = torch.cat([torch.full((s.size,), fnmatchcase(s.name, pattern)) for s in variable.group.sites])
            mask = torch.zeros(variable.size, dtype=torch.bool)
            mask[variable.reach[hit]] = True
            free.append(mask | fnmatchcase(variable.name, pattern))
        slots = torch.cat(free)
        if not slots.any():
            raise InputError("a pattern must match a name", repr(pattern), f"the names are {self.names()}")
        return slots

    def mask(self, want: Any) -> Tensor:
        """Entries of the vector whose variable satisfies the predicate."""
        return torch.cat([torch.full((variable.size,), bool(want(variable))) for variable in self.variables])


def plain_numbers(output: Reading, variable: Variable) -> dict[str, float] | None:
    """The numbers of a law that is elementwise and the same for all of its weights, which are its entries one for one; else None."""
    readings = cast("dict[str, Reading]", dict(variable.readings.items()))
    constants = {name: r.constant for name, r in readings.items() if r.constant is not None and r.constant.numel() == 1}
    direct = output.index is None and not output.root and output.gate is None and variable.free and not variable.nested
    alike = isinstance(variable.law, Elementwise) and len(constants) == len(readings)
    if not (direct and alike and variable.size == variable.group.size):
        return None
    return {name: float(x) for name, x in constants.items()}
