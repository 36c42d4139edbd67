"""Walks through the latent space: between two pictures, along one latent, over a plane of two."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nescio.errors import InputError
from nescio.generative.coding import decode
from nescio.generative.parts import Given, coders
from nescio.posterior.posterior import Posterior


def interpolate(posterior: Posterior, a: Tensor, b: Tensor, steps: int = 10, *, given: Tensor | None = None) -> Tensor:
    """Pictures on the line between the codes of a and b (points, ...): (points, steps, ...), first and last their reconstructions."""
    if a.shape != b.shape or steps < 2:
        got = f"{tuple(a.shape)}, {tuple(b.shape)} and {steps} steps"
        raise InputError("two stacks of the same shape and at least 2 steps", got, "use x[:5], x[5:10]")
    condition = () if given is None else (given,)
    coder = coders(posterior, None, 0)[0]
    first, last = (coder.mean(Given(x, condition)) for x in (a, b))
    part = torch.linspace(0, 1, steps, dtype=first.dtype, device=first.device)[None, :, None]
    z = first[:, None] + part * (last - first)[:, None]  # (points, steps, latents)
    repeated = None if given is None else given.repeat_interleave(steps, 0)
    return decode(posterior, z.flatten(0, 1), given=repeated).mean.unflatten(0, (len(a), steps))


def traverse(
    posterior: Posterior,
    x: Tensor | None = None,
    latents: Sequence[int] | None = None,
    values: Sequence[float] = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0),
    *,
    given: Tensor | None = None,
) -> Tensor:
    """Pictures with one latent at each of the values, the others as in the code of x (one picture; None: all 0).

    (latents, values, ...); `latents`: which, all of them for None.
    """
    coder = coders(posterior, None, 0)[0]
    condition = () if given is None else (given,)
    if x is not None and len(x) != 1:
        raise InputError("a walk starts at one picture", f"{len(x)} rows", "use x[:1]")
    start = coder.prior(1, condition).loc if x is None else coder.mean(Given(x, condition))
    count = start.shape[1]
    chosen = range(count) if latents is None else latents
    if not len(chosen) or not len(values) or not all(0 <= i < count for i in chosen):
        raise InputError(f"latents must lie in 0 ... {count - 1}", str(list(chosen)), "leave them out for all")
    z = start.repeat(len(chosen) * len(values), 1).unflatten(0, (len(chosen), len(values)))
    for row, latent in enumerate(chosen):
        z[row, :, latent] = torch.tensor(values, dtype=z.dtype, device=z.device)
    flat = z.flatten(0, 1)
    repeated = None if given is None else given.expand(len(flat), *given.shape[1:])
    return decode(posterior, flat, given=repeated).mean.unflatten(0, z.shape[:2])


def manifold(posterior: Posterior, side: int = 20, reach: float = 2.0, *, given: Tensor | None = None) -> Tensor:
    """Pictures over a square of a two-dimensional latent space, (side, side, ...).

    Entry (i, j) is at z = (first, second): the first runs from -reach to reach along j, the second from reach down to -reach along i.
    """
    net = posterior.model.network.net
    if getattr(net, "latent", None) != 2:
        raise InputError(
            "a plane needs two latents", str(getattr(net, "latent", "none")), "use traverse, or vae(..., 2)"
        )
    if side < 2:
        raise InputError("a side has at least 2 pictures", str(side), "20 is usual")
    like = posterior.model.network.like
    line = torch.linspace(-reach, reach, side, dtype=like.dtype, device=like.device)
    z = torch.stack([line.expand(side, side), line.flip(0)[:, None].expand(side, side)], -1).flatten(0, 1)
    repeated = None if given is None else given.expand(len(z), *given.shape[1:])
    return decode(posterior, z, given=repeated).mean.unflatten(0, (side, side))
