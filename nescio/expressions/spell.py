"""The shortest expression of a value: only what differs from the defaults, combinators as they are written by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import partial
from typing import Any

from torch import Tensor

from nescio.errors import UnsupportedError
from nescio.expressions.catalogue import catalogue
from nescio.infer.curvature import Leading
from nescio.infer.method import Method, On, Repeat, Then
from nescio.laws.law import Law, Learned


def spell(value: Any) -> str:
    """Reads back as an equal value: `method(spell(m))`, `prior(spell(p))`, `likelihood(spell(l))`."""
    match value:
        case bool() | int() | str() | None:
            return repr(value)
        case float():
            return number(value)
        case tuple():
            return f"({', '.join(map(spell, value))}{',' * (len(value) == 1)})"
        case Tensor():
            return spell(nested(value.tolist())) if value.dim() else number(float(value))
        case Mapping():
            return "{" + ", ".join(f"{key!r}: {spell(law)}" for key, law in value.items()) + "}"
        case Then(first=first, second=second):
            return f"{spell(first)} >> {inner(second, Then)}"
        case Repeat(method=method, n=n):
            return f"{n} * {inner(method, Then, Repeat)}"
        case On(method=method, pattern=pattern):
            return f"{inner(method, Then, Repeat)}.on({pattern!r})"
        case partial():
            options = ", ".join(f"{key}={spell(x)}" for key, x in value.keywords.items())
            return f"partial({known(value.func)}, {options})"
        case Leading(rank=rank):
            return f"low_rank({rank})"
        case Law() if value.gate is not None:
            return f"SpikeSlab({spell(value.gate.probability)}, {spell(value.scale)}){shared(value)}"  # type: ignore[attr-defined]
        case Law():
            return built(value) + (".sqrt()" if value.root else "") + shared(value)
        case Learned():
            return f"Learned({spell(value.value)}){f'.per({value.sharing!r})' if value.sharing else ''}"
    if (name := among(value)) is not None:
        return name
    if is_dataclass(value) and not isinstance(value, type) and among(type(value)) is not None:
        return built(value)
    raise UnsupportedError(
        "only what the catalogue names has an expression",
        f"{str(value)[:80]}",
        "see nescio methods, or use the library itself",
    )


def inner(method: Method, *loose: type) -> str:
    """In brackets where what is inside binds less tightly: `>>` less than `n *`, and both to the left."""
    return f"({spell(method)})" if isinstance(method, loose) else spell(method)


def number(value: float) -> str:
    if not math.isfinite(value):
        raise UnsupportedError("a number must be finite to be written", str(value), "use the library itself")
    return repr(value)


def nested(values: Any) -> Any:
    return tuple(map(nested, values)) if isinstance(values, list) else values


def shared(law: Law) -> str:
    usual = type(law).__dataclass_fields__["sharing"].default
    return f".per({law.sharing!r})" if law.sharing != usual else ""


def built(value: Any) -> str:
    """Name(arguments): in order while nothing is left out, then by name. A law shows all of its numbers."""
    parts, gap = [], isinstance(value, Method)
    for field in fields(value):
        if field.kw_only and isinstance(value, Law):
            continue
        own, usual = getattr(value, field.name), is_default(getattr(value, field.name), field)
        if usual and not (isinstance(value, Law) and "constraint" in field.metadata):
            gap = True
        else:
            parts.append(f"{field.name}={spell(own)}" if gap or field.kw_only else spell(own))
    return f"{known(type(value))}({', '.join(parts)})"


def is_default(value: Any, field: Field[Any]) -> bool:
    usual = field.default_factory() if field.default_factory is not MISSING else field.default
    if isinstance(value, partial) and isinstance(usual, partial):
        return (value.func, value.keywords) == (usual.func, usual.keywords)
    if isinstance(value, Tensor) or isinstance(usual, Tensor):
        return value is usual
    return type(value) is type(usual) and (value == usual or repr(value) == repr(usual))


def known(value: Any) -> str:
    name = among(value)
    if name is None:
        raise UnsupportedError("only what the catalogue names has an expression", str(value)[:80], "see nescio methods")
    return name


def among(value: Any) -> str | None:
    """The name of an entry of the catalogue, with its room where another room has the name too."""
    for room, entries in catalogue().items():
        for entry in entries.values():
            if entry.value is value:
                return f"distributions.{entry.name}" if room == "shapes" else entry.name
    return None
