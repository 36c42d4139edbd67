"""A CSV file as records of text, exactly: every record has every cell, or one error says where it has not.

The parser is Python's `csv` in strict mode, because faster readers fill up ragged rows and guess at damaged ones. The
number of records is counted a second time, by lines outside quotes, and both counts have to agree. A row number is
that of the record, 1 for the header: the row that a spreadsheet shows. Spaces and tabs around a cell are not part of it.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from typing import final

from nescio.errors import FileError


@final
@dataclass(frozen=True, eq=False)
class Records:
    """Cells by column, as text; an empty text is a missing value."""

    file: str
    names: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]  # one tuple a column
    first: int  # row number of the first record
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return len(self.cells[0]) if self.cells else 0

    def at(self, record: int, name: str) -> str:
        """file:row:column, for messages."""
        return f"{self.file}:{self.first + record}:{plain(name)}"


def plain(name: str) -> str:
    """A column name that cannot break the line of a message."""
    name = name if len(name) <= 60 else name[:57] + "..."
    return name if name.isprintable() else repr(name)


def shown(cell: str) -> str:
    """A cell as a message quotes it: one line, not long."""
    return repr(cell if len(cell) <= 40 else cell[:37] + "...")


def listed(names: tuple[str, ...]) -> str:
    return ", ".join(plain(name) for name in names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def check_names(file: str, names: tuple[str, ...]) -> None:
    for position, name in enumerate(names, start=1):
        if not name:
            raise FileError(f"{file}:1: every column must have a name", f"none for column {position}", "name it")
    doubled = tuple(sorted({name for name in names if names.count(name) > 1})) if len(set(names)) < len(names) else ()
    if doubled:
        raise FileError(f"{file}:1: column names must differ", f"more than one {listed(doubled)}", "rename or remove")


def parse_csv(data: bytes, file: str, delimiter: str) -> Records:
    """The records of a CSV (delimiter ",") or TSV file in UTF-8 with a header row."""
    text = _decode(data, file)
    rows: list[list[str]] = []
    try:
        for row in csv.reader(_lines(text), delimiter=delimiter, strict=True):
            rows.append(row)
    except csv.Error as error:
        must = f"{file}:{len(rows) + 1}: quotes must enclose whole cells and be closed"
        raise FileError(must, str(error), "double a quote inside a cell, and close each one") from error
    _check_count(text, file, delimiter, len(rows))
    blank = 0
    while rows and not rows[-1]:
        rows.pop()
        blank += 1
    if not rows:
        raise FileError(
            f"{file}: the file must hold a header row and records", "an empty file", "write the table again"
        )
    names = tuple(name.strip(" \t") for name in rows[0])
    check_names(file, names)
    if all(_is_number(name) for name in names):
        raise FileError(f"{file}:1: the first row must name the columns", "only numbers", "add a header row")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(names):
            got = f"{len(row)}, the first of {sum(len(r) != len(names) for r in rows[1:])} such rows"
            remedy = "fill the row up, remove it, or quote cells that contain the separator"
            if len(names) == 1 and ";" in names[0]:
                remedy = "separate the cells by commas, not semicolons, and write decimals with a point"
            raise FileError(f"{file}:{number}: every row must have {len(names)} cells, as the header", got, remedy)
    cells = tuple(_stripped(column) for column in zip(*rows[1:], strict=True)) or ((),) * len(names)
    notes = (f"{blank} blank lines at the end of the file are not records",) if blank else ()
    return Records(file, names, cells, 2, notes)


def _decode(data: bytes, file: str) -> str:
    if (nul := data.find(b"\0")) >= 0:
        got = f"one at byte offset {nul}"
        raise FileError(f"{file}:{data.count(10, 0, nul) + 1}: text must hold no NUL bytes", got, "save it as UTF-8")
    try:
        return data.decode("utf-8-sig")  # a byte-order mark is allowed
    except UnicodeDecodeError as error:
        # The codec counts from behind a byte-order mark; the reader of the message counts from the start of the file.
        start = error.start + (3 if data.startswith(b"\xef\xbb\xbf") and len(error.object) < len(data) else 0)
        got = f"byte 0x{data[start]:02x} at byte offset {start}"
        must = f"{file}:{data.count(10, 0, start) + 1}: text must be UTF-8"
        raise FileError(must, got, "save the file as UTF-8") from error


def _lines(text: str) -> list[str]:
    return list(io.StringIO(text, newline=""))  # splits at \n, \r\n and \r only, and keeps them


def _check_count(text: str, file: str, delimiter: str, parsed: int) -> None:
    """Counts the records a second time: without the quoted cells no quote is left, and each line is a record."""
    edge = re.escape(delimiter) + r"\r\n"
    bare = re.sub(rf'(?:(?<=[{edge}])|\A)"[^"]*+(?:""[^"]*+)*+"(?=[{edge}]|\Z)', "x", text)
    must = "quotes must enclose whole cells, with no space outside, and be doubled inside"
    if (stray := bare.find('"')) >= 0:
        row = len(_lines(bare[:stray] + "x"))
        raise FileError(f"{file}:{row}: {must}", "a quote in a cell without", "quote the cell, or remove the quote")
    if (counted := len(_lines(bare))) != parsed:
        raise FileError(f"{file}: {must}", f"{parsed} records by cells and {counted} by lines", "quote cells anew")


def _stripped(column: tuple[str, ...]) -> tuple[str, ...]:
    joined = "".join(column)
    return tuple(cell.strip(" \t") for cell in column) if " " in joined or "\t" in joined else column


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
