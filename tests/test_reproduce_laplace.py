"""Scripts around Laplace and the evidence run at toy size and keep what they say they keep."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from nescio.noise import Noise
from nescio.posterior.linearized import Linearized

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", ["laplace", "curvature"])
def test_benchmarks_quick(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / f"{name}.quick.json").read_text())
    assert kept["quick"] is True and kept["settings"]["threads"] == 1
    assert all(value > 0 for row in kept["rows"] for key, value in row.items() if key.endswith("cpu_s") and value)


def test_uci_laplace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tuned and validated on a small table: predictions in the units of y, and the numbers that go into the scores."""
    monkeypatch.syspath_prepend(str(ROOT / "reproduce"))
    import uci_methods

    try:
        x = Noise(1, ("x",)).normal(40, 3)
        y = 100 + 5 * x[:, :1] + Noise(1, ("y",)).normal(40, 1)
        task = uci_methods.Task("yacht", 0, x, y, x, "cpu")
        settings: dict[str, Any] = {"epochs": 20, "rounds": 2, "validated": True}
        posterior, more = uci_methods.METHODS["laplace"].fit(task, settings)
        found = posterior.predict(x)
        assert float((found.mean - y).abs().mean()) < 5
        assert torch.isfinite(found.log_prob(y.double())).all()
        assert isinstance(more["nll, cross-validated"], Linearized) and math.isfinite(more["evidence"])
        assert more["validated scale"] in (0.1, 0.3, 1.0, 3.0)
    finally:
        for name in ("uci_methods", "uci_laplace", "uci_dropout", "uci_published", "uci_stack", "digits"):
            sys.modules.pop(name, None)
