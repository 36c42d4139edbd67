"""Reads an expression: a small language of names, calls, numbers and the library's combinators, walked node by node.

Nothing is evaluated as code. A name must be in the catalogue, an argument must be one that the thing takes and of the kind it takes, and a
mistake is an InputError that shows the place.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from torch import nn

from nescio.errors import InputError
from nescio.expressions.catalogue import catalogue
from nescio.expressions.place import at
from nescio.expressions.reader import Reader
from nescio.infer.method import Method
from nescio.laws.law import Law
from nescio.likelihoods.likelihood import Likelihood

LONGEST = 2000  # characters


def method(text: str) -> Method:
    """`8 * (MAP() >> MCLMC())`, `VI(MeanField())`, `Laplace(kfac).on("2.*")`."""
    rooms = ("methods", "families", "structures", "schedules", "optimizers", "shapes")
    return expect(text, read(text, rooms, {}), Method, "a method", "methods")


def prior(text: str) -> Law | dict[str, Law]:
    """A law, or {pattern: law} in braces, first match wins."""
    value = read(text, ("laws",), {})
    if isinstance(value, dict):
        for pattern, law in value.items():
            if not isinstance(pattern, str):
                raise whole(text, "patterns must be text", repr(pattern), "write {'0.*': Normal(0, 1), '*': Laplace()}")
            expect(text, law, Law, f"the law of {pattern!r}", "laws")
        return value
    return expect(text, value, Law, "a law", "laws")


def likelihood(text: str) -> Likelihood:
    """`Gaussian(Learned(1.))`, `Heteroscedastic()`, `Categorical()`."""
    return expect(text, read(text, ("likelihoods", "laws"), {}), Likelihood, "a likelihood", "likelihoods")


def net(text: str, **sizes: int) -> nn.Module:
    """`mlp(inputs, 50, 50, outputs)`: the sizes of the data go by the names that are given here."""
    return expect(text, read(text, ("nets", "activations"), sizes), nn.Module, "a network", "nets")


def expect(text: str, value: Any, kind: type, what: str, room: str) -> Any:
    if isinstance(value, kind):
        return value
    got = str(value)[:60] if isinstance(value, Law) else f"{type(value).__name__} {str(value)[:60]}"
    if callable(value) and (entry := catalogue()[room].get(getattr(value, "__name__", ""))):
        raise whole(text, f"{what} must be called", entry.name, f"write {entry.name}(...)")
    raise whole(text, f"{what} must come out", got, f"there are {', '.join(catalogue()[room])}")


def whole(text: str, must: str, got: str, remedy: str) -> InputError:
    return at(text, 0, len(text), must, got, remedy)


def read(text: str, rooms: tuple[str, ...], names: Mapping[str, int]) -> Any:
    if not isinstance(text, str):
        raise InputError("an expression must be text", type(text).__name__, "write for instance '5 * MAP()'")
    if len(text) > LONGEST:
        must = f"an expression must have at most {LONGEST} characters"
        raise InputError(must, str(len(text)), "use the library itself for what is longer")
    text = " ".join(text.split())  # over several lines, as one is used to write them
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        begin = max(0, (error.offset or 1) - 1) if (error.lineno or 1) == 1 else 0
        end = max(begin + 1, (error.end_offset or 0) - 1) if error.end_lineno == 1 else len(text)
        raise at(text, begin, end, "it must be an expression", error.msg, "check brackets, commas and quotes") from None
    except (ValueError, MemoryError, RecursionError) as error:
        got = str(error).splitlines()[0] if str(error) else "too many brackets"
        raise whole(text, "it must be an expression", got, "write for instance 5 * MAP()") from None
    try:
        return Reader(text, rooms, names).visit(tree.body)
    except RecursionError:
        raise whole(text, "it must be an expression", "too many brackets", "write for instance 5 * MAP()") from None
