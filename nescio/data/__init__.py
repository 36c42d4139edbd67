"""Data: tables from files, bundled and known data sets, standardisation, toys."""

from __future__ import annotations

from nescio.data import toys
from nescio.data.bundled import uci
from nescio.data.encoding import Encoding
from nescio.data.entries import Entry
from nescio.data.images import images, mnist, undelta
from nescio.data.registry import arrays, datasets, find, load_uci
from nescio.data.scaling import Scaling, Standardize, standardize, steps
from nescio.data.sequences import padded
from nescio.data.tables import Table, read_table

__all__ = [
    "Encoding",
    "Entry",
    "Scaling",
    "Standardize",
    "Table",
    "arrays",
    "datasets",
    "find",
    "images",
    "load_uci",
    "mnist",
    "padded",
    "read_table",
    "standardize",
    "steps",
    "toys",
    "uci",
    "undelta",
]
