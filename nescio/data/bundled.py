"""Four small regression tables that come with the package (CC BY 4.0; credits in bundled/SOURCES.md)."""

from __future__ import annotations

from importlib.resources import as_file, files

from nescio.data.tables import Table, read_table
from nescio.errors import InputError

TARGETS = {
    "concrete": "Concrete compressive strength",
    "energy": "Heating Load",
    "yacht": "Residuary resistance per unit weight of displacement",
    "wine": "quality",
}


def uci(name: str) -> Table:
    """The table `concrete`, `energy` (heating load), `yacht` or `wine` (red) of the UCI repository."""
    if name not in TARGETS:
        raise InputError("name must be a bundled table", repr(name), f"choose of {', '.join(TARGETS)}")
    with as_file(files("nescio.data") / "bundled" / f"{name}.csv") as path:
        return read_table(path, TARGETS[name])
