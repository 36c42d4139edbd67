"""The small reproductions of variational inference and dropout run at toy size, and what they expect can fail to come out.

Nothing here is statistical: quick runs say nothing of right and wrong, and expectations are asked about made-up numbers.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nescio.nets import lenet5

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "reproduce" / "results"
CRITICISMS = ("concentration", "between", "families", "bands", "rates", "decay", "grid")
TABLES = (*(f"vi_{name}" for name in CRITICISMS), "bbb_regression", "co2", "bayesian_lenet", "lstm_text")
OTHERWISE = {  # (table, row, metric) that came out otherwise in a full run; the scripts say how
    ("co2", "MC dropout 0.2, tanh", "sd of f two units off the data over that half a unit off"),
    ("co2", "HMC, ReLU", "largest R-hat of f"),
    ("co2", "HMC, tanh", "largest R-hat of f"),
    ("lstm_text", "one mask", "NLL of per step, MC, less its own by MC, less two se"),
    ("lstm_text", "one mask each", "NLL of per step, MC, less its own by MC, less two se"),
    ("vi_rates", "concrete dropout, at the worst width", "rmse of the mean on the training points over the noise"),
    ("vi_bands", "MC dropout, ReLU", "sd of f at distance 16 over that at 8"),
    ("vi_bands", "MC dropout, ReLU", "sd of f at distance 16 over that at 8, less two se"),
    ("vi_concentration", "concrete dropout", "that slope less MC dropout's"),
    ("vi_families", "MultiplicativeFlow", "that ratio less mean field's, less two standard errors"),
}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "reproduce"))

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, ROOT / "reproduce" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, loaded)
        spec.loader.exec_module(loaded)
        return loaded

    return load


def check_kept(table: str, rows: list[dict[str, Any]], folder: Path) -> None:
    """A quick run is marked as one, and claims nothing."""
    kept = json.loads((folder / f"{table}.quick.json").read_text())
    assert kept["quick"] is True and kept["table"] == table and kept["rows"] == rows
    assert rows and all(row["right"] is None and math.isfinite(row["ours"]) for row in rows)
    assert any("bounds" in row and row["says"] for row in rows)


def check_figure(path: Path, alt: str) -> None:
    description = ET.parse(path).getroot().find("{http://www.w3.org/2000/svg}desc")
    assert description is not None and description.text == alt
    assert path.stat().st_size < 400_000 and len(path.with_suffix(".csv").read_text().splitlines()) > 2


# ---- quick runs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CRITICISMS)
def test_criticisms_quick(
    name: str, script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reproduce = script("vi_criticisms")
    assert tuple(reproduce.EXPERIMENTS) == CRITICISMS
    flags = [name, "--quick", "--out", str(tmp_path)]
    assert reproduce.main([*flags, "--budget", "0"]) == {}
    rows = reproduce.main([*flags, "--figures", str(tmp_path)])[name]
    check_kept(f"vi_{name}", rows, tmp_path)
    monkeypatch.setattr(reproduce, "WORK", {})  # nothing is fitted a second time
    assert reproduce.main(flags) == {name: rows}
    for path in (tmp_path / f"vi_{name}.svg", ROOT / "docs" / "figures" / f"vi_{name}.svg"):
        if path.exists() or path.parent == tmp_path:
            check_figure(path, reproduce.EXPERIMENTS[name].alt)


def test_bbb_regression_quick(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    reproduce = script("bbb_regression")
    rows = reproduce.main(["--quick", "--out", str(tmp_path), "--results", str(tmp_path)])
    check_kept("bbb_regression", rows, tmp_path)
    check_figure(tmp_path / "bbb_regression.svg", reproduce.ALT)


def test_co2_quick(
    script: Callable[[str], ModuleType], data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NESCIO_DATA", str(data_folder))
    reproduce = script("co2")
    flags = ["--quick", "--out", str(tmp_path)]
    assert reproduce.main([*flags, "--only", "HMC, tanh"]) == []  # a part is no table
    rows = reproduce.main([*flags, "--figures", str(tmp_path)])
    check_kept("co2", rows, tmp_path)
    check_figure(tmp_path / "co2.svg", reproduce.ALT)
    monkeypatch.setattr(reproduce, "sampled", None)  # nothing is run a second time
    assert reproduce.main(flags) == rows


@pytest.mark.parametrize("name", ["bayesian_lenet", "lstm_text"])
def test_trainings_quick(
    name: str,
    script: Callable[[str], ModuleType],
    data_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lines are kept and not made again; passes with masks differ from averaged weights."""
    monkeypatch.setenv("NESCIO_DATA", str(data_folder))
    reproduce = script(name)
    assert reproduce.main(["--quick", "--budget", "0", "--out", str(tmp_path)]) == []
    rows = reproduce.main(["--quick", "--out", str(tmp_path)])
    check_kept(name, rows, tmp_path)
    path = tmp_path / f"{name}.quick.rows.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["job"]["kind"] for line in lines} == set(reproduce.KINDS)
    for line in lines:
        assert ("nll, MC" in line) == (line["job"]["kind"] != "none")
        if line["job"]["kind"] not in ("none", "mean field", "ensemble"):
            assert abs(line["nll, MC"] - line["nll, standard"]) > 1e-5
    before = path.read_text()
    monkeypatch.setattr(reproduce, "fit", None)  # nobody trains a second time
    assert reproduce.main(["--quick", "--out", str(tmp_path)]) == rows and path.read_text() == before


# ---- expectations can fail -------------------------------------------------------------------------------------


def verdicts(checks: Any, numbers: dict[str, np.ndarray]) -> dict[tuple[str, str], bool | None]:
    return {(e.row, e.metric): e.to_row((), False)["right"] for e in checks(numbers)}


def wrong(checks: Any, numbers: dict[str, np.ndarray]) -> set[str]:
    return {row for (row, _), right in verdicts(checks, numbers).items() if right is False}


def test_an_expectation(script: Callable[[str], ModuleType]) -> None:
    of = script("expectation")
    inside = of.Expectation("row", "metric", 1.0, 3, low=0.5, says="more than a half")
    assert inside.to_row(("1",), False)["right"] is True and inside.to_row(("1",), True)["right"] is None
    assert of.Expectation("row", "metric", 0.4, 3, low=0.5, says="...").to_row(("1",), False)["right"] is False
    assert of.Expectation("row", "metric", math.nan, 3, low=0.5, says="...").to_row(("1",), False)["right"] is False
    told = of.Expectation("row", "metric", 1.0, 3).to_row(("1",), False)
    assert told["right"] is None and "bounds" not in told
    assert of.at_least([1.0]) == -math.inf
    assert of.at_least([1.0, 2.0, 3.0]) == pytest.approx(2 - 2 / math.sqrt(3))
    assert of.at_most([1.0, 2.0, 3.0]) == pytest.approx(2 + 2 / math.sqrt(3)) and of.at_most([1.0]) == math.inf
    lines = of.show([inside.to_row((), False), told]).splitlines()
    assert lines[0].endswith("[0.5, ]  as expected") and lines[1].endswith("1")


def test_concentration_expects(script: Callable[[str], ModuleType]) -> None:
    of = script("vi_concentration")
    n = np.array(of.SIZES)
    falls, flat = n**-0.5, np.full(len(n), 0.2)
    right = {"N": n, "HMC": falls, "HMC_rhat": np.ones(len(n)), "MC dropout": flat[None], "MeanField": falls[None]}
    right |= {f"{name}_misfit": np.ones((1, len(n))) for name in of.FAMILIES}
    right["concrete dropout"] = 0.2 * (n[None] / n[0]) ** -0.25
    assert wrong(of.concentration_checks, right) == set()
    assert wrong(of.concentration_checks, right | {"HMC": flat}) == {"HMC", "MC dropout"}
    assert "MC dropout" in wrong(of.concentration_checks, right | {"MC dropout": falls[None]})
    assert "concrete dropout" in wrong(of.concentration_checks, right | {"concrete dropout": flat[None]})
    assert torch.equal(of.points(100)[0][:30], of.points(30)[0])  # more data means more of the same


def test_between_expects(script: Callable[[str], ModuleType]) -> None:
    of = script("vi_between")
    x = np.linspace(-3, 3, 121)
    bulge = 0.1 + 0.9 * np.exp(-4 * x**2)
    names = list(of.FAMILIES)
    right = {"x": x, "HMC_sd": bulge, "HMC_rhat": np.ones(121), "HMC_ess": np.full(121, 500.0)}
    parts = dict(zip(names, (0.1, 0.4, 0.5, 0.3, 0.6), strict=True))
    seeds = np.array([0.99, 1.0, 1.01])[:, None]
    right |= {f"{name}_sd": part * seeds * np.ones(121) for name, part in parts.items()}
    right |= {f"{name}_elbo": np.zeros(3) for name in names} | {f"{name}_misfit": np.ones(3) for name in names}
    assert wrong(of.between_checks, right) == set()
    assert wrong(of.between_checks, right | {"MatrixNormal_sd": right["MeanField_sd"]}) == set()  # no worse: 0 is in
    assert wrong(of.between_checks, right | {"MatrixNormal_sd": 0.5 * right["MeanField_sd"]}) == {"MatrixNormal"}
    assert "MeanField" in wrong(of.between_checks, right | {"MeanField_sd": seeds * bulge})
    assert wrong(of.between_checks, right | {"FullRank_elbo": np.full(3, -1.0)}) == {"FullRank"}
    assert wrong(of.between_checks, right | {"LowRank_misfit": np.full(3, 2.0)}) == {"LowRank"}
    assert wrong(of.between_checks, right | {"HMC_rhat": np.full(121, 1.1)}) == {"HMC"}


def test_bands_expect(script: Callable[[str], ModuleType]) -> None:
    of = script("vi_bands")
    d, seeds = np.array(of.DISTANCES), np.array([0.99, 1.0, 1.01])[:, None]
    ends = {"ReLU": d * seeds, "tanh": np.ones((3, len(d)))}
    right = {f"{method}, {name}, far": ends[name] for method in of.METHODS for name in ends}
    keys = list(right)
    right |= {f"HMC, {name}, far": ends[name][:1] for name in ends}
    right |= {f"HMC, {name}, rhat": np.ones(3) for name in ends}
    right |= {key.replace("far", "misfit"): np.array([1.0]) for key in keys}
    assert wrong(of.bands_checks, right) == set()
    assert wrong(of.bands_checks, right | {"HMC, tanh, rhat": np.full(3, 1.2)}) == {"HMC, tanh"}
    for key in keys:
        other = ends["tanh" if "ReLU" in key else "ReLU"]
        assert wrong(of.bands_checks, right | {key: other}) == {key.removesuffix(", far")}
    uneven = np.stack([np.array([1, 1, 1, g]) for g in (1.0, 1.0, 4.0)])  # 2 in the mean, by one seed alone
    assert wrong(of.bands_checks, right | {"MeanField, ReLU, far": uneven}) == {"MeanField, ReLU"}


def test_decay_expects(script: Callable[[str], ModuleType]) -> None:
    of = script("vi_decay")
    right = {
        "too small, misfit": np.full(3, 0.6),
        "good, misfit": np.full(3, 0.9),
        "too large, misfit": np.full(3, 2.0),
    }
    right |= {"too small, error": np.full(3, 0.8), "good, error": np.full(3, 0.4), "too large, error": np.full(3, 2.0)}
    assert wrong(of.decay_checks, right) == set()
    assert of.decay_of(100.0) < of.decay_of(1.0) < of.decay_of(0.03)
    names = {name: f"{name}: {of.decay_of(scale):.1e}" for name, scale in of.SCALES.items()}
    assert wrong(of.decay_checks, right | {"too large, misfit": np.ones(3)}) == {names["too large"]}
    assert wrong(of.decay_checks, right | {"too small, error": np.full(3, 0.3)}) == {names["too small"]}


def test_grid_expects(script: Callable[[str], ModuleType]) -> None:
    of = script("vi_grid")
    falls = np.array([[0.5, 0.2, 0.05]] * 3)
    right = {f"{name}_{key}": falls for name in of.EFFORTS for key in ("error", "cpu_seconds", "narrow")}
    right |= {f"{name}_effort": np.array(of.EFFORTS[name]) for name in of.EFFORTS}
    right |= {"MeanField_error": np.full((3, 3), 0.4), "MeanField_narrow": np.full((3, 3), 0.6)}
    assert wrong(of.grid_checks, right) == set()
    assert wrong(of.grid_checks, right | {"HMC_error": falls[:, ::-1]}) == {"HMC"}
    assert wrong(of.grid_checks, right | {"MeanField_narrow": np.ones((3, 3))}) == {"MeanField"}
    assert wrong(of.grid_checks, right | {"FullRank_error": np.full((3, 3), 0.5)}) == {"FullRank"}
    mean, sd = of.truth()
    assert sd.min() > 0.5 and np.abs(mean).max() + 5 * sd.max() < 10  # the grid holds it, and is fine enough


def test_rates_expect(script: Callable[[str], ModuleType]) -> None:
    of = script("vi_rates")
    widths = np.array(of.WIDTHS)
    grown = np.linspace(0.1, 0.4, len(widths)) * np.array([[0.99], [1.0], [1.01]])
    right = {
        "width": widths,
        "gap": grown,
        "nll": grown,
        "misfit": np.ones((3, len(widths))),
        **dict.fromkeys(of.LAYERS, grown),
    }
    assert wrong(of.rates_checks, right) == set()
    assert len(wrong(of.rates_checks, right | dict.fromkeys(of.LAYERS, grown[:, ::-1]))) == 2
    assert len(wrong(of.rates_checks, right | dict.fromkeys(of.LAYERS, 2 * grown))) == 2


def test_regression_expects(script: Callable[[str], ModuleType]) -> None:
    of = script("bbb_regression")
    x = np.linspace(-0.4, 1.0, 141)
    wide, even = 0.1 + np.abs(x - 0.25), np.full(141, 0.1)
    right = {"x": x, "rhat": np.ones(141), "ess": np.full(141, 500.0), "noise": np.array(0.1)}
    right |= {"x_train": np.zeros(2), "y_train": np.zeros(2)}
    for name, half in {"MeanField": wide, "MAP": even, "HMC": wide}.items():
        right |= {f"{name}_low": -half, f"{name}_high": half}
    assert wrong(of.regression_checks, right) == set()
    assert wrong(of.regression_checks, right | {"MAP_high": wide}) == {"MAP"}
    assert wrong(of.regression_checks, right | {"MeanField_low": -even, "MeanField_high": even}) == {"MeanField"}
    assert float(of.blundell()[1].std()) > 0.12 and of.blundell()[0].max() <= 0.5


def test_co2_expects(script: Callable[[str], ModuleType]) -> None:
    of = script("co2")
    x = np.linspace(-1.7, 3.7, 200)
    opens, even = 0.1 + np.maximum(x - 1.7, 0), np.full(200, 0.1)
    right = {"x": x, "x_train": x[:100]}
    for name in of.METHODS:
        right |= {f"{name}, sd": opens if name.endswith("ReLU") else even, f"{name}, rmse": np.array(0.1)}
    right |= {f"HMC, {name}, rhat": np.ones(200) for name in ("ReLU", "tanh")}
    assert wrong(of.co2_checks, right) == set()
    for name in of.METHODS:
        other = even if name.endswith("ReLU") else opens
        assert wrong(of.co2_checks, right | {f"{name}, sd": other}) == {name}


# ---- what is trained -------------------------------------------------------------------------------------------


def test_lenet_is_the_papers(script: Callable[[str], ModuleType]) -> None:
    of = script("bayesian_lenet")
    net = of.lenet("mnist", "all", 0)
    assert sum(p.numel() for p in net.parameters()) == sum(p.numel() for p in lenet5().parameters()) == 431_080
    rates = {kind: [m.p for m in of.lenet("mnist", kind, 0) if isinstance(m, nn.Dropout)] for kind in of.KINDS}
    assert rates == {"all": [0.5, 0.5, 0.5], "fc": [0, 0, 0.5], "none": [0, 0, 0]}
    assert of.lenet("cifar10", "all", 0)(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert of.Inverse(20_000)(0.5) == pytest.approx(2**-0.75)


def test_masks_of_the_lstm(script: Callable[[str], ModuleType]) -> None:
    """One mask for all steps is drawn once, the others at each step."""
    of = script("lstm_text")
    tokens = torch.randint(1, 30, (4, 7))
    calls = {}
    for kind in of.KINDS:
        net = of.TextLSTM(30, 8, kind).train()
        seen: list[float] = []
        net.drop_state.register_forward_hook(lambda module, x, y, seen=seen: seen.append(module.p))
        assert net(tokens).shape == (4, 2)
        calls[kind] = (len(seen), seen[0])
    assert calls["one mask each"] == (1, 0.5) and calls["per step"] == (7, 0.5)
    assert calls["inputs"][1] == calls["none"][1] == calls["one mask"][1] == 0.0


# ---- what is kept ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
def test_committed_outcomes(name: str) -> None:
    path = RESULTS / f"{name}.json"
    if not path.exists():
        pytest.skip(f"no {path.name} yet")
    rows = json.loads(path.read_text())["rows"]
    assert {(name, row["row"], row["metric"]) for row in rows if row["right"] is False} <= OTHERWISE


def test_the_own_loop_learns() -> None:
    spec = importlib.util.spec_from_file_location("own_training_loop", ROOT / "examples" / "own_training_loop.py")
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    seen = example.main(quick=True)
    assert seen[-1] < seen[0]
