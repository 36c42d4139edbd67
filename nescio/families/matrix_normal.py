r"""Matrix normal: the weights of a layer with a covariance between outputs and one between inputs (Louizos & Welling, 2016).

    W = M + A Z Bᵀ,     U = A Aᵀ of the outputs,  V = B Bᵀ of the inputs,     Cov(W_ij, W_kl) = U_ik V_jl

A convolution's weights are a matrix of outputs by inputs and kernel. Where each example meets a weight once, y = x Wᵀ is
drawn itself, all outputs together: y ~ N(x Mᵀ, (x V xᵀ) U), which keeps their correlation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal
from torch.nn import functional as F

from nescio.errors import InputError, UnsupportedError
from nescio.families.correlated import cross_entropy
from nescio.families.covariance import Covariance, Full, LowRankPlusDiagonal
from nescio.families.family import Block, Factor, Family
from nescio.families.independent import Gaussian, own_bias
from nescio.weights import Action, Convolve

MOST = 5000  # rows or columns with a full covariance: its root takes 100 MB
LEAST = 1e-16  # of a variance: its root has no slope at zero


@final
@dataclass(frozen=True)
class MatrixNormal(Family):
    """`rank`: both covariances are a diagonal and so many directions; None: full. Biases and scales are as in `MeanField`.

    `sd`: the standard deviation that every number starts with.
    """

    rank: int | None = None
    sd: float = 0.05

    def __post_init__(self) -> None:
        if (self.rank is not None and self.rank < 1) or not self.sd > 0:
            raise InputError("rank and sd must be positive", f"rank={self.rank}, sd={self.sd}", "leave rank out")

    def factors(self, blocks: Sequence[Block]) -> Sequence[Factor]:
        matrices = [block.site is not None and len(block.shape) > 1 for block in blocks]
        return [Matrix(b, self) if m else Gaussian(b, self.sd) for b, m in zip(blocks, matrices, strict=True)]


@final
class Matrix(Factor, Action):
    """The weights of one layer, (outputs, inputs); as a tensor in the shape of the block."""

    def __init__(self, block: Block, family: MatrixNormal) -> None:
        super().__init__(block)
        self.loc = nn.Parameter(block.start.view(block.shape[0], -1).clone())
        self.rows = covariance(self.loc.shape[0], family, self.loc.detach())
        self.columns = covariance(self.loc.shape[1], family, self.loc.detach())

    def begin(self) -> None:
        self.rows.begin()
        self.columns.begin()

    def draw(self) -> Tensor:
        half = self.columns.correlate(self.rows.width).mT  # (noise of the outputs, inputs)
        return (self.loc + self.rows.root_times(half)).reshape(-1)

    def mean(self) -> Tensor:
        return self.loc.reshape(-1)

    def half_log_det(self) -> Tensor:
        return len(self.loc.mT) * self.rows.half_log_det() + len(self.loc) * self.columns.half_log_det()

    def log_prob(self, u: Tensor) -> Tensor:
        away = u.view_as(self.loc) - self.loc
        squares = (self.rows.solve(away) * self.columns.solve(away.mT).mT).sum(dtype=torch.float64)
        return -0.5 * squares - self.half_log_det() - 0.5 * math.log(2 * math.pi) * len(u)

    def kl(self, priors: Sequence[Distribution]) -> Tensor | None:
        """From independent Gaussians: Σ_ij ½ (U_ii V_jj + (M_ij - m_ij)²) / s_ij² - ½ + log s_ij, minus ½ log det V ⊗ U."""
        if not isinstance(priors[0], Normal):
            return None
        variances = torch.outer(self.rows.variances(), self.columns.variances()).reshape(-1)
        return cross_entropy(priors[0], self.mean(), variances) - self.half_log_det()

    # ---- how it acts -------------------------------------------------------------------------------------------

    def linear(self, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor]) -> Any:
        if x.dim() != 2:
            return NotImplemented  # one weight for all tokens
        mean = F.linear(x, self.loc)
        length = (x * self.columns.times(x.mT).mT).sum(1, keepdim=True).clamp_min(LEAST).sqrt()
        noisy = torch.addcmul(mean, length, self.rows.correlate(len(x)).mT)
        return noisy if bias is None else noisy + own_bias(bias, noisy)

    def convolve(self, convolution: Convolve, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor]) -> Any:
        return NotImplemented


def covariance(size: int, family: MatrixNormal, like: Tensor) -> Covariance:
    """Each of the two has the root of the variance."""
    sd = math.sqrt(family.sd)
    if family.rank is not None:
        return LowRankPlusDiagonal(size, min(family.rank, size), sd, like)
    if size > MOST:
        must = f"a full covariance must be of at most {MOST} rows or columns"
        raise UnsupportedError(must, str(size), "give MatrixNormal a rank")
    return Full(size, sd, like)
