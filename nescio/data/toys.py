"""Small made-up data sets whose truth is known, for examples and for tests of uncertainty."""

from __future__ import annotations

import torch
from torch import Tensor

from nescio.errors import InputError
from nescio.noise import Noise


def gap(n: int = 100, noise: float = 0.1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """y = sin(3x) + N(0, noise²), x uniform on [-2, -0.7] and [0.7, 2]: a good posterior is wide in between."""
    stream = _stream("gap", n, seed)
    x = 0.7 + 1.3 * stream.at("x").uniform(n, 1)
    x[: n // 2] *= -1
    return x, torch.sin(3 * x) + _sd(noise) * stream.at("y").normal(n, 1)


def heteroscedastic_mean(x: Tensor) -> Tensor:
    """The true mean of `heteroscedastic`: sin(2x)."""
    return torch.sin(2 * x)


def heteroscedastic_sd(x: Tensor) -> Tensor:
    """The true noise standard deviation of `heteroscedastic`: 0.05 + 0.1 (x + 2), from 0.05 at -2 to 0.45 at 2."""
    return 0.05 + 0.1 * (x + 2)


def heteroscedastic(n: int = 500, seed: int = 0) -> tuple[Tensor, Tensor]:
    """x uniform on [-2, 2]; y normal with `heteroscedastic_mean(x)` and `heteroscedastic_sd(x)`."""
    stream = _stream("heteroscedastic", n, seed)
    x = 4 * stream.at("x").uniform(n, 1) - 2
    return x, heteroscedastic_mean(x) + heteroscedastic_sd(x) * stream.at("y").normal(n, 1)


def two_moons(n: int = 200, noise: float = 0.1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two interleaved half circles of radius 1 with normal noise on the points; labels 0 and 1, in turn."""
    stream = _stream("two_moons", n, seed)
    label = torch.arange(n) % 2
    side = 1.0 - 2.0 * label  # 1 for the upper moon, -1 for the lower
    angle = torch.pi * stream.at("angle").uniform(n)
    x = torch.stack([label + side * torch.cos(angle), 0.5 * label + side * torch.sin(angle)], dim=1)  # (n, 2)
    return x + _sd(noise) * stream.at("noise").normal(n, 2), label


def cubic(n: int = 20, seed: int = 0) -> tuple[Tensor, Tensor]:
    """y = x³ + N(0, 9), x uniform on [-4, 4]."""
    stream = _stream("cubic", n, seed)
    x = 8 * stream.at("x").uniform(n, 1) - 4
    return x, x**3 + 3 * stream.at("y").normal(n, 1)


def _stream(name: str, n: int, seed: int) -> Noise:
    if n < 2:
        raise InputError("n must be at least 2", str(n), "ask for more points")
    return Noise(seed).at("toys", name)


def _sd(noise: float) -> float:
    if not 0 <= noise < float("inf"):
        raise InputError("noise must be a standard deviation, finite and not negative", str(noise), "try 0.1")
    return noise
