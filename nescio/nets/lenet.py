"""LeNet-5 in the form that Caffe distributes, which is the one that the sparsity literature means by "LeNet-5"."""

from __future__ import annotations

from torch import nn

from nescio.errors import InputError
from nescio.nets.sizes import require_sizes


def lenet5(channels: int = 1, classes: int = 10, size: int = 28) -> nn.Sequential:
    """LeNet-5-Caffe for square images of `size` pixels: 431,080 parameters on MNIST.

    As in Caffe's lenet.prototxt there is no activation after the convolutions: the max-pools and the one ReLU after
    the 500 units are all that is not linear.
    """
    require_sizes(("channels", channels), ("classes", classes), ("size", size))
    side = ((size - 4) // 2 - 4) // 2  # each 5x5 convolution takes 4 pixels off, each pool halves
    if side < 1:
        raise InputError(
            "lenet5 needs images of at least 16 pixels a side", f"size={size}", "pad or enlarge the images"
        )
    return nn.Sequential(
        nn.Conv2d(channels, 20, 5),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(50 * side * side, 500),
        nn.ReLU(),
        nn.Linear(500, classes),
    )
