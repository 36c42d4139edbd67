"""A dense layer that starts as Keras and TensorFlow start theirs, again and again where members of an ensemble restart."""

from __future__ import annotations

from typing import final

from torch import nn


@final
class Dense(nn.Linear):
    """nn.Linear with Glorot-uniform weights (Glorot & Bengio, 2010) and biases at zero."""

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
