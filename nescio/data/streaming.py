"""The records of a table, a few thousand at a time: for files that are larger than memory.

The rules are those of records.py; a row that is not right ends the reading with its number. Quotes are held to Python's strict
parser alone: the second count of `parse_csv` needs the whole text.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import islice
from os import PathLike, fspath
from pathlib import Path

from nescio.data.files import parquet_parts
from nescio.data.records import Records, check_names
from nescio.errors import FileError, InputError

ROWS = 4096


def stream_records(path: str | PathLike[str], rows: int = ROWS) -> Iterator[Records]:
    """Parts of at most `rows` records, in order; there is at least one, which may be empty."""
    file, suffix = fspath(path), Path(path).suffix.lower()
    if suffix == ".parquet":
        yield from parquet_parts(path, rows)
        return
    if suffix not in (".csv", ".tsv"):
        raise InputError(f"{file}: the name must end in .csv, .tsv or .parquet", repr(suffix), "save it as one of them")
    try:
        with open(path, "rb") as raw:
            text = io.TextIOWrapper(Lines(raw), encoding="utf-8-sig", newline="")
            yield from parts(csv.reader(text, delimiter="\t" if suffix == ".tsv" else ",", strict=True), file, rows)
    except UnicodeDecodeError as error:
        raise FileError(f"{file}: text must be UTF-8", error.reason, "save the file as UTF-8") from error
    except csv.Error as error:
        must = f"{file}: quotes must enclose whole cells and be closed"
        raise FileError(must, str(error), "double a quote inside a cell, and close each one") from error
    except OSError as error:
        if isinstance(error, FileError):
            raise
        got = error.strerror or str(error)
        raise FileError(f"{file}: the file must be there and readable", got, "check the path") from error


class Lines(io.BufferedReader):
    """Bytes of a text file; a NUL byte is no text."""

    def read1(self, size: int = -1) -> bytes:
        block = super().read1(size)
        if b"\0" in block:
            raise FileError(f"{self.name}: text must hold no NUL bytes", "one", "save it as UTF-8")
        return block


def parts(reader: Iterator[list[str]], file: str, rows: int) -> Iterator[Records]:
    head = next(reader, None)
    if not head:
        raise FileError(
            f"{file}: the file must hold a header row and records", "an empty file", "write the table again"
        )
    names = tuple(name.strip(" \t") for name in head)
    check_names(file, names)
    number, blank = 2, 0  # of the next record
    while True:
        taken: list[list[str]] = []
        seen = 0
        for row in islice(reader, rows):
            seen += 1
            if not row:  # allowed at the end of the file, so remember
                blank += 1
                continue
            if blank or len(row) != len(names):
                must = f"{file}:{number + len(taken)}: every row must have {len(names)} cells, as the header"
                raise FileError(must, "a blank line" if blank else str(len(row)), "fill the row up, or remove it")
            taken.append([cell.strip(" \t") for cell in row])
        if taken or number == 2:
            cells = tuple(zip(*taken, strict=True)) if taken else ((),) * len(names)
            yield Records(file, names, cells, number)
        number += len(taken)
        if seen < rows:  # the end of the file, blank lines counted
            return
