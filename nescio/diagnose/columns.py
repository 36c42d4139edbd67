"""A chunk of quantities with its order statistics, and the loop over chunks that keeps the memory bounded.

A chunk is scaled by a power of two, which rounds nothing, so that draws of 1e200 or 1e-200 can be squared. Its sort is done once and
serves ranks, quantiles and the median.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from nescio.diagnose.kernel import moves, split
from nescio.errors import InputError

CELLS = 1 << 19  # numbers in a chunk: 4 MB, twenty times that with all that is made of them
CELLS_AWAY = 1 << 23  # on an accelerator, where few large calls are better
SHORTEST = 4  # draws: two in each half


class Columns:
    """Quantities of shape (quantities, chains, draws), in float64, not more than 1 in size; those not finite are 0."""

    def __init__(self, draws: Tensor) -> None:
        self.finite = draws.isfinite().all(-1).all(-1)
        x = torch.where(self.finite[:, None, None], draws, 0.0)
        exponent = np.frexp(x.abs().amax((-1, -2)).cpu().numpy())[1].clip(-1000, 1000)
        self.scale = torch.from_numpy(np.ldexp(1.0, exponent)).to(x)  # (quantities,)
        self.x = x / self.scale[:, None, None]

    @cached_property
    def moving(self) -> Tensor:
        return moves(self.x)  # (quantities, chains)

    @cached_property
    def constant(self) -> Tensor:
        flat = self.x.flatten(1)
        return flat.amax(-1) == flat.amin(-1)

    @cached_property
    def halves(self) -> Tensor:
        return split(self.x)

    @cached_property
    def ordered(self) -> tuple[Tensor, Tensor]:
        """All draws in order, and where each came from: (quantities, chains * draws)."""
        return order(self.x.flatten(1))

    @cached_property
    def scores(self) -> Tensor:
        """Rank-normalised halves."""
        if self.x.shape[-1] % 2:  # the middle draws have no rank
            return normal_scores(self.halves)
        return split(scatter_scores(*self.ordered).view_as(self.x))

    def quantile(self, q: float) -> Tensor:
        """Linear between order statistics."""
        values, last = self.ordered[0], self.ordered[0].shape[-1] - 1
        h = last * q
        if abs(h - round(h)) <= 4 * np.finfo(np.float64).eps * last:
            h = round(h)  # 0.1 of 30 is 3, whatever the rounding of 0.1
        low, high = values[:, math.floor(h)], values[:, math.ceil(h)]
        part = h - math.floor(h)
        return low + part * (high - low)

    @cached_property
    def median(self) -> Tensor:
        values, size = self.ordered[0], self.ordered[0].shape[-1]
        return (values[:, (size - 1) // 2] + values[:, size // 2]) / 2


def order(flat: Tensor) -> tuple[Tensor, Tensor]:
    if flat.device.type != "cpu":
        return torch.sort(flat, dim=-1)
    index = torch.from_numpy(np.argsort(flat.numpy(), axis=-1))  # twice as fast as torch's
    return flat.gather(-1, index), index


def normal_scores(x: Tensor) -> Tensor:
    """Rank-normal values, ranked among all draws of all chains."""
    return scatter_scores(*order(x.flatten(1))).view_as(x)


def scatter_scores(values: Tensor, index: Tensor) -> Tensor:
    """The normal scores of ordered values, each back at the place it came from."""
    size = values.shape[-1]
    table = torch.special.ndtri(plotting_position(1 + torch.arange(2 * size - 1).to(values) / 2, size))
    fresh = values[:, 1:] != values[:, :-1]
    if bool(fresh.all()):
        ranked = table[::2].expand_as(values)
    else:  # ties share the average of their ranks
        place = torch.arange(size, device=values.device)
        one = fresh.new_ones(len(values), 1)
        first = torch.where(torch.cat([one, fresh], -1), place, 0).cummax(-1).values
        last = torch.where(torch.cat([fresh, one], -1), place, size).flip(-1).cummin(-1).values.flip(-1)
        ranked = table[first + last]
    return torch.empty_like(values).scatter_(-1, index, ranked)


def plotting_position(rank: Tensor, size: int) -> Tensor:
    """Blom's: the normal quantile of it is nearly the expected order statistic."""
    return (rank - 3 / 8) / (size + 1 / 4)


def shape_of(x: Tensor | np.ndarray) -> tuple[int, ...]:
    """(chains, draws, ...), or an error."""
    if not isinstance(x, (Tensor, np.ndarray)):
        raise InputError("draws must be a tensor or an array", type(x).__name__, "pass np.asarray(draws)")
    shape = tuple(x.shape)
    if len(shape) < 2 or shape[0] == 0:
        raise InputError(
            "draws must be (chains, draws, ...) with a chain or more", f"shape {shape}", "add the chain axis, x[None]"
        )
    numbers = not x.dtype.is_complex if isinstance(x, Tensor) else x.dtype.kind in "fiub"
    if not numbers:
        raise InputError(
            "draws must be real numbers", str(x.dtype), "diagnose real and imaginary parts as two quantities"
        )
    return shape


def chunks(x: Tensor | np.ndarray) -> Iterator[Columns]:
    chains, draws, *rest = shape_of(x)
    flat = x.reshape(chains, draws, math.prod(rest))
    cells = CELLS if isinstance(x, np.ndarray) or x.device.type == "cpu" else CELLS_AWAY
    width = max(cells // (chains * draws), 1)
    for start in range(0, flat.shape[-1], width):
        part = flat[:, :, start : start + width]
        if isinstance(part, Tensor):
            part = part.detach() if part.device.type in ("cpu", "cuda") else part.detach().cpu()  # not all have float64
        else:
            part = torch.from_numpy(part.astype(np.float64))
        yield Columns(part.permute(2, 0, 1).to(torch.float64).contiguous())


def over(x: Tensor | np.ndarray, *statistics: Callable[[Columns], Tensor]) -> list[np.ndarray]:
    """Each statistic for every quantity, in the shape of the quantities; NaN where the draws are not finite or too few."""
    shape = shape_of(x)
    if shape[1] < SHORTEST or math.prod(shape[2:]) == 0:
        return [np.full(shape[2:], np.nan) for _ in statistics]
    parts: list[list[np.ndarray]] = [[] for _ in statistics]
    for columns in chunks(x):
        for part, statistic in zip(parts, statistics, strict=True):
            part.append(torch.where(columns.finite, statistic(columns), math.nan).cpu().numpy())
    return [np.concatenate(part).reshape(shape[2:]) for part in parts]
