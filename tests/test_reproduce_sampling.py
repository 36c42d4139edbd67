"""The reproductions of sampling run at toy size, their checks can fail, and what they keep is whole.

Statistical assertions have the false-alarm rate of chance.py; each is shown to fail on a planted fault.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from chance import Z, within
from torch import nn

from nescio.data.source import source
from nescio.infer import HMC, Metropolis
from nescio.laws import Normal
from nescio.likelihoods import Gaussian
from nescio.model import Model
from nescio.noise import Noise
from nescio.posterior.draws import Draws
from nescio.report.figures import banana, modes, paths, predictive, regions, walks
from nescio.target import Target

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "reproduce" / "results"


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "reproduce"))
    spec = importlib.util.spec_from_file_location(name, ROOT / "reproduce" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, loaded)
    spec.loader.exec_module(loaded)
    return loaded


def committed(name: str) -> list[dict[str, Any]]:
    path = RESULTS / f"{name}.json"
    if not path.exists():
        pytest.skip(f"no {path.name} yet")
    return json.loads(path.read_text())["rows"]


# ---- textbook pictures -----------------------------------------------------------------------------------------


def test_textbook_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reproduce = script("textbook_posteriors", monkeypatch)
    rows = reproduce.main(["--quick", "--out", str(tmp_path), "--results", str(tmp_path)])
    assert not [row for row in rows if row["right"] is False]
    assert (
        sum(row["right"] is True for row in rows) == 15
    )  # what short chains can show: moments of many, proposals, symmetries
    kept = json.loads((tmp_path / "textbook_posteriors.quick.json").read_text())
    assert kept["quick"] is True and kept["rows"] == rows
    for path in [
        folder / f"{name}.svg" for name in reproduce.FIGURES for folder in (tmp_path, ROOT / "docs" / "figures")
    ]:
        entry = reproduce.FIGURES[path.stem]
        description = ET.parse(path).getroot().find("{http://www.w3.org/2000/svg}desc")
        assert description is not None and description.text == entry.alt
        assert path.stat().st_size < 300_000 and path.with_suffix(".csv").stat().st_size < 300_000


def test_committed_textbook_checks_hold() -> None:
    assert [row for row in committed("textbook_posteriors") if row["right"] is not True] == []


def exact_draws(grid: dict[str, np.ndarray], n: int, seed: int) -> torch.Tensor:
    """A cell by its probability, a place in it uniformly: exact but for a variance of a twelfth of a squared cell."""
    rng, density = np.random.default_rng(seed), grid["density"]
    cell = rng.choice(density.size, n, p=density.reshape(-1) / density.sum())
    steps = [grid[name][1] - grid[name][0] for name in ("first", "second")]
    places = [grid["first"][cell // density.shape[1]], grid["second"][cell % density.shape[1]]]
    return torch.tensor(np.stack([p + s * (rng.random(n) - 0.5) for p, s in zip(places, steps, strict=True)], 1))


def test_moments_against_quadrature_see_a_wrong_sampler() -> None:
    model, data = banana.banana()
    grid = regions.gridded(Target(model, source(data)), paths.WIDE, 401)
    right = exact_draws(grid, 4000, 0)
    within(regions.moments_z(grid, right, paths.quantities))
    wider = right.mean(0) + 1.1 * (right - right.mean(0))
    assert np.abs(regions.moments_z(grid, wider, paths.quantities)).max() > Z
    for name in modes.CASES:
        model, data = modes.case(name)
        grid = regions.gridded(Target(model, source(data)), *modes.WIDE)
        edge = np.concatenate([grid["density"][i] for i in (0, -1)] + [grid["density"][:, i] for i in (0, -1)])
        assert edge.max() < 1e-6 * grid["density"].max()  # the grid holds the posterior
        right = exact_draws(grid, 4000, 1)
        within(regions.moments_z(grid, right, modes.quantities(name)))
        one_mode = right[(right[:, 0] > right[:, 1]) if name == "exchange" else (right[:, 0] > 0.8)]
        assert np.abs(regions.moments_z(grid, one_mode, modes.quantities(name))).max() > Z


def test_moments_of_one_weight_see_a_chain_on_one_hill() -> None:
    grid, density = walks.exactly()
    assert max(density[0], density[-1]) < 1e-12 * density.max()  # the grid holds the posterior
    w = np.random.default_rng(0).choice(grid, 4000, p=density / density.sum())
    within(walks.moments_z(torch.from_numpy(w)))
    for planted in (np.abs(w), 1.1 * w):  # one hill only; a tenth too wide
        assert np.abs(walks.moments_z(torch.from_numpy(planted))).max() > Z


@pytest.mark.parametrize("weights", [1, 2])
@pytest.mark.parametrize("name", ["metropolis", "langevin", "hamiltonian"])
def test_shown_proposals_are_those_of_the_sampler(name: str, weights: int, monkeypatch: pytest.MonkeyPatch) -> None:
    method, noise = paths.samplers()[name], Noise(3, dtype=torch.float64)
    place = (banana.banana(), banana.START) if weights == 2 else (banana.hills(), walks.START)
    found = banana.walk(method, *place, 30, noise)
    assert found["mismatch"] < 1e-12
    assert found["points"].shape[1] == found["lengths"].sum() >= 30
    repeated = (found["states"][:, 1:] == found["states"][:, :-1]).all(0)
    assert np.array_equal(repeated, found["took"] == 0)
    honest = banana.proposed
    monkeypatch.setattr(banana, "proposed", lambda *a: honest(*a[:-1], a[-1].at("other")))  # planted: other noise
    assert banana.walk(method, *place, 30, noise)["mismatch"] > 0.01


def test_regions_hold_what_they_say() -> None:
    """A standard normal: the region that holds p ends where the density is 1 - p of its peak."""
    x = np.linspace(-5, 5, 401)
    density = np.exp(-0.5 * (x[:, None] ** 2 + x**2))
    np.testing.assert_allclose(regions.levels(density), [1 - p for p in regions.HOLDS], atol=2e-3)
    wide = {"first": x, "second": x, "density": density}
    assert regions.expectation(wide, x[:, None] ** 2 + 0 * x) == pytest.approx(1, abs=1e-4)


def test_identity_sees_a_posterior_that_is_too_wide() -> None:
    """E[1 + u ∂log p/∂u] = 0 under the posterior itself, here normal and drawn from exactly."""
    x = torch.linspace(-1, 1, 10, dtype=torch.float64)[:, None]
    model = Model(nn.Linear(1, 1, bias=False).double(), Normal(0.0, 1.0), Gaussian(0.5))
    target, precision = Target(model, source((x, 0 * x))), 1 + float((x**2).sum()) / 0.25
    z = Noise(0, dtype=torch.float64).normal(4, 1000, 1)

    def found(factor: float) -> np.ndarray:
        theta = factor * z / math.sqrt(precision)
        return predictive.identity_z(target, Draws(model, theta, torch.zeros(4, 1000), {}, {}))

    within(found(1.0))
    assert np.abs(found(1.15)).max() > Z


# ---- truths from outside ---------------------------------------------------------------------------------------


def test_every_reference_is_the_same_model(truth: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = script("truth_files", monkeypatch)
    found = files.files(truth)
    assert len(found) == len(list(truth.glob("linear/*.json"))) + len(list(truth.glob("informative/*.json"))) + 1
    for path in found:
        known = files.problem(path)
        error = known.density_error()
        assert known.model.dim == len(known.mean)
        if path.parent.name == "logistic":  # no density is stated, but where its gradient vanishes
            mode = torch.tensor([json.loads(path.read_text())["laplace"]["map"]], dtype=torch.float64)
            target = Target(known.model, source(known.data))
            assert target.value_and_grad(mode, target.batch(None))[1].abs().max() < 1e-6
        else:
            assert error is not None and error < 1e-9
    mixed = files.problem(truth / "linear" / "diamonds-diamonds.json")
    monkeypatch.setitem(
        files.WEIGHTS, "student_t", lambda df, loc, scale: Normal(loc, scale)
    )  # planted: another family
    other = files.problem(truth / "linear" / "diamonds-diamonds.json")
    assert mixed.density_error() < 1e-9 < other.density_error()


def test_truth_quick(truth: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reproduce = script("truth", monkeypatch)
    arguments = ["--truth", str(truth), "--quick", "--methods", "MALA", "--out", str(tmp_path)]
    rows = reproduce.main(arguments)
    assert len(rows) == 1 and rows[0]["right"] is True and rows[0]["density_error"] < 1e-9
    monkeypatch.setattr(reproduce, "score", None)  # a second run has nothing to do
    assert reproduce.main(arguments) == rows
    kept = json.loads((tmp_path / "truth.quick.json").read_text())
    assert kept["quick"] is True and kept["rows"] == rows


def test_truth_resumes_and_keeps_to_its_budget(truth: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reproduce = script("truth", monkeypatch)
    scored: list[str] = []

    def score(path: Path, name: str, chains: int, device: str) -> dict[str, Any]:
        scored.append(reproduce.labelled(path.stem, name, device))
        own = {
            "row": scored[-1],
            "settings": repr(reproduce.METHODS[name]),
            **reproduce.judged({"ours": 0.0, "sd_error": 0.0, "shift": 0.0}, chains * reproduce.DRAWS, estimated=True),
            "n": chains * reproduce.DRAWS,
        }
        return own | {"seconds": 0.0, "acceptance": 1.0, "made": reproduce.origin()}

    monkeypatch.setattr(reproduce, "score", score)
    arguments = ["--truth", str(truth), "--out", str(tmp_path), "--chains", "7"]
    assert reproduce.main([*arguments, "--budget", "-1"]) == [] and not scored
    first = reproduce.main([*arguments, "--only", "mesquite"])
    count, lines = len(scored), (tmp_path / "truth.rows.jsonl").read_text().splitlines()
    assert count == len(first) == len(lines) == 4 * sum("mesquite" in p.stem for p in truth.glob("[il]*/*.json"))
    with (tmp_path / "truth.rows.jsonl").open("a") as file:
        file.write(lines[0][:40])  # a kill in the middle of a line
    every = reproduce.main(arguments)
    assert len(every) == len(scored) == len(set(scored)) == 4 * len(reproduce.files(truth))
    assert [json.loads(x) for x in (tmp_path / "truth.rows.jsonl").read_text().splitlines() if x.endswith("}")]
    assert reproduce.main(arguments) == every and len(scored) == len(every)
    rows = tmp_path / "truth.rows.jsonl"
    rows.write_text(rows.read_text().replace('"sd_error": 0.0', '"sd_error": 9.0', 1))  # what is kept is judged anew
    assert [row["right"] for row in reproduce.main(arguments)].count(False) == 1 and len(scored) == len(every)
    for other in (["--chains", "8"], ["--device", "cuda"]):  # ... are other rows
        assert reproduce.main([*arguments, *other, "--budget", "-1"]) == []
    assert len(scored) == len(every)


def test_verdict_sees_small_faults(truth: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 000 draws: a mean off by 0.06 sd (for the logistic truth 0.035), a standard deviation off by 6%."""
    reproduce = script("truth", monkeypatch)
    for stem, shift in (("linear/mesquite-logmesquite", 0.06), ("logistic/german_credit", 0.035)):
        known = reproduce.problem(truth / f"{stem}.json")
        z = np.random.default_rng(0).standard_normal((4000, 10, len(known.mean)))
        assert reproduce.verdict(known.mean + known.sd * z, known)["right"] is True
        assert reproduce.verdict(known.mean + known.sd * (z + shift), known)["right"] is False
        assert reproduce.verdict(known.mean + 1.06 * known.sd * z, known)["right"] is False
        alike = z[:, :1] + 0 * z  # ten draws of a chain that are one: four thousand in truth, and the error says so
        assert reproduce.verdict(known.mean + known.sd * alike, known)["ours"] < reproduce.Z
        z[0] = np.nan
        assert reproduce.verdict(known.mean + known.sd * z, known)["right"] is False


def test_committed_truths_are_right() -> None:
    assert [row["row"] for row in committed("truth") if row["right"] is not True] == []


# ---- the HMC reference -----------------------------------------------------------------------------------------


def test_hmc_reference_quick(data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESCIO_DATA", str(data_folder))
    reproduce = script("hmc_reference", monkeypatch)
    rows = reproduce.main(["--quick", "--out", str(tmp_path)])
    assert {row["row"] for row in rows} >= {"HMC", "HMC, one half against the other", "5 * MAP()", "SGHMC", "MCLMC"}
    assert all(math.isfinite(row["ours"]) for row in rows)
    with np.load(tmp_path / "hmc_reference.quick.npz", allow_pickle=False) as file:
        probs = file["probs"].astype(np.float64)
    np.testing.assert_allclose(probs.sum(1), 1, atol=5e-3)
    assert json.loads((tmp_path / "hmc_reference.quick.json").read_text())["rows"] == rows


def test_hmc_reference_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Halves that are one and the same are at the ceiling; a method that is the reference is as near as can be; another is not."""
    reproduce = script("hmc_reference", monkeypatch)
    rng = np.random.default_rng(0)
    chains = rng.dirichlet(np.ones(10), (3, 50)).astype(np.float32)
    looked = rng.random((3, 40, 20)).astype(np.float32)
    info = {"seconds": 1.0, "method": "by hand"}
    results = {name: reproduce.Result(name, chains, looked, info) for name in reproduce.JOBS}
    results["SGHMC"] = results["SGHMC"]._replace(probs=np.roll(chains, 1, -1))
    y = torch.tensor(chains.mean(0).argmax(1))
    found = {(row["row"], row["metric"]): row["ours"] for row in reproduce.table(results, y)}
    halves = "HMC, one half against the other"
    assert found[halves, "agreement"] == 1 and found[halves, "total_variation"] == pytest.approx(0, abs=1e-7)
    assert found["HMC", "accuracy"] == found["MCLMC", "agreement"] == 1
    assert found["SGHMC", "accuracy"] < 0.5 and found["SGHMC", "total_variation"] > 0.1
    assert found["HMC, one chain against the others", "total_variation"] > 0.1


def test_committed_hmc_reference_has_mixed() -> None:
    found = {(row["row"], row["metric"]): row["ours"] for row in committed("hmc_reference")}
    assert found["HMC", "R-hat, largest"] < 1.05
    assert found["HMC, one half against the other", "agreement"] > found["5 * MAP()", "agreement"]
    assert found["HMC, one half against the other", "total_variation"] < found["5 * MAP()", "total_variation"]


def test_samplers_of_the_picture_keep_their_step_sizes() -> None:
    """With a warm-up they would adapt, and the proposals would not be those that are shown."""
    assert all(method.warmup == 0 for method in paths.samplers().values())
    assert isinstance(paths.samplers()["hamiltonian"], HMC) and isinstance(paths.samplers()["metropolis"], Metropolis)
