r"""Inverse CDF: independent weights of any shape, drawn by the inverse of its distribution function.

    w = μ + σ F⁻¹(v),     v ~ U(0, 1),     σ = softplus(ρ)

F is that of a standard distribution: of any class of torch.distributions, or of your own, that is built from (loc, scale) and has
`icdf` and `log_prob`. Heavier tails than a Gaussian's, or a skew. A symmetric one has random signs for each example, as in `MeanField`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, constraints
from torch.nn import functional as F

from nescio.errors import FileError, InputError
from nescio.families.family import Block, Factor, Family, closed_form
from nescio.families.independent import signed
from nescio.weights import Action, Convolve


@final
@dataclass(frozen=True)
class InverseCDF(Family):
    """`q`: a class of distributions with location and scale, such as torch.distributions.Laplace. `sd`: the scale at the start."""

    q: type[Distribution]
    sd: float = 0.05

    def __post_init__(self) -> None:
        if not self.sd > 0:
            raise InputError("sd must be positive", str(self.sd), "a tenth of the prior's is a good start")
        try:
            middle = standard(self.q, torch.zeros(())).icdf(torch.tensor(0.3))
        except (NotImplementedError, AttributeError, TypeError, ValueError):
            middle = torch.tensor(math.nan)
        if not bool(middle.isfinite()):
            must = "q must be a class of distributions with loc, scale and icdf"
            raise InputError(must, repr(self.q), "InverseCDF(torch.distributions.Laplace)")

    def factors(self, blocks: Sequence[Block]) -> Sequence[Factor]:
        return [Shaped(block, self.q, self.sd) for block in blocks]

    def describe(self) -> dict[str, Any]:
        return {"q": self.q.__name__, "sd": self.sd}

    @classmethod
    def restore(cls, described: dict[str, Any]) -> Self:
        """The class of that name among those that are defined: a file names no code."""
        named = [kind for kind in defined(Distribution) if kind.__name__ == described["q"]]
        if not named:
            raise FileError("a file must name a known distribution", repr(described["q"]), "define or import its class")
        return cls(named[0], float(described["sd"]))


@final
class Shaped(Factor, Action):
    """Independent numbers of one shape in one block."""

    def __init__(self, block: Block, q: type[Distribution], sd: float) -> None:
        super().__init__(block)
        self.q = q
        self.loc = nn.Parameter(block.start.view(block.shape).clone())
        self.rho = nn.Parameter(torch.full_like(self.loc, sd + math.log(-math.expm1(-sd))))  # softplus(rho) = sd
        at = torch.tensor([0.02, 0.1, 0.25, 0.4]).to(self.loc)
        below, above = (standard(q, at).icdf(v) for v in (at, 1 - at))
        self.symmetric = torch.allclose(below, -above, rtol=1e-4)

    def begin(self) -> None:
        self.sd = F.softplus(self.rho)

    def draw(self) -> Tensor:
        half = torch.finfo(self.loc.dtype).eps / 4  # of a step of rand, which may be zero and is never one
        v = torch.rand_like(self.loc).clamp_min(half)  # any nearer to zero, 1 - v would be one, and the weight infinite
        return (self.loc + self.sd * standard(self.q, v).icdf(v)).reshape(-1)

    def mean(self) -> Tensor:
        """The median where there is no mean."""
        base = standard(self.q, self.loc.detach())
        try:
            centre = base.mean
        except NotImplementedError:
            centre = self.loc.new_tensor(math.nan)
        if not bool(centre.isfinite()):
            centre = base.icdf(torch.full_like(centre, 0.5))
        return (self.loc + self.sd * centre).reshape(-1)

    def law(self) -> Distribution:
        return self.q(self.loc.reshape(-1), self.sd.reshape(-1), validate_args=False)  # type: ignore[call-arg]

    def log_prob(self, u: Tensor) -> Tensor:
        return self.law().log_prob(u).sum(dtype=torch.float64)

    def kl(self, priors: Sequence[Distribution]) -> Tensor | None:
        return closed_form(self.law(), priors[0])

    def linear(self, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor]) -> Any:
        return signed(F.linear, x, self.loc, bias, value, axis=-1) if self.symmetric else NotImplemented

    def convolve(self, convolution: Convolve, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor]) -> Any:
        return signed(convolution, x, self.loc, bias, value, axis=1) if self.symmetric else NotImplemented


@final
class Logistic(Distribution):
    """F(w) = 1 / (1 + exp(-(w - loc) / scale)): tails between a Gaussian's and a Laplace's. torch has none."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}  # type: ignore  # noqa: RUF012
    support = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = torch.broadcast_tensors(torch.as_tensor(loc), torch.as_tensor(scale))
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return (self.scale * math.pi).square() / 3

    def log_prob(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        return F.logsigmoid(z) + F.logsigmoid(-z) - self.scale.log()

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * torch.logit(value)


def standard(q: type[Distribution], like: Tensor) -> Distribution:
    return q(like.new_zeros(()), like.new_ones(()), validate_args=False)  # type: ignore[call-arg]


def defined(kind: type[Distribution]) -> Iterator[type[Distribution]]:
    for below in kind.__subclasses__():
        yield below
        yield from defined(below)
