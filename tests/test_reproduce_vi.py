"""The reproductions of dropout and Bayes by Backprop run at toy size, go on where they stopped, and mean what the library means.

Statistical assertions have the false-alarm rate of chance.py; that of the losses is shown to fail on a planted fault.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from chance import Z, within
from torch import Tensor, nn

from nescio import Model
from nescio.infer import VI
from nescio.infer.families import BernoulliDropout, papers_penalty
from nescio.laws import LogUniform, Normal
from nescio.likelihoods import Categorical
from nescio.noise import Noise

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "reproduce"


@pytest.fixture
def reproduce(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Scripts can be imported, and leave nothing behind."""
    monkeypatch.syspath_prepend(str(FOLDER))
    names = {path.stem for path in FOLDER.glob("*.py")}
    yield
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def with_data(reproduce: None, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESCIO_DATA", str(data_folder))


def load(name: str) -> ModuleType:
    return importlib.import_module(name)


# ---- the tutorial ------------------------------------------------------------------------------------------------


def test_tutorial_quick(with_data: None, tmp_path: Path) -> None:
    script = load("dropout_tutorial")
    flags = ["--quick", "--out", str(tmp_path)]
    assert script.main([*flags, "--budget", "0"]) == []  # no time: nothing is begun
    rows = script.main(flags)
    assert all(math.isfinite(row["ours"]) for row in rows)
    known = [row for row in rows if row["published"] is not None and row["metric"].startswith("accuracy")]
    assert (
        len(known) == 5 + 2 + 3 * 2
    )  # the table without its last row, another temperature, three readings of that row
    assert {row["row"] for row in rows} >= {"concrete dropout, N = 200", "MC dropout, weight decay 0.01"}
    assert {row["metric"] for row in rows} >= {"cent, epoch 2", "wd, epoch 1", "epistemic, blended digits"}
    assert any(row["metric"].startswith("keep before 2.weight") for row in rows)
    kept = tmp_path / "dropout_tutorial.quick.rows.jsonl"
    before = kept.read_text()
    assert script.main([*flags, "--budget", "0"]) == rows and kept.read_text() == before  # all is there
    assert json.loads((tmp_path / "dropout_tutorial.quick.json").read_text())["rows"] == rows


def test_images_of_the_tutorial(with_data: None) -> None:
    digits = load("digits")
    file = digits.official()[0]
    train, test = digits.by_class(file, 0, 100), digits.by_class(file, 100, 100)
    assert train.y.bincount().tolist() == test.y.bincount().tolist() == [100] * 10
    zeros = (file.y == 0).nonzero()[:, 0]
    assert torch.equal(train.x[:100], file.x[zeros[:100]]) and torch.equal(test.x[:100], file.x[zeros[100:200]])
    x, pair = digits.blends(test, 50)
    assert x.shape == (50, 784) and bool((pair[:, 0] != pair[:, 1]).all())


def test_verdicts_of_the_tutorial(reproduce: None) -> None:
    row = load("dropout_tutorial_table").row
    near, far = [90.0, 90.2, 90.4], [91.4, 91.6, 91.8]
    assert row("a", "b", near, [], (90.17, 0.23))["within"] is True
    assert row("a", "b", far, [], (90.17, 0.23))["within"] is False
    between = row("a", "b", [90.6, 90.65, 90.7], [], (90.17, 0.3))
    assert between["within"] is True and between["within strictly"] is False
    assert row("a", "b", [90.0], [], (90.17, 0.23))["within"] is None  # one run says nothing
    assert row("a", "b", near, [])["published"] is None


def test_noise_on_units(reproduce: None) -> None:
    """Mean one and variance alpha, and a divergence counted once for each unit."""
    units, families = load("noisy_units"), load("nescio.families.variational_dropout")
    model = Model(nn.Sequential(nn.Linear(4, 3, bias=False)), LogUniform(), Categorical())
    data = torch.randn(6, 4), torch.arange(6) % 3
    posterior, loss = VI(units.NoisyUnits(0.3)).objective(model, data)
    (factor,) = loss.q.parts()
    with Noise(0).scope(), torch.no_grad():
        z = factor.noise(50_000)
    within((z.mean(0) - 1) / math.sqrt(0.3 / 50_000), "mean")
    within((z.var(0) / 0.3 - 1) / math.sqrt(2 / 49_999), "variance")
    each = families.log_uniform_kl(torch.tensor(math.log(0.3)))
    assert float(loss.q.call().divergence().detach()) == pytest.approx(4 * float(each), rel=1e-5)
    assert torch.allclose(units.unit_alphas(posterior.q)["0.weight"], torch.full((4,), 0.3))


# ---- UCI -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [False, True], ids=["by the library", "side by side"])
def test_uci_dropout_quick(with_data: None, tmp_path: Path, together: bool) -> None:
    uci, scores = load("uci"), tmp_path / "scores.jsonl"
    flags = ["--method", "dropout", "--quick", "--out", str(tmp_path), "--work", str(tmp_path / "work")]
    flags += ["--scores", str(scores), *(["--together"] if together else [])]
    rows = uci.main(flags)
    wanted = {
        "nll",
        "nll, free precision",
        "rmse",
        "coverage",
        "coverage of 95%",
        "rate",
        "precision",
        "free precision",
    }
    assert {row["metric"] for row in rows} == wanted | {"seconds"}
    assert all(math.isfinite(row["ours"]) for row in rows)
    (row,) = (row for row in rows if row["metric"] == "nll" and row["row"].startswith("yacht"))
    assert row["published"] == pytest.approx(1.2501, abs=1e-3)  # the reference that it reproduces
    assert row["beside"]["MC dropout, 4000 epochs"]["censored"] is False  # the same grid: censored alike
    line = json.loads(scores.read_text().splitlines()[0])
    assert line["trained by"] == ("side by side" if together else "VI")
    found = json.loads((tmp_path / "work" / "uci_dropout-boston-0.search.json").read_text())["found"]
    assert found[0]["rate"] == line["rate"]  # what the search found is kept for another run
    scores.unlink()
    again = uci.main(flags)
    assert [r["ours"] for r in again if r["metric"] == "nll"] == [r["ours"] for r in rows if r["metric"] == "nll"]


def test_the_order_of_the_protocol(with_data: None) -> None:
    dropout, published = load("uci_dropout"), load("uci_published")
    for name in ("boston", "yacht"):
        n = len(published.members(f"{name}/data")) - published.members(f"{name}/test_idx").shape[1]
        orders = [dropout.drawn_order(name, split) for split in range(20)]  # refuses one that gives other test rows
        assert all(sorted(order) == list(range(n)) for order in orders)
        assert not np.array_equal(orders[0], np.arange(n)) and not np.array_equal(orders[0], orders[1])


P, TAU = 0.3, 1e-6  # so small a precision that the penalty counts


def beside_the_library(rows: int) -> tuple[Any, Any, Tensor, Tensor]:
    """One network of a stack, the library's loss with the same weights, and rows."""
    stack, dropout = load("uci_stack"), load("uci_dropout")
    x, y = Noise(0).at("x").normal(rows, 5), Noise(0).at("y").normal(rows, 1)
    penalty = papers_penalty(TAU, dropout.LENGTH, P, rows)
    nets = stack.Stack(5, 7, torch.tensor([P]), torch.tensor([penalty]), Noise(0).at("start"))
    model = Model(nets.net(0), dropout.laws(TAU, P, rows), dropout.TRAINED)
    return nets, VI(BernoulliDropout(P)).objective(model, (x, y))[1], x, y


def penalties(nets: Any, loss: Any, rows: int, factor: float) -> tuple[float, float]:
    """How the stack's penalty and the library's divergence per observation grow when all weights do; constants drop out."""
    with torch.no_grad():
        grown = nets.penalties * (nets.first.square().sum() + nets.last.square().sum()) * (factor**2 - 1)
        before = float(loss.q.call().divergence())
        for p in loss.q.parameters():
            p.mul_(factor)
        return float(grown), (float(loss.q.call().divergence()) - before) / rows


def test_the_penalty_side_by_side_is_the_library_s_divergence(reproduce: None) -> None:
    nets, loss, _, _ = beside_the_library(40)
    ours, theirs = penalties(nets, loss, 40, 1.5)
    assert ours == pytest.approx(theirs, rel=1e-4) and ours > 1


@pytest.mark.parametrize("fault", [False, True], ids=["right", "not rescaled"])
def test_the_fit_side_by_side_is_the_library_s(reproduce: None, monkeypatch: pytest.MonkeyPatch, fault: bool) -> None:
    """In the mean over masks: (y - f)², the library's with a constant."""
    nets, loss, x, y = beside_the_library(2000)
    if fault:

        def dropped(self: Any, x: Tensor, u: Tensor) -> Tensor:
            return x * (u >= self.rates)

        monkeypatch.setattr(type(nets), "dropped", dropped)
    with torch.no_grad():
        divergence, penalty = (
            float(loss.q.call().divergence()),
            nets.penalties[0] * (nets.first.square().sum() + nets.last.square().sum()),
        )
        theirs, ours = [], []
        for seed in range(60):
            with Noise(seed).at("library").scope():
                theirs.append((-float(loss.estimate(x, y)) - divergence) / len(x) - 0.5 * math.log(math.pi))
            with Noise(seed).at("stack").scope():
                ours.append(float(nets.loss(x[None], y[None, :, 0], torch.ones(len(x)))[0] - penalty))
    a, b = np.array(theirs), np.array(ours)
    z = (a.mean() - b.mean()) / math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / len(a))
    if fault:
        assert abs(z) > Z, z
    else:
        within(z)


def test_side_by_side_trains(reproduce: None) -> None:
    """Two networks, one with rows that can be learned and one without; the rows of a smaller last batch count as many as they are."""
    stack = load("uci_stack")
    x = Noise(0).at("x").normal(2, 150, 3)
    y = torch.stack([x[0, :, 0], Noise(0).at("y").normal(150)])
    nets = stack.Stack(3, 20, torch.zeros(2), torch.zeros(2), Noise(0))
    stack.train(nets, stack.Rows(x, y, torch.arange(2)), 150, Noise(1))
    left = (nets(x) - y).square().mean(1).detach()
    assert float(left[0]) < 0.05 < float(left[1])
    drawn = stack.draws(nets, x, torch.arange(2), 3, Noise(2))
    assert drawn.shape == (3, 2, 150) and torch.allclose(
        drawn[0], nets(x), atol=1e-6
    )  # without dropout all draws are one


# ---- Bayes by Backprop -------------------------------------------------------------------------------------------


def test_mnist_bbb_quick(with_data: None, tmp_path: Path) -> None:
    script = load("mnist_bbb")
    rows = script.main(["--quick", "--out", str(tmp_path), "--figures", str(tmp_path / "figures")])
    assert {row["row"].split(",")[0] for row in rows} == {
        *("plain network", "dropout", "MeanField", "MatrixNormal", "MultiplicativeFlow")
    }
    assert all(math.isfinite(row["ours"]) for row in rows)
    assert all(math.isfinite(row["mean sd"]) is ("MeanField" in row["row"]) for row in rows)
    line = json.loads((tmp_path / "mnist_bbb.quick.rows.jsonl").read_text().splitlines()[0])
    assert len(line["curve"]) == 2 and 0 < sum(line["histogram"]["means"]) <= 1.0001
    for name in ("mnist_errors", "mnist_weights"):
        assert ET.parse(tmp_path / "figures" / f"{name}.svg").getroot().tag.endswith("svg")


def test_a_stopped_training_ends_as_one_that_was_not(reproduce: None, tmp_path: Path) -> None:
    training = load("mnist_training")
    x, y = Noise(0).at("x").normal(60, 4), Noise(0).at("y").integers(0, 3, 60)

    def fresh() -> tuple[Any, Any]:
        with Noise(0).at("net").scope():
            model = Model(nn.Linear(4, 3), Normal(0.0, 1.0), Categorical())
        posterior, loss = VI().objective(model, (x, y))
        return posterior, training.Training(loss, 1e-2, 4, 20, Noise(3))

    whole, run = fresh()
    for epoch in range(4):
        run.epoch(epoch, x, y)
    _, run = fresh()
    for epoch in range(2):
        run.epoch(epoch, x, y)
    run.save(tmp_path / "run", [{"naive": 1.0}, {"naive": 2.0}])
    resumed, run = fresh()
    assert run.resume(tmp_path / "nothing") == []
    assert run.resume(tmp_path / "run") == [{"naive": 1.0}, {"naive": 2.0}]
    for epoch in range(2, 4):
        run.epoch(epoch, x, y)
    assert all(
        torch.equal(a, b) for a, b in zip(whole.q.state_dict().values(), resumed.q.state_dict().values(), strict=True)
    )
