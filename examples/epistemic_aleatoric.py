"""Two kinds of uncertainty: what more data would remove, and what they would not.

The same small net on a quarter, on half and on all of the data. Epistemic variance falls as the data grow, but not in the gap where
there are none; aleatoric variance stays at the variance of the noise.

The posterior is sampled by "randomise, then optimise": each member is a MAP fit that is drawn towards its own draw of the prior and
sees the data with its own draw of the noise. For a linear model these modes are exact draws of the posterior. (A plain ensemble,
`8 * MAP()`, would not do: its members see the same data under the same prior, and where they agree they are not therefore right.)

    python examples/epistemic_aleatoric.py [--quick]
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nescio import Model, Posterior, fit
from nescio.data import toys
from nescio.infer import MAP, Constant
from nescio.laws import Learned, Normal, Site
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior import Mixture

NOISE = 0.3


class Row(NamedTuple):
    rows: int
    on_data: float  # mean epistemic variance where there are data
    in_gap: float  # ... and where there are none
    aleatoric: float


def randomised(x: Tensor, y: Tensor, members: int, epochs: int) -> Posterior:
    """Members of equal weight. The noise is learned once, by MAP, and then held."""
    torch.manual_seed(0)
    newton = partial(torch.optim.LBFGS, line_search_fn="strong_wolfe")
    method = MAP(epochs=epochs, lr=1.0, batch_size=len(x), optimizer=newton, schedule=Constant())
    first = Model(mlp(1, 20, 1, activation=nn.Tanh), Normal(0, 1.5), Gaussian(Learned(1.0)))
    noise = float(fit(first, (x, y), method).point()["likelihood.noise"])
    parts = []
    for member in range(members):
        stream = Noise(member)

        def anchor(site: Site, stream: Noise = stream) -> Tensor:
            return 1.5 * stream.at(site.name).normal(*site.shape)

        model = Model(mlp(1, 20, 1, activation=nn.Tanh), Normal(anchor, 1.5), Gaussian(noise))
        parts.append(fit(model, (x, y + noise * stream.at("noise").normal(*y.shape)), method, seed=member))
    return Mixture(parts, {})


def main(quick: bool) -> list[Row]:
    n, members, epochs = (400, 6, 5) if quick else (1600, 20, 12)
    x, y = toys.gap(n, NOISE)
    on_data = torch.cat([torch.linspace(-2, -0.7, 50), torch.linspace(0.7, 2, 50)])[:, None]
    in_gap = torch.linspace(-0.4, 0.4, 50)[:, None]
    table = []
    print(
        f"{'rows':>6} {'epistemic, on data':>20} {'in the gap':>12} {'aleatoric':>11}   (noise variance {NOISE**2:.3f})"
    )
    for every in (4, 2, 1):
        posterior = randomised(x[::every], y[::every], members, epochs)
        here, gap = posterior.predict(on_data), posterior.predict(in_gap)
        row = Row(n // every, *(float(v.mean()) for v in (here.epistemic, gap.epistemic, here.aleatoric)))
        print(f"{row.rows:>6} {row.on_data:>20.5f} {row.in_gap:>12.5f} {row.aleatoric:>11.4f}")
        table.append(row)
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rows, members and steps")
    main(parser.parse_args().quick)
