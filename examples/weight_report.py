"""Which layers and inputs carry the uncertainty? Weight uncertainty for debugging.

A network on a table with a column that never varied in training, because a sensor was stuck. The report shows it: the column's weights are
as wide as their prior, and on new rows, where the sensor works again, most of the epistemic uncertainty comes from it.

    python examples/weight_report.py [--quick]
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

from nescio import Model, fit
from nescio.evaluation import inputs, layers
from nescio.infer import MAP, Laplace
from nescio.infer.curvature import full
from nescio.laws import Normal
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior.gaussian import GaussianPosterior

STUCK = 2


def main(quick: bool) -> dict[str, float]:
    n, epochs = (200, 20) if quick else (1000, 100)
    x = Noise(0).at("x").normal(n, 4)
    y = (torch.sin(2 * x[:, :1]) + 0.5 * x[:, 1:2] + 0.3 * x[:, 3:]) + 0.1 * Noise(0).at("y").normal(n, 1)
    train = x.clone()
    train[:, STUCK] = 0.0
    torch.manual_seed(0)
    model = Model(mlp(4, 10, 1, activation=nn.Tanh), Normal(0.0, 1.0), Gaussian(0.1))
    posterior = fit(model, (train, y), MAP(epochs=epochs, lr=0.02) >> Laplace(full))
    assert isinstance(posterior, GaussianPosterior)
    found: dict[str, float] = {}
    print(f"{'layer':<10}{'weights':>8}{'sd':>8}{'prior sd':>10}{'signal/noise':>14}{'share of the spread':>21}")
    for layer in layers(posterior, x):
        print(
            f"{layer.name:<10}{layer.weights:>8}{layer.sd:>8.3f}{layer.prior_sd:>10.3f}{layer.signal_to_noise:>14.2f}{layer.share:>21.2f}"
        )
        found[f"share of layer {layer.name}"] = layer.share
    print(f"\n{'column':<10}{'epistemic variance that goes with it':>40}")
    for column in inputs(posterior.linearize(), x):
        print(f"{column.column:<10}{column.share:>40.2f}")
        found[f"share of column {column.column}"] = column.share
    wide = posterior.sample(200)["0.weight"].std(0).mean(0)  # (columns,)
    found["sd of the stuck column's weights"] = float(wide[STUCK])
    found["sd of the others"] = float(wide[[0, 1, 3]].mean())
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rows and epochs")
    main(parser.parse_args().quick)
