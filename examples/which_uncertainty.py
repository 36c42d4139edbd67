"""Which uncertainty to model? One pass is enough for the aleatoric part; the epistemic part takes several, and matters while data are few.

A network that predicts its own noise, alone (one deterministic pass) and as an ensemble (as many passes as members), on more and more data.
For each the time of a prediction, and the negative log density of new points, on the data and off them. With few rows one pass is far too
sure and the ensemble is not; with many rows, on the data, one pass says as much (Kendall & Gal, 2017: safety and small data against real
time and large data). Off the data networks of MAP are wrong together, ten no less than one.

    python examples/which_uncertainty.py [--quick]
"""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nescio import Model, fit
from nescio.evaluation import nll
from nescio.infer import MAP
from nescio.laws import Normal
from nescio.likelihoods import Heteroscedastic
from nescio.nets import mlp
from nescio.noise import Noise

MEMBERS = 10


class Row(NamedTuple):
    rows: int
    one_pass: float  # negative log density on the data
    many_passes: float
    one_pass_off: float  # off the data
    many_passes_off: float
    times_slower: float


def data(n: int, seed: int, off: bool = False) -> tuple[Tensor, Tensor]:
    noise = Noise(seed)
    u = noise.at("x").uniform(n, 1)
    x = 1.5 + u if off else 2 * u - 1
    return x, torch.sin(4 * x) + (0.1 + 0.2 * x.abs().clamp_max(1)) * noise.at("y").normal(n, 1)


def main(quick: bool) -> list[Row]:
    sizes, steps = ((20, 200), 150) if quick else ((20, 100, 500, 2000), 2000)
    inside, outside = data(1000, 1), data(1000, 2, off=True)
    print(f"{'rows':>6}{'one pass':>10}{'ten':>8}{'one, off the data':>20}{'ten':>10}{'time of ten over one':>23}")
    table = []
    for n in sizes:
        torch.manual_seed(0)
        net = mlp(1, 30, 30, 2, activation=nn.Tanh)
        model = Model(net, Normal(0.0, 1.0), Heteroscedastic())
        batch = min(n, 50)
        posterior = fit(model, data(n, 0), MEMBERS * MAP(epochs=max(1, steps * batch // n), batch_size=batch))
        scores, seconds = [], []
        for passes in (1, MEMBERS):
            posterior.predict(inside[0], passes)  # whatever is done once
            began = time.perf_counter()
            predicted = posterior.predict(inside[0], passes)
            predicted.mean, predicted.total  # noqa: B018
            seconds.append(time.perf_counter() - began)
            scores += [nll(predicted, inside[1]), nll(posterior.predict(outside[0], passes), outside[1])]
        one, one_off, many, many_off = scores
        row = Row(n, one, many, one_off, many_off, seconds[1] / seconds[0])
        print(f"{row.rows:>6}{one:>10.2f}{many:>8.2f}{one_off:>20.1f}{many_off:>10.1f}{row.times_slower:>23.1f}")
        table.append(row)
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rows and steps")
    main(parser.parse_args().quick)
