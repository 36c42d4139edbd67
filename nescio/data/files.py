"""The cells of a CSV, TSV or Parquet file as text.

A Parquet file is read as the CSV that it could be written as, so the same rules hold; it has no header row, so its
first row is row 1. Only Parquet needs polars, and only this file imports it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from nescio.data.records import Records, check_names, listed, parse_csv, plain
from nescio.errors import FileError, InputError, NescioError, UnsupportedError


def read_records(path: str | PathLike[str]) -> Records:
    """The cells of a file as text, by its suffix."""
    file, suffix = fspath(path), Path(path).suffix.lower()
    if suffix not in (".csv", ".tsv", ".parquet"):
        raise InputError(f"{file}: the name must end in .csv, .tsv or .parquet", repr(suffix), "save it as one of them")
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        got = getattr(error, "strerror", None) or str(error)
        raise FileError(f"{file}: the file must be there and readable", got, "check the path") from error
    return _parquet(data, file) if suffix == ".parquet" else parse_csv(data, file, "\t" if suffix == ".tsv" else ",")


def parquet_parts(path: str | PathLike[str], rows: int) -> Iterator[Records]:
    """The records of a Parquet file, so many at a time."""
    file = fspath(path)
    pl = _polars(file)
    try:
        source = pl.scan_parquet(path)
        count = source.select(pl.len()).collect().item()
        for first in range(0, max(count, 1), rows):
            yield replace(_texts(pl, source.slice(first, rows).collect(), file), first=first + 1)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        if isinstance(error, NescioError):
            raise
        got = f"{type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else ''}"
        raise FileError(f"{file}: the file must be Parquet, and whole", got, "write it again") from error


def _polars(file: str) -> Any:
    try:
        import polars as pl
    except ImportError as error:
        remedy = "pip install 'nescio[tables]', or save the table as .csv"
        raise UnsupportedError(f"{file}: Parquet needs polars", "no polars", remedy) from error
    return pl


def _parquet(data: bytes, file: str) -> Records:
    pl = _polars(file)
    try:
        frame = pl.read_parquet(data)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        got = f"{type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else ''}"
        raise FileError(f"{file}: the file must be Parquet, and whole", got, "write it again") from error
    return _texts(pl, frame, file)


def _texts(pl: Any, frame: Any, file: str) -> Records:
    names = tuple(name.strip(" \t") for name in frame.columns)
    check_names(file, names)
    for name, dtype in zip(names, frame.dtypes, strict=True):
        if dtype.is_nested() or dtype in (pl.Binary, pl.Object):
            must = f"{file}: column {plain(name)} must hold numbers, text, dates or truth values"
            raise InputError(must, str(dtype), f"leave it out of {listed(names)}")
    texts = frame.select(pl.all().cast(pl.String).fill_null("").str.strip_chars(" \t"))
    return Records(file, names, tuple(tuple(column.to_list()) for column in texts), 1)
