"""Which network? Depth, width and activation by the evidence of the training rows alone, none held out (MacKay, 1992; Immer et al., 2021).

Each candidate is tuned: prior scales, one a tensor of weights, and the noise, so that no candidate loses by a prior that does not fit it.
Beside the evidence stands what it is meant to foretell, the log density of rows that nobody has seen, under the linearised network.
A network that is too small cannot explain the data. One that is larger than need be loses little: with tuned scales the prior takes
back what the units do not need, and so the evidence is flat to that side.

    python examples/model_selection.py [--quick]
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nescio import Model, tune
from nescio.evaluation import nll
from nescio.infer import MAP, Constant, Laplace
from nescio.infer.curvature import full
from nescio.laws import Learned, Normal
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior import GaussianPosterior

CANDIDATES: dict[str, tuple[tuple[int, ...], type[nn.Module]]] = {
    "linear": ((1, 1), nn.Identity),
    "2 tanh": ((1, 2, 1), nn.Tanh),
    "20 tanh": ((1, 20, 1), nn.Tanh),
    "20-20 tanh": ((1, 20, 20, 1), nn.Tanh),
    "20 ReLU": ((1, 20, 1), nn.ReLU),
}


class Row(NamedTuple):
    network: str
    evidence: float  # of a training row
    test: float  # log density of an unseen row
    noise: float  # which is 0.2 in truth


def drawn(rows: int, key: str) -> tuple[Tensor, Tensor]:
    noise = Noise(0, (key,), dtype=torch.float64)
    x = 4 * noise.at("x").uniform(rows, 1) - 2
    return x, (2.5 * x).sin() + 0.5 * x + 0.2 * noise.at("y").normal(rows, 1)


def tuned(name: str, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], rounds: int) -> Row:
    widths, activation = CANDIDATES[name]
    torch.manual_seed(0)
    net = mlp(*widths, activation=activation).double()
    model = Model(net, Normal(0, Learned(1.0).per("layer")), Gaussian(Learned(0.5)))
    newton = partial(torch.optim.LBFGS, line_search_fn="strong_wolfe")
    method = MAP(epochs=10, lr=1.0, batch_size=len(train[0]), optimizer=newton, schedule=Constant())
    posterior = tune(model, train, method >> Laplace(full), rounds=rounds)
    assert isinstance(posterior, GaussianPosterior)
    score = -nll(posterior.linearize().predict(test[0]), test[1])
    found = posterior.info["evidence"][-1] / len(train[0])
    return Row(name, found, score, posterior.info["tuned"]["likelihood.noise"])


def main(quick: bool) -> list[Row]:
    train, test = drawn(60, "train"), drawn(1000, "test")
    names = ["linear", "20 tanh"] if quick else list(CANDIDATES)
    rows = sorted((tuned(name, train, test, 3 if quick else 15) for name in names), key=lambda row: -row.evidence)
    print(f"{'network':<14}{'evidence / row':>16}{'test log density':>18}{'noise':>8}")
    for row in rows:
        print(f"{row.network:<14}{row.evidence:>16.3f}{row.test:>18.3f}{row.noise:>8.3f}")
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    main(parser.parse_args().quick)
