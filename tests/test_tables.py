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
from nescio.infer import default
from nescio.nets.mlp import NUMBERS

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    monkeypatch.syspath_prepend(str(FOLDER))
    loaded = {}
    for name in ("record", "tables", "defaults"):
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        assert spec is not None and spec.loader is not None
        loaded[name] = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, loaded[name])
        spec.loader.exec_module(loaded[name])
    return loaded


@pytest.fixture
def tables(scripts: dict[str, ModuleType]) -> ModuleType:
    return scripts["tables"]


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


def test_defaults_quick(
    scripts: dict[str, ModuleType], data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NESCIO_DATA", str(data_folder))
    for _ in range(2):  # the second time nothing is left to do
        rows = scripts["defaults"].main(["--quick", "--out", str(tmp_path)])
    assert len((tmp_path / "defaults.quick.scores.jsonl").read_text().splitlines()) == 2
    assert {row["metric"] for row in rows} == {"nll", "coverage", "seconds"}


def test_ranks_are_within_a_stage(scripts: dict[str, ModuleType]) -> None:
    defaults = scripts["defaults"]
    score = {"50": 2.0, "16-16": 1.0, "32-32": 3.0, "50-50": 4.0, "16-16, longer": 0.5}
    lines = [
        {"set": name, "split": 0, "choice": choice, "nll": score.get(choice, 0.9), "coverage": 0.9, "seconds": 1.0}
        for name in ("boston", "power")
        for choice in defaults.CHOICES
    ]
    ranks = {row["row"]: row["ours"] for row in defaults.table(lines) if row["metric"] == "mean rank in nll"}
    assert ranks["network, 16-16"] == 1 and ranks["network, 50-50"] == 4
    assert ranks["sampler, 16-16, longer"] == 1 and ranks["sampler, 16-16"] == 3


def test_the_default_is_what_was_chosen(scripts: dict[str, ModuleType]) -> None:
    """On the tables that are not bundled: network, sampler and activation of the least mean rank."""
    defaults, rows = scripts["defaults"], json.loads((FOLDER / "results" / "defaults.json").read_text())["rows"]
    ranks = {row["row"]: row["ours"] for row in rows if row["metric"] == "mean rank in nll" and row["n"] == 5}
    best = {}
    for stage, choices in defaults.STAGES.items():
        best[stage] = min(choices, key=lambda choice: ranks[f"{stage}, {choice}"])
    assert defaults.NETS[best["network"]] == NUMBERS.widths
    assert defaults.CHOICES[best["activation"]].hidden == NUMBERS
    table = uci("yacht")
    task = scripts["tables"].regression("yacht", 0, table.x, table.y, (table.x, table.y), hidden=NUMBERS)
    assert repr(default(task.model, task.data)) == repr(defaults.CHOICES[best["sampler"]].method)
