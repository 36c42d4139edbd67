"""Linearised Laplace on the UCI splits: scales of the prior, one a tensor of weights, and the noise by the evidence; no row is held out.

One hidden layer of 50 ReLU units (protein 100) with one output and one noise for all rows, the full Gauss-Newton matrix, in double
precision; `tune` in rounds, each of which trains on from the last. Beside it, on the same split, what one would do without an evidence: one
prior scale out of four, the noise fitted along, chosen by the log density of a held-out tenth, then trained again on all rows; its NLL
is kept as "nll, cross-validated". Nothing was tuned on test rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nescio import Model, fit, tune
from nescio.data import Scaling, standardize
from nescio.evaluation import nll
from nescio.infer import MAP, Laplace
from nescio.infer.curvature import full
from nescio.laws import Law, Learned, Normal
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior import GaussianPosterior, Posterior

if TYPE_CHECKING:
    from uci_methods import Task

SCALES = (0.1, 0.3, 1.0, 3.0)
VALIDATED = "nll, cross-validated"


class Wide(nn.Module):
    """In double precision, whatever comes."""

    def forward(self, x: Tensor) -> Tensor:
        return x.double()


def model(name: str, x: Tensor, y: Tensor, law: Law) -> Model:
    hidden, units = 100 if name == "protein" else 50, Scaling.of(y)
    net = nn.Sequential(Wide(), standardize(Scaling.of(x)), mlp(x.shape[1], hidden, 1)).double()
    return Model(net, law, Gaussian(Learned(0.5), loc=units.loc.double(), scale=units.scale.double()))


def laplace(task: Task, settings: dict[str, Any]) -> tuple[Posterior, dict[str, Any]]:
    torch.default_generator.manual_seed(task.seed)  # of the networks' first weights
    x, y = task.x.double(), task.y.double()
    method = MAP(epochs=settings["epochs"], lr=1e-2) >> Laplace(full)
    found = tune(
        model(task.name, x, y, Normal(0, Learned(1.0).per("layer"))),
        (x, y),
        method,
        rounds=settings["rounds"],
        tolerance=0.05,
        seed=task.seed,
        device=task.device,
    )
    more: dict[str, Any] = {"evidence": found.info["evidence"][-1], "rounds used": len(found.info["evidence"]) - 1}
    if settings["validated"]:
        more[VALIDATED], more["validated scale"] = validated(task, x, y, settings["rounds"] * settings["epochs"] // 2)
    return linear(found), more


def validated(task: Task, x: Tensor, y: Tensor, epochs: int) -> tuple[Posterior, float]:
    """The prior scale that a held-out tenth likes best, and the posterior under it."""
    order = Noise(task.seed, ("validation",)).permutations(1, len(x))[0]
    aside, kept = order[: len(x) // 10], order[len(x) // 10 :]

    def fitted(scale: float, rows: Tensor) -> Posterior:
        method = MAP(epochs=epochs, lr=1e-2) >> Laplace(full)
        law = Normal(0, scale)
        return linear(
            fit(model(task.name, x[rows], y[rows], law), (x[rows], y[rows]), method, seed=task.seed, device=task.device)
        )

    def judged(scale: float) -> float:
        return nll(fitted(scale, kept).predict(x[aside].to(task.device)), y[aside].to(task.device))

    best = min(SCALES, key=judged)
    return fitted(best, order), best


def linear(posterior: Posterior) -> Posterior:
    assert isinstance(posterior, GaussianPosterior)
    return posterior.linearize()
