"""The continuous Bernoulli, stable everywhere: a uniform density on [0, 1] tilted by e^{fy} (Loaiza-Ganem & Cunningham, 2019)."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor
from torch.distributions import Distribution


@final
class TiltedUniform(Distribution):
    """Density f e^{fy} / (e^f - 1) on [0, 1]: the continuous Bernoulli with logit f.

    torch's own clamps the probability, so that beyond |f| = 16 in single precision it is not normalised, and its variance cancels
    near f = 0 (0.25 where it is 0.083). Here, with h = f / 2: log normaliser h + log(sinh h / h), and its derivatives.
    """

    arg_constraints = {}  # noqa: RUF012

    def __init__(self, logits: Tensor) -> None:
        super().__init__(logits.shape, validate_args=False)
        self.logits = logits

    def log_prob(self, value: Tensor) -> Tensor:
        """Near 0 by the series, else y f - max(f, 0) - log (1 - e^{-|f|}) + log |f|, which for black and white pixels cancels nothing.

        The logits of pixels that are always black grow without end: the branch that is not taken must stay finite, its slope, too.
        """
        f, close = self.logits, self.logits.abs() < 1
        h, far = torch.where(close, f, 0.0) / 2, torch.where(close, 1.0, f.abs())
        series = polynomial(h.square(), (0.0, 1 / 6, -1 / 180, 1 / 2835, -1 / 37800, 1 / 467775, -691 / 3831077250))
        wide = value * f - f.relu() - torch.log1p(-(-far).exp()) + far.log()
        return torch.where(close, (2 * value - 1) * h - series, wide)

    @property
    def mean(self) -> Tensor:
        h = self.logits / 2
        far, close = self._far(h.abs()), torch.where(h.abs() < 0.5, h, 0.0)
        near = close * polynomial(close.square(), (1 / 3, -1 / 45, 2 / 945, -1 / 4725, 2 / 93555, -1382 / 638512875))
        return 0.5 + 0.5 * torch.where(h.abs() < 0.5, near, h.sign() * (1 / far.tanh() - 1 / far))

    @property
    def variance(self) -> Tensor:
        h = self.logits / 2
        far, close = self._far(h.abs()), torch.where(h.abs() < 0.5, h, 0.0)
        near = polynomial(close.square(), (1 / 3, -1 / 15, 2 / 189, -1 / 675, 2 / 10395, -1382 / 58046625))
        decay = (-2 * far).exp()  # 1 / sinh² h = 4 e^{-2h} / (1 - e^{-2h})²
        return 0.25 * torch.where(h.abs() < 0.5, near, far.pow(-2) - 4 * decay / (1 - decay).square())

    def cdf(self, value: Tensor) -> Tensor:
        """With -|f|, where nothing overflows; F(y; f) = 1 - F(1 - y; -f)."""
        f = -self.logits.abs()
        y = torch.where(self.logits > 0, 1 - value, value)
        below = torch.where(f == 0, y, torch.expm1(y * f) / torch.expm1(torch.where(f == 0, -1.0, f)))
        return torch.where(self.logits > 0, 1 - below, below)

    def icdf(self, value: Tensor) -> Tensor:
        f = -self.logits.abs()
        q = torch.where(self.logits > 0, 1 - value, value)
        safe = torch.where(f == 0, -1.0, f)
        y = torch.where(f == 0, q, torch.log1p(q * torch.expm1(safe)) / safe).clamp(0, 1)
        return torch.where(self.logits > 0, 1 - y, y)

    def rsample(self, sample_shape: Any = torch.Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(torch.rand(shape, dtype=self.logits.dtype, device=self.logits.device))

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:
        with torch.no_grad():
            return self.rsample(sample_shape)

    @staticmethod
    def _far(h: Tensor) -> Tensor:
        return torch.where(h < 0.5, 1.0, h)  # a safe stand-in where the series is used


def polynomial(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """Horner's rule, lowest power first."""
    total = torch.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total
