"""Variational families on the UCI splits: what a richer law of the weights brings over mean field, everything else alike.

The network of `uci_methods.Task.model`, one hidden layer with a mean and a scale for each row. `MAP() >> VI(family)`: from the mode, a
quarter of the epochs, then as many epochs as the ensembles may take, with the defaults of VI. The prior scale is the one of two under
which the bound is higher: no row is held out, and nothing was tuned on test rows. Families: Gaussians by weight (Blundell et al., 2015),
matrix-variate ones (Louizos & Welling, 2016), and multiplicative normalising flows (Louizos & Welling, 2017).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from nescio import fit
from nescio.families import Family, MatrixNormal, MeanField, MultiplicativeFlow
from nescio.infer import MAP, VI
from nescio.posterior import Posterior

if TYPE_CHECKING:
    from uci_methods import Task

SCALES = (0.3, 1.0)  # of the prior
DRAWS = 1000  # of a prediction


def variational(task: Task, settings: dict[str, Any], family: Family) -> tuple[Posterior, dict[str, Any]]:
    """Fit under each prior scale, keep the one with the higher bound."""
    epochs = settings["epochs"]
    method = MAP(epochs=max(1, epochs // 4)) >> VI(family, epochs=epochs)
    found = {s: fit(task.model(s), (task.x, task.y), method, seed=task.seed, device=task.device) for s in SCALES}
    scale = max(found, key=lambda s: found[s].info["elbo"])
    return found[scale], {"scale": scale, "elbo": found[scale].info["elbo"]}


FAMILIES = {
    "mean_field": partial(variational, family=MeanField()),
    "matrix_normal": partial(variational, family=MatrixNormal()),
    "flow": partial(variational, family=MultiplicativeFlow()),
}
