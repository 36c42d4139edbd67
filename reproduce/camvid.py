"""CamVid at 80 by 60 pixels as the dense experiments take it: images, labels, edges, and a map that is regressed like a depth.

The depth-like map is made of real labels: the distance in pixels to the nearest boundary between two classes, at most 12. Like a depth it
is smooth on surfaces and uncertain where things end.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nescio.data import images
from nescio.posterior.posterior import Posterior

VOID, SKY, CLASSES = 11, 0, 11
FAR = 12.0  # pixels: the largest distance
CHUNK = 8  # images that are predicted together


class Scenes(NamedTuple):
    x: Tensor  # (n, 3, 60, 80), standardised colours
    y: Tensor  # (n, 60, 80), classes, VOID where nobody labelled
    rgb: np.ndarray  # (n, 60, 80, 3) uint8


@cache
def camvid() -> tuple[Scenes, Scenes, Scenes, tuple[str, ...]]:
    """Training, validation and test scenes, and the names of the classes."""
    found = images("camvid_80x60")
    x = {
        part: torch.from_numpy(found[f"x_{part}"]).permute(0, 3, 1, 2).float() / 255
        for part in ("train", "val", "test")
    }
    mean, sd = x["train"].mean((0, 2, 3), keepdim=True), x["train"].std((0, 2, 3), keepdim=True)
    parts = [Scenes((v - mean) / sd, torch.from_numpy(found[f"y_{k}"]).long(), found[f"x_{k}"]) for k, v in x.items()]
    return parts[0], parts[1], parts[2], tuple(str(name) for name in found["classes"])


def few(scenes: Scenes, n: int) -> Scenes:
    """A crop of the first images, for quick runs."""
    return Scenes(scenes.x[:n, :, 20:36, 20:36], scenes.y[:n, 20:36, 20:36], scenes.rgb[:n, 20:36, 20:36])


def boundaries(y: Tensor) -> Tensor:
    """(n, h, w) bool: pixels beside one of another class."""
    edge = torch.zeros_like(y, dtype=torch.bool)
    down, across = y[:, 1:] != y[:, :-1], y[:, :, 1:] != y[:, :, :-1]
    edge[:, 1:] |= down
    edge[:, :-1] |= down
    edge[:, :, 1:] |= across
    edge[:, :, :-1] |= across
    return edge


def distance(y: Tensor) -> Tensor:
    """(n, 1, h, w): how far the nearest boundary is, by steps to any of the eight neighbours, at most FAR."""
    near = boundaries(y).float()[:, None]
    total = torch.zeros_like(near)
    for _ in range(int(FAR)):
        total += 1 - near
        near = F.max_pool2d(near, 3, stride=1, padding=1)
    return total


def predicted(posterior: Posterior, x: Tensor, draws: int, task: str | None = None) -> dict[str, Tensor]:
    """Mean (classes last, or the one number), aleatoric and epistemic part of every pixel, chunk by chunk, on the CPU."""
    parts: dict[str, list[Tensor]] = {"mean": [], "aleatoric": [], "epistemic": []}
    for start in range(0, len(x), CHUNK):
        given: Any = posterior.predict(x[start : start + CHUNK], draws)
        given = given if task is None else given[task]
        for name, held in parts.items():
            held.append(getattr(given, name).cpu())
    return {name: torch.cat(held) for name, held in parts.items()}


def iou(guess: Tensor, y: Tensor, classes: int = CLASSES) -> tuple[float, list[float]]:
    """Mean over the classes that occur, and of each; pixels without a label do not count. A class that never occurs has NaN."""
    known = y != VOID
    counts = torch.bincount(y[known] * classes + guess[known], minlength=classes**2).view(classes, classes).double()
    hit = counts.diagonal()
    union = counts.sum(0) + counts.sum(1) - hit
    each = torch.where(counts.sum(1) > 0, hit / union, torch.nan)
    return float(each.nanmean()), each.tolist()


def panels(
    scenes: Scenes, which: list[int], maps: dict[str, Tensor], truth: Tensor, guess: Tensor
) -> dict[str, np.ndarray]:
    """Arrays for the five panels of some scenes: image, truth, prediction, aleatoric, epistemic."""
    own = {"image": scenes.rgb[which], "truth": truth[which].numpy(), "prediction": guess[which].numpy()}
    doubt = {name: maps[name][which].numpy().astype(np.float32) for name in ("aleatoric", "epistemic")}
    return {name: array[..., 0] if array.shape[-1] == 1 else array for name, array in (own | doubt).items()}
