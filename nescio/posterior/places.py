"""Where the weights of a network are in the flat vector: one number for each, or a reason why not."""

from __future__ import annotations

from itertools import accumulate, pairwise

import torch
from torch import Tensor

from nescio.errors import UnsupportedError
from nescio.families.layout import one_for_one
from nescio.laws.prior import Prior


def places(prior: Prior, only: Tensor | None, who: str) -> dict[str, Tensor]:
    """For each weight of the network, or of those that `only` frees, its entries of the vector, flat."""
    bounds = list(pairwise(accumulate(prior.sizes, initial=0)))
    found: dict[str, Tensor] = {}
    for output, group in zip(prior.outputs, prior.groups, strict=True):
        if all(site.module is None for site in group.sites) or output.constant is not None:
            continue  # a number of the likelihood
        first, end = bounds[output.variable]
        free = torch.ones(end - first, dtype=torch.bool) if only is None else only[first:end].cpu()
        variable = prior.variables[output.variable]
        if not bool(free.any()):
            continue
        if not one_for_one(output, variable):
            raise UnsupportedError(
                f"{who} needs a real number of its own for each weight",
                f"{[site.name for site in group.sites]} under {variable.law!r}",
                "give them a law without gates, constraints or a shared draw",
            )
        for site, place in group.split(torch.arange(first, end)):
            if bool(free[place.reshape(-1) - first].all()):
                found[site.name] = place.reshape(-1)
    return found
