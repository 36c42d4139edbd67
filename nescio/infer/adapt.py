"""Adaptation in the warm-up: step sizes by dual averaging, metrics from the chains' own spread.

Dual averaging (Nesterov, 2009; Hoffman & Gelman, 2014): with error x_t = target - acceptance,
    log ε_{t+1} = μ - (√t / γ) (1 / (t + t0)) Σ x,     log ε̄ = weighted mean of log ε with weights t^-κ.
Metrics: the inverse mass is the covariance of the draws (diagonal or dense), so that the target looks round; accumulated by Welford's
rule over windows of growing length, pooled over the chains of a block.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

FARTHEST = 30.0  # of log ε from 0; beyond, something else is wrong


class StepSize(NamedTuple):
    """Dual averaging of log ε towards an acceptance rate. `now` is used in the warm-up, `best` after it."""

    log_now: float
    log_best: float
    centre: float  # μ
    error: float
    count: int
    gamma: float  # the smaller, the wider its swings

    @property
    def now(self) -> float:
        return math.exp(self.log_now)

    @property
    def best(self) -> float:
        return math.exp(self.log_best)

    @staticmethod
    def start(step_size: float) -> StepSize:
        """At a guess, which is more often too small than too large. Wide swings: short steps free chains that are stuck far out."""
        return StepSize(math.log(step_size), math.log(step_size), math.log(10 * step_size), 0.0, 0, 0.05)

    def settle(self) -> StepSize:
        """From the best so far, when nothing else will change: narrow swings, for the mean acceptance of many chains has little noise
        and would be chased to and fro."""
        return StepSize(self.log_best, self.log_best, self.log_best, 0.0, 0, 0.1)

    def update(self, acceptance: float, target: float) -> StepSize:
        t0, kappa = 10, 0.75
        count = self.count + 1
        error = self.error + ((target - acceptance) - self.error) / (count + t0)
        log_now = min(max(self.centre - math.sqrt(count) / self.gamma * error, -FARTHEST), FARTHEST)
        weight = count**-kappa
        log_best = weight * log_now + (1 - weight) * self.log_best
        return StepSize(log_now, log_best, self.centre, error, count, self.gamma)


class Metric(ABC):
    """An inverse mass: velocities v = Σ p of momenta p ~ N(0, Σ⁻¹)."""

    @abstractmethod
    def momentum(self, z: Tensor) -> Tensor:
        """White noise (chains, dim) to momenta."""

    @abstractmethod
    def whiten(self, p: Tensor) -> Tensor:
        """Back: Lᵀ p, so that products of two are those of their momenta and velocities."""

    @abstractmethod
    def velocity(self, p: Tensor) -> Tensor:
        """Σ p."""

    @abstractmethod
    def spread(self, z: Tensor) -> Tensor:
        """White noise to noise of covariance Σ: L z."""

    @abstractmethod
    def gather(self, x: Tensor) -> Tensor:
        """Back: L⁻¹ x."""

    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """What it holds; `remade` of it is the same metric."""


class Variances(NamedTuple):
    """What a diagonal metric holds: metrics are part of a State, and a State is stored field by field."""

    variance: Tensor  # (dim,)
    root: Tensor  # (dim,)


class Covariances(NamedTuple):
    """What a dense metric holds."""

    covariance: Tensor  # (dim, dim)
    root: Tensor  # (dim, dim), lower triangular


@final
class Diagonal(Variances, Metric):
    """Σ = diag(variance)."""

    def __new__(cls, variance: Tensor) -> Diagonal:
        return cls._make((variance, variance.sqrt()))

    def momentum(self, z: Tensor) -> Tensor:
        return z / self.root

    def whiten(self, p: Tensor) -> Tensor:
        return p * self.root

    def velocity(self, p: Tensor) -> Tensor:
        return self.variance * p

    def spread(self, z: Tensor) -> Tensor:
        return self.root * z

    def gather(self, x: Tensor) -> Tensor:
        return x / self.root

    def tensors(self) -> tuple[Tensor, ...]:
        return self.variance, self.root


@final
class Dense(Covariances, Metric):
    """Σ = L Lᵀ."""

    def __new__(cls, covariance: Tensor, like: Tensor | None = None) -> Dense:
        """Factorised in double precision, kept in that of `like`; contiguous, as it is after reading back, to the bit."""
        like = covariance if like is None else like
        root = torch.linalg.cholesky(covariance.double())
        return cls._make((covariance.to(like).contiguous(), root.to(like).contiguous()))

    def momentum(self, z: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(self.root.mT, z.mT, upper=True).mT  # L⁻ᵀ z

    def whiten(self, p: Tensor) -> Tensor:
        return p @ self.root

    def velocity(self, p: Tensor) -> Tensor:
        return p @ self.covariance

    def spread(self, z: Tensor) -> Tensor:
        return z @ self.root.mT

    def gather(self, x: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(self.root, x.mT, upper=False).mT

    def tensors(self) -> tuple[Tensor, ...]:
        return self.covariance, self.root


def remade(tensors: Sequence[Tensor]) -> Metric:
    """The metric that holds these."""
    return Dense._make(tensors) if tensors[0].dim() == 2 else Diagonal._make(tensors)


class Moments(NamedTuple):
    """Welford's running mean and scatter over steps and chains, in double precision."""

    count: int
    mean: Tensor
    scatter: Tensor  # (dim,) or (dim, dim)

    @staticmethod
    def start(u: Tensor, dense: bool) -> Moments:
        dim = u.shape[1]
        shape = (dim, dim) if dense else (dim,)
        return Moments(0, u.new_zeros(dim, dtype=torch.float64), u.new_zeros(shape, dtype=torch.float64))

    def update(self, u: Tensor) -> Moments:
        """All chains of a step at once (Chan et al., 1979)."""
        x, n = u.double(), len(u)
        mean = x.mean(0)
        apart, count = mean - self.mean, self.count + n
        centred = x - mean
        if self.scatter.dim() == 2:
            own, between = centred.mT @ centred, torch.outer(apart, apart)
        else:
            own, between = centred.square().sum(0), apart.square()
        return Moments(count, self.mean + apart * (n / count), self.scatter + own + between * (self.count * n / count))

    def metric(self, like: Tensor) -> Metric:
        spread, _ = shrunk(self.scatter / max(self.count - 1, 1), self.count)
        return Diagonal(spread.to(like)) if spread.dim() == 1 else Dense(spread, like)


def shrunk(spread: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """A covariance, or variances, of n draws, shrunk towards its own diagonal; and the diagonal of that.

    n / (n + 5) of it, and 0.001 * 5 / (n + 5) of its variances on top. Stan adds 0.001 I instead, which is large where a posterior is
    narrow: a scale is not ours to assume.
    """
    keep, more = n / (n + 5), 1e-3 * 5 / (n + 5)
    variance = (spread if spread.dim() == 1 else spread.diagonal()).clamp_min(1e-30)
    diagonal = (keep + more) * variance
    return (diagonal if spread.dim() == 1 else keep * spread + more * variance.diag()), diagonal


class Windows(NamedTuple):
    """Step sizes first, then windows of growing length for the metric, then step sizes again.

    Many short windows, where Stan has a few that double: chains that start together on a ridge spread along it by a factor in each
    window, and the pooled chains of a block give every window enough draws.
    """

    first: int
    ends: tuple[int, ...]

    @staticmethod
    def of(warmup: int) -> Windows:
        first, last, length = round(0.05 * warmup), round(0.15 * warmup), max(round(0.02 * warmup), 2)
        ends, at, stop = [], first, warmup - last
        while at < stop:
            at = stop if at + 2.2 * length > stop else at + length
            ends.append(at)
            length = max(length + 1, round(1.25 * length))
        return Windows(first, tuple(ends))


def identity(u: Tensor, dense: bool = False) -> Metric:
    """Where a metric starts; of the kind that it will be, so that the form of a State stays the same in a run."""
    ones = torch.ones(u.shape[1], dtype=u.dtype, device=u.device)
    return Dense(ones.diag()) if dense else Diagonal(ones)
