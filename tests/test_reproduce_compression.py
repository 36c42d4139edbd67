"""The compression table runs at toy size, with its figures, and the speed-up is measured."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from nescio import FileError
from nescio.data import find

ROOT = Path(__file__).resolve().parent.parent


def test_the_table_runs_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        find("mnist")
    except FileError:
        pytest.skip("no MNIST here")
    monkeypatch.syspath_prepend(str(ROOT / "reproduce"))
    script = importlib.import_module("compression")
    few = ["--quick", "--nets", "lenet-300-100", "--kinds", "normal-jeffreys", "--out", str(tmp_path)]
    rows = script.main([*few, "--figures", str(tmp_path)])
    kept = json.loads((tmp_path / "compression.quick.json").read_text())
    assert kept["quick"] is True and len(kept["rows"]) == len(rows) == 5
    assert all(row["file x"] > 1 and row["bytes"] > 0 for row in rows)
    assert (tmp_path / "compression_pixels.svg").stat().st_size < 400_000
    assert script.main([*few, "--budget", "0"]) == rows  # nothing is trained again
    assert "0 of 1 jobs left" in capsys.readouterr().out


def test_the_speed_up_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.delitem(__import__("sys").modules, "compression", raising=False)
    script = importlib.import_module("compression")
    rows = script.main(["--quick", "--out", str(tmp_path)])
    monkeypatch.delitem(__import__("sys").modules, "compression", raising=False)
    assert len(rows) == 2 * (5 + 3) and all(row["flops x"] > 1 and row["speed-up"] > 0 for row in rows)
    kept = [json.loads(line) for line in script.FOUND.read_text().splitlines()]
    vgg = next(line for line in kept if (line["job"]["net"], line["job"]["kind"]) == ("vgg", "sparse-vd"))
    found = next(row for row in rows if row["row"] == "found: vgg, sparse-vd, papers")
    assert found["flops x"] == pytest.approx(vgg["flops"] / vgg["variants"]["papers"]["flops"])  # the same two networks
    assert "published: lenet-5-caffe, horseshoe" in capsys.readouterr().out
