"""The UCI reproduction: it runs at toy size, goes on where it stopped, and its verdicts are those that its numbers allow."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = ("uci_censored", "uci_published", "uci_families", "uci_methods", "uci_table", "uci")
RESULTS = ROOT / "reproduce" / "results"
KEPT = sorted(path.name.removesuffix(".json") for path in RESULTS.glob("uci_*.json"))


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


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == pytest.approx(b, rel=1e-9, abs=1e-9) if isinstance(a, float) else a == b


@pytest.mark.parametrize("name", KEPT)
def test_the_kept_tables_follow_from_the_scores(uci: ModuleType, tmp_path: Path, name: str) -> None:
    """With all that stands beside, verdicts too: `python reproduce/uci.py --method ... --budget 0` makes them again."""
    method, gap = name.removeprefix("uci_").removesuffix("_gap"), name.endswith("_gap")
    scores = RESULTS / f"{name}.scores.jsonl"
    flags = ["--method", method, *(["--gap"] if gap else []), "--budget", "0", "--out", str(tmp_path)]
    rows = uci.main([*flags, "--scores", str(scores)])
    kept = json.loads((RESULTS / f"{name}.json").read_text())["rows"]
    assert len(rows) == len(kept) >= 36
    wrong = [(row["row"], row["metric"]) for row, old in zip(rows, kept, strict=True) if not same(row, old)]
    assert not wrong, f"run python reproduce/uci.py {' '.join(flags[:-2])}"


CAPPED = ("energy", "naval", "yacht")  # all 20 splits at the largest precision


def test_which_numbers_are_censored_follows_from_the_scores(uci: ModuleType) -> None:
    """The largest precision in more than half of the splits; the three that always took it are among them, ours and published."""
    censored = importlib.import_module("uci_censored")
    largest, other = max(censored.PRECISIONS["boston"]), min(censored.PRECISIONS["boston"])
    assert censored.censored("boston", [largest, largest, other]) and not censored.censored("boston", [largest, other])
    assert not censored.censored("boston", [other] * 3) and not censored.censored("boston", [])
    ours = [json.loads(line) for line in (RESULTS / "uci_dropout.scores.jsonl").read_text().splitlines()]
    for name, grid in censored.PRECISIONS.items():
        chosen = [score["precision"] for score in ours if score["set"] == name]
        assert set(chosen) <= set(grid)
        assert (set(chosen) == {max(grid)}) is (name in CAPPED)
        assert (censored.PUBLISHED[name][:2] == (0, 0)) is (name in CAPPED)
        assert sum(censored.PUBLISHED[name]) == len(chosen) == (5 if name == "protein" else 20)
        assert censored.in_scores(name, ours) is (sum(x == max(grid) for x in chosen) > len(chosen) / 2)
    assert set(CAPPED) < set(censored.in_log_files()) and all(censored.in_scores(name, ours) for name in CAPPED)
    assert not censored.in_scores("energy", [{"set": "energy", "nll": 0.3}])  # nothing was searched


def check_no_win(rows: list[dict[str, Any]]) -> None:
    """Over a censored number there is none, and what is censored says so wherever it stands."""
    ours = "ours, VI(BernoulliDropout(p))"
    told = {row["row"].split(",")[0]: row["beside"] for row in rows if row["metric"] == "nll"}
    assert all(
        told[name][label]["verdict"] == "censored" for name in CAPPED for label in (ours, "MC dropout, 4000 epochs")
    )
    assert all(
        cell["verdict"] in ("censored", "worse") for own in told.values() for cell in own.values() if cell["censored"]
    )
    freed = f"{ours}, precision freed"
    assert all(own[freed]["verdict"] == "better" and not own[freed]["censored"] for own in told.values())


def test_a_censored_comparison_is_no_win(uci: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = json.loads((RESULTS / "uci_microcanonical.json").read_text())["rows"]
    check_no_win(kept)
    scores = RESULTS / "uci_microcanonical.scores.jsonl"
    flags = ["--method", "microcanonical", "--budget", "0", "--out", str(tmp_path), "--scores", str(scores)]
    check_no_win(uci.main(flags))
    table = importlib.import_module("uci_table")
    monkeypatch.setattr(table, "in_scores", lambda name, scores: False)  # planted: nothing of ours is ever censored
    with pytest.raises(AssertionError):
        check_no_win(uci.main(flags))
    for path in RESULTS.glob("uci_*.json"):
        cells = [cell for row in json.loads(path.read_text())["rows"] for cell in row["beside"].values()]
        assert not [cell for cell in cells if cell["censored"] and cell["verdict"] in ("better", "level")], path.name


def test_the_stored_scores_of_mc_dropout_are_the_published_ones(uci: ModuleType) -> None:
    """The log likelihoods that the authors' readme and log files give, and the traps: the largest precision of a grid caps three."""
    published = importlib.import_module("uci_published")
    printed = [2.40, 2.94, 1.21, -1.14, -4.45, 2.81, 2.87, 0.93, 1.25]
    for name, number in zip(published.SETS, printed, strict=True):
        found = published.stored(name, "nll")
        assert len(found.each) == published.splits(name) and abs(found.value - number) <= 0.0051, name
    (reference,) = (r for r in published.REFERENCES if r.censored)
    precisions = importlib.import_module("uci_censored").PRECISIONS
    for name in reference.censored:
        cap = 0.5 * math.log(2 * math.pi / max(precisions[name]))
        assert (published.stored(name, "nll").each > cap - 1e-6).all()
    for name, precision in zip(CAPPED, (0.75, 5e4, 0.75), strict=True):
        assert max(precisions[name]) == precision
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
    beside = published.over_splits(each)
    assert table.compare(lower, beside, True, True)["verdict"] == "censored"
    assert table.compare({i: v + 1 for i, v in lower.items()}, beside, True, True)["verdict"] == "worse"  # all the more
    assert table.compare({i: v + 1 for i, v in lower.items()}, beside, True, False, True)["verdict"] == "censored"
    assert table.compare({0: lower[0]}, beside, True, True)["verdict"] is None  # one split says nothing
    higher = {i: float(v) for i, v in enumerate(each + 5)}
    assert table.compare(higher, mean_only, True, False)["verdict"] == "worse"
    few = {i: higher[i] for i in range(5)}
    assert table.compare(few, mean_only, False, False)["verdict"] is None  # five splits against a mean of twenty
    flat = {i: 0.0949 + 1e-6 * (i % 2) for i in range(20)}
    assert table.compare(flat, published.Published(0.09, 0.0), True, False)["verdict"] == "level"  # 0.09 may be 0.0949
    scores = [{"set": "energy", "split": i, "nll": 0.1 + 0.01 * (i % 3), "rmse": 0.4 + 0.01 * i} for i in range(20)]
    counted = table.tally(table.rows("microcanonical", False, scores, {}), "nll")
    assert counted["MC dropout, 4000 epochs"] == {"censored": 1} and counted["PBP"] == {"better": 1}
