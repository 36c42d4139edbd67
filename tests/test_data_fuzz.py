"""Fuzzing of CSV files: read exactly as the clean twin, or refused by one of our errors; never a lost row."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nescio.data import Table, read_table
from nescio.errors import FileError, InputError

FUZZ = settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
NUMBERS = st.floats(-1e6, 1e6, allow_nan=False).map(lambda v: repr(round(v, 6)))
WORDS = st.sampled_from(["red", "green", "a,b", 'say "hi"', "two\nlines", "Zürich", "e", "-"])
ROWS = st.lists(st.tuples(NUMBERS, WORDS, NUMBERS), min_size=2, max_size=8)


def clean(rows: list[tuple[str, ...]], quoting: int = csv.QUOTE_MINIMAL, end: str = "\n") -> str:
    out = io.StringIO()
    if end == "\r":  # before Python 3.13 the writer leaves a cell with "\n" unquoted here
        quoting = csv.QUOTE_ALL
    csv.writer(out, quoting=quoting, lineterminator=end).writerows([("a", "g", "y"), *rows])
    return out.getvalue()


def attempt(folder: Path, data: bytes) -> Table | None:
    """The table, or None for a refusal in one line; any other exception fails the test."""
    path = folder / "fuzz.csv"
    path.write_bytes(data)
    try:
        return read_table(path, "y")
    except (FileError, InputError) as error:
        message = str(error)
    assert "\n" not in message
    assert "fuzz.csv" in message
    return None


def same(one: Table, two: Table) -> bool:
    return torch.equal(one.x, two.x) and torch.equal(one.y, two.y) and one.columns == two.columns


def reference(text: str) -> list[list[str]]:
    """A second CSV parser, character by character, for text without quotes in the middle of a cell."""
    rows, row, cell, inside, i = [], [], "", False, 0
    while i < len(text):
        c = text[i]
        if inside and text[i : i + 2] == '""':
            cell, i = cell + '"', i + 1
        elif c == '"':
            inside = not inside
        elif inside or c not in ",\r\n":
            cell += c
        else:
            row, cell = [*row, cell], ""
            if c != ",":
                rows, row = [*rows, row], []
                i += text[i : i + 2] == "\r\n"
        i += 1
    return [*rows, [*row, cell]] if row or cell else rows


@FUZZ
@given(
    rows=ROWS,
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    mark=st.booleans(),
    blanks=st.integers(0, 2),
    last=st.booleans(),
)
def test_harmless_forms_read_as_the_twin(
    rows: list[tuple[str, ...]], quoting: int, end: str, mark: bool, blanks: int, last: bool, tmp_path_factory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    twin = attempt(folder, clean(rows).encode())
    text = clean(rows, quoting, end) + end * blanks
    if last and not blanks:
        text = text.removesuffix(end)
    other = attempt(folder, (b"\xef\xbb\xbf" if mark else b"") + text.encode())
    assert (twin is None) == (other is None)
    if twin is not None and other is not None:
        assert same(twin, other)
        assert len(twin) == len(rows)
        expected = torch.tensor([[float(row[2])] for row in rows], dtype=torch.float64).float()
        assert torch.equal(twin.y, expected)


@FUZZ
@given(
    rows=ROWS.filter(lambda rows: len({row[2] for row in rows}) > 1 and len({row[0] for row in rows}) > 1),
    where=st.integers(0, 10**6),
    column=st.sampled_from([0, 2]),
    bad=st.sampled_from(
        ["nan", "NaN", "inf", "-Infinity", "1e999", "1,5", "0x10", "1_000", "5%", "x", "١", "1 2", "\u00a01"]
    ),
)
def test_a_bad_cell_is_refused_where_it_is(rows, where: int, column: int, bad: str, tmp_path_factory) -> None:
    row = where % len(rows)
    broken = [tuple(bad if (i, j) == (row, column) else cell for j, cell in enumerate(r)) for i, r in enumerate(rows)]
    path = tmp_path_factory.getbasetemp() / "fuzz.csv"
    path.write_text(clean(broken), newline="")
    # Of two rows with one word, either cell may be the odd one; then the location is not tested.
    place = f"fuzz.csv:{row + 2}:{'agy'[column]}" if len(rows) > 2 else "fuzz.csv:"
    with pytest.raises(InputError) as caught:
        read_table(path, "y")
    assert place in str(caught.value)


@FUZZ
@given(
    rows=ROWS,
    edits=st.lists(
        st.tuples(
            st.integers(0, 10**6),
            st.integers(0, 3),
            st.binary(max_size=3) | st.sampled_from([b'"', b",", b"\n", b"\r"]),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_random_damage(rows, edits: list[tuple[int, int, bytes]], tmp_path_factory) -> None:
    data = clean(rows).encode()
    for at, cut, put in edits:
        at %= len(data) + 1
        data = data[:at] + put + data[at + cut :]
    table = attempt(tmp_path_factory.getbasetemp(), data)
    if table is None:
        return
    records = reference(data.decode("utf-8-sig"))
    while records and records[-1] == [""]:
        records.pop()
    assert len(table) == len(records) - 1  # no row lost, none made up
    names = [name.strip(" \t") for name in records[0]]
    cells = [record[names.index("y")].strip(" \t") for record in records[1:]]
    if not table.classes:
        expected = torch.tensor([[float(cell)] for cell in cells], dtype=torch.float64).float()
        assert torch.equal(table.y, expected)
    assert math.isfinite(float(table.x.sum()))


@FUZZ
@given(data=st.binary(max_size=200))
def test_noise_is_refused(data: bytes, tmp_path_factory) -> None:
    table = attempt(tmp_path_factory.getbasetemp(), data)
    assert table is None or len(table) >= 2
