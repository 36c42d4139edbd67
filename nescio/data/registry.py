"""Finds the larger data sets in a data folder and checks them before use.

The folder is $NESCIO_DATA, or `nescio` in the user's cache ($XDG_CACHE_HOME, else ~/.cache). Nothing is ever fetched.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nescio.data.entries import ENTRIES, Entry
from nescio.errors import FileError, InputError


def datasets() -> tuple[Entry, ...]:
    """Every data set that `find` and `arrays` know."""
    return ENTRIES


def folder() -> Path:
    """Where the files are looked for, now."""
    if chosen := os.environ.get("NESCIO_DATA"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nescio"


def find(name: str) -> Path:
    """The file of a data set, its size and checksum verified."""
    entry = next((entry for entry in ENTRIES if entry.name == name), None)
    if entry is None:
        names = ", ".join(entry.name for entry in ENTRIES)
        raise InputError("name must be a known data set", repr(name), f"choose of {names}")
    path = folder() / entry.file
    remedy = f"put {entry.file} there or set NESCIO_DATA; origin: {entry.origin}; to get it: {entry.obtain}"
    try:
        data = path.read_bytes()
    except OSError as error:
        must = f"{entry.file} must be in the data folder"
        raise FileError(must, f"{error.strerror} in {path.parent}", remedy) from error
    digest = hashlib.sha256(data).hexdigest()
    if len(data) != entry.size or digest != entry.sha256:
        must = f"{path} must have {entry.size} bytes and sha256 {entry.sha256}"
        raise FileError(must, f"{len(data)} bytes and {digest}", f"the file is damaged or another: {remedy}")
    return path


def arrays(name: str) -> dict[str, np.ndarray]:
    """Every array of a data set, by name; nothing in the file is ever executed."""
    return _members(name, "")


def load_uci(name: str, split: int, *, gap: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x_train, y_train, x_test, y_test in float64, raw, for a standard split (or a gap split: one a feature).

    Inputs are (n, d), targets (n, 1). The training rows are those that are not test rows, in the order of the table.
    """
    members = _members("uci_regression", f"{name}/")
    if not members:
        names = sorted({key.split("/")[0] for key in _keys("uci_regression")})
        raise InputError("name must be a table of uci_regression", repr(name), f"choose of {', '.join(names)}")
    data, splits = members[f"{name}/data"], members[f"{name}/{'gap_test_idx' if gap else 'test_idx'}"]
    if not 0 <= split < len(splits):
        raise InputError(f"split must be 0 to {len(splits) - 1} for {name}", str(split), "choose one of these")
    x = torch.from_numpy(data[:, members[f"{name}/index_features"].astype(np.int64)])
    y = torch.from_numpy(data[:, [int(members[f"{name}/index_target"])]])
    test = torch.from_numpy(splits[split].astype(np.int64))
    held = torch.zeros(len(data), dtype=torch.bool)
    held[test] = True
    return x[~held], y[~held], x[test], y[test]


def _keys(name: str) -> list[str]:
    with np.load(find(name), allow_pickle=False) as file:
        return list(file.files)


def _members(name: str, prefix: str) -> dict[str, np.ndarray]:
    path = find(name)
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files if key.startswith(prefix)}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, lzma.LZMAError, zlib.error) as error:
        raise FileError(f"{path} must be an .npz file of plain arrays", str(error), "get the file again") from error
