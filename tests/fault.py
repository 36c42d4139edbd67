"""A planted fault: how to break the library, and the check that must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Fault:
    """`check` passes on the right code and raises AssertionError once `plant` has broken it."""

    name: str
    plant: Callable[[pytest.MonkeyPatch], None]
    check: Callable[[], None]
