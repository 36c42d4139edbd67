"""Where the weights of a network are in the flat vector: one number for each, or a reason why not."""

from __future__ import annotations

from itertools import accumulate, pairwise

import torch
from torch import Tensor

from nescio.errors import UnsupportedError
from nescio.families.layout import one_for_one
from nescio.laws.prior import Prior


def ranked(index: dict[str, Tensor], dim: int, device: torch.device) -> tuple[Tensor, dict[str, Tensor]]:
    """The entries of the vector that are free, in order; and for each weight its places among them, -1 where it is fixed."""
    every = torch.cat(list(index.values()))
    slots = every[every >= 0].sort().values.to(device)
    rank = torch.full((dim + 1,), -1, device=device)  # one more: for -1
    rank[slots] = torch.arange(len(slots), device=device)
    return slots, {name: rank[place.to(device)] for name, place in index.items()}


def places(prior: Prior, only: Tensor | None, who: str) -> dict[str, Tensor]:
    """For each weight of the network, or of those that `only` frees, its entries of the vector, flat; -1 for those that are not free."""
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
            own = free[place.reshape(-1) - first]
            if bool(own.any()):
                found[site.name] = place.reshape(-1).where(own, -1)
    return found
