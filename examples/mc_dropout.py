"""MC dropout in one line: a network that was trained with `nn.Dropout` becomes a posterior, and what more passes buy.

    posterior = Variational.around(NetDropout(), Model(net, prior, likelihood))

A plain network, trained by a plain loop, on ten noisy classes. Then the same network as a posterior: test error and NLL by averaged
weights (what `net.eval()` does) and by the mean over T passes, with the time they take. Passes share what comes before the first
dropout layer, so T of them cost less than T times one.

    python examples/mc_dropout.py [--quick]
"""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nescio import Model
from nescio.evaluation import accuracy, nll
from nescio.families import NetDropout
from nescio.laws import Normal
from nescio.likelihoods import Categorical
from nescio.posterior import Variational


class Row(NamedTuple):
    passes: int  # 0: averaged weights
    error: float
    nll: float
    seconds: float


def classes(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Ten noisy prototypes in 64 dimensions."""
    generator = torch.Generator().manual_seed(0)
    prototypes = torch.randn(10, 64, generator=generator)
    generator.manual_seed(seed)
    y = torch.randint(0, 10, (n,), generator=generator)
    return prototypes[y] + 3.0 * torch.randn(n, 64, generator=generator), y


def trained(x: Tensor, y: Tensor, epochs: int) -> nn.Sequential:
    """As everybody does it."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 200), nn.ReLU(), nn.Dropout(0.5), nn.Linear(200, 200), nn.ReLU(), nn.Dropout(0.5))
    net.append(nn.Linear(200, 10))
    optimizer = torch.optim.Adam(net.parameters(), 1e-3, weight_decay=1e-4)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()
    return net


def main(quick: bool) -> list[Row]:
    train, test = classes(300 if quick else 1000, 1), classes(500 if quick else 5000, 2)
    net = trained(*train, epochs=10 if quick else 60)

    posterior = Variational.around(NetDropout(), Model(net, Normal(0, 1), Categorical()))

    rows = []
    for passes in (0, 1, 10) if quick else (0, 1, 3, 10, 30, 100, 300):
        began = time.perf_counter()
        predictive = posterior.predict(test[0], passes) if passes else posterior.at_mean().predict(test[0])
        error, score = 1 - accuracy(predictive, test[1]), nll(predictive, test[1])
        rows.append(Row(passes, error, score, time.perf_counter() - began))
        name = f"{passes} passes" if passes else "averaged weights"
        print(f"{name:<18} error {100 * error:5.2f}%   NLL {score:.3f}   {rows[-1].seconds:.3f} s")
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer points, epochs and passes")
    main(parser.parse_args().quick)
