"""Image sets of the data folder as arrays and tensors of bytes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nescio.data.registry import arrays
from nescio.errors import InputError


def undelta(planes: np.ndarray) -> np.ndarray:
    """Colour images (n, h, w, 3) uint8 from delta planes (3, n, h, w) uint8, bit for bit.

    The planes hold green, red - green and blue - green, each as differences down and across, modulo 256.
    """
    if planes.ndim != 4 or planes.shape[0] != 3 or planes.dtype != np.uint8:
        raise InputError("planes must be (3, n, h, w) uint8", f"{planes.dtype} {planes.shape}", "pass a *_delta array")
    planes = np.cumsum(np.cumsum(planes, 2, dtype=np.uint8), 3, dtype=np.uint8)
    return np.stack([planes[1] + planes[0], planes[0], planes[2] + planes[0]], axis=-1)


def images(name: str) -> dict[str, np.ndarray]:
    """The arrays of an image set; `x_train_delta` and the like are decoded and called `x_train`."""
    decoded = {}
    for key, value in arrays(name).items():
        decoded[key.removesuffix("_delta")] = undelta(value) if key.endswith("_delta") else value
    return decoded


def mnist() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x_train (60000, 28, 28), y_train (60000,), x_test (10000, 28, 28), y_test (10000,), all uint8."""
    found = arrays("mnist")
    x_train, y_train, x_test, y_test = (
        torch.from_numpy(found[key]) for key in ("x_train", "y_train", "x_test", "y_test")
    )
    return x_train, y_train, x_test, y_test
