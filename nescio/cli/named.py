"""DATA may be a file, a folder of images, or the name of a bundled table; an expression may be `auto`, as if it had been left out."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from nescio.data.bundled import TARGETS
from nescio.errors import FileError
from nescio.runs import Wishes


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


def wished(net: str | None, prior: str | None, likelihood: str | None, method: str | None = None) -> Wishes:
    return Wishes(*(None if text == "auto" else text for text in (net, prior, likelihood, method)))
