"""The UCI reproduction: it runs at toy size, goes on where it stopped, and its verdicts are those that its numbers allow."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = ("uci_published", "uci_families", "uci_methods", "uci_table", "uci")
KEPT = ROOT / "reproduce" / "results" / "uci_ensembles.scores.jsonl"


@pytest.fixture
def uci(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setenv("NESCIO_DATA", str(data_folder))
    monkeypatch.syspath_prepend(str(ROOT / "reproduce"))
    yield importlib.import_module("uci")
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("gap", [False, True], ids=["standard", "gap"])
def test_microcanonical_quick(uci: ModuleType, tmp_path: Path, gap: bool) -> None:
    flags = ["--method", "microcanonical", "--quick", "--out", str(tmp_path), *(["--gap"] if gap else [])]
    rows = uci.main(flags)
    wanted = {"nll", "rmse", "coverage", "coverage of 95%", "rhat", "rhat within chains", "seconds"}
    assert {row["metric"] for row in rows} == wanted
    assert all(math.isfinite(row["ours"]) for row in rows)
    kept = json.loads((tmp_path / f"uci_microcanonical{'_gap' if gap else ''}.quick.json").read_text())
    assert kept["quick"] is True and kept["rows"] == rows
    for row in rows:
        published = [label for label in row["beside"] if not label.startswith("ours")]
        assert bool(published) is (not gap and row["metric"] in ("nll", "rmse"))
        assert all(cell["verdict"] is None for cell in row["beside"].values())  # one split says nothing


@pytest.mark.parametrize("method", ["mean_field", "matrix_normal", "flow"])
def test_variational_families_quick(uci: ModuleType, tmp_path: Path, method: str) -> None:
    """Of two prior scales, the one with the higher bound; both numbers are kept with the score."""
    scores = tmp_path / "scores.jsonl"
    rows = uci.main(["--method", method, "--quick", "--sets", "yacht", "--out", str(tmp_path), "--scores", str(scores)])
    assert {"nll", "rmse", "coverage"} <= {row["metric"] for row in rows}
    (kept,) = [json.loads(line) for line in scores.read_text().splitlines() if '"yacht"' in line]
    assert kept["scale"] in (0.3, 1.0) and math.isfinite(kept["elbo"]) and math.isfinite(kept["nll"])


def test_a_finished_split_is_not_run_again_and_another_setting_is(uci: ModuleType, tmp_path: Path) -> None:
    scores = tmp_path / "scores.jsonl"
    flags = ["--quick", "--out", str(tmp_path), "--scores", str(scores)]
    assert uci.main([*flags, "--budget", "0"]) == [] and not scores.exists()  # no time: nothing is begun
    uci.main(flags)
    first = scores.read_text()
    assert len(first.splitlines()) == 2
    scores.write_text(first + first)  # files merged, one behind the other, some splits twice
    rows = uci.main([*flags, "--budget", "0"])
    assert {row["n"] for row in rows} == {1} and scores.read_text() == first + first
    line = json.loads(first.splitlines()[0])
    scores.write_text(json.dumps({**line, "epochs": 11}) + "\n")
    assert uci.main([*flags, "--budget", "0"]) == []


def test_the_kept_table_of_ensembles_follows_from_its_scores(uci: ModuleType, tmp_path: Path) -> None:
    rows = uci.main(["--budget", "0", "--out", str(tmp_path), "--scores", str(KEPT)])
    kept = json.loads((ROOT / "reproduce" / "results" / "uci_ensembles.json").read_text())["rows"]
    assert len(rows) == len(kept)
    for row, old in zip(rows, kept, strict=True):
        for key, value in old.items():
            near = pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
            assert key == "beside" or row[key] == near, (row["row"], key)


def test_the_stored_scores_of_mc_dropout_are_the_published_ones(uci: ModuleType) -> None:
    """The log likelihoods that the authors' readme and log files give, and the traps: the largest precision of a grid caps three."""
    published = importlib.import_module("uci_published")
    printed = [2.40, 2.94, 1.21, -1.14, -4.45, 2.81, 2.87, 0.93, 1.25]
    for name, number in zip(published.SETS, printed, strict=True):
        found = published.stored(name, "nll")
        assert len(found.each) == published.splits(name) and abs(found.value - number) <= 0.0051, name
    (reference,) = (r for r in published.REFERENCES if r.censored)
    for name, precision in zip(reference.censored, (0.75, 5e4, 0.75), strict=True):
        cap = 0.5 * math.log(2 * math.pi / precision)
        assert (published.stored(name, "nll").each > cap - 1e-6).all()
        assert published.freed(name, "nll").value < published.stored(name, "nll").value


def test_verdicts(uci: ModuleType) -> None:
    table, published = importlib.import_module("uci_table"), importlib.import_module("uci_published")
    each = np.random.default_rng(0).normal(3.0, 1.0, 20)
    wiggle = np.tile([0.01, -0.01], 10)
    lower = {i: float(v) for i, v in enumerate(each - 0.05 + wiggle)}
    paired = table.compare(lower, published.over_splits(each), True, False)
    assert paired["verdict"] == "better" and paired["difference"] == pytest.approx(-0.05)
    assert paired["difference_se"] == pytest.approx(0.01 * math.sqrt(20 / 19) / math.sqrt(20))
    mean_only = published.Published(float(each.mean()), 0.2)
    assert table.compare(lower, mean_only, True, False)["verdict"] == "level"  # unpaired, the spread of splits hides it
    assert table.compare(lower, published.over_splits(each), True, True)["verdict"] is None  # censored
    higher = {i: float(v) for i, v in enumerate(each + 5)}
    assert table.compare(higher, mean_only, True, False)["verdict"] == "worse"
    few = {i: higher[i] for i in range(5)}
    assert table.compare(few, mean_only, False, False)["verdict"] is None  # five splits against a mean of twenty
    flat = {i: 0.0949 + 1e-6 * (i % 2) for i in range(20)}
    assert table.compare(flat, published.Published(0.09, 0.0), True, False)["verdict"] == "level"  # 0.09 may be 0.0949
    scores = [{"set": "energy", "split": i, "nll": 0.1 + 0.01 * (i % 3), "rmse": 0.4 + 0.01 * i} for i in range(20)]
    counted = table.tally(table.rows("microcanonical", False, scores, {}), "nll")
    assert counted["MC dropout, 4000 epochs"] == {"censored": 1} and counted["PBP"] == {"better": 1}
