"""What a law or a likelihood is, in a form that is the same in another process: for a stored posterior to be checked against.

A repr shows four digits of a tensor, and of a function where it lies in memory. So text goes without addresses, and numbers by digest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from functools import cached_property, partial
from types import CodeType, FunctionType

import torch
from torch import Tensor

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def spelled(value: object) -> str:
    return ADDRESS.sub("", repr(value))


def coded(value: object) -> list[str]:
    """Of the functions among the fields, at any depth, what they do: a digest of code, defaults and what they close over."""
    if isinstance(value, FunctionType):
        closed = [cell.cell_contents for cell in value.__closure__ or ()]
        said = [*told(value.__code__), spelled(value.__defaults__), spelled(closed), *coded(closed)]
        return [hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]]
    if isinstance(value, partial):
        value = [value.func, value.args, value.keywords]
    elif is_dataclass(value) and not isinstance(value, type):
        value = list(vars(value).values())
    elif isinstance(value, dict):
        value = list(value.values())
    return [one for item in value for one in coded(item)] if isinstance(value, tuple | list) else []


def told(code: CodeType) -> Iterator[str]:
    """Its instructions, names and constants, those of functions within included."""
    yield code.co_code.hex() + repr((code.co_names, code.co_varnames, code.co_freevars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from told(constant)
        else:
            yield repr(constant)


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
