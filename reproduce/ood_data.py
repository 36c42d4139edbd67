"""Images that are no digits, in the form of MNIST: bright strokes on black, 28 by 28, pixels in [0, 1]."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nescio.data import images, mnist

OUTSIDE = ("Fashion-MNIST", "notMNIST", "Omniglot")


@cache
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """MNIST as (n, 1, 28, 28) floats, and labels."""
    x, y, x_test, y_test = mnist()
    return x[:, None].float() / 255, y.long(), x_test[:, None].float() / 255, y_test.long()


@cache
def outside(name: str) -> Tensor:
    """(n, 1, 28, 28)."""
    if name == "Omniglot":
        bits = np.unpackbits(images("omniglot_small1")["packed"], axis=1)[:, :11025].reshape(-1, 1, 105, 105)
        ink = torch.from_numpy(bits).float()
        ink = 1 - ink if float(ink.mean()) > 0.5 else ink  # strokes are the fewer ones
        return F.interpolate(ink, size=(28, 28), mode="area").clamp(0, 1)
    key = {"Fashion-MNIST": "fashion_mnist_test_5k", "notMNIST": "notmnist_5k"}[name]
    return torch.from_numpy(images(key)["x"])[:, None].float() / 255
