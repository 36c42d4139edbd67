"""The loss for a training loop of one's own: nescio says what to minimise, everything else stays yours.

    posterior, loss = VI(MeanField()).objective(model, data)

`loss(x, y)` is minus the evidence lower bound per observation, on a batch; its parameters are those of the approximation. The data are
given once, for their number: it weighs the prior against the likelihood, so a loop never has to. `posterior` is that of the moment, and
can be asked at any time. Here: an optimiser with two groups, a schedule, clipped gradients and a look at the held-out rows.

    python examples/own_training_loop.py [--quick]
"""

from __future__ import annotations

import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset

from nescio import Model
from nescio.data import toys
from nescio.evaluation import nll
from nescio.infer import VI
from nescio.infer.families import MeanField
from nescio.laws import Learned, Normal
from nescio.likelihoods import Gaussian
from nescio.nets import mlp


def main(quick: bool) -> list[float]:
    """Mean NLL of the held-out rows, before training and after every tenth of it."""
    epochs = 30 if quick else 600
    torch.manual_seed(0)
    x, y = toys.gap(400, 0.2)
    order = torch.randperm(len(x))
    train, held_out = order[:320], order[320:]
    data = TensorDataset(x[train], y[train])
    model = Model(mlp(1, 50, 1), Normal(0, 1), Gaussian(Learned(0.5)))

    posterior, loss = VI(MeanField()).objective(model, data)
    spreads = [p for name, p in loss.named_parameters() if name.endswith("rho")]
    others = [p for name, p in loss.named_parameters() if not name.endswith("rho")]
    optimizer = torch.optim.Adam([{"params": others, "lr": 1e-2}, {"params": spreads, "lr": 3e-2}])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    seen = [nll(posterior.predict(x[held_out]), y[held_out])]
    for epoch in range(epochs):
        for xs, ys in DataLoader(data, batch_size=32, shuffle=True):
            optimizer.zero_grad()
            loss(xs, ys).backward()
            torch.nn.utils.clip_grad_norm_(loss.parameters(), 10.0)
            optimizer.step()
        schedule.step()
        if (epoch + 1) % (epochs // 10) == 0:
            seen.append(nll(posterior.predict(x[held_out]), y[held_out]))
            print(f"epoch {epoch + 1:>4}: held-out NLL {seen[-1]:.3f}")
    return seen


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer epochs")
    main(parser.parse_args().quick)
