"""Regression with known noise, split over four layers: a case in which posterior, evidence and the best q are known."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch import distributions as td

from nescio import Model
from nescio.families import Gaussian
from nescio.families.correlated import Correlated
from nescio.families.covariance import Full
from nescio.laws import Normal
from nescio.likelihoods import Gaussian as Noisy
from nescio.noise import Noise
from nescio.posterior import Variational

DOUBLE = torch.float64
ROWS, WIDTH, SD = 100, 8, 0.5


class Split(nn.Module):
    """A linear map in four layers side by side: the check that libraries fail whose KL is a mean over weights or layers."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(2, 1, bias=False) for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([part(x[:, 2 * i : 2 * i + 2]) for i, part in enumerate(self.parts)]).sum(0)


class Conjugate(NamedTuple):
    model: Model
    x: Tensor
    y: Tensor
    mean: Tensor
    covariance: Tensor
    evidence: float

    @property
    def posterior(self) -> td.MultivariateNormal:
        return td.MultivariateNormal(self.mean, self.covariance)


def conjugate(scale: float = 1.0, temperature: float = 1.0) -> Conjugate:
    """Regression with known noise: everything in closed form, at any temperature."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, WIDTH, generator=generator, dtype=DOUBLE)
    x[:, 1:] += 0.5 * x[:, :-1]
    y = x @ torch.randn(WIDTH, 1, generator=generator, dtype=DOUBLE) + SD * torch.randn(
        ROWS, 1, generator=generator, dtype=DOUBLE
    )
    precision = (x.T @ x / SD**2 + torch.eye(WIDTH, dtype=DOUBLE) / scale**2) / temperature
    covariance = precision.inverse()
    mean = covariance @ (x.T @ y)[:, 0] / SD**2 / temperature
    marginal = td.MultivariateNormal(torch.zeros(ROWS, dtype=DOUBLE), scale**2 * x @ x.T + SD**2 * torch.eye(ROWS))
    with Noise(0).scope():
        model = Model(Split().double(), Normal(0.0, scale), Noisy(SD))
    return Conjugate(model, x, y, mean, covariance, float(marginal.log_prob(y[:, 0])))


def gaussian(posterior: Variational) -> td.MultivariateNormal:
    """q as one Gaussian."""
    locs, roots = [], []
    for factor in posterior.q.parts():
        factor.begin()
        locs.append(factor.mean().detach())
        if isinstance(factor, Correlated):
            assert isinstance(factor.covariance, Full)
            roots.append(factor.covariance.root.detach())
        else:
            assert isinstance(factor, Gaussian)
            roots.append(factor.sd.reshape(-1).diag().detach())
    return td.MultivariateNormal(torch.cat(locs), scale_tril=torch.block_diag(*roots))


def variational(posterior: Any) -> Variational:
    assert isinstance(posterior, Variational)
    return posterior
