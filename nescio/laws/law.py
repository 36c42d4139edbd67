"""A law is a value: a distribution whose every argument is a number or tensor | `Learned` | another law | a callable of the site.

    Normal(0, 1)                                            constant
    Normal(0, Learned(1.))                                  empirical Bayes
    Normal(0, HalfCauchy(1.).per("input"))                  automatic relevance determination
    Normal(0, HalfCauchy(HalfCauchy(.1).per("layer")))      horseshoe
    Normal(0, fan_in)                                       by the shape of the layer

An own law is a frozen dataclass whose fields are declared with `real`, `positive` or `unit`, and one method that returns
a torch distribution.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from threading import Lock
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from nescio.errors import InputError, UnsupportedError
from nescio.laws.site import Group, Sharing, Site

Constraint = constraints.Constraint
POSITIVE = constraints.greater_than(0.0)  # open at zero: a scale of zero is not a scale


@dataclass(frozen=True, eq=False)
class Learned:
    """A number that is fitted, not inferred: in a likelihood by MAP and VI, in a prior by the marginal likelihood.

    One value for all that the law matches, or, given a tensor, one for each weight it broadcasts to; `.per(...)` says otherwise.
    """

    value: float | Tensor = 1.0
    sharing: Sharing | None = field(default=None, kw_only=True)

    def per(self, what: Sharing) -> Learned:
        return replace(self, sharing=what)


def declare(default: Any, constraint: Constraint) -> Any:
    """A field that holds a number of a law or a likelihood."""
    return field(default=default, metadata={"constraint": constraint})


def real(default: Any) -> Any:
    return declare(default, constraints.real)


def positive(default: Any) -> Any:
    return declare(default, POSITIVE)


def unit(default: Any) -> Any:
    """A number in [0, 1]."""
    return declare(default, constraints.unit_interval)


def numbers(owner: Any) -> dict[str, tuple[Number, Constraint]]:
    """The declared numbers of a law or a likelihood, with what each of them must satisfy."""
    declared = (f for f in fields(owner) if "constraint" in f.metadata)
    return {f.name: (getattr(owner, f.name), f.metadata["constraint"]) for f in declared}


@dataclass(frozen=True, eq=False, repr=False)
class Law(ABC):
    """Base of every law.

    `sharing`: who has one draw in common, `.per("input")`. `root`: the number used is the square root of the draw, `.sqrt()`.
    `gate`: a law of zeros and ones that multiplies the draw; a gated law is a spike at zero and a slab.
    """

    sharing: Sharing = field(default="weight", kw_only=True)
    root: bool = field(default=False, kw_only=True)
    gate: Law | None = field(default=None, kw_only=True)

    support: ClassVar[Constraint] = constraints.real
    proper: ClassVar[bool] = True
    spread: ClassVar[bool] = True  # whether a variational family gives it a distribution; else it stays a point
    location_scale: ClassVar[bool] = False  # x = loc + scale * z with z ~ the same law at loc 0, scale 1

    def per(self, what: Sharing) -> Self:
        """Who has one draw in common; a gate goes along."""
        return replace(self, sharing=what, gate=None if self.gate is None else self.gate.per(what))

    def __repr__(self) -> str:
        """Only what differs from the defaults."""
        shown = [getattr(self, f.name) for f in fields(self) if not f.kw_only]
        text = f"{type(self).__name__}({', '.join(map(repr, shown))})"
        text += ".sqrt()" if self.root else ""
        text += f".per({self.sharing!r})" if self.sharing != type(self).__dataclass_fields__["sharing"].default else ""
        return text if self.gate is None else f"{text} gated by {self.gate!r}"

    def sqrt(self) -> Self:
        """For laws of variances: `Normal(0, InverseGamma(2., 1.).sqrt())`."""
        if self.support is not POSITIVE:
            raise InputError("sqrt() needs a positive law", repr(self), "use a law such as InverseGamma or Exponential")
        return replace(self, root=True)

    @abstractmethod
    def bind(self, group: Group) -> BoundLaw:
        """What the law needs at these sites beyond its numbers."""


class BoundLaw(ABC):
    """A law at a group of sites. All arguments are flat: `x` and every number broadcast to the group's size."""

    @abstractmethod
    def log_prob(self, x: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        """Log density of the whole group, a scalar."""

    @abstractmethod
    def sample(self, size: int, numbers: dict[str, Tensor]) -> Tensor:
        """A draw from torch's global generator, which the caller has keyed."""

    def to(self, like: Tensor) -> BoundLaw:
        """The same on another device or in another precision."""
        return self


@dataclass(frozen=True, eq=False, repr=False)
class Elementwise(Law):
    """A law under which, given its numbers, the weights are independent. Subclasses say which distribution."""

    @abstractmethod
    def distribution(self, *args: Any, **numbers: Any) -> Distribution:
        """The distribution of each weight, given the declared numbers as keyword arguments."""

    def total(self, x: Tensor, numbers: dict[str, float]) -> Tensor:
        """Log density of all of x under numbers that are the same for all, in the precision of x: for those who follow its slope."""
        return self.distribution(**{name: x.new_tensor(number) for name, number in numbers.items()}).log_prob(x).sum()

    def bind(self, group: Group) -> BoundLaw:
        return Independent(self)


class Independent(BoundLaw):
    """An elementwise law: the log density is a sum."""

    def __init__(self, law: Elementwise) -> None:
        self.law = law

    def log_prob(self, x: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        return self.law.distribution(**numbers).log_prob(x).sum(dtype=torch.float64)

    def sample(self, size: int, numbers: dict[str, Tensor]) -> Tensor:
        if not self.law.proper:
            raise UnsupportedError(
                "only a proper law can be drawn from",
                f"{type(self.law).__name__}, which is improper",
                "use a proper law such as Normal(0, 10)",
            )
        drawn = self.law.distribution(**{name: number.expand(size) for name, number in numbers.items()})
        return drawn.sample() if drawn.batch_shape else drawn.sample((size,))


_LOCK, _inside, _before = Lock(), 0, True


@contextmanager
def unvalidated() -> Iterator[None]:
    """Inside, torch distributions skip the checks of their arguments: under vmap those would branch on data."""
    global _inside, _before  # torch's flag is one for the process, so count who is inside: threads may overlap
    with _LOCK:
        if not _inside:
            _before = Distribution._validate_args
            Distribution.set_default_validate_args(False)
        _inside += 1
    try:
        yield
    finally:
        with _LOCK:
            _inside -= 1
            if not _inside:
                Distribution.set_default_validate_args(_before)


Number = float | Tensor | Learned | Law | Callable[[Site], float | Tensor]


def shape_of(number: Number) -> torch.Size:
    """The shape of a likelihood's number: that of the tensors inside it."""
    if isinstance(number, Law):
        return torch.broadcast_shapes(*(shape_of(value) for value, _ in numbers(number).values()))
    value = number.value if isinstance(number, Learned) else number
    return value.shape if isinstance(value, Tensor) else torch.Size()
