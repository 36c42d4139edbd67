"""What the experiments with generative models have in common: where they compute, how they stop and go on, where pictures go."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from digits import Digits, official
from torch import Tensor

from nescio import Model, fit
from nescio.infer import Method
from nescio.infer.method import Progress
from nescio.noise import Noise
from nescio.posterior import Posterior

Line = dict[str, Any]
Job = dict[str, Any]
ADAM = partial(torch.optim.Adam, fused=True)
SHOWN = 25  # pictures of a kind


class Late(Exception):
    """The time is over; what was done so far is on the disk."""


class Place:
    """Where a job computes and writes; `until`: when it should be over."""

    def __init__(self, device: str, out: Path, until: float, quick: bool) -> None:
        self.device, self.out, self.until, self.quick = device, out, until, quick

    def fit(self, model: Model, data: Any, method: Method, seed: int, name: str) -> Posterior:
        """One that can be interrupted, and goes on when it is called again."""

        def watch(progress: Progress) -> None:
            if time.time() > self.until:
                raise Late

        folder = None if self.quick else self.out / "vae_runs" / name
        return fit(model.to(self.device), data, method, seed=seed, progress=watch, folder=folder)

    def pictures(self, name: str, **arrays: Tensor) -> None:
        """reproduce/vae_figures.py draws them: a machine with a GPU need not."""
        folder = self.out / "vae_pictures"
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(folder / f"{name}.npz", **{key: small(x) for key, x in arrays.items()})


def small(x: Tensor) -> np.ndarray:
    """Grey values in bytes, everything else in single precision."""
    x = x.detach().cpu()
    if x.is_floating_point() and x.dim() > 1 and x.shape[-1] in (784, 560):
        return (255 * x.clamp(0, 1)).round().to(torch.uint8).numpy()
    return x.numpy() if not x.is_floating_point() else x.float().numpy()


@cache
def digits(train: int, test: int) -> tuple[Digits, Digits]:
    """The first of each file."""
    first, second = official()
    return first.first(train), second.first(test)


def spread(x: Tensor, name: str) -> Tensor:
    """(byte + u) / 256 for bytes x * 255, u uniform and thrown once: a density of pixels that take 256 values, or always the same one, has
    no upper bound, and this has (log 256 a pixel)."""
    return (255 * x.cpu() + Noise(0).at("spread", name).uniform(*x.shape)) / 256


def net_of(noise_seed: int, make: Callable[..., Any], *sizes: int, **settings: Any) -> Any:
    with Noise(noise_seed).at("net").scope():
        return make(*sizes, **settings)


def mean(x: Tensor) -> float:
    return round(float(x.double().mean()), 4)
