"""Every example and reproduction runs at toy size and returns what it claims to show."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NEEDS = {
    "hugging_face_trainer": ("transformers", "accelerate"),
    "lightning_trainer": ("lightning",),
    "tensorboard_scalars": ("tensorboard",),
    "torchmetrics_scores": ("torchmetrics",),
}


def module(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, loaded)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = [name for name in NEEDS.get(path.stem, ()) if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    assert module(path, monkeypatch).main(quick=True), "an example returns what it shows"


def test_uci_quick(data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESCIO_DATA", str(data_folder))
    rows = module(ROOT / "reproduce" / "uci.py", monkeypatch).main(["--quick", "--out", str(tmp_path)])
    assert {row["metric"] for row in rows} == {"nll", "rmse", "coverage", "coverage of 95%", "seconds"}
    kept = json.loads((tmp_path / "uci_ensembles.quick.json").read_text())
    assert kept["quick"] is True and kept["rows"] == rows


def test_truth_quick(truth: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--truth", str(truth), "--quick", "--methods", "HMC", "--out", str(tmp_path)]
    rows = module(ROOT / "reproduce" / "truth.py", monkeypatch).main(arguments)
    assert len(rows) == 1 and rows[0]["ours"] <= 6.11


@pytest.mark.parametrize("path", sorted((ROOT / "reproduce" / "results").glob("*.json")), ids=lambda path: path.stem)
def test_committed_results_are_complete_and_full(path: Path) -> None:
    kept = json.loads(path.read_text())
    assert {"table", "command", "commit", "seeds", "versions", "machine", "rows"} <= set(kept)
    assert kept["quick"] is False and len(kept["commit"]) == 40
    assert all({"row", "metric", "published", "mark", "ours", "n"} <= set(row) for row in kept["rows"])


def test_the_ensembles_are_not_worse_than_published() -> None:
    """The claim of the README: in NLL nowhere worse by more than one standard error, and better on most sets."""
    rows = json.loads((ROOT / "reproduce" / "results" / "uci_ensembles.json").read_text())["rows"]
    nll = [row for row in rows if row["metric"] == "nll"]
    assert len(nll) == 9
    assert all(row["ours"] <= row["published"] + row["published_se"] for row in nll)
    assert sum(row["ours"] < row["published"] for row in nll) > 4
