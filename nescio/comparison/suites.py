"""Suites of tasks with fixed splits that everyone can run: `compare_tasks(suite("toy"), {"mine": Mine()})`.

| suite | tasks | data |
|---|---|---|
| toy | one dimension with a gap | made here |
| uci | four UCI tables, ten splits each, the same for all | bundled |
| gap | UCI tables whose test rows lie between the training rows | the data folder's uci_regression |
| digits | handwritten digits of 8 x 8 pixels; outside: the same, their pixels shuffled | scikit-learn's |
| mnist | 6000 MNIST images to learn from, 2000 to be judged by; outside: Fashion-MNIST | the data folder |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from nescio.comparison.by_rows import ByRows, epochs
from nescio.comparison.compare import Fit
from nescio.comparison.task import Task
from nescio.data import Scaling, arrays, load_uci, mnist, standardize, steps, toys, uci
from nescio.data.bundled import TARGETS
from nescio.errors import InputError, UnsupportedError
from nescio.infer import MAP, MCLMC, VI, Laplace, fit
from nescio.infer.method import Method
from nescio.laws import Law, Learned, Normal
from nescio.likelihoods import Categorical, Gaussian, Heteroscedastic
from nescio.model import Model
from nescio.nets import lenet5, mlp
from nescio.nets.mlp import Hidden
from nescio.noise import Noise
from nescio.posterior import GaussianPosterior, Posterior

SPLITS = 10
UNITS = Hidden((50,), nn.ReLU)  # as the literature on these tables has it
PRIOR = Normal(0.0, 1.0)
GAPS = ("concrete", "energy", "yacht", "wine", "boston")


def suite(name: str, splits: int | None = None) -> list[Task]:
    """`splits`: only the first so many of each data set."""
    if name not in SUITES:
        raise InputError("a suite must be known", repr(name), f"there are {', '.join(SUITES)}")
    return [task for task in SUITES[name]() if splits is None or task.split < splits]


def standard_methods(quick: bool = False) -> Mapping[str, Fit]:
    """What a new method is usually set beside, each trained for 5000 steps or more. Quick: seconds, and far too short to mean anything."""
    sampler = (
        MCLMC(energy_variance=0.1, warmup=10, draws=5)
        if quick
        else MCLMC(energy_variance=0.1, warmup=3000, draws=100, thin=20)
    )

    def long(rows: int) -> int:
        return 3 if quick else epochs(rows)

    member = ByRows(lambda rows: MAP(epochs=long(rows), hold_out=0.1, patience=max(50, long(rows) // 2)))
    chains = 2 if quick else 8
    return {
        "one network": 1 * member,
        "deep ensemble": 5 * member,
        "mean field": ByRows(lambda rows: VI(epochs=long(rows))),
        "linearised Laplace": linearised(1 * ByRows(lambda rows: MAP(epochs=long(rows)))),
        "microcanonical": chains * (member >> sampler),
    }


def linearised(first: Method) -> Fit:
    """Laplace's approximation through the network's first-order expansion, as it is meant to predict."""

    def run(model: Model, data: tuple[Tensor, Tensor], seed: int) -> Posterior:
        posterior = fit(model, data, first >> Laplace(), seed=seed)
        return posterior.linearize() if isinstance(posterior, GaussianPosterior) else posterior

    return run


def regression(
    name: str,
    split: int,
    x: Tensor,
    y: Tensor,
    test: tuple[Tensor, Tensor],
    outside: Tensor | None = None,
    hidden: Hidden = UNITS,
    rounded: float = 0.0,
    prior: Law = PRIOR,
) -> Task:
    """Hidden layers, if nothing is said one of 50 units, give a mean and a scale; standardised by the training rows."""
    units = Scaling.of(y)
    with Noise(split).at("net").scope():
        layers = mlp(x.shape[1], *hidden.widths, 2, activation=hidden.activation)
        net = nn.Sequential(standardize(Scaling.of(x)), layers).float()
    likelihood = Heteroscedastic(units.loc.float(), units.scale.float(), rounded)
    return Task(name, Model(net, prior, likelihood), (x, y), test, split, outside)


def toy() -> Iterator[Task]:
    for split in range(SPLITS):
        x, y = toys.gap(seed=split)
        half = torch.arange(len(x)) % 2 == 0
        with Noise(split).at("net").scope():
            net = mlp(1, 20, 1, activation=nn.Tanh)
        model = Model(net, Normal(0.0, 2.0), Gaussian(Learned(0.3)))
        far = torch.linspace(float(x.max()) + 1, float(x.max()) + 3, 40)[:, None]
        yield Task("toy", model, (x[half], y[half]), (x[~half], y[~half]), split, far)


def tables() -> Iterator[Task]:
    for name in TARGETS:
        for split in range(SPLITS):
            train, test = uci(name).split(seed=split, test=0.1)
            yield regression(name, split, train.x, train.y, (test.x, test.y), rounded=steps(train.y))


def gaps() -> Iterator[Task]:
    for name in GAPS:
        split = 0
        while True:
            try:
                x, y, x2, y2 = (t.float() for t in load_uci(name, split, gap=True))
            except InputError:  # one split a feature
                break
            yield regression(f"{name} gap", split, x, y, (x2, y2), rounded=steps(y))
            split += 1


def digits() -> Iterator[Task]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise UnsupportedError(
            "the digits come with scikit-learn", "no scikit-learn", "pip install 'nescio[sklearn]'"
        ) from None
    found: Any = load_digits()
    x, y = torch.tensor(found.data / 16.0, dtype=torch.float32), torch.tensor(found.target)
    for split in range(SPLITS):
        order = Noise(split).at("digits").permutations(1, len(y))[0]
        held, kept = order[:360], order[360:]
        mixed = x[held][:, Noise(split).at("pixels").permutations(1, 64)[0]]
        with Noise(split).at("net").scope():
            net = mlp(64, 50, 10)
        model = Model(net, Normal(0.0, 1.0), Categorical())
        yield Task("digits", model, (x[kept], y[kept]), (x[held], y[held]), split, mixed)


def images() -> Iterator[Task]:
    x, y, x2, y2 = mnist()
    strange = torch.from_numpy(arrays("fashion_mnist_test_5k")["x"][:2000]).float().reshape(-1, 1, 28, 28) / 255
    for split in range(3):
        some = Noise(split).at("mnist").permutations(1, len(y))[0][:6000]
        with Noise(split).at("net").scope():
            net = lenet5()
        model = Model(net, Normal(0.0, 1.0), Categorical())
        data = (x[some][:, None].float() / 255, y[some].long())
        test = (x2[:2000, None].float() / 255, y2[:2000].long())
        yield Task("mnist", model, data, test, split, strange)


SUITES: dict[str, Callable[[], Iterator[Task]]] = {
    "toy": toy,
    "uci": tables,
    "gap": gaps,
    "digits": digits,
    "mnist": images,
}
