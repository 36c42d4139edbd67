"""Plain JSON from files that are not trusted: size and depth are bounded before the text is parsed."""

from __future__ import annotations

import json
import math
import re

# A string (its brackets do not count; possessive, hence linear in time) or one bracket.
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]|[\]}]', re.DOTALL)


def parse(content: bytes, most_bytes: int, most_levels: int) -> object:
    """The value in a JSON text in UTF-8; a ValueError says what is wrong with it."""
    if len(content) > most_bytes:
        raise ValueError(f"more than {most_bytes >> 20} MiB of JSON")
    try:
        text = content.decode()
        shallow = _is_shallow(text, most_levels)
        value = json.loads(text, object_pairs_hook=_once) if shallow else None
    except (ValueError, RecursionError):
        raise ValueError("text that is not JSON") from None
    if not shallow:
        raise ValueError(f"more than {most_levels} levels of JSON")
    reason = fault(value, most_levels)  # Infinity, 1e999
    if reason:
        raise ValueError(reason)
    return value


def fault(value: object, levels: int) -> str | None:
    """What keeps a value from coming back from JSON as it went in (but a tuple comes back as a list), or None."""
    if value is None or isinstance(value, (str, int)):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else "a number that is not finite"
    if not isinstance(value, (dict, list, tuple)):
        return f"a value of type {type(value).__name__}"
    if levels == 0:
        return "too many levels"
    if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        return "a key that is not a str"
    items = value.values() if isinstance(value, dict) else value
    return next((reason for item in items if (reason := fault(item, levels - 1))), None)


def encodable(text: str) -> bool:
    """Can the text be written in UTF-8? Half of a surrogate pair cannot."""
    return not any("\ud800" <= mark <= "\udfff" for mark in text)


def _is_shallow(text: str, most: int) -> bool:
    level = 0
    for match in _TOKEN.finditer(text):
        mark = match.group()
        if mark in ("[", "{"):
            level += 1
            if level > most:
                return False
        elif mark in ("]", "}"):
            level -= 1
    return True


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key that occurs twice")
    return dict(pairs)
