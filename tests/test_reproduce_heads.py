"""The table of images outside runs at toy size, its means are means, and the benchmark of single passes measures what it says."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("MAP", "Laplace, last layer", "Laplace, KFAC", "SWAG", "ensemble", "MC dropout", "Bayes by Backprop")


def load(name: str, folder: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / folder))
    spec = importlib.util.spec_from_file_location(name, ROOT / folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, loaded)
    spec.loader.exec_module(loaded)
    return loaded


def test_images_outside(tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESCIO_DATA", str(data_folder))
    rows = load("ood_mnist", "reproduce", monkeypatch).main(["--quick", "--out", str(tmp_path)])
    kept = json.loads((tmp_path / "ood_mnist.quick.json").read_text())
    assert kept["rows"] == rows and [row["row"] for row in rows] == list(NAMES)
    for row in rows:
        assert all(0 <= row[f"AUROC, {name}"] <= 100 for name in ("Fashion-MNIST", "notMNIST", "Omniglot"))
        assert 10 <= row["confidence, outside"] <= 100 and math.isfinite(row["nll"])
    lines = (tmp_path / "ood_mnist.quick.rows.jsonl").read_text()
    load("ood_mnist", "reproduce", monkeypatch).main(["--quick", "--out", str(tmp_path), "--budget", "0"])
    assert (tmp_path / "ood_mnist.quick.rows.jsonl").read_text() == lines, "what is done is not done again"


def test_rows_are_means_over_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    script = load("ood_mnist", "reproduce", monkeypatch)

    def line(confidence: float) -> dict[str, object]:
        sets = ("Fashion-MNIST", "notMNIST", "Omniglot")
        scores = {f"confidence, {s}": confidence + i for i, s in enumerate(sets)} | {f"AUROC, {s}": 90.0 for s in sets}
        return {"scores": {"MAP": {"accuracy": 99.0, "nll": 0.1, **scores}}}

    (row,) = script.rows_of([line(50.0), line(60.0)])
    assert row["confidence, outside"] == pytest.approx(56.0) and row["AUROC, outside"] == 90.0 and row["n"] == 2
    assert row["confidence, outside, se"] == pytest.approx(5.0) and row["published"]["AUROC"] == 96.5


def test_single_pass_benchmark(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "single_pass.py"), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / "single_pass.quick.json").read_text())
    assert {row["pass"] for row in kept["rows"]} >= {"last layer", "moments", "moments, factored"}
    assert all(row["ratio"] > 0 and row["goal"] in (1.3, 2.5) and row["plain_ms"] > 0 for row in kept["rows"])
