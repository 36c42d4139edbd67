"""From a Gaussian posterior to the laws of a prior: the weights that were random are remembered together, the others keep their laws."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from nescio.errors import UnsupportedError
from nescio.laws.law import Elementwise, Law, Learned, numbers
from nescio.laws.remembered import Remembered
from nescio.linalg import Blocks, Diag, Operator
from nescio.model import Model
from nescio.posterior.places import places


def remembered(model: Model, theta: Tensor, slots: Tensor, covariance: Operator) -> dict[str, Law]:
    """{"*": N(theta, covariance)} in the order of the network, and before it, by name, the laws of weights that were fixed."""
    free = torch.zeros(model.dim, dtype=torch.bool)
    free[slots.cpu()] = True
    found = places(model.prior, free, "a prior")
    cut = [name for name, place in found.items() if bool((place < 0).any())]
    if cut:
        got = f"a subnetwork of {cut}"
        raise UnsupportedError("a posterior must be of whole tensors to be a prior", got, "use .on(...) by name")
    names = list(model.network.weights())
    laws: dict[str, Law] = {name: kept(model, name) for name in names if name not in found}
    order = torch.cat([found[name] for name in names if name in found]).to(slots.device)  # in the vector
    rank = torch.empty(model.dim, dtype=torch.long, device=slots.device)
    rank[slots] = torch.arange(len(slots), device=slots.device)
    back = torch.argsort(rank[order])  # of each entry of the covariance, its place in the network
    return {**laws, "*": Remembered(theta[order].detach().double(), turned(covariance, back))}


def turned(covariance: Operator, places: Tensor) -> Operator:
    """The same with entry i at places[i]."""
    if torch.equal(places, torch.arange(len(places), device=places.device)):
        return covariance
    if isinstance(covariance, Diag):
        return Diag(covariance.values[torch.argsort(places)])
    if isinstance(covariance, Blocks):
        return Blocks(covariance.operators, tuple(places[place] for place in covariance.places))
    return Blocks((covariance,), (places,))


def kept(model: Model, name: str) -> Law:
    """The law that a weight had, where it can stand alone."""
    laws: Mapping[str, Law] = {"*": model.laws} if isinstance(model.laws, Law) else model.laws
    law = next(law for pattern, law in laws.items() if fnmatchcase(name, pattern))
    alone = isinstance(law, Elementwise) and law.gate is None
    if not alone or any(isinstance(number, (Law, Learned)) for number, _ in numbers(law).values()):
        must = f"the law of {name}, which was fixed, must not be shared with others"
        raise UnsupportedError(must, repr(law), "give it constant numbers, or let all weights be random")
    return law
