"""Reading tables: what is promised for good files, and where each bad one is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from nescio.data import Encoding, Table, read_table
from nescio.errors import FileError, InputError, NescioError, UnsupportedError

GOOD = "a,b,y\n1,2,3\n2,5,4\n3,7,8\n"


def write(folder: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(folder: Path, text: str | bytes, target: str | list[str] = "y", **options: bool) -> Table:
    return read_table(write(folder, text), target, **options)


def test_plain_table(tmp_path: Path) -> None:
    table = read(tmp_path, GOOD)
    assert torch.equal(table.x, torch.tensor([[1.0, 2.0], [2.0, 5.0], [3.0, 7.0]]))
    assert torch.equal(table.y, torch.tensor([[3.0], [4.0], [8.0]]))
    assert (table.columns, table.target, table.classes, table.notes) == (("a", "b"), ("y",), (), ())
    both = read(tmp_path, GOOD, ["y", "a"])
    assert torch.equal(both.y, torch.tensor([[3.0, 1.0], [4.0, 2.0], [8.0, 3.0]]))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["t.csv", "empty file"]),
        ("\n\n", ["empty file"]),
        ("a,b,y\n", ["at least 2 rows", "0 below the header"]),
        ("a,b,y\n1,2,3\n", ["at least 2 rows", "1 below the header"]),
        ("a,b,y\n1,2,3\n4,5\n6,7,8\n", ["t.csv:3:", "3 cells", "got 2"]),
        ("a,b,y\n1,2,3\n4,5,6,7\n6,7,8\n", ["t.csv:3:", "got 4"]),
        ("a,b,y\n1,2,3\n\n6,7,8\n", ["t.csv:3:", "got 0"]),
        ("a,b,y\n1,2,3\n4,nan,6\n5,5,5\n", ["t.csv:3:b", "'nan'"]),
        ("a,b,y\n1,2,3\n4,-Inf,6\n5,5,5\n", ["t.csv:3:b", "'-Inf'"]),
        ("a,b,y\n1,2,3\n4,5,1e999\n5,5,5\n", ["t.csv:3:y", "1e999", "float32"]),
        ("a,b,y\n1,2,3\n4,5,1e39\n5,5,5\n", ["t.csv:3:y", "1e39"]),
        ('a,b,y\n1,2,3\n4,"1,5",6\n5,5,5\n', ["t.csv:3:b", "'1,5'"]),
        ('a,b,y\n1,"2,5",3\n4,"1,5",6\n', ["t.csv:2:b", "'2,5'"]),
        ("a,b,y\n1,0x10,3\n4,0x11,6\n", ["t.csv:2:b", "0x10"]),
        ("a,b,y\n1,1_0,3\n4,2_0,6\n", ["t.csv:2:b", "1_0"]),
        ("a,b,y\n1,50%,3\n4,60%,6\n", ["t.csv:2:b", "50%"]),
        ("a,b,y\n1,١,3\n4,٢,6\n", ["t.csv:2:b"]),
        ("a,b,y\n1,2,3\n4,abc,6\n5,5,5\n", ["t.csv:3:b", "'abc' in a column of numbers"]),
        ("a,b,y\n1,u,3\n4,v,6\n5,5,5\n", ["t.csv:4:b", "'5' in a column of text"]),
        ("a,a,y\n1,2,3\n2,5,4\n", ["t.csv:1:", "more than one a"]),
        ("a, a ,y\n1,2,3\n2,5,4\n", ["more than one a"]),
        (",b,y\n1,2,3\n2,5,4\n", ["t.csv:1:", "column 1"]),
        ("1,2,3\n2,5,4\n3,7,8\n", ["t.csv:1:", "header"]),
        ("a,b,z\n1,2,3\n2,5,4\n", ["t.csv:1:", "no y", "a, b, z"]),
        ("a;b;y\n1;2;3\n2;5;4\n", ["separate the cells by commas"]),
        ("a,b,y\n1,2,3\n2,5,3\n", ["target y must vary"]),
        ("a,b,y\n1,2,3\n1,2,4\n", ["input column must vary"]),
        ("y\n3\n4\n", ["input column must vary"]),
        ("a,b,y\n1,2,3\n2,5,\n3,5,\n", ["t.csv:3:y", "2 without (rows 3, 4)", "drop_missing_targets"]),
        (b"a,b,y\n1,2,3\n2,\xff,4\n", ["t.csv:3:", "0xff at byte offset 14"]),
        (b"\xef\xbb\xbfa,b,y\n1,2,3\n2,\xff,4\n", ["t.csv:3:", "0xff at byte offset 17"]),
        ("a,b,y\n1,2,3\n".encode("utf-16"), ["t.csv:1:", "NUL"]),
        (b"a,b,y\n1,2,3\n2,\0,4\n", ["t.csv:3:", "NUL", "offset 14"]),
        ('a,b,y\n1,2,3\n2,"5,4\n3,7,8\n', ["t.csv:3:", "quotes"]),
        ('a,b,y\n1,2,3\n2,"5"x,4\n3,7,8\n', ["t.csv:3:", "quotes"]),
        ('a,b,y\n1,u",3\n2,v,4\n3,w,8\n', ["t.csv:2:", "quotes"]),
        ('a,b,y\n1,"u\nu",3\n2,v,4\n3,5" pipe,8\n', ["t.csv:4:", "quotes"]),
        ('a,b,y\n1,u,3\n2,3" x 5",4\n3,w,8\n', ["t.csv:3:", "quotes"]),
        ('a,b,y\n1,u,3\n2, "v",4\n3,w,8\n', ["t.csv:3:", "quotes"]),
        ("a,b,y\n100000000,2,3\n100000001,5,4\n", ["column a", "float32", "offset"]),
        ("a,b,y\n1e-200,2,3\n2e-200,5,4\n", ["column a", "float32"]),
        ("a,b,y\n1,2,100000000\n2,5,100000001\n", ["column y", "float32"]),
    ],
)
def test_refusals(tmp_path: Path, text: str | bytes, parts: list[str]) -> None:
    with pytest.raises((FileError, InputError)) as caught:
        read(tmp_path, text)
    message = str(caught.value)
    assert all(part in message for part in parts), message
    assert "\n" not in message
    assert message.count("; ") >= 2


def test_refused_arguments(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file"):
        read_table(tmp_path / "none.csv", "y")
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(FileError, match="directory"):
        read_table(tmp_path / "d.csv", "y")
    with pytest.raises(InputError, match="must end in"):
        read_table(write(tmp_path, GOOD, "t.xlsx"), "y")
    for target in ([], ["y", "y"]):
        with pytest.raises(InputError, match="each once"):
            read(tmp_path, GOOD, target)


def test_quoted_newlines_line_ends_and_blanks(tmp_path: Path) -> None:
    table = read(tmp_path, 'a,b,y\r\n1,"x\ny",3\r\n2,"say ""hi""",4\r\n\r\n')
    assert table.columns == ("a", 'b=say "hi"', "b=x\ny")
    assert torch.equal(table.x, torch.tensor([[1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]))
    assert table.notes[0] == "1 blank lines at the end of the file are not records"
    with pytest.raises(InputError) as caught:  # the row number is the record's, as a spreadsheet counts
        read(tmp_path, 'a,b,y\n1,"x\ny",3\n2,z,inf\n')
    assert "t.csv:3:y" in str(caught.value)


def test_missing_inputs_are_filled_marked_and_counted(tmp_path: Path) -> None:
    table = read(tmp_path, "a,b,g,k,y\n1,5,u,7,3\n,5,,7,4\n3,,v,7,8\n8,5,v,7,9\n8,5,v,7,9\n")
    assert table.columns == ("a", "a is missing", "b is missing", "g=u", "g=v", "g is missing")
    assert table.x[1].tolist() == [5.0, 1.0, 0.0, 0.0, 0.0, 1.0]  # (1 + 3 + 8 + 8) / 4
    assert table.x[2].tolist() == [3.0, 0.0, 1.0, 0.0, 1.0, 0.0]
    said = " | ".join(table.notes)
    assert "column a: 1 empty cells" in said
    assert "column b: 1 empty cells" in said
    assert "column g: 1 empty cells" in said
    assert "column k: left out, constant" in said
    assert "1 rows repeat" in said


def test_empty_column_is_left_out(tmp_path: Path) -> None:
    table = read(tmp_path, "a,b,y\n1,,3\n2,,4\n")
    assert table.columns == ("a",)
    assert table.notes == ("column b: left out, empty in the training rows",)


def test_dropped_targets_are_counted(tmp_path: Path) -> None:
    table = read(tmp_path, "a,y\n1,3\n2,\n3,8\n100,\n4,1\n", drop_missing_targets=True)
    assert table.x[:, 0].tolist() == [1.0, 3.0, 4.0]
    assert table.notes == ("2 rows without a target dropped (rows 3, 5)",)
    with pytest.raises(InputError, match="at least 2 rows must have a target"):
        read(tmp_path, "a,y\n1,3\n2,\n3,\n", drop_missing_targets=True)


def test_classes(tmp_path: Path) -> None:
    table = read(tmp_path, "a,y\n1,dog\n2,cat\n3,dog\n")
    assert table.classes == ("cat", "dog")
    assert table.y.dtype == torch.int64
    assert table.y.tolist() == [1, 0, 1]
    table = read(tmp_path, "a,y\n1,10\n2,9\n3,10.0\n", as_classes=True)
    assert (table.classes, table.y.tolist()) == (("9", "10"), [1, 0, 1])
    again = read_table(write(tmp_path, "a,y\n7,9\n"), "y", encoding=table.encoding)
    assert (again.classes, again.y.tolist()) == (("9", "10"), [0])
    with pytest.raises(InputError, match=r"t\.csv:3:y: a class must be one of training, 9, 10; got '11'"):
        read_table(write(tmp_path, "a,y\n7,9\n8,11\n"), "y", encoding=table.encoding)
    with pytest.raises(InputError, match="whole number"):
        read(tmp_path, "a,y\n1,1.5\n2,2\n", as_classes=True)
    with pytest.raises(InputError, match="must vary"):
        read(tmp_path, "a,y\n1,dog\n2,dog\n")
    with pytest.raises(InputError, match="one target column"):
        read(tmp_path, "a,b,y\n1,u,dog\n2,v,cat\n", ["b", "y"])


def test_category_limit(tmp_path: Path) -> None:
    lines = [f"{i},c{i % 65},{i}" for i in range(130)]
    assert len(read(tmp_path, "\n".join(["a,g,y", *lines[:64]])).columns) == 65
    with pytest.raises(InputError, match="at most 64 categories; got 65"):
        read(tmp_path, "\n".join(["a,g,y", *lines]))


def test_new_rows_use_training_statistics_only(tmp_path: Path) -> None:
    train = read(tmp_path, "a,b,g,y\n1,1,u,3\n,2,v,4\n5,3,v,8\n")
    rows = [(9, "", "w", 1), ("", 8, "", 2), (1e6, 4, "u", 3)]
    text = "g,y,extra,b,a\n" + "".join(f"{g},{y},0,{b},{a}\n" for a, b, g, y in rows)
    new = read_table(write(tmp_path, text, "new.csv"), "y", encoding=train.encoding)
    expected = [[9, 0, 2, 0, 0], [3, 1, 8, 0, 0], [1e6, 0, 4, 1, 0]]  # a, a is missing, b, g=u, g=v
    assert new.x.tolist() == expected
    said = " | ".join(new.notes)
    assert "category not in training: w" in said
    assert "extra: left out, not in training" in said
    assert "column b: 1 empty cells" in said
    restored = Encoding.from_json(train.encoding.to_json())
    assert restored == train.encoding
    x, notes = restored.encode(tmp_path / "new.csv")
    assert x.tolist() == expected
    assert notes == new.notes
    mappings = [{"a": a, "b": b or None, "g": g} for a, b, g, _ in rows]
    assert restored.encode(mappings)[0].tolist() == expected
    # Each row is encoded by itself: no other new row has a say.
    assert all(torch.equal(restored.encode([m])[0][0], x[i]) for i, m in enumerate(mappings))


def test_new_rows_that_do_not_fit(tmp_path: Path) -> None:
    train = read(tmp_path, "a,g,y\n1,u,3\n2,v,4\n5,v,8\n")
    for text, match in [
        ("a,y\n1,2\n", "no g among a, y"),
        ("a,g,y\nx,u,2\n", r"new\.csv:2:a.*numbers in the training table"),
        ("a,g,y\n1,7,2\n", r"new\.csv:2:g.*text in the training table"),
        ("a,g,y\n", "at least 1 rows"),
    ]:
        with pytest.raises(InputError, match=match):
            read_table(write(tmp_path, text, "new.csv"), "y", encoding=train.encoding)
    with pytest.raises(InputError, match="target must be that of the encoding"):
        read_table(write(tmp_path, "a,g,y\n1,u,2\n"), "a", encoding=train.encoding)
    with pytest.raises(InputError, match="rows:2"):
        train.encoding.encode([{"a": 1, "g": "u"}, {"a": 1}])
    with pytest.raises(InputError, match="a row to encode"):
        train.encoding.encode([])
    with pytest.raises(InputError, match=r"rows:1:a"):
        train.encoding.encode([{"a": float("nan"), "g": "u"}])
    for text in ("", "[]", "{}", "[" * 100_000, '{"inputs": [{}], "left_out": [], "target": [], "classes": []}'):
        with pytest.raises(InputError, match="to_json"):
            Encoding.from_json(text)


def test_split_leaks_nothing(tmp_path: Path) -> None:
    """The parts of a split are what two files with these rows would have given."""
    generator = np.random.default_rng(0)
    lines = [
        f"{'' if i % 4 == 0 else repr(generator.normal())},{'only' if i == 7 else 'uv'[i % 2]},{i}" for i in range(40)
    ]
    table = read(tmp_path, "\n".join(["a,g,y", *lines]))
    seed = next(s for s in range(1000) if 7.0 in table.split(seed=s, test=0.3)[1].y)  # the rare category is held out
    train, test = table.split(seed=seed, test=0.3)
    assert (len(train), len(test)) == (28, 12)
    assert sorted(train.y.flatten().tolist() + test.y.flatten().tolist()) == list(range(40))
    parts = []
    for part, name in ((train, "train.csv"), (test, "test.csv")):
        parts.append(write(tmp_path, "\n".join(["a,g,y", *(lines[int(y)] for y in part.y)]), name))
    alone = read_table(parts[0], "y")
    other = read_table(parts[1], "y", encoding=alone.encoding)
    assert torch.equal(train.x, alone.x)
    assert torch.equal(test.x, other.x)
    assert train.encoding == test.encoding == alone.encoding
    assert "g=only" in table.columns
    assert "g=only" not in train.columns
    assert any("not in training: only" in note for note in test.notes)
    # The planted fault, an encoding of all rows, would have been seen.
    assert table.encoding != train.encoding
    # A test table keeps its encoding when it is split again; a training table learns it anew.
    assert test.split(test=0.5)[0].encoding == test.encoding
    assert train.split(test=0.5)[0].encoding != train.encoding


def test_split_and_rows(tmp_path: Path) -> None:
    table = read(tmp_path, "a,y\n" + "".join(f"{i},{-i}\n" for i in range(50)))
    one, two = table.split(seed=3), table.split(seed=3)
    assert torch.equal(one[1].y, two[1].y)
    assert not torch.equal(one[1].y, table.split(seed=4)[1].y)
    assert table.rows([3, 1]).x.tolist() == [[3.0], [1.0]]
    assert table.rows(table.x[:, 0] > 47).y.tolist() == [[-48.0], [-49.0]]
    for index in ([50], [-1], [], [[1]], [0.5]):
        with pytest.raises(InputError):
            table.rows(index)
    for share in (0.0, 1.0, 0.99, float("nan"), 0.001):
        with pytest.raises(InputError):
            table.split(test=share)


def test_tsv_and_parquet_equal_csv(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    clean = read(tmp_path, "a,b,g,y\n1,0.1,u,3\n,1e-7,v,4.5\n3,7,,8\n")
    tsv = read_table(write(tmp_path, "a\tb\tg\ty\n1\t0.1\tu\t3\n\t1e-7\tv\t4.5\n3\t7\t\t8\n", "t.tsv"), "y")
    frame = polars.DataFrame({"a": [1, None, 3], "b": [0.1, 1e-7, 7.0], "g": ["u", "v", None], "y": [3.0, 4.5, 8.0]})
    frame.write_parquet(tmp_path / "t.parquet")
    parquet = read_table(tmp_path / "t.parquet", "y")
    for table in (tsv, parquet):
        assert torch.equal(table.x, clean.x)
        assert torch.equal(table.y, clean.y)
        assert table.encoding == clean.encoding


def test_parquet_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    polars = pytest.importorskip("polars")
    path = tmp_path / "t.parquet"
    for column, match in [
        ([1.0, float("nan"), 2.0], r"t\.parquet:2:a"),
        ([1.0, float("inf"), 2.0], r"t\.parquet:2:a"),
        ([[1.0], [2.0], [3.0]], "List"),
        ([b"1", b"2", b"3"], "Binary"),
    ]:
        polars.DataFrame({"a": column, "y": [1.0, 2.0, 3.0]}).write_parquet(path)
        with pytest.raises(InputError, match=match):
            read_table(path, "y")
    data = path.read_bytes()
    for damaged in (b"", b"PAR1", data[:-10], data[: len(data) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(FileError, match="Parquet"):
            read_table(path, "y")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(UnsupportedError, match=r"nescio\[tables\]"):
        read_table(path, "y")
    assert len(read(tmp_path, GOOD)) == 3  # CSV needs no polars


def test_errors_are_ours(tmp_path: Path) -> None:
    with pytest.raises(NescioError):
        read_table("a\0b.csv", "y")
