"""A law and a likelihood of one's own, ten lines each, used like those of the library.

A logistic prior on the weights (tails between Normal and Laplace) and Student-t noise, which does not chase outliers: the fit is
compared with Gaussian noise on data of which a tenth is nonsense.

    python examples/own_law_and_likelihood.py [--quick]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor
from torch import distributions as td

from nescio import Model, Posterior, fit
from nescio.infer import MAP
from nescio.laws import Elementwise, Learned, Normal, positive, real
from nescio.likelihoods import Gaussian, Likelihood
from nescio.nets import mlp
from nescio.noise import Noise


@final
@dataclass(frozen=True, eq=False)
class Logistic(Elementwise):
    """e^-z / (scale (1 + e^-z)²), z = (w - loc) / scale. Torch has it as the logit of a relaxed Bernoulli."""

    loc: float = real(0.0)  # may also be Learned(...), another law or a callable of the site
    scale: float = positive(1.0)
    location_scale: ClassVar[bool] = True  # so that samplers may work with z where scale is random

    def distribution(self, loc: Tensor, scale: Tensor) -> td.Distribution:
        return td.relaxed_bernoulli.LogitRelaxedBernoulli(1 / scale, logits=loc / scale)


@final
@dataclass(frozen=True, eq=False)
class Robust(Likelihood):
    """y ~ f + scale * t with four degrees of freedom."""

    scale: float | Learned = positive(1.0)

    def observe(self, f: Tensor, scale: Tensor) -> td.Distribution:
        return td.StudentT(4.0, f, scale.expand_as(f))


def outliers(n: int) -> tuple[Tensor, Tensor, Tensor]:
    """x, y with a tenth of nonsense, and the true mean."""
    stream = Noise(0)
    x = 4 * stream.at("x").uniform(n, 1) - 2
    true = torch.sin(2 * x)
    y = true + 0.1 * stream.at("y").normal(n, 1)
    y[::10] += 5 * stream.at("outliers").normal(len(y[::10]), 1)
    return x, y, true


def main(quick: bool) -> tuple[Posterior, dict[str, float]]:
    x, y, true = outliers(300)
    method = 3 * MAP(epochs=40 if quick else 300, lr=2e-2, batch_size=50)
    own = fit(Model(mlp(1, 30, 1), Logistic(0.0, 0.5), Robust(Learned(1.0))), (x, y), method)
    usual = fit(Model(mlp(1, 30, 1), Normal(0, 1), Gaussian(Learned(1.0))), (x, y), method)
    errors = {
        name: float((posterior.predict(x).mean - true).square().mean().sqrt())
        for name, posterior in {"Logistic prior, Student-t noise": own, "Normal prior, Gaussian noise": usual}.items()
    }
    for name, error in errors.items():
        print(f"{name:<34} error of the mean {error:.3f}")
    return own, errors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    main(parser.parse_args().quick)
