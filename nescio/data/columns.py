"""Cells become numbers or text, never by a guess.

A number is written in plain decimal (`-1.5`, `.5`, `2e-3`), is finite and fits float32. A column is numbers, or text
that does not look like numbers; anything in between (`1,5`, `0x10`, `1_000`, `50%`, `nan`, one word among numbers) is
an error that names the cell. An empty cell is a missing value in either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import final

import numpy as np

from nescio.data.records import Records, plain, shown
from nescio.errors import InputError

FLOAT32_MAX = float(np.finfo(np.float32).max)
_NUMBER_LIKE = re.compile(r"[+-]?(0[xob][0-9a-f_]+|[\d.,_'\s]+(e[+-]?\d+)?%?|nan|inf|infinity)", re.IGNORECASE)


class Kind(Enum):
    """What a column has to hold; ANY leaves it to the cells."""

    ANY = 0
    NUMBERS = 1
    TEXT = 2


@final
@dataclass(frozen=True, eq=False)
class Column:
    """A typed column: float64 with NaN where the cell is empty, or object (str) with an empty text there."""

    name: str
    values: np.ndarray  # (n,)

    @property
    def is_text(self) -> bool:
        return self.values.dtype == object

    @property
    def missing(self) -> np.ndarray:
        return self.values == "" if self.is_text else np.isnan(self.values)

    def take(self, index: np.ndarray) -> Column:
        return Column(self.name, self.values[index])


def typed(records: Records, name: str, kind: Kind = Kind.ANY) -> Column:
    cells = records.cells[records.names.index(name)]
    if kind is not Kind.TEXT and (numbers := _numbers(cells)) is not None:
        beyond = np.flatnonzero(np.abs(numbers) > FLOAT32_MAX)  # NaN, an empty cell, is not beyond
        if beyond.size:
            i = int(beyond[0])
            must = f"{records.at(i, name)}: a number must fit float32 (at most 3.4e38)"
            raise InputError(must, shown(cells[i]), "change the unit of the column, or empty the cell")
        return Column(name, numbers)
    _refuse(records, name, cells, kind)
    return Column(name, np.array(cells, dtype=object))


def _numbers(cells: tuple[str, ...]) -> np.ndarray | None:
    """All cells as float64 (NaN where empty), or None if one of them is not a plain decimal number."""
    joined = "".join(cells)
    # float() also takes "nan", "1_0" and digits of other scripts: only these characters may reach it.
    if not joined.isascii() or joined.encode().translate(None, b"0123456789+-.eE"):
        return None
    try:
        return np.array([float(cell) if cell else np.nan for cell in cells], dtype=np.float64)
    except ValueError:
        return None


def _refuse(records: Records, name: str, cells: tuple[str, ...], kind: Kind) -> None:
    """The error for a column that is not wholly text; nothing if it is."""
    numbers = {cell for cell in set(cells) if cell and _numbers((cell,)) is not None}
    for i, cell in enumerate(cells):
        if cell and cell not in numbers and _looks_like_number(cell):
            must = f"{records.at(i, name)}: a number must be plain decimal and finite, and text must not look like one"
            remedy = "write it like -1.5 or 2e-3, empty the cell if the value is missing, or reword a category"
            raise InputError(must, shown(cell), remedy)
    if not numbers and kind is not Kind.NUMBERS:
        return
    share = sum(cell in numbers for cell in cells) / max(1, sum(cell != "" for cell in cells))
    wants_numbers = kind is Kind.NUMBERS or (kind is Kind.ANY and share >= 0.5)
    i = next(i for i, cell in enumerate(cells) if cell and (cell in numbers) != wants_numbers)
    what = "numbers" if wants_numbers else "text"
    why = f"a column of {what}" if kind is Kind.ANY else f"the column is {what} in the training table"
    must = f"{records.at(i, name)}: a column must be all numbers or all text"
    raise InputError(must, f"{shown(cells[i])} in {why}", "correct the cell, or empty it if the value is missing")


def _looks_like_number(cell: str) -> bool:
    if not _NUMBER_LIKE.fullmatch(cell):
        return False
    return any(c.isdigit() for c in cell) or cell.strip("+-").lower() in ("nan", "inf", "infinity")


def check_float32(column: Column, file: str) -> None:
    """Numbers that differ must still differ in float32: 1e8 and 1e8 + 1 would not."""
    known = column.values[~column.missing]
    top = np.abs(known).max() or 1.0  # so that no square overflows or vanishes
    spread = (known / top).std()
    lost = np.sqrt(np.mean(((known.astype(np.float32).astype(np.float64) - known) / top) ** 2))
    if lost > 0.01 * spread:
        must = f"{file}: column {plain(column.name)} must keep its differences in float32"
        got = f"numbers near {known.mean():.6g} with standard deviation {spread * top:.3g}"
        raise InputError(must, got, "subtract an offset from the column, or change its unit")


def duplicates(columns: tuple[Column, ...]) -> int:
    """How many rows are equal, in every column, to an earlier one."""
    codes = [_codes(c.values) if c.is_text else (np.where(np.isnan(c.values), np.nan, c.values) + 0.0) for c in columns]
    # Bits, so that a missing value equals another; + 0.0 because -0 is 0.
    bits = [np.ascontiguousarray(code).view(np.int64) for code in codes]
    rows = np.ascontiguousarray(np.stack(bits, axis=1))  # (rows, columns)
    return len(rows) - len({row.tobytes() for row in rows})


def _codes(texts: np.ndarray) -> np.ndarray:
    seen: dict[str, int] = {}
    return np.array([seen.setdefault(text, len(seen)) for text in texts], dtype=np.int64)
