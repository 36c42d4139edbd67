"""`nescio data list` and `nescio data add`: what is known by name, whether it is here, and putting a file where it is looked for."""

from __future__ import annotations

import shutil
from pathlib import Path

from nescio.cli.voice import Voice
from nescio.data import datasets, find
from nescio.data.bundled import TARGETS
from nescio.data.registry import folder
from nescio.errors import FileError, InputError


def listed(voice: Voice) -> None:
    rows = [(name, "bundled", "", "CC BY 4.0", f"nescio fit {name}") for name in TARGETS]
    for entry in datasets():
        try:
            find(entry.name)
            here = "yes"
        except FileError as error:
            here = "damaged" if "sha256" in error.must else "no"
        rows.append((entry.name, here, f"{entry.size / 1e6:.1f}", entry.licence, entry.obtain))
    voice.table(("name", "here", "MB", "licence", "how to get it"), rows)
    voice.end({"folder": str(folder()), "data": {name: here for name, here, *_ in rows}})


def add(voice: Voice, file: Path) -> None:
    """Copies a known file into the data folder, its checksum verified before it is there."""
    entry = next((entry for entry in datasets() if entry.file == file.name), None)
    if entry is None:
        known = ", ".join(entry.file for entry in datasets())
        raise InputError("the file must be one of the known data sets", file.name, f"they are {known}")
    place = folder() / entry.file
    waiting = place.with_name(f"{entry.file}.part")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, waiting)
        size = waiting.stat().st_size
        if size != entry.size:
            raise FileError(f"{file} must have {entry.size} bytes", str(size), f"get it again: {entry.obtain}")
        kept = place.read_bytes() if place.exists() else None
        waiting.replace(place)
        try:
            find(entry.name)
        except FileError:
            place.unlink() if kept is None else place.write_bytes(kept)
            raise
    except OSError as error:
        if isinstance(error, FileError):
            raise
        must = f"{file} must be copied into {place.parent}"
        raise FileError(must, error.strerror or str(error), "check both, or set NESCIO_DATA") from error
    finally:
        waiting.unlink(missing_ok=True)
    voice.say(f"{entry.name} is now in {place.parent}")
    voice.end({"name": entry.name, "file": str(place)})
