"""Tasks one after the other, each with the posterior of the one before as its prior: what was learned is not forgotten.

    posterior = fit(Model(net, prior, likelihood), task, MAP() >> Laplace(full))
    prior = posterior.as_prior()

Permuted digits (after Kirkpatrick et al., 2017; Ritter et al., 2018): the ten digits in 8 by 8 pixels from scikit-learn; each task has its
own order of the pixels. Beside it a network that goes on training under the first prior, and forgets.

    python examples/continual_learning.py [--quick]
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

from nescio import Model, fit
from nescio.evaluation import accuracy
from nescio.infer import MAP, Laplace
from nescio.infer.curvature import full
from nescio.laws import Law, Normal
from nescio.likelihoods import Categorical
from nescio.links import probit
from nescio.nets import mlp

Task = tuple[Tensor, Tensor]


def tasks(count: int) -> list[tuple[Task, Task]]:
    """For each order of the pixels, rows to learn from and rows to be judged by."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(labels)
    orders = [
        torch.arange(64),
        *(torch.randperm(64, generator=torch.Generator().manual_seed(i)) for i in range(1, count)),
    ]
    return [((x[::2, order], y[::2]), (x[1::2, order], y[1::2])) for order in orders]


def learn(remember: bool, count: int, epochs: int) -> list[list[float]]:
    """Accuracy on each task so far, after each task."""
    torch.manual_seed(0)
    net, table = mlp(64, 20, 10), []
    prior: Law | dict[str, Law] = Normal(0, 1)
    given = tasks(count)
    for i, (train, _) in enumerate(given):
        posterior = fit(Model(net, prior, Categorical()), train, MAP(epochs=epochs) >> Laplace(full))
        settle(net, posterior.point())
        prior = posterior.as_prior() if remember else prior
        functions = posterior.linearize(probit)  # type: ignore[attr-defined]
        table.append([accuracy(functions.predict(x), y) for _, (x, y) in given[: i + 1]])
    return table


def settle(net: nn.Module, values: dict[str, Tensor]) -> None:
    """The next task begins where this one ended."""
    net.load_state_dict({name: values[name] for name in net.state_dict()})


def main(quick: bool) -> dict[str, float]:
    """Mean accuracy over all tasks at the end, with and without memory, and on the first task."""
    count, epochs = (2, 1) if quick else (3, 30)
    found = {"remembering": learn(True, count, epochs), "forgetting": learn(False, count, epochs)}
    for name, table in found.items():
        print(name)
        for i, row in enumerate(table):
            print(f"  after task {i + 1}: " + "  ".join(f"{a:.3f}" for a in row))
    shown = {f"{name}, all tasks": sum(table[-1]) / len(table[-1]) for name, table in found.items()}
    return shown | {f"{name}, first task": table[-1][0] for name, table in found.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    main(parser.parse_args().quick)
