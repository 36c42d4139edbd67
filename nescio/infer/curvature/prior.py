"""The prior's part of the posterior: -∂² log p(w | scales) by the weights, at the mode, as an operator.

Diagonal where the law is elementwise, blocks of Kronecker products or matrices where it is structured. Scales, learned or random, are
numbers here, and everything is differentiable in them.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

import torch
from torch import Tensor

from nescio.errors import UnsupportedError
from nescio.laws.law import Elementwise, unvalidated
from nescio.laws.prior import Prior
from nescio.laws.remembered import Known
from nescio.laws.structured import Whitened
from nescio.laws.variable import Variable
from nescio.linalg import Blocks, Dense, Diag, Kron, Operator


def precision(prior: Prior, theta: Tensor, slots: Tensor) -> Operator:
    """Over the entries `slots` of the vector, in their order."""
    values, operators, places = prior.split(theta), [], []
    with unvalidated(), torch.enable_grad():
        for variable, own, rank in inside(prior, slots):
            x = values[variable].detach()
            law = prior.variables[variable]
            if isinstance(law.law, Elementwise):
                operators.append(Diag(curvature(law, x, values)[own].double()))
                places.append(rank)
            elif isinstance(law.bound, Whitened):
                for operator, entries in structured(law, law.bound, values, own):
                    operators.append(operator)
                    places.append(rank[entries])
            elif isinstance(law.bound, Known):
                for operator, entries in remembered(law, law.bound, own):
                    operators.append(operator)
                    places.append(rank[entries])
            else:
                raise unknown(law)
    if all(isinstance(operator, Diag) for operator in operators):
        flat = torch.cat([operator.diagonal() for operator in operators])
        return Diag(flat[torch.argsort(torch.cat(places))])
    return Blocks(tuple(operators), tuple(places))


def log_prior(prior: Prior, theta: Tensor, slots: Tensor) -> Tensor:
    """log p(w | scales) of the entries `slots`, given all others."""
    values = prior.split(theta)
    total = torch.zeros((), dtype=torch.float64, device=theta.device)
    with unvalidated():
        for variable, own, _ in inside(prior, slots):
            law, x = prior.variables[variable], values[variable]
            assert law.bound is not None
            if len(own) == law.size:
                total = total + law.bound.log_prob(x, law.numbers(values))
            elif isinstance(law.law, Elementwise):
                each = law.law.distribution(**law.numbers(values)).log_prob(x)
                total = total + each.expand_as(x)[own].sum(dtype=torch.float64)
            else:
                raise UnsupportedError(
                    "weights that are correlated must be free together", law.name, "free all of them"
                )
    return total


def inside(prior: Prior, slots: Tensor) -> list[tuple[int, Tensor, Tensor]]:
    """(variable, its entries that are free, where they are among the free ones)."""
    rank = torch.full((prior.dim,), -1, device=slots.device)
    rank[slots] = torch.arange(len(slots), device=slots.device)
    found = []
    for i, (first, end) in enumerate(pairwise(accumulate(prior.sizes, initial=0))):
        own = (rank[first:end] >= 0).nonzero()[:, 0]
        if len(own):
            found.append((i, own, rank[first:end][own]))
    return found


def curvature(variable: Variable, x: Tensor, values: list[Tensor]) -> Tensor:
    """-∂² log p of each number by itself."""
    assert variable.bound is not None
    x, numbers = x.detach().requires_grad_(), variable.numbers(values)
    density = variable.bound.log_prob(x, numbers)
    flat = torch.zeros_like(x)
    if not density.requires_grad:
        return flat
    (slope,) = torch.autograd.grad(density, x, create_graph=True, allow_unused=True)
    if slope is None or not slope.requires_grad:
        return flat
    (second,) = torch.autograd.grad(slope.sum(), x, create_graph=True, allow_unused=True)
    if second is None:
        return flat
    return -second if any(number.requires_grad for number in numbers.values()) else -second.detach()


def structured(law: Variable, bound: Whitened, values: list[Tensor], own: Tensor) -> list[tuple[Operator, Tensor]]:
    """(operator, entries among the free ones) for each block of a correlated law: scale⁻¹ Σ⁻¹ scale⁻¹."""
    given = law.numbers(values)["scale"].double()
    scale, shared = given.expand(law.size), given.numel() == 1
    free = torch.zeros(law.size, dtype=torch.bool, device=own.device)
    free[own] = True
    position, found = torch.cumsum(free, 0) - 1, []
    for factors, (first, end) in zip(bound.factors, pairwise(accumulate(bound.sizes, initial=0)), strict=True):
        mask, s = free[first:end], scale[first:end]
        if not bool(mask.any()):
            continue
        inverses = [torch.cholesky_inverse(factor.double()) for factor in factors]
        even = shared or (
            not s.requires_grad and bool((s == s[0]).all())
        )  # equal by chance is not equal a step further
        if len(inverses) == 2 and bool(mask.all()) and even:
            operator: Operator = Kron(inverses[0], inverses[1] / s[0].square())
        else:
            whole = Kron(*inverses).dense() if len(inverses) == 2 else inverses[0]
            operator = Dense((whole / (s[:, None] * s))[mask][:, mask])
        found.append((operator, position[first:end][mask]))
    return found


def remembered(law: Variable, bound: Known, own: Tensor) -> list[tuple[Operator, Tensor]]:
    """(operator, entries among the free ones) of a precision; its structure is kept where all of its weights are free."""
    whole = bound.precision
    if len(own) == law.size and isinstance(whole, Blocks):
        return whole.pairs()
    part = Diag(whole.values[own]) if isinstance(whole, Diag) else None
    if part is None:
        part = whole if len(own) == law.size else Dense(whole.dense()[own][:, own])
    return [(part, torch.arange(len(own), device=own.device))]


def unknown(variable: Variable) -> UnsupportedError:
    must = "the curvature of a prior is known for elementwise and for Gaussian laws"
    return UnsupportedError(must, repr(variable.law), "use such a law")
