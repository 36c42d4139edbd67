"""Images made worse by degrees, to see whether doubt grows as answers go wrong (Ovadia et al., 2019).

A corruption is a function of images (N, C, H, W) or (N, H, W) and a strength, 0 for none: `rotated` by degrees, `blurred` by a Gaussian of
so many pixels, `noisy` by a standard deviation in the units of the pixels. `sweep` scores one posterior over all strengths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from nescio.errors import InputError
from nescio.evaluation.doubt import of_points
from nescio.evaluation.selective import losses, risk_coverage
from nescio.noise import Noise
from nescio.posterior.posterior import Posterior

Corruption = Callable[[Tensor, float], Tensor]


class Row(NamedTuple):
    """The scores at one strength. Doubt is `total`: entropy in nats for classes, variance for real outcomes."""

    strength: float
    loss: float  # error rate, or mean squared error
    nll: float
    total: float
    aleatoric: float
    epistemic: float
    aurc: float


def rotated(x: Tensor, degrees: float) -> Tensor:
    """Anticlockwise about the middle, bilinear; black comes in at the corners."""
    pixels, shape = planes(x)
    if not degrees:
        return x
    angle = math.radians(degrees)
    tall, wide = pixels.shape[2:]
    cos, sin = math.cos(angle), math.sin(angle)
    turn = torch.tensor([[cos, -sin * tall / wide, 0.0], [sin * wide / tall, cos, 0.0]], device=x.device, dtype=x.dtype)
    grid = F.affine_grid(turn.expand(len(pixels), 2, 3), list(pixels.shape), align_corners=False)
    return F.grid_sample(pixels, grid, padding_mode="zeros", align_corners=False).reshape(shape)


def blurred(x: Tensor, pixels: float) -> Tensor:
    """Convolved with a Gaussian of this standard deviation, cut at four of them; edges are repeated."""
    stack, shape = planes(x)
    if pixels < 0:
        raise InputError("a blur has a width of at least 0", str(pixels), "use 1.0 for one pixel")
    if not pixels:
        return x
    reach = math.ceil(4 * pixels)
    at = torch.arange(-reach, reach + 1, device=x.device, dtype=x.dtype)
    kernel = torch.exp(-0.5 * (at / pixels).square())
    kernel = kernel / kernel.sum()
    for axis in (2, 3):
        sides = (reach, reach, 0, 0) if axis == 3 else (0, 0, reach, reach)
        form = (1, 1, 1, -1) if axis == 3 else (1, 1, -1, 1)
        wide = F.pad(stack.flatten(0, 1)[:, None], sides, mode="replicate")
        stack = F.conv2d(wide, kernel.view(form)).reshape(stack.shape)
    return stack.reshape(shape)


def noisy(x: Tensor, sd: float) -> Tensor:
    """White noise, the same at every strength but for its size; not clipped."""
    planes(x)
    return x + sd * Noise(0).at("corruption").to(x.device, x.dtype).normal(*x.shape) if sd else x


def sweep(
    posterior: Posterior,
    data: tuple[Tensor, Tensor],
    corruption: Corruption,
    strengths: Sequence[float],
    *,
    draws: int | None = 100,
    seed: int = 0,
) -> list[Row]:
    """One row a strength."""
    x, y = data
    rows = []
    for strength in strengths:
        predicted = posterior.predict(corruption(x, strength), draws, seed)
        loss, total = losses(predicted, y), predicted.total
        nll, order = -float(predicted.log_prob(y).mean()), risk_coverage(of_points(total), of_points(loss)).aurc
        mean, aleatoric, epistemic = (float(t.mean()) for t in (total, predicted.aleatoric, predicted.epistemic))
        rows.append(Row(strength, float(loss.mean()), nll, mean, aleatoric, epistemic, order))
    return rows


def planes(x: Tensor) -> tuple[Tensor, torch.Size]:
    if not isinstance(x, Tensor) or x.dim() not in (3, 4) or not x.is_floating_point():
        got = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise InputError("images must be real numbers (N, C, H, W) or (N, H, W)", got, "use x.float() / 255")
    return (x if x.dim() == 4 else x[:, None]), x.shape
