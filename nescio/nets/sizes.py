"""The one check that every network makes on its sizes, so that a wrong one fails at the call and not inside torch."""

from __future__ import annotations

from nescio.errors import InputError


def require_sizes(*named: tuple[str, object]) -> None:
    """Every (name, value) is a positive int; a bool, which Python counts as an int, is not."""
    for name, value in named:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name} must be a positive int", repr(value), "pass a whole number of at least 1")
