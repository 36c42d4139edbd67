"""The curvature of a likelihood in the network's outputs, as columns s with Σ s sᵀ = the Fisher information of f, for each example.

    Λ = E_y [∇_f log p(y|f) ∇_f log p(y|f)ᵀ],  positive semidefinite for every likelihood, and the Hessian of -log p where f is natural

In a distribution's own numbers η (mean and scale, logits) a root of Λ is known; autograd brings it to f. So a likelihood needs nothing
but `observe`. For a distribution that is not known here the Hessian at the observed y is taken, its negative part left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch import distributions as td
from torch.distributions import Distribution
from torch.utils._pytree import tree_flatten, tree_unflatten

from nescio.densities import Joint, log_density
from nescio.errors import UnsupportedError
from nescio.jacobian.local import pulled
from nescio.laws.law import unvalidated
from nescio.likelihoods.masked import known, like
from nescio.likelihoods.tilted import TiltedUniform
from nescio.noise import Noise

LARGEST = 2**28  # numbers in the columns of one example
MOST = 256  # outputs of an example whose Hessian is taken as a matrix

Observe = Callable[[Any], Distribution]
Scaled = list[tuple[Tensor, Tensor]]  # (η, the root of its information), each number by itself


def information(observed: Distribution) -> Scaled | None:
    """Numbers that are independent of each other, each with the root of its Fisher information; None if they are not known."""
    if isinstance(observed, td.Normal):
        return [(observed.loc, 1 / observed.scale), (observed.scale, 2**0.5 / observed.scale)]
    if isinstance(observed, td.StudentT):
        df = observed.df
        loc, scale = ((df + 1) / (df + 3)).sqrt(), (2 * df / (df + 3)).sqrt()
        return [(observed.loc, loc / observed.scale), (observed.scale, scale / observed.scale)]
    if isinstance(observed, td.Bernoulli):
        return [(observed.logits, (observed.probs * (1 - observed.probs)).sqrt())]
    if isinstance(observed, TiltedUniform):
        return [(observed.logits, observed.variance.sqrt())]
    return None


def columns(observe: Observe, f: Any, y: Any, graph: bool = False) -> list[Tensor]:
    """(K, *output) at each output of the network: exact. `graph`: differentiable in the numbers that `observe` has in it."""
    leaves, form = detached(f)
    with unvalidated(), torch.enable_grad():
        observed = observe(tree_unflatten(leaves, form))
        parts = observed.parts if isinstance(observed, Joint) else {"": observed}
        found = []
        for task, part in parts.items():
            own, seen = roots(part, graph), y[task] if isinstance(observed, Joint) else y
            if own is None:
                found.append(from_hessian(log_density(part, seen, lead=1), leaves, graph))
            else:
                found += [pulled([eta], leaves, [root * known(part, eta, seen)], batched=True) for eta, root in own]
        together = [torch.cat(each) for each in zip(*found, strict=True)]
    return together if graph else [each.detach() for each in together]


def sampled(observe: Observe, f: Any, samples: int, noise: Noise, y: Any = None) -> list[Tensor]:
    """(samples, *output): the gradient at outcomes drawn from the likelihood itself; right on average. `y`: what may be missing."""
    leaves, form = detached(f)
    with unvalidated(), torch.enable_grad(), noise.scope():
        observed = observe(tree_unflatten(leaves, form))
        found = []
        for _ in range(samples):
            drawn = observed.sample() if y is None else hidden(observed, observed.sample(), y)
            density = log_density(observed, drawn, lead=1).sum() / samples**0.5
            slopes = torch.autograd.grad(density, leaves, retain_graph=True, allow_unused=True)
            found.append([torch.zeros_like(x) if s is None else s for s, x in zip(slopes, leaves, strict=True)])
    return [torch.stack(each).detach() for each in zip(*found, strict=True)]


def hidden(observed: Distribution, drawn: Any, y: Any) -> Any:
    """Outcomes without those whose labels are missing."""
    if isinstance(observed, Joint):
        return {task: like(part, drawn[task], y[task]) for task, part in observed.parts.items()}
    return like(observed, drawn, y)


def roots(observed: Distribution, graph: bool) -> list[tuple[Tensor, Tensor]] | None:
    """(η, columns (K, *η)) for each number that depends on f; a column for each entry of an example's η, but one."""
    if isinstance(observed, td.Categorical):
        probs = observed.probs if graph else observed.probs.detach()
        return [(observed.logits, placed(chances(probs)))] if observed.logits.requires_grad else []
    scaled = information(observed)
    if scaled is None:
        return None
    each = ((eta, root if graph else root.detach()) for eta, root in scaled if eta.requires_grad)
    return [(eta, placed(root[None, ..., None])[..., 0]) for eta, root in each]


def chances(p: Tensor) -> Tensor:
    """(C - 1, *p) with Σ s sᵀ = diag(p) - p pᵀ, each s of sum 0: the reflection of √p to the last axis, but for that axis, times √p."""
    root, classes = p.sqrt(), p.shape[-1]
    along = torch.eye(classes, dtype=p.dtype, device=p.device)
    turn = root + along[-1]
    first = along[: max(1, classes - 1)].view(-1, *(1 for _ in p.shape[:-1]), classes)  # of one class alone: a zero
    part = (root * first).sum(-1, keepdim=True)
    return root * (first - turn * part / (1 + root[..., -1:]))


def placed(found: Tensor) -> Tensor:
    """(K, N, *places, C) to (places x K, N, *places, C): at each place of an example by itself."""
    places = found.shape[2:-1]
    count = prod(places)
    if count**2 * len(found) * found.shape[-1] > LARGEST:
        got, remedy = f"{count * found.shape[-1]} outputs", "use Laplace(..., samples=1)"
        raise UnsupportedError("the exact curvature takes a column for each output", got, remedy)
    at = torch.eye(count, dtype=found.dtype, device=found.device).view(count, 1, 1, *places, 1)
    return (at * found).flatten(0, 1)


def from_hessian(density: Tensor, leaves: Sequence[Tensor], graph: bool) -> list[Tensor]:
    """Of -log p(y|f) at the observed y, its negative eigenvalues left out."""
    sizes = [prod(leaf.shape[1:]) for leaf in leaves]
    if graph and sum(sizes) > 1:  # its eigenvectors would be differentiated
        must = "the slope of the curvature in a likelihood's numbers is known for known distributions"
        raise UnsupportedError(must, "another one, with several outputs", "hold its numbers constant")
    if sum(sizes) > MOST:
        must = f"the curvature of such a likelihood is known for at most {MOST} outputs"
        raise UnsupportedError(must, str(sum(sizes)), "use Laplace(..., samples=1)")
    slopes = torch.autograd.grad(density.sum(), leaves, create_graph=True, allow_unused=True, materialize_grads=True)
    rows = []
    for slope, size in zip(slopes, sizes, strict=True):
        for i in range(size):
            one = slope.flatten(1)[:, i].sum()
            curved = [torch.zeros_like(x) for x in leaves]
            if one.requires_grad:
                got = torch.autograd.grad(one, leaves, None, True, graph, allow_unused=True, materialize_grads=True)
                curved = [-g for g in got]
            rows.append(torch.cat([c.flatten(1) for c in curved], 1))
    values, vectors = torch.linalg.eigh(torch.stack(rows, 1).double())  # (N, D, D)
    found = (vectors * values.clamp_min(0).sqrt()[:, None]).movedim(2, 0).to(leaves[0].dtype)  # (D, N, D)
    return [part.reshape(-1, *leaf.shape) for part, leaf in zip(found.split(sizes, -1), leaves, strict=True)]


def detached(f: Any) -> tuple[list[Tensor], Any]:
    leaves, form = tree_flatten(f)
    return [leaf.detach().requires_grad_() for leaf in leaves], form
