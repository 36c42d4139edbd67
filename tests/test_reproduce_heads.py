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
    assert kept["rows"] == rows and list(dict.fromkeys(row["row"] for row in rows)) == list(NAMES)
    for row in rows:
        assert {"row", "metric", "published", "mark", "ours", "n", "se"} <= set(row) and math.isfinite(row["ours"])
        assert not row["metric"].startswith("AUROC") or 0 <= row["ours"] <= 100
        assert not row["metric"].startswith("confidence") or 10 <= row["ours"] <= 100
    assert sum(row["published"] is not None for row in rows) == 10
    lines = (tmp_path / "ood_mnist.quick.rows.jsonl").read_text()
    load("ood_mnist", "reproduce", monkeypatch).main(["--quick", "--out", str(tmp_path), "--budget", "0"])
    assert (tmp_path / "ood_mnist.quick.rows.jsonl").read_text() == lines, "what is done is not done again"


def test_rows_are_means_over_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    script = load("ood_mnist", "reproduce", monkeypatch)

    def line(confidence: float) -> dict[str, object]:
        sets = ("Fashion-MNIST", "notMNIST", "Omniglot")
        scores = {f"confidence, {s}": confidence + i for i, s in enumerate(sets)} | {f"AUROC, {s}": 90.0 for s in sets}
        return {"scores": {"MAP": {"accuracy": 99.0, "nll": 0.1, **scores}}}

    found = {row["metric"]: row for row in script.rows_of([line(50.0), line(60.0)])}
    row = found["confidence, outside"]
    assert row["ours"] == pytest.approx(56.0) and row["se"] == pytest.approx(5.0) and row["n"] == 2
    assert found["AUROC, outside"]["published"] == 96.5 and found["nll"]["published"] is None
    assert "56.0 / 90.0" in script.show(list(found.values()))


def test_single_pass_benchmark(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "single_pass.py"), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / "single_pass.quick.json").read_text())
    assert {row["pass"] for row in kept["rows"]} >= {"last layer", "moments", "moments, factored"}
    assert all(row["ratio"] > 0 and row["goal"] in (1.3, 2.5) and row["plain_ms"] > 0 for row in kept["rows"])
