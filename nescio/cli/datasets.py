"""`nescio datasets`: what is known by name, and whether it is here."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from nescio.data import datasets, find
from nescio.errors import FileError


def run() -> None:
    table = Table("name", "here", "MB", "licence", "how to get it", box=None)
    for entry in datasets():
        try:
            find(entry.name)
            here = "yes"
        except FileError as error:
            here = "damaged" if "sha256" in error.must else "no"
        table.add_row(entry.name, here, f"{entry.size / 1e6:.1f}", entry.licence, entry.obtain)
    Console().print(table)
