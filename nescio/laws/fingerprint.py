"""What a law or a likelihood is, in a form that is the same in another process: for a stored posterior to be checked against.

A repr shows four digits of a tensor, and of a function where it lies in memory. So text goes without addresses, and numbers by digest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from functools import cached_property

import torch
from torch import Tensor

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def spelled(value: object) -> str:
    return ADDRESS.sub("", repr(value))


def tensors_in(value: object) -> Iterator[Tensor]:
    """The tensors among the fields of laws and likelihoods, at any depth."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from tensors_in(item)
    elif is_dataclass(value):
        kind = type(value)  # what it was asked before is no part of it
        own = {n: x for n, x in vars(value).items() if not isinstance(getattr(kind, n, None), cached_property)}
        yield from tensors_in(own)


def digest(tensors: Iterable[Tensor]) -> str:
    """Of shapes and values; in single precision, for what a callable computes may differ in its last digit elsewhere."""
    total = hashlib.sha256()
    for tensor in tensors:
        plain = tensor.detach().to("cpu", torch.float32).contiguous()
        total.update(repr(tuple(plain.shape)).encode() + plain.numpy().tobytes())
    return total.hexdigest()[:16]
