"""One block of the flat vector: a random or learned quantity, its numbers, and its unconstrained form.

Two views of the same block. Centred: u is the value itself (its logarithm where it must be positive). Non-centred, where a
location or scale is random: value = loc + scale * T(u), and u has the law at loc 0, scale 1 (Papaspiliopoulos et al., 2007).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Self, cast, final

import torch
from torch import Tensor, nn
from torch.distributions import Transform, biject_to, constraints, identity_transform
from torch.distributions.transforms import ExpTransform, SigmoidTransform

from nescio.laws.law import POSITIVE, Constraint, Elementwise, Law, Learned
from nescio.laws.site import Group


@final
class Reading(nn.Module):
    """How a number is read off the variables' values: a constant; or a gather, perhaps a square root and a gate."""

    constant: Tensor | None
    index: Tensor | None

    def __init__(
        self,
        constant: Tensor | None = None,
        variable: int = -1,
        index: Tensor | None = None,
        root: bool = False,
        gate: Reading | None = None,
    ) -> None:
        super().__init__()
        self.variable, self.root, self.gate = variable, root, gate
        self.register_buffer("constant", constant)
        self.register_buffer("index", index)

    def forward(self, values: Sequence[Tensor]) -> Tensor:
        if self.constant is not None:
            return self.constant
        x = values[self.variable]
        if self.index is not None:
            x = x[self.index]
        if self.root:
            x = x.sqrt()
        return x if self.gate is None else x * self.gate(values)


class Part(NamedTuple):
    """A variable's contribution at one point u."""

    value: Tensor
    log_density: Tensor | float  # of u: Jacobian included
    log_jacobian: Tensor | float  # log |d value / d u|


@final
class Variable(nn.Module):
    """A block of `size` numbers with a law (or, if learned, without one), read by others through `Reading`s."""

    like: Tensor
    initial: Tensor | None

    def __init__(
        self,
        name: str,
        law: Law | Learned,
        group: Group,
        reach: Tensor,
        size: int,
        constraint: Constraint,
        readings: dict[str, Reading],
        initial: Tensor | None = None,
        nested: bool = False,
    ) -> None:
        super().__init__()
        self.name, self.law, self.group, self.reach, self.size = name, law, group, reach, size
        self.readings = nn.ModuleDict(readings)
        self.constraint, self.nested = constraint, nested  # nested: a number inside a law, not a weight
        self.transform = transform_to(constraint)
        self.free, self.positive = (
            self.transform is identity_transform,
            constraint is POSITIVE,
        )  # not asked of a copy later
        self.bound = law.bind(group) if isinstance(law, Law) else None
        hierarchical = any(reading.constant is None for reading in readings.values())
        self.noncentred = isinstance(law, Law) and law.location_scale and hierarchical
        self.register_buffer("initial", initial)
        self.register_buffer("like", torch.zeros((), dtype=torch.float64))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        if self.bound is not None:
            self.bound = self.bound.to(self.like)
        return self

    @property
    def random(self) -> bool:
        return isinstance(self.law, Law)

    @property
    def discrete(self) -> bool:
        return bool(self.constraint.is_discrete)

    def direct(self, centred: bool) -> bool:
        """Whether its latents are its values."""
        return self.free and (centred or not self.noncentred)

    def numbers(self, values: Sequence[Tensor]) -> dict[str, Tensor]:
        return {name: reading(values) for name, reading in self.readings.items()}

    def constrain(self, u: Tensor, values: Sequence[Tensor], centred: bool) -> Part:
        raw, log_jacobian = cast(Tensor, self.transform(u)), 0.0
        if not self.free:
            log_jacobian = self.transform.log_abs_det_jacobian(u, raw).sum()
        if self.bound is None:
            return Part(raw, 0.0, 0.0)  # learned: no density, in either view
        numbers = self.numbers(values)
        if centred or not self.noncentred:
            return Part(raw, self.bound.log_prob(raw, numbers) + log_jacobian, log_jacobian)
        loc, scale, standard = self.standard(numbers)
        log_density = self.bound.log_prob(raw, standard) + log_jacobian
        return Part(loc + scale * raw, log_density, log_jacobian + scale.log().expand(u.shape).sum())

    def unconstrain(self, value: Tensor, values: Sequence[Tensor], centred: bool) -> Tensor:
        if not centred and self.noncentred:
            loc, scale, _ = self.standard(self.numbers(values))
            value = (value - loc) / scale
        return cast(Tensor, self.transform.inv(value))

    def standard(self, numbers: dict[str, Tensor]) -> tuple[Tensor | float, Tensor, dict[str, Tensor]]:
        """loc, scale and the numbers of the law at loc 0, scale 1."""
        fixed = {"loc": torch.zeros_like(self.like), "scale": torch.ones_like(self.like)}
        return numbers.get("loc", 0.0), numbers["scale"], {name: fixed.get(name, x) for name, x in numbers.items()}

    def sample(self, values: Sequence[Tensor]) -> Tensor:
        """A draw given the variables before this one, from the global generator that the caller has keyed."""
        if self.bound is None:
            assert self.initial is not None
            return self.initial
        return self.bound.sample(self.size, self.numbers(values)).to(self.like)

    def nearest(self, value: Tensor) -> Tensor:
        """The value itself, or for discrete weights the nearest of their values."""
        atoms = getattr(self.law, "values", None)
        if atoms is None:
            return value
        choices = torch.tensor(atoms).to(value)
        return choices[(value[:, None] - choices).abs().argmin(1)]

    def typical(self, values: Sequence[Tensor]) -> Tensor:
        """Where an optimiser starts a random scale: the median of its law; 1 or 0 where there is none."""
        if self.bound is None:
            return self.sample(values)
        if self.discrete:
            highest = max(getattr(self.law, "values", (1.0,)))  # a gate starts open
            return torch.full_like(self.like, highest).expand(self.size).clone()
        if isinstance(self.law, Law) and not self.law.proper:
            return (torch.ones if self.positive else torch.zeros)(self.size).to(self.like)
        if isinstance(self.law, Elementwise):
            half = torch.full((self.size,), 0.5).to(self.like)
            try:
                return self.law.distribution(**self.numbers(values)).icdf(half).expand(self.size).clone()
            except NotImplementedError:
                pass
        return torch.stack([self.sample(values) for _ in range(101)]).median(0).values


def transform_to(constraint: Constraint) -> Transform:
    """From the line to the constraint's set; discrete values stand for themselves."""
    if constraint is constraints.real or constraint.is_discrete:
        return identity_transform
    if constraint is POSITIVE:
        return ExpTransform()
    return SigmoidTransform() if constraint is constraints.unit_interval else biject_to(constraint)
