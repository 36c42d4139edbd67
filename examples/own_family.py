"""A new approximating distribution is a short file: dropout whose noise is log-normal instead of Bernoulli.

    W = M diag(z),     log z_j ~ N(-s²/2, s²),     E z = 1

A family says which factor each block of weights gets; a factor says how to draw, what its mean is and, for a closed form, its divergence
from the prior. Everything else is there already: training on any network, noise of its own for each example, prediction by draws or by
averaged weights, files. `Multiplied` brings the columns; a law of quite another kind derives from `Factor` (nescio/families/family.py).

    python examples/own_family.py [--quick]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from nescio import Model, fit
from nescio.data import toys
from nescio.evaluation import nll
from nescio.families import Block, Family
from nescio.families.family import Factor
from nescio.families.masks import Multiplied, Rates, layers, normal_cross_entropy
from nescio.infer import MAP, VI
from nescio.laws import Normal as NormalLaw
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.posterior import Variational


@final
@dataclass(frozen=True)
class LogNormalDropout(Family):
    """`s`: the deviation of log z, in all layers, or {name pattern: deviation}; 0 is no noise."""

    s: Rates = 0.3

    def factors(self, blocks: Sequence[Block]) -> Sequence[Factor]:
        return layers(blocks, self.s, Scaled)


@final
class Scaled(Multiplied):
    """Columns M_j z_j."""

    def __init__(self, block: Block, s: float) -> None:
        super().__init__(block)
        self.s = s

    def noise(self, rows: int) -> Tensor:
        drawn = torch.randn(rows, self.inputs, dtype=self.loc.dtype, device=self.loc.device)
        return (self.s * drawn - 0.5 * self.s**2).exp()

    def entropy(self) -> float:
        return self.inputs * (0.5 * math.log(2 * math.pi * math.e * self.s**2) - 0.5 * self.s**2)

    def kl(self, priors: Sequence[Distribution]) -> Tensor | None:
        """Under a Normal prior E[W²] = exp(s²) M² is all that it takes; under others draws tell."""
        if not isinstance(priors[0], Normal):
            return None
        return normal_cross_entropy(priors[0], self.loc, math.exp(self.s**2)) - self.entropy()


def main(quick: bool) -> dict[str, float]:
    """Mean NLL on new points, by averaged weights and by 200 draws, and the spread of f between and on the clusters of the data."""
    epochs = 30 if quick else 1000
    data, test = toys.gap(200, 0.2, 0), toys.gap(500, 0.2, 1)
    torch.manual_seed(0)
    model = Model(mlp(1, 50, 50, 1), NormalLaw(0, 1), Gaussian(0.2))
    method = MAP(epochs=epochs) >> VI(LogNormalDropout({"0.*": 0.0, "*": 0.3}), epochs=epochs)
    posterior = fit(model, data, method)
    assert isinstance(posterior, Variational)
    spread = posterior.predict(torch.tensor([[0.0], [1.3]]), 200).epistemic[:, 0].sqrt()
    found = {
        "NLL, averaged weights": nll(posterior.at_mean().predict(test[0]), test[1]),
        "NLL, 200 draws": nll(posterior.predict(test[0], 200), test[1]),
        "sd of f between": float(spread[0]),
        "sd of f on the data": float(spread[1]),
    }
    for name, value in found.items():
        print(f"{name:<24}{value:8.3f}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer epochs")
    main(parser.parse_args().quick)
