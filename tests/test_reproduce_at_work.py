"""The reproductions of uncertainty at work run at toy size on made-up data, keep what they found, and draw.

Nothing here is statistical: quick runs say nothing of right and wrong.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from nescio import InputError
from nescio.noise import Noise
from nescio.report.figures.panels import draw_panels

ROOT = Path(__file__).resolve().parent.parent
Script = Callable[[str], ModuleType]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    monkeypatch.syspath_prepend(str(ROOT / "reproduce"))

    def load(name: str) -> ModuleType:
        if name in sys.modules and getattr(sys.modules[name], "__file__", "").startswith(str(ROOT / "reproduce")):
            return sys.modules[name]
        spec = importlib.util.spec_from_file_location(name, ROOT / "reproduce" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, loaded)
        spec.loader.exec_module(loaded)
        return loaded

    return load


def kept(table: str, rows: list[dict[str, Any]], folder: Path) -> None:
    """A quick run is marked as one, and claims nothing."""
    found = json.loads((folder / f"{table}.quick.json").read_text())
    assert found["quick"] is True and found["rows"] == rows
    assert rows and all(row["right"] is None for row in rows)
    assert all(math.isfinite(row["ours"]) for row in rows)


def scenes(script: Script) -> Any:
    camvid = script("camvid")
    x = Noise(0).normal(8, 3, 60, 80)
    y = (x[:, 0] > 0).long() + 8 * (x[:, 1] > 1).long()
    y[:, :30] = 0
    y[:, 24:28, 20:26] = 8
    y[:, 58:] = camvid.VOID
    one = camvid.Scenes(x, y, np.zeros((8, 60, 80, 3), np.uint8))
    return lambda: (one, one, one, tuple("abcdefghijkl"))


@pytest.mark.parametrize("name", ["segmentation", "depth", "multitask"])
def test_dense(name: str, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, module = scenes(script), script(name)
    monkeypatch.setattr(module, "camvid", given)
    only = {"segmentation": ["Laplace"], "depth": ["ensemble"], "multitask": ["learned", "labels alone"]}[name]
    rows = module.main(["--quick", "--out", str(tmp_path), "--only", *only])
    kept(name, rows, tmp_path)
    lines = (tmp_path / f"{name}.quick.rows.jsonl").read_text()
    assert module.main(["--quick", "--out", str(tmp_path), "--only", *only]) == rows
    assert (tmp_path / f"{name}.quick.rows.jsonl").read_text() == lines  # nothing is run again
    if name != "segmentation":
        module.draw(tmp_path / f"{name}.quick.panels", tmp_path)
        assert "<desc" in (tmp_path / f"{name}.svg").read_text()


def test_active(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("active_mnist")
    x, y = (255 * Noise(0).uniform(60, 28, 28)).byte(), torch.arange(60) % 10
    monkeypatch.setattr(module, "digits", lambda: (x, y, x[:20], y[:20]))
    rows = module.main(["--quick", "--out", str(tmp_path), "--only", "BatchBALD", "Random"])
    kept("active_mnist", rows, tmp_path)
    assert [row["metric"] for row in rows[:1]] == ["error in % at 30 labels"]


def test_active_goes_on_when_its_time_is_up(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("active_mnist")
    x, y = (255 * Noise(0).uniform(60, 28, 28)).byte(), torch.arange(60) % 10
    monkeypatch.setattr(module, "digits", lambda: (x, y, x[:20], y[:20]))
    job = {"acquire": "Random", "seed": 0, "rounds": 2, "epochs": 1, "batch": 10, "candidates": 20, "quick": True}
    assert module.run(job, 0.0, "cpu", tmp_path) is None  # over after the first round
    assert module.run(job, math.inf, "cpu", tmp_path)["labels"] == [20, 30, 40]


def test_cifar(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("cifar_hmc")
    x, y = Noise(0).normal(20, 3, 32, 32), torch.arange(20) % 10
    data = module.Data(x, y, x, y, torch.full((20, 10), 0.1))
    monkeypatch.setattr(module, "load", lambda folder: data)
    rows = module.main(["--quick", "--out", str(tmp_path), "--only", "SGHMC", "Laplace", "SWAG"])
    kept("cifar_hmc", rows, tmp_path)
    assert {"SGHMC", "Laplace", "SWAG", "all averaged", "the nearest of all"} <= {row["row"] for row in rows}


def test_cifar_files_are_lossless(script: Script, tmp_path: Path) -> None:
    module = script("cifar10_files")
    x = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    for name in ("batch_1", "batch_test"):
        module.write(tmp_path / f"cifar10_{name}.npz", x_delta=module.delta(x), y=np.arange(5, dtype=np.uint8))
    train, y, test, _ = module.read(tmp_path)
    assert np.array_equal(train, x) and np.array_equal(test, x) and y.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(SystemExit, match="must hold"):
        module.read(tmp_path / "nowhere")


def test_out_of_distribution(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, module = script("ood_scores"), script("ood_table")
    x, y = Noise(0).uniform(60, 1, 28, 28), torch.arange(60) % 10
    sets = data.Sets(x, y, x, y, {"others": Noise(1).uniform(60, 1, 28, 28)})
    monkeypatch.setitem(data.SETS, "mnist", lambda: sets)
    rows = module.main(["--quick", "--out", str(tmp_path)])
    kept("ood_table", rows, tmp_path)
    metrics = {row["metric"] for row in rows if row["row"] == "mnist: MAP"}
    assert {"others, entropy: AUROC", "others, feature density: AUROC", "rotated by 30: entropy"} <= metrics


def test_explained_away(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("explained_away")
    x = Noise(0).normal(60, 3).double()
    monkeypatch.setattr(module, "load_uci", lambda name, split: (x[:40], x[:40, :1], x[40:], x[40:, :1]))
    arguments = ["--quick", "--out", str(tmp_path), "--figures", str(tmp_path), "--only", "ensemble"]
    rows = module.main(arguments)
    kept("explained_away", rows, tmp_path)
    assert module.ALT in (tmp_path / "explained_away.svg").read_text()


def test_bandit(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("bandit")
    x = Noise(0).normal(50, 3)
    monkeypatch.setattr(module, "letters", lambda: (x, x[:, 0] > 0))
    rows = module.main(["--quick", "--out", str(tmp_path), "--only", "Thompson, Laplace", "greedy"])
    kept("bandit", rows, tmp_path)


def test_distances_and_iou(script: Script) -> None:
    camvid = script("camvid")
    y = torch.zeros(1, 5, 7, dtype=torch.long)
    y[:, :, 4:] = 1
    assert camvid.distance(y)[0, 0, 2].tolist() == [3.0, 2.0, 1.0, 0.0, 0.0, 1.0, 2.0]
    guess = torch.zeros(1, 5, 7, dtype=torch.long)
    mean, each = camvid.iou(guess, y)
    assert each[:2] == [20 / 35, 0.0] and math.isnan(each[2]) and mean == pytest.approx(10 / 35)


def test_panels_need_five_arrays() -> None:
    five = {name: np.zeros((2, 4, 5)) for name in ("truth", "prediction", "aleatoric", "epistemic")}
    with pytest.raises(InputError, match=r"five panels need .* got without \['image'\]"):
        draw_panels(five, "t", discrete=True)
    figure = draw_panels(five | {"image": np.zeros((2, 4, 5, 3))}, "t", discrete=True)
    assert [axis.get_title(loc="left") for axis in figure.axes[:5]] == [
        "image",
        "truth",
        "prediction",
        "aleatoric",
        "epistemic",
    ]
