"""What a night found is written down: passed, failed, skipped, with its seed; and nothing of a night that was cut short."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from night import Night

HERE = Path(__file__).resolve().parent


def report(name: str, outcome: str, when: str = "call") -> pytest.TestReport:
    return pytest.TestReport(name, ("t.py", 1, name), {}, outcome, None, when, duration=1.26)  # type: ignore[arg-type]


def test_every_outcome_is_a_row(tmp_path: Path) -> None:
    night = Night(tmp_path)
    for name in ("good", "bad"):
        night.pytest_runtest_logreport(report(name, "passed", "setup"))
        night.pytest_runtest_logreport(report(name, {"good": "passed", "bad": "failed"}[name]))
        night.pytest_runtest_logreport(report(name, "passed", "teardown"))
    night.pytest_runtest_logreport(report("broken", "failed", "setup"))
    night.pytest_runtest_logreport(report("absent", "skipped", "setup"))
    assert [(row["row"], row["ours"], row["seconds"]) for row in night.rows] == [
        ("good", 1.0, 1.3),
        ("bad", 0.0, 1.3),
        ("broken", 0.0, 1.3),
        ("absent", None, 1.3),
    ]
    night.pytest_sessionfinish(pytest.ExitCode.INTERRUPTED)
    assert not list(tmp_path.iterdir())


def test_the_option_keeps_a_night(tmp_path: Path) -> None:
    """One cheap test of the tier in a process of its own, as `make nightly` runs all."""
    test = f"{HERE / 'test_nightly.py'}::test_ten_million_draws_of_each_law[laplace]"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--keep", str(tmp_path), test]
    subprocess.run(command, check=True, cwd=HERE.parent, env={**os.environ, "NESCIO_SEED": "7"}, capture_output=True)
    kept = json.loads((tmp_path / "nightly.json").read_text())
    assert kept["seeds"] == [7] and [row["ours"] for row in kept["rows"]] == [1.0] and not kept["quick"]
