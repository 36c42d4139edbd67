"""Grey pixels in [0, 1]: the continuous Bernoulli (Loaiza-Ganem & Cunningham, 2019).

A Bernoulli likelihood on grey values is not normalised; this one is: C(p) pʸ (1-p)^(1-y), C(p) = 2 atanh(1-2p) / (1-2p), C(½) = 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from torch import Tensor
from torch.distributions import Distribution

from nescio.likelihoods.classes import expect_between
from nescio.likelihoods.likelihood import Likelihood, expect_float, expect_shape
from nescio.likelihoods.tilted import TiltedUniform


@final
@dataclass(frozen=True, eq=False)
class ContinuousBernoulli(Likelihood):
    """y ~ CB(sigmoid(f)), each pixel by itself."""

    def observe(self, f: Tensor) -> Distribution:
        return TiltedUniform(f)

    def check(self, f: Any, y: Any) -> None:
        expect_shape(tuple(f.shape), y)
        expect_float(y, f.dtype)
        expect_between(y, binary=False)
