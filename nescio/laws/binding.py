"""From a tree of laws to blocks of one flat vector.

The tree is walked once, when a model is made. Every nested law or learned number becomes a `Variable`, parents before children; every
argument becomes a `Reading`: a constant, or a gather from another variable, whose index says which weights share a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, final

import torch
from torch import Tensor
from torch.distributions import constraints

from nescio.errors import InputError
from nescio.laws.law import POSITIVE, Constraint, Law, Learned, Number, numbers
from nescio.laws.site import Group, Sharing, Site
from nescio.laws.structured import Structured
from nescio.laws.variable import Reading, Variable


@final
class Binding:
    """Collects variables in an order in which each depends on earlier ones only, and how each group's numbers are read."""

    def __init__(self) -> None:
        self.variables: list[Variable] = []
        self.outputs: list[Reading] = []
        self.groups: list[Group] = []

    def add(self, number: Number, constraint: Constraint, group: Group, name: str) -> None:
        """A top-level number: the weights of a group, or one number of the likelihood."""
        identity = torch.arange(group.size)
        self.outputs.append(self.read(number, constraint, name, group, identity, group.size, nested=False))
        self.groups.append(group)

    def read(
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
            return Reading(constant=constant_of(number, constraint, name, group, fine, count))
        reach, size, initial = *group.index(sharing_of(number)), None
        if isinstance(number, Learned):
            initial = constant_of(number.value, constraint, name, group, reach, size).expand(size).clone()
            readings, own = {}, constraint
        else:
            if constraint is not constraints.real and number.support is not constraint:
                remedy = "such as HalfCauchy" if constraint is POSITIVE else "or a number"
                raise InputError(
                    f"{name} must satisfy {constraint}", repr(number), f"use a law with that support, {remedy}"
                )
            own = number.support
            readings = {
                key: self.read(value, wanted, f"{name}.{key}", group, reach, size)
                for key, (value, wanted) in numbers(number).items()
            }
        gate = number.gate if isinstance(number, Law) else None
        gate = self.read(gate, gate.support, f"{name}.gate", group, fine, count) if gate is not None else None
        self.variables.append(Variable(name, number, group, reach, size, own, readings, initial, nested))
        index = coarsen(reach, fine, count, name)
        trivial = size == 1 or (size == count and torch.equal(index, torch.arange(count)))
        root = isinstance(number, Law) and number.root
        return Reading(variable=len(self.variables) - 1, index=None if trivial else index, root=root, gate=gate)


def constant_of(number: Any, constraint: Constraint, name: str, group: Group, fine: Tensor, count: int) -> Tensor:
    """A constant as float64: a scalar where it is one, else one number for each of `count`."""
    fixed = None if callable(number) else torch.as_tensor(number, dtype=torch.float64)
    if fixed is None or fixed.dim():
        parts = [torch.as_tensor(number(site), dtype=torch.float64) if fixed is None else fixed for site in group.sites]
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
