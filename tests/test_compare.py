"""The fair comparison: ranks, spreads, closeness to a reference and its ceiling, costs, failures that do not stop the rest."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from commands import call
from torch import Tensor
from torch.distributions import Categorical, Normal

from nescio import Model, fit
from nescio.comparison import Comparison, Row, Task, compare, compare_tasks, standard_methods, suite
from nescio.comparison.by_rows import ByRows, epochs
from nescio.comparison.closeness import ceiling, densities_apart, near
from nescio.comparison.cost import passes
from nescio.data.source import source
from nescio.errors import InputError
from nescio.infer import HMC, MAP, NUTS, Laplace
from nescio.infer.begin import minibatch
from nescio.laws import Discrete
from nescio.laws import Normal as Law
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.posterior import Draws, Posterior
from nescio.predictive import Drawn


def problem() -> tuple[Model, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    x = torch.linspace(-2, 2, 40)[:, None]
    return Model(mlp(1, 3, 1), Law(0.0, 1.0), Gaussian(0.3)), (x[::2], x[::2].sin()), (x[1::2], x[1::2].sin())


def check_ranks() -> None:
    """By hand: lower is better for NLL, higher for accuracy; ties share; what failed comes last."""
    values = {"a": (1.0, 0.9), "b": (2.0, 0.8), "c": (2.0, 0.95)}
    rows = [Row(m, "t", 0, s, {"nll": v[0] + s, "accuracy": v[1]}) for s in (0, 1) for m, v in values.items()]
    table = Comparison((*rows, Row("d", "t", 0, 0, {}, "why"), Row("d", "t", 0, 1, {}, "why")))
    assert table.ranks() == {"a": 1.0, "b": 2.5, "c": 2.5, "d": 4.0}
    assert table.ranks("accuracy") == {"c": 1.0, "a": 2.0, "b": 3.0, "d": 4.0}
    assert table.summary()["a"]["nll"] == (1.5, pytest.approx(math.sqrt(0.5)))
    assert "could not: why" in table.text()


def check_total_variation() -> None:
    """Two Gaussians of one width: TV = 2 Φ(|m - m'| / 2s) - 1; of classes ½ Σ |p - q|; of a thing and itself 0."""
    shift = torch.tensor([0.0, 0.5, 2.0])[None, :, None]
    zero, width = torch.zeros(1, 3, 1), torch.ones(1, 3, 1)
    exact = float((2 * Normal(0.0, 1.0).cdf(shift / 2) - 1).mean())
    assert densities_apart(Drawn(Normal(zero, width)), Drawn(Normal(shift, width))) == pytest.approx(exact, abs=2e-3)
    p, q = (Drawn(Categorical(probs=torch.tensor([[row, row]]))) for row in ([0.7, 0.3], [0.4, 0.6]))
    assert near(p, q) == {"agreement": 0.0, "total variation": pytest.approx(0.3)}
    assert near(p, p) == {"agreement": 1.0, "total variation": 0.0}


def check_passes() -> None:
    """Counted by hand on 20 rows: epochs for optimisers, steps times gradients for samplers, summed over stages and chains."""
    _, data, _ = problem()
    assert passes(MAP(epochs=7), data, {}) == 7 and passes(3 * MAP(epochs=7), data, {}) == 21
    assert passes(MAP(epochs=7), data, {"epochs": 5}) == 5  # stopped early
    sampler = HMC(draws=10, warmup=5, leapfrog=3)  # paths of two on average
    assert passes(2 * (MAP(epochs=7) >> sampler), data, {}) == 2 * (7 + 30)
    assert passes(Laplace(), data, {}) is None
    by_rows = ByRows(lambda rows: MAP(epochs=rows))
    assert passes(3 * by_rows, data, {}) == 3 * len(data[0]) == passes(3 * MAP(epochs=len(data[0])), data, {})


def check_ceiling() -> None:
    """Of two chains the ceiling is how near one is to the other; of one chain there is none, and the table says why."""
    model, data, test = problem()
    two = fit(model, data, 2 * MAP(epochs=1), seed=0)
    assert isinstance(two, Draws)
    apart = near(*(two.chains(slice(i, i + 1)).predict(test[0]) for i in range(2)))
    assert ceiling(two, test[0]) == apart and apart["total variation"] > 0.01
    for reference, has in ((2 * MAP(epochs=1), True), (1 * MAP(epochs=1), False)):
        table = compare(model, data, {"a": 1 * MAP(epochs=1)}, test=test, reference=reference, seeds=(0,))
        last = table.text().splitlines()[-1]
        assert last.startswith("the reference's own ceiling") and bool(table.ceilings) is has
        assert ("none: a ceiling needs" in last and "at least two chains; got 1 chain; run the" in last) is not has


@pytest.mark.parametrize("check", [check_ranks, check_total_variation, check_passes, check_ceiling])
def test_by_hand(check) -> None:  # type: ignore[no-untyped-def]
    check()


@pytest.fixture(scope="module")
def compared() -> Comparison:
    model, data, test = problem()

    def own(model: Model, data: tuple[Tensor, Tensor], seed: int) -> Posterior:
        return fit(model, data, 1 * MAP(epochs=4), seed=seed)

    methods = {"one": 1 * MAP(epochs=2), "own": own, "refused": Laplace() >> NUTS(draws=3), "long": 2 * MAP(epochs=900)}
    reference = 2 * HMC(draws=20, warmup=5, leapfrog=2)
    return compare(
        model,
        data,
        methods,
        test=test,
        reference=reference,
        outside=torch.full((5, 1), 40.0),
        seeds=(0, 1),
        budget=1000,
    )


def test_all_methods_meet_the_same_problem(compared: Comparison) -> None:
    told = compared.summary()
    assert set(told["one"]) >= {"nll", "rmse", "crps", "coverage", "total variation", "OOD AUROC", "seconds", "passes"}
    assert told["one"]["passes"][0] == 2 and "passes" not in told["own"]
    assert not told["long"] and "over the budget" in next(r.failed for r in compared.rows if r.method == "long")
    assert 0 <= compared.ceilings["data 0"]["total variation"] <= 1
    head, lines = compared.table()
    assert [line[0] for line in lines].count("the reference's own ceiling") == 1 and head[0] == "method"


def test_the_table_as_text_json_and_html(compared: Comparison) -> None:
    state = json.loads(compared.to_json())
    assert (
        state["seeds"] == [0, 1]
        and len(state["rows"]) == 8
        and len(state["columns"]) == len(state["table"][0]["cells"])
    )
    page = compared.html()
    assert page.count("<tr>") == len(compared.methods) + 2 and "&#x27;s own ceiling" in page
    assert compared.text().count("\n") == len(compared.methods) + 1


def test_without_a_ceiling_every_form_of_the_table_says_why() -> None:
    """One chain, no chains, and densities of two outputs, which have no grid."""
    model, data, test = problem()
    methods, pair = {"a": 1 * MAP(epochs=1)}, tuple(torch.cat([y, y], 1) for y in (data[1], test[1]))
    wide = Model(mlp(1, 3, 2), Law(0.0, 1.0), Gaussian(0.3))
    tables = [
        compare(model, data, methods, test=test, reference=1 * MAP(epochs=1), seeds=(0,)),
        compare(model, data, methods, test=test, reference=Laplace(), seeds=(0,)),
        compare(wide, (data[0], pair[0]), methods, test=(test[0], pair[1]), reference=2 * MAP(epochs=1), seeds=(0,)),
    ]
    for table, why in zip(
        tables, ("got 1 chain", "got none in a GaussianPosterior", "one output a point"), strict=True
    ):
        state = json.loads(table.to_json())
        assert why in state["without a ceiling"]["data 0"] and state["ceilings"] == {}
        assert why in table.text() and why in table.html() and why in state["table"][-1]["cells"][-1]
        assert all(len(row["cells"]) == len(state["columns"]) for row in state["table"])
    without = compare(model, data, methods, test=test, seeds=(0,))
    assert "ceiling" not in without.text() and json.loads(without.to_json())["without a ceiling"] == {}


def test_the_same_seed_gives_the_same_scores() -> None:
    model, data, test = problem()
    twice = [
        compare(model, data, {"a": 1 * MAP(epochs=2)}, test=test, seeds=(3,)).rows[0].values["nll"] for _ in range(2)
    ]
    assert twice[0] == twice[1]


def test_a_method_that_cannot_does_not_stop_the_others() -> None:
    _, data, test = problem()
    discrete = Model(mlp(1, 2, 1), Discrete((-1.0, 1.0)), Gaussian(0.3))
    table = compare(discrete, data, {"gradient": MAP(epochs=1)}, test=test, seeds=(0,))
    assert "discrete" in table.rows[0].failed and "could not" in table.text()
    with pytest.raises(InputError, match="tasks, methods and seeds"):
        compare(discrete, data, {}, test=test)


def test_small_tables_get_as_many_steps_as_large_ones() -> None:
    """By the driver's own batches."""
    for rows in (20, 50, 300, 1000, 10_000, 1_000_000):
        table = source((torch.zeros(rows, 1), torch.zeros(rows, 1)))
        per_epoch = rows // minibatch(None, table)
        assert epochs(rows) >= 100 and epochs(rows) * (per_epoch + 1) >= 5000
        assert epochs(rows) == 100 or epochs(rows) * per_epoch <= 5000 + per_epoch


def test_suites_have_fixed_splits() -> None:
    first, second = suite("uci", 1), suite("uci", 1)
    assert [task.name for task in first] == ["concrete", "energy", "yacht", "wine"]
    assert all(torch.equal(a.test[1], b.test[1]) for a, b in zip(first, second, strict=True))
    assert all(
        torch.equal(x, y)
        for a, b in zip(first, second, strict=True)
        for x, y in zip(a.model.network.weights().values(), b.model.network.weights().values(), strict=True)
    )
    with pytest.raises(InputError, match="toy, uci, gap, digits, mnist"):
        suite("uco")


def test_suites_of_images_and_gaps(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESCIO_DATA", str(data_folder))
    (digits,) = suite("digits", 1)
    assert digits.data[0].shape == (1437, 64) and len(digits.test[1]) == 360 and digits.outside.shape == (360, 64)
    gaps = suite("gap", 1)
    assert {task.name for task in gaps} >= {"concrete gap", "yacht gap"}
    inside, held = gaps[0].data[0], gaps[0].test[0]
    between = [(float(held[:, i].min()), float(held[:, i].max())) for i in range(held.shape[1])]
    hollow = [not ((inside[:, i] > low) & (inside[:, i] < high)).any() for i, (low, high) in enumerate(between)]
    assert any(hollow)  # along one input, no training row lies between the test rows


def test_bench_runs(tmp_path: Path) -> None:
    table = compare_tasks(suite("toy", 1), standard_methods(quick=True))
    assert all(np.isfinite(row.values["nll"]) for row in table.rows), [row.failed for row in table.rows]
    done = call("bench", "toy", "--quick", "--method", "1 * MAP(epochs=1)", "--out", str(tmp_path), "--json")
    assert done.code == 0 and json.loads(done.out)["ranks"] == {"1 * MAP(epochs=1)": 1.0}
    assert (tmp_path / "comparison.html").read_text().startswith("<table>")


def test_seconds_end_between_splits_and_the_first_of_all_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data, test = problem()
    tasks = [Task(name, model, data, test, split) for name in ("a", "b") for split in (0, 1)]
    methods = {"one": 1 * MAP(epochs=1), "two": 1 * MAP(epochs=2)}
    began: list[str] = []  # a clock that runs by a second for each fit
    clock = SimpleNamespace(monotonic=lambda: float(len(began)), perf_counter=time.perf_counter)
    monkeypatch.setattr(sys.modules[compare_tasks.__module__], "time", clock)
    table = compare_tasks(tasks, methods, seconds=2.5, progress=lambda what, done, total: began.append(what))
    assert [(row.task, row.split, row.method) for row in table.rows] == [
        (name, 0, method) for name in ("a", "b") for method in ("one", "two")
    ]
    assert table.left == 4 and json.loads(table.to_json())["left"] == 4
    assert compare_tasks(tasks, methods).left == 0
    with pytest.raises(InputError, match="positive"):
        compare_tasks(tasks, methods, seconds=0.0)


def test_limits_on_the_command_line() -> None:
    done = call("bench", "toy", "--splits", "2", "--methods", "1 * MAP(epochs=1)", "--budget", "1e-6")
    assert done.code == 0 and "1 of 2 fits were not begun" in done.out, done
    done = call("bench", "toy", "--quick", "--method", "1 * MAP(epochs=9)", "--passes", "5")
    assert done.code == 0 and "over the budget of 5 passes" in done.out


def test_compare_on_a_table(tmp_path: Path) -> None:
    from test_cli import table

    data, methods = table(tmp_path / "t.csv"), ("--method", "1 * MAP(epochs=1)", "--method", "2 * MAP(epochs=1)")
    done = call("compare", str(data), "--target", "y", "--ignore", "cls", *methods, "--splits", "2")
    assert done.code == 0 and "mean rank" in done.out and "2 * MAP(epochs=1)" in done.out, done.err
    done = call("compare", str(data), "--target", "y", "--method", "MPA()")
    assert done.code == 2 and "did you mean MAP" in done.err


def test_reproductions_are_listed_and_shown() -> None:
    done = call("reproduce", "--json")
    listed = json.loads(done.out)
    assert "uci" in listed["scripts"] and listed["results"]["uci_ensembles"] > 5
    done = call("reproduce", "uci_ensembles")
    assert done.code == 0 and "published" in done.out and "boston" in done.out
    assert call("reproduce", "nothing").code == 2
    done = call("reproduce", "bbb_regression", "--show")  # of a script and of its result
    assert done.code == 0 and "made by" in done.out
    done = call("reproduce", "uci", "--show")
    assert done.code == 2 and "uci_ensembles" in done.err


def test_a_reproduction_without_its_data_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of ours lose their traceback, bugs keep it, and what a script says goes through."""
    (tmp_path / "reproduce").mkdir()
    (tmp_path / "reproduce" / "evidence.py").write_text("")
    script = """"It needs data. --quick"
import sys
from nescio.errors import FileError
if __name__ == "__main__":
    print("working", file=sys.stderr)
    raise {}
"""
    monkeypatch.chdir(tmp_path)
    for error, code, lines in (('FileError("it must be there", "no file", "get it")', 2, 2), ('ValueError("x")', 1, 5)):
        (tmp_path / "reproduce" / "here.py").write_text(script.format(error))
        done = call("reproduce", "here", "--quick")
        assert done.code == code and len(done.err.strip().splitlines()) >= lines and done.err.startswith("working")
        assert ("Traceback" in done.err) is (code == 1)
        assert ("nescio: it must be there; got no file; get it" in done.err) is (code == 2)
    (tmp_path / "reproduce" / "here.py").write_text(script.format("SystemExit(0)"))
    assert call("reproduce", "here", "--quick").code == 0
