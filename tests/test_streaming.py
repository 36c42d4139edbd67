"""Records a few at a time are those of the whole file, or the same refusal."""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nescio.data.files import read_records
from nescio.data.records import parse_csv
from nescio.data.streaming import stream_records
from nescio.errors import FileError, InputError, NescioError

PIECES = st.sampled_from(
    ["a", "1.5", "", ",", ",", "\n", "\n", "\r\n", '"', '"x,y"', '"two\nlines"', " ", "é", "\t", "\0", "\ufeff"]
)


def streamed(path: Path, rows: int) -> tuple[tuple[str, ...], list[tuple[str, ...]], list[int]]:
    parts = list(stream_records(path, rows))
    cells = [row for part in parts for row in zip(*part.cells, strict=True)]
    return parts[0].names, cells, [part.first for part in parts]


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, max_size=25).map("".join), st.integers(1, 4))
def test_a_stream_is_the_file_or_a_refusal(text: str, rows: int) -> None:
    """What the strict reader takes, the stream takes too, cell by cell; what it refuses is refused, but for stray quotes, which
    only the second count over the whole text sees. No other error."""
    data = ("h1,h2\n" + text).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_bytes(data)
        try:
            whole = parse_csv(data, "t.csv", ",")
        except NescioError:
            whole = None
        try:
            names, cells, _ = streamed(path, rows)
        except NescioError as error:
            assert whole is None and "\n" not in str(error)
            return
        if whole is None:
            assert '"' in text
        else:
            assert names == whole.names and cells == list(zip(*whole.cells, strict=True))


def test_rows_are_numbered_as_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "".join(f"{i},{i}\n" for i in range(10)))
    _, cells, firsts = streamed(path, 4)
    assert firsts == [2, 6, 10] and len(cells) == 10
    path.write_text("a,b\n" + "1,2\n" * 9 + "1\n")
    with pytest.raises(FileError, match=r"t\.csv:11: every row"):
        streamed(path, 4)


def test_parquet_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"a": [1.5, None, 3.0, 4.0, 5.0], "b": ["x", "y", None, "z", "x"]}).write_parquet(path)
    names, cells, firsts = streamed(path, 2)
    whole = read_records(path)
    assert names == whole.names and cells == list(zip(*whole.cells, strict=True)) and firsts == [1, 3, 5]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FileError, match="Parquet"):
        streamed(path, 2)


def test_other_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must end in"):
        list(stream_records(tmp_path / "t.xlsx"))
    with pytest.raises(FileError, match="must be there"):
        list(stream_records(tmp_path / "t.csv"))
