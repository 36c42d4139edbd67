"""Every planted fault must be caught by the check that it names, and that check must pass without it."""

from __future__ import annotations

import pytest
from faults import FAULTS, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_caught(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault.check()  # passes on the right code
    fault.plant(monkeypatch)
    with pytest.raises(AssertionError):
        fault.check()


def test_there_are_enough_faults() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 12
