"""The JSON text inside a file: the caller's header, the number of the format and the versions that wrote it."""

from __future__ import annotations

import json

import numpy
import safetensors
import torch

from nescio.errors import FileError, InputError
from nescio.store.plain import fault, parse
from nescio.version import __version__

FORMAT = 1
_MOST_BYTES = 1 << 20
_MOST_LEVELS = 32
_OWN = ("format", "versions")


def encode(header: dict[str, object]) -> str:
    """The JSON text for a header, in ASCII; equal headers in equal order give equal text."""
    if not isinstance(header, dict):
        raise InputError("header must be a dict", type(header).__name__, "pass a dict with str keys")
    reason = fault(header, _MOST_LEVELS)
    if reason:
        allowed = f"use only dict, list, str, int, float, bool and None, at most {_MOST_LEVELS} deep"
        raise InputError("header must be plain JSON", reason, allowed)
    if any(key in header for key in _OWN):
        raise InputError("header must leave the keys format and versions free", "one of them", "choose another key")
    versions = {
        "nescio": __version__,
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "safetensors": safetensors.__version__,
    }
    try:
        text = json.dumps({"format": FORMAT, "versions": versions, **header}, allow_nan=False, separators=(",", ":"))
    except ValueError as error:  # an int of thousands of digits
        raise InputError("header must be plain JSON", str(error), "store large numbers in a tensor") from error
    if len(text) > _MOST_BYTES:
        raise InputError("header must be at most 1 MiB of JSON", f"{len(text):,} bytes", "store bulk data in tensors")
    return text


def decode(text: str, path: str) -> dict[str, object]:
    """The header in the text from the file at `path`; a ValueError says what is wrong with the text."""
    content = parse(text.encode(errors="replace"), _MOST_BYTES, _MOST_LEVELS)
    number = content.get("format") if isinstance(content, dict) else None
    if not isinstance(content, dict) or type(number) is not int or number < 1:
        raise ValueError("a header without the number of its format")
    if number > FORMAT:
        versions = content.get("versions")
        maker = versions.get("nescio") if isinstance(versions, dict) else None
        raise FileError(
            f"the format must be at most {FORMAT}",
            f"format {str(number)[:20]}, made by nescio {ascii(maker)[:40]}, in {path!r}",
            "read it with a newer nescio, at least the version that made it",
        )
    return {key: value for key, value in content.items() if key not in _OWN}
