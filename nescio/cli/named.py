"""DATA may be a file, a folder of images, or the name of a bundled table."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from nescio.data.bundled import TARGETS
from nescio.errors import FileError


def data_and_target(data: str, target: list[str]) -> tuple[Path, list[str]]:
    path = Path(data)
    if path.exists():
        return path, target
    if data in TARGETS:
        return Path(str(files("nescio.data") / "bundled" / f"{data}.csv")), target or [TARGETS[data]]
    known = ", ".join(TARGETS)
    raise FileError(
        f"{data} must be a file, a folder of images or a bundled table", "no such file", f"bundled are {known}"
    )
