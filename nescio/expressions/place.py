"""An error that points at its place in an expression, in one line."""

from __future__ import annotations

import ast
from difflib import get_close_matches

from nescio.errors import InputError


def fault(text: str, node: ast.AST, must: str, got: str, remedy: str) -> InputError:
    """`text` with the guilty part between » and «, and its column, counted from 1 in characters."""
    line = text.encode()
    begin = len(line[: getattr(node, "col_offset", 0)].decode(errors="replace"))
    end = len(line[: getattr(node, "end_col_offset", None) or len(line)].decode(errors="replace"))
    return at(text, begin, end, must, got, remedy)


def at(text: str, begin: int, end: int, must: str, got: str, remedy: str) -> InputError:
    shown = f"{text[max(0, begin - 60) : begin]}»{text[begin : min(end, begin + 60)]}«{text[end : end + 60]}"
    return InputError(f"column {begin + 1} of {shown!r}: {must}", got, remedy)


def unknown(text: str, node: ast.AST, what: str, name: str, known: list[str], listed: int) -> InputError:
    """A name that is not there; those of `known` that nearly are, and the first `listed` of all."""
    near = get_close_matches(name, known, n=3, cutoff=0.6) or [k for k in known if k.lower() == name.lower()]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return fault(text, node, f"{what} must be known", repr(name)[1:-1], f"{hint}there are {', '.join(known[:listed])}")
