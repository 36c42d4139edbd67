"""The law of everything random in a model, laid out as one flat vector.

`Prior` walks the tree of laws once, when it is made: every nested law becomes a `Variable` (a block of the vector), parents before
children, and every argument a `Reading`. After that a prior is arithmetic on a flat tensor, fit for vmap and compilation.

    values = prior.unpack(u).values      named parameters: prior.params(values)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor, nn
from torch.distributions import constraints

from nescio.errors import InputError
from nescio.laws.law import POSITIVE, Constraint, Law, Learned, Number, numbers, shape_of
from nescio.laws.site import Group, Sharing, Site
from nescio.laws.structured import Structured
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
        self._variables = nn.ModuleList()
        self._outputs = nn.ModuleList()
        self.groups: list[Group] = []
        for pattern, (law, group) in match(laws, sites).items():
            self._output(law, law.support, group, f"prior.{pattern}")
        self.weight_outputs = len(self.groups)
        for name, (number, constraint) in free_numbers.items():
            site = Site(f"likelihood.{name}", tuple(shape_of(number)))
            self._output(number, constraint, Group((site,)), site.name)
        self.sizes = [variable.size for variable in self.variables]

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
                    values.append(value)
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

    # ---- building ----------------------------------------------------------------------------------------------

    def _output(self, number: Number, constraint: Constraint, group: Group, name: str) -> None:
        """A top-level number: the weights of a group, or one number of the likelihood."""
        identity = torch.arange(group.size)
        self._outputs.append(self._read(number, constraint, name, group, identity, group.size, nested=False))
        self.groups.append(group)

    def _read(
        self,
        number: Number,
        constraint: Constraint,
        name: str,
        group: Group,
        fine: Tensor,
        count: int,
        nested: bool = True,
    ) -> Reading:
        """How `count` numbers are read, of which weight i of the group uses number fine[i]."""
        if not isinstance(number, (Law, Learned)):
            return Reading(constant=self._constant(number, constraint, name, group, fine, count))
        reach, size, initial = *group.index(sharing_of(number)), None
        if isinstance(number, Learned):
            initial = self._constant(number.value, constraint, name, group, reach, size).expand(size).clone()
            readings, own = {}, constraint
        else:
            if constraint is not constraints.real and number.support is not constraint:
                remedy = "such as HalfCauchy" if constraint is POSITIVE else "or a number"
                raise InputError(
                    f"{name} must satisfy {constraint}", repr(number), f"use a law with that support, {remedy}"
                )
            own = number.support
            readings = {
                key: self._read(value, wanted, f"{name}.{key}", group, reach, size)
                for key, (value, wanted) in numbers(number).items()
            }
        gate = number.gate if isinstance(number, Law) else None
        gate = self._read(gate, gate.support, f"{name}.gate", group, fine, count) if gate is not None else None
        self._variables.append(Variable(name, number, group, reach, size, own, readings, initial, nested))
        index = coarsen(reach, fine, count, name)
        trivial = size == 1 or (size == count and torch.equal(index, torch.arange(count)))
        root = isinstance(number, Law) and number.root
        return Reading(variable=len(self._variables) - 1, index=None if trivial else index, root=root, gate=gate)

    @staticmethod
    def _constant(number: Any, constraint: Constraint, name: str, group: Group, fine: Tensor, count: int) -> Tensor:
        """A constant as float64: a scalar where it is one, else one number for each of `count`."""
        fixed = None if callable(number) else torch.as_tensor(number, dtype=torch.float64)
        if fixed is None or fixed.dim():
            parts = [
                torch.as_tensor(number(site), dtype=torch.float64) if fixed is None else fixed for site in group.sites
            ]
            try:
                flat = torch.cat(
                    [part.expand(site.shape).reshape(-1) for part, site in zip(parts, group.sites, strict=True)]
                )
            except RuntimeError:
                shapes = {site.name: site.shape for site in group.sites}
                got = str([tuple(part.shape) for part in parts])
                raise InputError(
                    f"a tensor for {name} must broadcast to its weights", got, f"their shapes are {shapes}"
                ) from None
            constant = coarsen(flat, fine, count, name)
        else:
            constant = fixed
        if not bool(constraint.check(constant).all()) or not bool(constant.isfinite().all()):
            raise InputError(
                f"{name} must satisfy {constraint}", str(number), "check the sign and the order of the arguments"
            )
        return constant


def match(laws: Law | Mapping[str, Law], sites: Sequence[Site]) -> dict[str, tuple[Law, Group]]:
    """Every site to the first pattern that matches it; nothing unmatched, nothing unused."""
    patterns = {"*": laws} if isinstance(laws, Law) else dict(laws)
    names = [site.name for site in sites]
    for pattern, law in patterns.items():
        if not isinstance(law, Law):
            raise InputError(f"the prior of {pattern!r} must be a law", repr(law), "write for instance Normal(0, 1)")
    taken: dict[str, list[Site]] = {pattern: [] for pattern in patterns}
    for site in sites:
        first = next((pattern for pattern in patterns if fnmatchcase(site.name, pattern)), None)
        if first is None:
            raise InputError(
                "every parameter needs a prior",
                f"none for {site.name!r} among {list(patterns)}",
                f"the names are {names}; end with '*'",
            )
        taken[first].append(site)
    for pattern, found in taken.items():
        if not found:
            raise InputError(
                "every pattern must be the first match of a parameter", repr(pattern), f"the names are {names}"
            )
    return {pattern: (patterns[pattern], Group(tuple(found))) for pattern, found in taken.items()}


def sharing_of(number: Law | Learned) -> Sharing:
    if isinstance(number, Structured):
        return "weight"  # its weights are drawn together, but each has its own value
    if number.sharing is not None:
        return number.sharing
    return (
        "weight" if isinstance(number, Learned) and isinstance(number.value, Tensor) and number.value.dim() else "net"
    )


def coarsen(values: Tensor, fine: Tensor, count: int, name: str) -> Tensor:
    """values[i] for the group fine[i]; refused where one group would need two values."""
    coarse = values.new_zeros(count)
    coarse[fine] = values
    if not torch.equal(coarse[fine], values):
        raise InputError(
            f"the sharing inside {name} must be coarser than its own",
            "groups that cross",
            'use .per("layer") or .per("net") inside',
        )
    return coarse
