"""Does a value fit an annotation? Only as much of the typing language as the library's own constructors use."""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, Union, get_args, get_origin

import torch
from torch import Tensor


def fits(value: Any, hint: Any) -> bool:
    """Whole numbers are reals, true and false are not numbers, and what has no annotation takes anything."""
    origin = get_origin(hint)
    if hint is Any or hint is None or isinstance(hint, str):
        return value is None if hint is None else True
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if origin is tuple:
        return isinstance(value, tuple) and all(fits(v, h) for v, h in zip(value, members(hint, value), strict=False))
    if origin is type:
        return isinstance(value, type) and issubclass(value, get_args(hint)[0])
    if origin is not None and (origin is Callable or issubclass(origin, Callable)):  # type: ignore[arg-type]
        return makes(value, get_args(hint)[-1] if get_args(hint) else Any)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    kind = origin or hint
    return isinstance(value, kind) if isinstance(kind, type) else True


def makes(value: Any, result: Any) -> bool:
    """A function; a class only where its own instances are what is wanted, so `schedule=Cosine` lacks its brackets."""
    kind = value.func if isinstance(value, partial) else value
    if isinstance(kind, type):
        return result is Any or (isinstance(result, type) and issubclass(kind, result))
    return callable(kind)


def members(hint: Any, value: tuple[Any, ...]) -> tuple[Any, ...]:
    own = get_args(hint)
    return (own[0],) * len(value) if len(own) == 2 and own[1] is Ellipsis else own


def takes_tensor(hint: Any) -> bool:
    return hint is Tensor or any(takes_tensor(part) for part in get_args(hint) if get_origin(hint) is not Callable)


def as_tensor(value: Any) -> Any:
    """A tuple of numbers, or of such tuples, as a tensor; anything else as it is."""
    try:
        return torch.tensor(value, dtype=torch.float32) if isinstance(value, tuple) else value
    except (TypeError, ValueError):
        return value


def named(hint: Any) -> str:
    """An annotation as a message shows it."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(named(part) for part in get_args(hint) if part is not Tensor)
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    words = {float: "a number", int: "a whole number", bool: "True or False", type(None): "None", str: "text"}
    if hint in words:
        return words[hint]
    if get_origin(hint) is not None and callable(get_args(hint)[-1] if get_args(hint) else None):
        return f"something that makes {named(get_args(hint)[-1])}"
    return getattr(hint, "__name__", str(hint))
