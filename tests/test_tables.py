"""The benchmarks on tables: they run at toy size, skip what is done, and their differences are paired by split."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from nescio.data import uci

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    loaded = {}
    for name in ("record", "tables"):
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        assert spec is not None and spec.loader is not None
        loaded[name] = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, loaded[name])
        spec.loader.exec_module(loaded[name])
    return loaded["tables"]


def test_differences_are_paired(tables: ModuleType) -> None:
    def line(library: str, split: int, nll: float) -> dict[str, object]:
        return {
            "library": library,
            "table": "t",
            "split": split,
            "nll": nll,
            "coverage": 0.9,
            "rmse": 1.0,
            "seconds": 1.0,
        }

    lines = [line("nescio", 0, 1.0), line("nescio", 1, 5.0), line("peer", 0, 1.5), line("peer", 1, 5.5)]
    row = next(r for r in tables.table(lines) if r["row"] == "t, peer" and r["metric"] == "nll")
    assert row["worse than nescio by"] == pytest.approx(0.5) and row["with standard error"] == pytest.approx(0)
    assert row["ours"] == pytest.approx(3.5) and row["se"] == pytest.approx(2.0)


def test_rows_with_a_twin_are_not_scored(tables: ModuleType) -> None:
    """Planted: a test part in which one row is a training row, and one has its inputs with another target."""
    table = uci("yacht")
    train, test = table.rows(range(10)), table.rows([3, 20])
    assert tables.strangers(train, test).tolist() == [False, True]
    other = replace(test, y=test.y + 1)
    assert tables.strangers(train, other).tolist() == [True, True]


def test_quick(tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):  # the second time nothing is left to do
        monkeypatch.setattr(
            sys, "argv", ["tables.py", "--quick", "--tables", "yacht", "--out", str(tmp_path), "--peers", "none"]
        )
        tables.main()
    assert len((tmp_path / "tables.quick.scores.jsonl").read_text().splitlines()) == 1
    kept = json.loads((tmp_path / "tables.quick.json").read_text())
    assert kept["quick"] and {row["metric"] for row in kept["rows"]} == {"nll", "coverage", "rmse", "seconds"}
