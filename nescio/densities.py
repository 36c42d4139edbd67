"""What torch.distributions lacks: folded and improper laws, two normals, atoms, a t that can be recorded, observations by name."""

from __future__ import annotations

import math
from typing import Any, final

import torch
from torch import Tensor
from torch import distributions as td
from torch.distributions import Distribution

from nescio.errors import InputError, UnsupportedError


@final
class Folded(Distribution):
    """|X| for X symmetric about zero. (Torch's half laws make that zero of a number at every call, which no CUDA graph can record.)"""

    arg_constraints = {}

    def __init__(self, base: Distribution) -> None:
        super().__init__(base.batch_shape, validate_args=False)
        self.base = base

    def log_prob(self, value: Tensor) -> Tensor:
        return self.base.log_prob(value) + math.log(2.0)

    def icdf(self, value: Tensor) -> Tensor:
        return self.base.icdf((value + 1) / 2)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:
        return self.base.sample(sample_shape).abs()


@final
class StudentT(td.StudentT):
    """Torch's, whose χ² makes its rate of a number, which no CUDA graph can record."""

    def __init__(self, df: Tensor, loc: Tensor, scale: Tensor) -> None:
        self.df, self.loc, self.scale = torch.broadcast_tensors(df, loc, scale)
        self._chi2 = td.Gamma(self.df / 2, torch.full_like(self.df, 0.5), validate_args=False)  # type: ignore[assignment]
        Distribution.__init__(self, self.df.shape, validate_args=False)

    def expand(self, batch_shape: Any, _instance: Any = None) -> StudentT:
        return StudentT(*(t.expand(batch_shape) for t in (self.df, self.loc, self.scale)))


@final
class Improper(Distribution):
    """Density |x|^power, which integrates to infinity: 0 is flat, -1 is flat in log |x|."""

    arg_constraints = {}

    def __init__(self, power: float) -> None:
        super().__init__(validate_args=False)
        self.power = power

    def log_prob(self, value: Tensor) -> Tensor:
        return self.power * value.abs().log() if self.power else torch.zeros_like(value)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:
        raise UnsupportedError("only a proper density can be drawn from", f"|x|^{self.power}", "use a proper law")


@final
class TwoNormals(Distribution):
    """weight * N(0, wide²) + (1 - weight) * N(0, narrow²)."""

    arg_constraints = {}

    def __init__(self, weight: Tensor, wide: Tensor, narrow: Tensor) -> None:
        self.weight, self.wide, self.narrow = torch.broadcast_tensors(weight, wide, narrow)
        super().__init__(self.weight.shape, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        wide = td.Normal(torch.zeros_like(self.wide), self.wide).log_prob(value) + self.weight.log()
        narrow = td.Normal(torch.zeros_like(self.narrow), self.narrow).log_prob(value) + torch.log1p(-self.weight)
        return torch.logaddexp(wide, narrow)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        chosen = torch.rand(shape, dtype=self.weight.dtype, device=self.weight.device) < self.weight
        return torch.where(chosen, self.wide, self.narrow) * torch.randn_like(chosen, dtype=self.weight.dtype)


@final
class Atoms(Distribution):
    """Finitely many values with their log probabilities."""

    arg_constraints = {}

    def __init__(self, values: Tensor, log_weights: Tensor) -> None:
        super().__init__(validate_args=False)
        self.values, self.log_weights = values, log_weights

    def log_prob(self, value: Tensor) -> Tensor:
        hit = value[..., None] == self.values.to(value)  # (..., atoms)
        return torch.where(hit, self.log_weights.to(value), -math.inf).amax(-1)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:
        return self.values[td.Categorical(logits=self.log_weights).sample(sample_shape)]


@final
class Joint(Distribution):
    """Independent observations by name, as several tasks give them; values are dictionaries."""

    arg_constraints = {}

    def __init__(self, parts: dict[str, Distribution]) -> None:
        super().__init__(validate_args=False)
        self.parts = parts

    def log_prob(self, value: Any) -> Tensor:
        raise UnsupportedError(
            "a joint density needs its leading axes", "log_prob", "use log_density(distribution, value, lead)"
        )

    def sample(self, sample_shape: Any = torch.Size()) -> Any:
        return {name: part.sample(sample_shape) for name, part in self.parts.items()}


def log_density(distribution: Distribution, value: Any, lead: int) -> Tensor:
    """Log density of each observation: summed over all axes behind the first `lead` ones."""
    if isinstance(distribution, Joint):
        if not isinstance(value, dict) or set(value) != set(distribution.parts):
            got = str(sorted(value)) if isinstance(value, dict) else type(value).__name__
            raise InputError(f"y must be a dictionary with the tasks {sorted(distribution.parts)}", got, "name them so")
        parts = (log_density(part, value[name], lead) for name, part in distribution.parts.items())
        return torch.stack(list(parts)).sum(0)
    if (own := getattr(distribution, "log_density", None)) is not None:  # of what is more than one tensor
        return own(value, lead)
    if not isinstance(value, Tensor):
        raise InputError("y must be a tensor", type(value).__name__, "use torch.as_tensor(y)")
    shape = (*distribution.batch_shape, *distribution.event_shape)[lead - 1 :]
    if shape and tuple(value.shape) != shape:  # else (N,) would meet (N, 1) and broadcast to (N, N)
        raise InputError(f"y must have shape {shape}", str(tuple(value.shape)), "one row for each row of x")
    elementwise = distribution.log_prob(value)
    return elementwise.flatten(lead).sum(-1) if elementwise.dim() > lead else elementwise
