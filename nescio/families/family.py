"""A family of approximations: how a new one is written.

An approximation q of the posterior is a product of `Factor`s, each the law of some blocks of the flat vector: a tensor of weights, or
the random scales of a law. A `Family` is configuration, a frozen value, that says which factors:

    @final
    @dataclass(frozen=True)
    class MyFamily(Family):
        def factors(self, blocks):
            return [MyFactor(block) if block.site else Gaussian(block) for block in blocks]

A factor must be able to draw. With `log_prob` it works under every prior; `kl` is for closed forms; a factor of one tensor of weights
that is also an `Action` (nescio/weights.py) has noise of its own for each example in training.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, ClassVar, NamedTuple, Self

from torch import Tensor, nn
from torch.distributions import Distribution, kl_divergence

from nescio.errors import FileError, UnsupportedError
from nescio.laws.law import Law
from nescio.laws.site import Site
from nescio.weights import Action


class Scaling(NamedTuple):
    """Which random scales some weights, or other scales, have: w = scale · (a draw of their law at location 0 and scale 1)."""

    block: str  # that of the scales
    index: Tensor  # for each weight, which of them, (size,)
    law: Law  # theirs
    root: bool  # whether the law is that of the scale's square


class Block(NamedTuple):
    """Numbers of the flat vector that belong together, unconstrained: positive ones are there as their logarithms."""

    name: str
    site: Site | None  # the tensor of weights that they are, one for one; None for everything else
    start: Tensor  # where they start, (size,)
    scale: Scaling | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.start.shape) if self.site is None else self.site.shape


class Factor(nn.Module, ABC):
    """The law of some blocks, laid end to end. Random numbers come from torch's global generator, which the caller has keyed."""

    noncentred: ClassVar[bool] = (
        False  # whether its blocks scale each other; `kl` is then given the laws of those that are scaled at scale one
    )

    def __init__(self, *blocks: Block) -> None:
        super().__init__()
        self.blocks = blocks

    @abstractmethod
    def draw(self) -> Tensor:
        """One draw with its gradient, (size,)."""

    @abstractmethod
    def mean(self) -> Tensor:
        """(size,)"""

    def begin(self) -> None:
        """A new call begins: what the methods below have in common may be computed here."""

    def action(self, block: Block) -> Action | None:
        """How the weights of a block act in training, where that is known."""
        return self if isinstance(self, Action) else None

    def log_prob(self, u: Tensor) -> Tensor:
        """Log density of u, the draw that was made last, a scalar."""
        name = type(self).__name__
        raise UnsupportedError(
            f"this needs the density of {name}", "a family without one", "use MeanField, a Normal prior, temperature 1"
        )

    def kl(self, priors: Sequence[Distribution]) -> Tensor | None:
        """KL(q, p), or None where only draws can tell. The laws of the weights in each block are given what they depend on."""
        return None

    @classmethod
    def kls(cls, factors: Sequence[Self], priors: Sequence[Sequence[Distribution]]) -> list[Tensor | None]:
        """`kl` of several factors of this class. What is computed at once may stand whole in one place, with zeros in the others."""
        return [factor.kl(own) for factor, own in zip(factors, priors, strict=True)]


class Family(ABC):
    """Base of every family. Fields are numbers, or the two methods at the end are its own."""

    of_weights: ClassVar[bool] = True  # whether a draw of its factors says all that is random
    samples: ClassVar[int] = 1  # draws a step, unless VI is told

    @abstractmethod
    def factors(self, blocks: Sequence[Block]) -> Sequence[Factor]:
        """Factors that together have each block once."""

    def describe(self) -> dict[str, Any]:
        """As plain JSON, for files."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def restore(cls, described: dict[str, Any]) -> Self:
        return cls(**described)


def restored(name: Any, described: Any) -> Family:
    """The family of that name, among those that are defined: a file names no code."""
    known = {kind.__name__: kind for kind in Family.__subclasses__()}
    if name not in known or not isinstance(described, dict):
        raise FileError("a file must name a known family", repr(name), f"the families are {sorted(known)}")
    try:
        return known[name].restore(described)
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"a file must describe its {name}", repr(error), "write it again with nescio") from None


def closed_form(q: Distribution, p: Distribution) -> Tensor | None:
    """KL(q, p) summed, where it is registered with torch."""
    try:
        return kl_divergence(q, p).sum()
    except NotImplementedError:
        return None
