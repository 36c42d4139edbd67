"""What a night of the expensive tier found, kept as the other results are: `make nightly` writes reproduce/results/nightly.json.

A row is a test: whether it passed (a planted fault that was seen is a pass, too) and its seconds. The seed is that of the night.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

REPRODUCE = Path(__file__).resolve().parent.parent / "reproduce"


class Night:
    """A plugin that notes every test and writes them down at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rows = folder, list[dict[str, Any]]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or (report.when == "setup" and not report.passed):
            row = {"row": report.nodeid, "metric": "passed", "published": None, "mark": "own", "n": 1}
            ours = None if report.skipped else float(report.passed)
            self.rows.append({**row, "ours": ours, "seconds": round(report.duration, 1)})

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return  # a night that was cut short says nothing
        from test_nightly import SEED

        sys.path.insert(0, str(REPRODUCE))
        import evidence

        evidence.write("nightly", "make nightly", self.rows, [SEED], False, self.folder, evidence.origin())
