r"""Linear regression with a Gaussian prior in closed form, from sums over the data that can be added up.

    known noise    A = P + G/σ²,   b = P m₀ + c/σ²,   w | D ~ N(A⁻¹ b, A⁻¹)              G = Σ φφᵀ,  c = Σ φy
    unknown        w | σ² ~ N(m₀, σ² P⁻¹),  σ² ~ IG(α, β)
                   ⇒  σ² | D ~ IG(α + N/2, β + ½(Σy² + m₀ᵀPm₀ - bᵀA⁻¹b)),   w | σ², D ~ N(A⁻¹b, σ²A⁻¹)

with the same A and b in units of the noise (Bishop, 2006, section 3). Several outputs share the inputs φ. They are regressions of their
own, a batch of blocks, unless the prior ties them together: then there is one block of all weights, output by output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import torch
from torch import Tensor


class Sums(NamedTuple):
    """What the data say, whatever the prior and the noise: N, Σ φφᵀ (p, p), Σ yφᵀ (outputs, p), Σ y² (outputs,)."""

    count: Tensor
    gram: Tensor
    cross: Tensor
    squares: Tensor

    @staticmethod
    def of(phi: Tensor, y: Tensor) -> Sums:
        phi, y = phi.double(), y.double()
        count = torch.tensor(float(len(y)), dtype=torch.float64, device=y.device)
        return Sums(count, phi.mT @ phi, y.mT @ phi, y.square().sum(0))

    def plus(self, other: Sums) -> Sums:
        return Sums(*(a + b for a, b in zip(self, other, strict=True)))


class Inverse(NamedTuple):
    """An inverse-gamma law of the noise variance: `shape` and `rate`, one for all outputs (1,) or one for each."""

    shape: Tensor
    rate: Tensor


@final
@dataclass(frozen=True, eq=False)
class Regression:
    """`precision` (blocks, q, q) and `shift` (blocks, q), P and P m₀: a block for each output, or one of all of them.

    `noise` (outputs,): variances that are known; or their law, and then prior and covariance are in units of the noise variance.
    """

    sums: Sums
    precision: Tensor
    shift: Tensor
    noise: Tensor | Inverse

    @property
    def outputs(self) -> int:
        return len(self.sums.squares)

    def seen(self, more: Sums) -> Regression:
        """After more data; nothing is fitted again."""
        return Regression(self.sums.plus(more), self.precision, self.shift, self.noise)

    @cached_property
    def posterior(self) -> tuple[Tensor, Tensor]:
        """The Cholesky factor of A (blocks, q, q) and the mean (blocks, q)."""
        weight = torch.ones_like(self.sums.squares) if isinstance(self.noise, Inverse) else 1 / self.noise
        cross = weight[:, None] * self.sums.cross
        if len(self.precision) == 1 and self.outputs > 1:  # tied by the prior
            gram, cross = torch.block_diag(*(w * self.sums.gram for w in weight))[None], cross.reshape(1, -1)
        else:
            gram = weight[:, None, None] * self.sums.gram
        lower = torch.linalg.cholesky(self.precision + gram)
        return lower, torch.cholesky_solve((self.shift + cross)[..., None], lower)[..., 0]

    @property
    def mean(self) -> Tensor:
        """(outputs, p)."""
        return self.posterior[1].reshape(self.outputs, -1)

    @cached_property
    def inverse_gamma(self) -> Inverse:
        """The law of the noise variance after the data."""
        assert isinstance(self.noise, Inverse)
        each = 0.5 * self.left  # of each output
        shared = len(self.noise.shape) < self.outputs
        spread = each.sum(0, keepdim=True) if shared else each
        return Inverse(
            self.noise.shape + 0.5 * self.sums.count * (self.outputs if shared else 1), self.noise.rate + spread
        )

    @cached_property
    def left(self) -> Tensor:
        """Σy² + m₀ᵀPm₀ - bᵀA⁻¹b of each output (their sum, where they are tied), in units of the noise."""
        lower, mean = self.posterior
        start = torch.cholesky_solve(self.shift[..., None], torch.linalg.cholesky(self.precision))[..., 0]
        prior, fitted = (self.shift * start).sum(-1), (mean * (lower @ (lower.mT @ mean[..., None]))[..., 0]).sum(-1)
        weight = torch.ones_like(self.sums.squares) if isinstance(self.noise, Inverse) else 1 / self.noise
        squares = weight * self.sums.squares
        return (squares if len(prior) == len(squares) else squares.sum(0, keepdim=True)) + prior - fitted

    @cached_property
    def log_evidence(self) -> Tensor:
        """log p(y | φ), a scalar."""
        lower, outputs = self.posterior[0], self.outputs
        before = torch.linalg.cholesky(self.precision)
        shrunk = (before.diagonal(dim1=1, dim2=2).log() - lower.diagonal(dim1=1, dim2=2).log()).sum()
        total = shrunk - 0.5 * self.sums.count * outputs * math.log(2 * math.pi)
        if not isinstance(self.noise, Inverse):
            return total - 0.5 * self.sums.count * self.noise.log().sum() - 0.5 * self.left.sum()
        (a, b), (c, d) = self.noise, self.inverse_gamma
        return total + (a * b.log() - c * d.log() + torch.lgamma(c) - torch.lgamma(a)).sum()

    def spread(self, phi: Tensor) -> Tensor:
        """φᵀA⁻¹φ between the outputs of each point, (points, outputs, outputs)."""
        lower, phi = self.posterior[0], phi.double()
        if len(lower) == self.outputs:
            half = torch.linalg.solve_triangular(lower, phi.mT, upper=False)  # (outputs, p, points)
            return torch.diag_embed(half.square().sum(1).mT)
        eye = torch.eye(self.outputs).to(phi)
        design = torch.einsum("np,oq->noqp", phi, eye).flatten(2)  # (points, outputs, all weights)
        half = torch.linalg.solve_triangular(lower, design.mT, upper=False)  # (points, all weights, outputs)
        return half.mT @ half

    def root(self, z: Tensor) -> Tensor:
        """Draws of N(0, A⁻¹) from white ones, (draws, outputs, p)."""
        lower = self.posterior[0]
        white = z.reshape(len(z), len(lower), -1, 1)
        return torch.linalg.solve_triangular(lower.mT, white, upper=True).reshape(z.shape)

    def covariance(self) -> Tensor:
        """A⁻¹, (blocks, q, q)."""
        return torch.cholesky_inverse(self.posterior[0])
