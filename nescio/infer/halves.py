r"""A step of MCLMC, whole and in halves.

    v ← refresh(v);  kick b;  (drift ½, gradient, kick 1 - 2b);  (drift ½, gradient, kick b);  v ← refresh(v)

What is in brackets is half a step, with a gradient each. Several steps are a loop of halves in machine code (infer/mclmc.py): a loop whose
turn has one gradient is half as much to compile as one with two.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nescio.batch import Gradient
from nescio.infer.isokinetic import B, Point, disturbed, kick, leap, normalise, pull, refresh, step
from nescio.infer.microcanonical import DIVERGENT, finite


def langevin(
    gradient: Gradient,
    u: Tensor,
    v: Tensor,
    log_density: Tensor,
    slope: Tensor,
    before: Tensor,
    after: Tensor,
    root: Tensor,
    numbers: Tensor,
) -> tuple[Tensor, ...]:
    """One step between two half refreshes."""
    size, length = numbers[0], numbers[1]
    turned = refresh(v, before, size / 2, length)
    none = torch.zeros_like(log_density, dtype=torch.float64)
    *moved, kinetic = step(gradient, u, turned, log_density, slope, none, root, size)
    return ended(Point(u, v, log_density, slope), Point(*moved), kinetic, after, size, length)


def ended(start: Point, end: Point, kinetic: Tensor, after: Tensor, size: Tensor, length: Tensor) -> tuple[Tensor, ...]:
    """The next Point, with its directions refreshed; the energy error; and whether the step failed. Where it did the chain stays, and tries
    a direction that nothing else has used."""
    error = kinetic - (end.log_density.double() - start.log_density.double())
    failed = ~finite(end, error) | (error.abs() > max(DIVERGENT, end.x.shape[1]))
    stay = failed[:, None]
    return (
        torch.where(stay, start.x, end.x),
        normalise(torch.where(stay, after, disturbed(end.v, after, size / 2, length))),
        torch.where(failed, start.log_density, end.log_density),
        torch.where(stay, start.gradient, end.gradient),
        torch.where(failed, 0.0, error),
        failed,
    )


def half(gradient: Gradient, *given: Tensor) -> tuple[Tensor, ...]:
    """Half of one of several steps.

    Handed on, as few tensors as can be, for each turn of a loop takes time for each: u, v and the gradient; the kinetic change, and which
    half it is, the same in all chains. The draws are there before, and what is known after each step is written into its place.
    """
    vectors, here, drawn, us, slopes, numbers, root, (size, length) = given
    (u, v, slope), (kinetic, at) = vectors.unbind(1), here.unbind(1)
    place = (at[:1] / 2).long()
    noise, u0, slope0, known = (x.index_select(1, place)[:, 0] for x in (drawn, us, slopes, numbers))
    before, after = noise.unbind(1)
    first = at[:, None] % 2 == 0
    opened, change = kick(refresh(v, before, size / 2, length), pull(root, slope), B * size)
    v, kinetic = torch.where(first, opened, v), torch.where(first[:, 0], change, kinetic)
    coefficient = B + (1 - 3 * B) * first.double()  # 1 - 2B after the first drift
    u, v, log_density, slope, kinetic = leap(gradient, u, v, kinetic, root, size, coefficient)
    start, end = Point(u0, v, known[:, 0].to(log_density), slope0), Point(u, v, log_density, slope)
    u1, v1, density, slope1, *info = ended(start, end, kinetic, after, size, length)
    made = torch.stack([x.double() for x in (density, *info)], 1)
    for record, x in zip((us, slopes, numbers), (u1, slope1, made), strict=True):  # that of the second half stays
        record.index_copy_(1, place + 1, x[:, None])
    vectors = torch.where(first[:, None], torch.stack([u, v, slope], 1), torch.stack([u1, v1, slope1], 1))
    return vectors, torch.stack([kinetic, at + 1], 1)
