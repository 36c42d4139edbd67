"""The numbers that the evidence is a function of: those of the prior and of the likelihood, by name, and as one free vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from nescio.errors import InputError
from nescio.laws.law import Learned
from nescio.laws.prior import Prior
from nescio.laws.variable import Variable

Numbers = Mapping[str, Tensor]
RANGE = 1e4  # how far a tuned number may go from where it began, up or down: what has no influence would go on for ever


def of_likelihood(variable: Variable) -> bool:
    """One that the likelihood itself uses, not inside a law."""
    return variable.name.startswith("likelihood.") and not variable.nested


def known(prior: Prior) -> dict[str, int]:
    """Every number that the evidence may be asked about, and which variable it is."""
    return {v.name: i for i, v in enumerate(prior.variables) if v.nested or of_likelihood(v)}


def moved(prior: Prior, theta: Tensor, numbers: Numbers) -> Tensor:
    """The vector, in double precision, with these values of the numbers; differentiable in them."""
    values, names = prior.split(theta.double()), known(prior)
    for name, value in numbers.items():
        if name not in names:
            remedy = f"the names are {list(names)}"
            raise InputError("a number must be one of the prior's or the likelihood's", repr(name), remedy)
        i = names[name]
        given = torch.as_tensor(value).double().to(values[i].device)
        if given.numel() not in (1, values[i].numel()):
            raise InputError(f"{name} must have {values[i].numel()} entries", str(given.numel()), "or one for all")
        given = given.square() if getattr(prior.variables[i].law, "root", False) else given
        values[i] = given.reshape(-1).expand(values[i].shape)
    return torch.cat(values)


def learned(prior: Prior) -> list[Variable]:
    return [variable for variable in prior.variables if isinstance(variable.law, Learned)]


def values_of(prior: Prior, theta: Tensor, variables: Sequence[Variable]) -> dict[str, Tensor]:
    by_name = dict(zip((v.name for v in prior.variables), prior.split(theta.double()), strict=True))
    return {variable.name: by_name[variable.name].detach().clone() for variable in variables}


def freed(numbers: Numbers, variables: Sequence[Variable]) -> Tensor:
    """As one vector on the whole line: logarithms of what is positive."""
    return torch.cat([cast(Tensor, v.transform.inv(numbers[v.name])).reshape(-1) for v in variables])


def named(u: Tensor, variables: Sequence[Variable]) -> dict[str, Tensor]:
    parts = u.split([variable.size for variable in variables])
    return {v.name: cast(Tensor, v.transform(part)) for v, part in zip(variables, parts, strict=True)}
