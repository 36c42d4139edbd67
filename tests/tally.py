"""How many statistical comparisons a run made: its reports carry the counts, also from workers of pytest-xdist; the end says the sum.

scipy, which chance.py needs, may be missing where nothing is compared.
"""

from __future__ import annotations

import sys
from collections.abc import Generator

import pytest

NAME = "comparisons"


class Tally:
    """A plugin that counts for the whole run and says at the end what false-alarm rate that makes."""

    def __init__(self) -> None:
        self.count = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if chance := sys.modules.get("chance"):
            report.user_properties.append((NAME, sum(chance.made)))
            chance.made.clear()
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.count += sum(int(value) for name, value in report.user_properties if name == NAME)  # type: ignore[call-overload]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.count:
            terminalreporter.write_line(said(self.count))


def said(count: int) -> str:
    from chance import ALPHA, M, Z

    each = f"each |z| <= {Z:.2f} or the same tail of its law"
    if count <= M:
        return f"chance: {count} statistical comparisons of at most {M}, {each}: a false alarm in {1 / ALPHA:,.0f} runs with fresh seeds"
    rate = count * ALPHA / M
    return (
        f"chance: {count} statistical comparisons, more than the {M} that were reckoned with, {each}: "
        f"a false alarm in {1 / rate:,.0f} runs with fresh seeds ({rate:.1e} a run, not {ALPHA:.0e})"
    )
