"""MNIST as the experiments on digits take it, and dense layers as Keras and TensorFlow start them."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nescio.data import mnist
from nescio.noise import Noise

CLASSES = 10


class Digits(NamedTuple):
    """Pixels (images, 784) in [0, 1], labels (images,)."""

    x: Tensor
    y: Tensor

    def to(self, device: str) -> Digits:
        return Digits(self.x.to(device), self.y.to(device))

    def first(self, n: int) -> Digits:
        return Digits(self.x[:n], self.y[:n])


def digits(x: Tensor, y: Tensor) -> Digits:
    return Digits(x.flatten(1).float() / 255, y.long())


@cache
def official() -> tuple[Digits, Digits]:
    """60,000 for training and 10,000 for testing, in the order of the files."""
    x_train, y_train, x_test, y_test = mnist()
    return digits(x_train, y_train), digits(x_test, y_test)


def by_class(train: Digits, start: int, count: int) -> Digits:
    """The images number start, ..., start + count - 1 of each class of a file, class by class."""
    rows = torch.cat([(train.y == c).nonzero()[start : start + count, 0] for c in range(CLASSES)])
    return Digits(train.x[rows], train.y[rows])


def blends(given: Digits, n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """n means of two digits of different classes, (n, 784), and the two classes, (n, 2)."""
    noise = Noise(seed).at("blends")
    first = noise.at("first").integers(0, len(given.y), 20 * n)
    second = noise.at("second").integers(0, len(given.y), 20 * n)
    differ = (given.y[first] != given.y[second]).nonzero()[:n, 0]
    pair = torch.stack([first[differ], second[differ]], 1)
    return given.x[pair].mean(1), given.y[pair]


def glorot(net: nn.Module, noise: Noise) -> nn.Module:
    """Uniform weights by the sizes of a dense layer (Glorot & Bengio, 2010), biases at zero; the same network, written to."""
    with noise.scope():
        for layer in net.modules():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)
    return net
