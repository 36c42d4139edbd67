"""The benchmarks run at toy size, their arithmetic is right, and a library that solves another problem is found out."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from nescio import fit
from nescio.data.source import source
from nescio.infer import HMC, MAP
from nescio.likelihoods.gaussian import LEAST
from nescio.predictive import Drawn
from nescio.target import Target

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "benchmarks"
PEERS = ROOT / ".peers" / "bin" / "python"
NAMES = (
    "cases",
    "child",
    "launch",
    "problem",
    "record",
    "steps",
    "summary",
    "tables",
    "time_nescio",
    "time_score",
    "time_spec",
    "vi",
)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports by name, as the scripts do; forgotten afterwards."""
    monkeypatch.syspath_prepend(str(FOLDER))

    def load(name: str) -> ModuleType:
        __import__(name)
        return sys.modules[name]

    yield load
    for name in NAMES:
        sys.modules.pop(name, None)


def run(script: str, out: Path, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, str(FOLDER / script), "--out", str(out), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = out.glob("*.json")
    return json.loads(path.read_text())


def test_mcmc_quick(tmp_path: Path) -> None:
    kept = run("mcmc.py", tmp_path, "--quick")
    assert {"table", "command", "commit", "seeds", "versions", "machine", "processor", "peers", "settings"} <= set(kept)
    assert kept["quick"] is True and kept["settings"]["rows"]
    assert [(row["library"], row["sampler"], row["chains"]) for row in kept["rows"]] == [
        ("nescio", sampler, 2) for sampler in ("HMC", "NUTS", "MCLMC", "sgld", "sghmc")
    ]
    for row, gradients in zip(kept["rows"], (10, 63, 2, 1, 1), strict=True):
        assert row["n"] + row["void"] == 1
        assert row["us"] is None or 0 < row["us_least"] <= row["us"] <= row["us_most"]
        assert 0.3 * gradients <= row["gradients_per_draw"] <= 1.9 * gradients
        assert row["compiled"] is False


def test_rows_measured_anew_take_their_places_and_say_where_they_were_made(tmp_path: Path, bench: Any) -> None:
    path = tmp_path / "mcmc.json"
    path.write_text(json.dumps({"commit": "old", "rows": [{"row": "a", "us": 1}, {"row": "b", "us": 2}]}))
    bench("record").renew("mcmc", [{"row": "c", "us": 4}, {"row": "a", "us": 3}], tmp_path, {"jax": "1"}, {"rounds": 3})
    kept = json.loads(path.read_text())
    ((commit, made),) = kept["renewed"].items()
    a, b, c = kept["rows"]
    assert kept["commit"] == "old" and b == {"row": "b", "us": 2} and made["peers"] == {"jax": "1"} and made["versions"]
    assert a == {"row": "a", "us": 3, "commit": commit} and c == {"row": "c", "us": 4, "commit": commit}


def test_no_run_throws_away_rows_that_it_did_not_measure(tmp_path: Path, bench: Any) -> None:
    """A second run has a row of the first and one of its own: all three are kept. A run that has every row begins the table anew."""

    def run(*names: str, quick: bool = False) -> list[str]:
        path = bench("record").join("t", "c", [{"row": name} for name in names], [0], quick, tmp_path, {}, {})
        return [row["row"] for row in json.loads(path.read_text())["rows"]]

    assert run("4 chains", "a") == ["4 chains", "a"]
    assert run("a", "12 chains") == ["4 chains", "a", "12 chains"]
    assert run("12 chains", "a", "4 chains", "b") == ["12 chains", "a", "4 chains", "b"]
    assert "renewed" not in json.loads((tmp_path / "t.json").read_text())


def test_posterior_time_quick(tmp_path: Path) -> None:
    kept = run("posterior_time.py", tmp_path, "--quick")
    (row,) = kept["rows"]
    assert {"seconds", "ess_min", "ess_median", "ess_within", "rhat_max", "lppd", "divergences", "data"} <= set(row)
    assert row["s_per_min"] == pytest.approx(row["seconds"] / row["ess_min"])
    assert row["draws"] == 2 * 20 and np.isfinite(row["lppd"])


def test_vi_quick(tmp_path: Path) -> None:
    kept = run("vi.py", tmp_path, "--quick")
    assert kept["quick"] is True and kept["settings"]["networks"]["training step"][1] == 128
    for workload in ("training step", "small training step"):
        steps = [row for row in kept["rows"] if row["workload"] == workload]
        assert [row["library"] for row in steps] == [
            "nescio, not compiled",
            "by hand, weights drawn",
            "by hand, outputs drawn",
        ]
        assert all(0 < row["plain_ms"] < row["ms"] and row["ratio"] > 1 for row in steps)
    passes = [row for row in kept["rows"] if row["workload"] == "prediction"]
    assert len(passes) == 3 and all(row["ms"] > 0 and row["plain_ms"] > 0 for row in passes)


def test_vi_gpu_quick(tmp_path: Path) -> None:
    kept = run("vi_gpu.py", tmp_path, "--quick")
    rows = {row["row"]: row["ms"] for row in kept["rows"]}
    assert kept["quick"] is True and len(rows) == 5 and all(ms > 0 for ms in rows.values())
    assert {"plain network", "MultiplicativeFlow, plain"} <= rows.keys()


def test_what_was_measured_of_samplers_is_what_the_docs_say() -> None:
    kept = json.loads((FOLDER / "results" / "mcmc.json").read_text())
    found = {
        (row["chains"], row["sampler"]): row
        for row in kept["rows"]
        if row.get("ratio_of") == "nescio / fastest JAX peer"
    }
    assert kept["quick"] is False and all(row["n"] >= 2 for row in found.values())
    each = [
        f"{chains} chain{'s' * (chains > 1)} "
        + ", ".join(f"{found[chains, sampler]['ratio']:.2f}" for sampler in ("HMC", "NUTS", "MCLMC"))
        for chains in (1, 4, 16, 64)
    ]
    pyro = [row["ratio"] for row in kept["rows"] if row.get("ratio_of") == "Pyro / nescio"]
    slow = [row["ratio"] for row in kept["rows"] if row.get("ratio_of") == "posteriors / nescio"]
    assert len(slow) == 8
    said = f"{'; '.join(each)}; Pyro's HMC {min(pyro):.0f} to {max(pyro):.0f} times ours, posteriors' SGLD and SGHMC "
    said += f"{min(slow):.1f} to {max(slow):.1f}"
    assert said in (ROOT / "docs" / "architecture.md").read_text()
    assert max(row["ratio"] for row in found.values()) <= 1 and min(pyro) >= 10


def test_what_was_measured_of_starts_is_what_the_docs_say() -> None:
    """200 draws of MCLMC are too few to pay for code; those of HMC and NUTS, with their many gradients, gain by it."""
    kept = json.loads((FOLDER / "results" / "mcmc.json").read_text())
    rows = {row["row"]: row for row in kept["rows"] if row["kind"] == "start"}

    def seconds(library: str, key: str, samplers: tuple[str, ...] = ("HMC", "NUTS", "MCLMC")) -> str:
        return ", ".join(f"{rows[f'{library} {s}, 4 chains, start'][key]:.0f}" for s in samplers)

    ours = [seconds("nescio", key) for key in ("setup_s", "cached_s", "total_s")]
    theirs = [seconds("blackjax", key) for key in ("setup_s", "total_s")]
    others = [seconds("numpyro", key, ("HMC", "NUTS")) for key in ("setup_s", "total_s")]
    line = f"set-up {ours[0]}, with code on the disk {ours[1]}, 200 draws {ours[2]}; "
    line += f"blackjax {theirs[0]} and {theirs[1]}; numpyro, without MCLMC, {others[0]} and {others[1]}"
    assert line in (ROOT / "docs" / "architecture.md").read_text(), line
    for chains in ("1 chain", "16 chains", "64 chains"):
        total = {
            name: ", ".join(f"{rows[f'{name} {s}, {chains}, start']['total_s']:.0f}" for s in ("HMC", "NUTS", "MCLMC"))
            for name in ("nescio", "blackjax")
        }
        line = f"of {chains} {total['nescio']}, blackjax {total['blackjax']}"
        assert line in (ROOT / "docs" / "architecture.md").read_text(), line
    compiled = {s: rows[f"nescio {s}, 4 chains, start"]["compiled"] for s in ("HMC", "NUTS", "MCLMC")}
    assert compiled == {"HMC": True, "NUTS": True, "MCLMC": False}


@pytest.mark.parametrize("chains", [4, 12])
def test_what_was_measured_of_the_time_to_a_posterior_is_what_the_docs_say(chains: int) -> None:
    """An effective draw takes NUTS five times as long or more, within chains, and its density is lower; of 12 chains as of 4."""
    kept = json.loads((FOLDER / "results" / "posterior_time.json").read_text())
    rows, said = {row["row"]: row for row in kept["rows"]}, (ROOT / "docs" / "architecture.md").read_text()
    suffix, sets = "" if chains == 4 else f", {chains} chains", ("concrete", "energy", "yacht")
    nuts = [rows[f"{s}, numpyro NUTS{suffix}"] for s in sets]
    sides = [f"nescio MAP >> MCLMC{more}{suffix}" for more in ("", ", energy variance 0.1")]
    ours = [[rows[f"{s}, {side}"] for s in sets] for side in sides]

    def times(key: str) -> tuple[list[float], list[float]]:
        near, wide = ([b[key] / a[key] for a, b in zip(side, nuts, strict=True)] for side in ours)
        return near, wide

    def text(key: str) -> str:
        return " and ".join(", ".join(f"{x:.1f}" for x in each) for each in times(key))

    line = f"{chains} chains: within chains {text('s_per_within')}, over all chains {text('s_per_median')}"
    line += f" (at the worst point {text('s_per_min')})"
    assert kept["quick"] is False and line in said, line
    assert all(a["lppd"] > b["lppd"] for side in ours for a, b in zip(side, nuts, strict=True))
    assert min(min(each) for each in times("s_per_within")) >= 5
    if chains == 4:
        assert min(min(each) for each in times("s_per_median")) >= 5
        warm = [rows[f"{s}, numpyro NUTS from MAP"] for s in sets]
        gains = [min(b["s_per_median"] / a["s_per_median"] for a, b in zip(side, warm, strict=True)) for side in ours]
        density = ", ".join(f"{a['lppd']:.2f} beside {b['lppd']:.2f}" for a, b in zip(ours[0], warm, strict=True))
        line = f"NUTS from the very MAP: over all chains {gains[0]:.1f} times or more, density {density}"
        assert line in said, line


def test_what_was_measured_of_variational_inference_keeps_its_promises() -> None:
    """A step costs at most 2.6 plain ones and less than any peer's; a prediction at most 1.5 times its matrix products. As in the docs."""
    kept = json.loads((FOLDER / "results" / "vi.json").read_text())
    rows = {row["row"]: row["ratio"] for row in kept["rows"]}
    text = (ROOT / "docs" / "architecture.md").read_text()
    assert kept["quick"] is False and kept["settings"]["passes"] == 100
    for workload in ("training step", "small training step"):
        peers = [row["ratio"] for row in kept["rows"] if row["workload"] == workload and row.get("versions")]
        ours, plain = rows[f"{workload}, nescio"], rows[f"{workload}, nescio, not compiled"]
        assert len(peers) == 4 and ours <= 2.6 and ours < min(peers)
        assert f"{ours:.1f} compiled, {plain:.1f} not, peers {min(peers):.1f} to {max(peers):.1f}" in text
    drawn, masked = rows["prediction, nescio, BernoulliDropout"], rows["prediction, nescio, NetDropout"]
    assert max(drawn, masked) <= 1.5
    assert f"{drawn:.1f} by weights, {masked:.1f} by the network's own layers" in text


def test_ratios_of_steps_are_those_of_one_process(bench: Any) -> None:
    """Rounds may differ tenfold; a disturbed block does not count."""
    row = bench("vi").step_row(
        "training step",
        "x",
        [
            {"plain": [1e-3, 1e-3, 9.0], "library": [2e-3, 2e-3, 2e-3], "versions": {}, "torch": "2"},
            {"plain": [1e-2, 1e-2, 1e-2], "library": [3e-2, 3e-2, 9.0], "versions": {}, "torch": "2"},
        ],
    )
    assert (row["ratio_least"], row["ratio"], row["ratio_most"]) == pytest.approx((2, 2.5, 3)) and row["n"] == 2


def test_every_bayesian_step_has_the_divergence_that_it_says(bench: Any) -> None:
    """The one written by hand is that of nescio, at the same weights."""
    steps = bench("steps")
    task = steps.Task({"seed": 0, "widths": [3, 4, 2], "batch": 16})
    layer = steps.Drawn(3, 4)
    with torch.no_grad():
        log = np.log(steps.PRIOR / steps.SD)
        each = [(steps.SD**2 + m.square()) / (2 * steps.PRIOR**2) - 0.5 + log for m in layer.loc]
        want = float(sum(x.sum() for x in each))
    assert float(layer.divergence().detach()) == pytest.approx(want, rel=1e-5)
    losses = [steps.by_nescio(task, False)(0), steps.by_hand(task, steps.Local)(0), steps.by_hand(task, steps.Drawn)(0)]
    assert all(np.isfinite(losses))


def measured(library: str, turn: int, seconds: float, chains: int = 4) -> dict[str, Any]:
    """A run of 10 s that do not grow with it, which takes `seconds` for a gradient of a chain."""
    gradients = [100.0, 1100.0]
    times = [10 + seconds * g * chains for g in gradients]
    case = {"round": turn, "job": "steady", "library": library, "sampler": "HMC", "chains": chains, "draws": [10, 110]}
    case |= {"first": times[0] + 3, "times": times, "gradients": gradients}
    return case | {"total": 1.0, "imported": 0.5, "acceptance": 0.9, "compiled": True}


def test_slopes_and_ratios(bench: Any) -> None:
    """What does not grow with the run drops out, and the ratios are those of one round: 2 in both, though rounds differ tenfold."""
    summary = bench("summary")
    given = [
        measured(*one)
        for one in (
            ("nescio", 0, 2e-5),
            ("numpyro", 0, 4e-5),
            ("blackjax", 0, 1e-5),
            ("pyro", 0, 1e-3),
            ("posteriors", 1, 8e-3),
            ("nescio", 1, 2e-4),
            ("numpyro", 1, 1e-4),
            ("blackjax", 1, 3e-4),
            ("numpyro-parallel", 1, 4e-4),
        )
    ]
    rows = summary.costs(given)
    ours = rows[0]
    assert (ours["us_least"], ours["us"], ours["us_most"]) == pytest.approx((20, 110, 200))
    blackjax = next(row for row in summary.costs(given[:4]) if row["library"] == "blackjax")
    assert blackjax["us"] == pytest.approx(10) and blackjax["gradients_per_draw"] == 10
    ratios = {row["ratio_of"]: row["rounds"] for row in summary.ratios(given)}
    assert ratios["nescio / fastest JAX peer"] == pytest.approx([2, 2])
    assert ratios["nescio / fastest vectorised JAX peer"] == pytest.approx([2, 2])
    assert ratios["Pyro / nescio"] == pytest.approx([50]) and ratios["posteriors / nescio"] == pytest.approx([40])
    disturbed = measured("nescio", 2, 2e-5)
    disturbed["times"] = disturbed["times"][::-1]
    (row,) = summary.costs([given[0], disturbed])
    assert (row["n"], row["void"], row["us"]) == (1, 1, pytest.approx(20))
    assert "110" in summary.show(rows)


def test_starts_are_what_a_run_does_not_take_again(bench: Any) -> None:
    """Beside slopes, whose rows they leave alone: a cold start, one with code on the disk, and all of a short run."""
    summary = bench("summary")
    case = {"library": "nescio", "sampler": "HMC", "chains": 4, "draws": [10, 110], "imported": 0.5}
    cold, cached, short = (
        {**case, "round": 0, "job": job, "first": first, "again": 2.0, "total": first + 1, "compiled": compiled}
        for job, first, compiled in (("cold", 20.0, True), ("cached", 5.0, True), ("short", 3.0, False))
    )
    slopes = measured("nescio", 0, 2e-5)
    (row,) = summary.starts([slopes, cold, {**cold, "round": 1, "first": 24.0}, cached, short])
    assert row["row"] == "nescio HMC, 4 chains, start" and row["n"] == 2 and row["compiled"] is False
    assert (row["setup_s_least"], row["setup_s"], row["cached_s"], row["total_s"]) == pytest.approx((18, 20, 3, 4))
    assert [each["row"] for each in summary.costs([slopes, cold, cached, short])] == ["nescio HMC, 4 chains"]
    assert summary.starts([slopes]) == [] and "20.0" in summary.show([row])


def test_libraries_are_interleaved_and_runs_fit_their_time(bench: Any) -> None:
    cases = bench("cases")
    every = cases.cases(list(cases.SAMPLERS), [1, 4, 16, 64])
    assert len(every) == len(set(every)) and set(cases.SCRIPTS) == set(cases.SAMPLERS)
    assert {c for library, _, c in every if library == "posteriors"} == {1, 4, 16, 64}
    assert {c for library, _, c in every if library == "numpyro-parallel"} == {4, 16}
    same = [case for case in every if case[1:] == ("HMC", 4)]
    at = every.index(same[0])
    assert every[at : at + len(same)] == same, "what is compared is measured one after the other"
    for case in every:
        small, large = cases.lengths(case, 5.0)
        assert 1 <= small <= large / 4


def test_the_arbiter_and_a_planted_fault(bench: Any) -> None:
    """nescio agrees with the formula in numpy; a density that is off by two thousandths does not pass."""
    problem, score = bench("problem"), bench("time_score")
    random = np.random.default_rng(3)
    widths = (4, 16, 16, 2)
    posed = problem.pose(random.standard_normal((30, 4)), random.standard_normal((30, 1)), "random", widths, 2)
    model = score.network(widths)
    target = Target(model, source((torch.from_numpy(posed.x), torch.from_numpy(posed.y))))
    got = target.log_density(torch.from_numpy(posed.probes), target.batch(None)).tolist()
    truth = [problem.heteroscedastic(w, posed, widths) for w in posed.probes]
    problem.check_density("nescio", got, truth)
    assert problem.LEAST == LEAST
    with pytest.raises(AssertionError, match="another problem"):
        problem.check_density("nescio", [1.002 * x for x in got], truth)
    assert problem.size(widths) == model.dim == posed.probes.shape[1]
    assert problem.standardised(posed.x, posed.x).std(0) == pytest.approx(1, abs=1e-5)


def test_effective_draws_of_independent_draws(bench: Any) -> None:
    """400 independent draws in 4 chains are about 400 effective ones; four chains in four places are about four, but 400 within."""
    score = bench("time_score")
    table = score.load_table("yacht")
    random = np.random.default_rng(4)
    theta = 0.1 * random.standard_normal((4, 100, table.problem.probes.shape[1])).astype(np.float32)
    mixed = score.score(table, theta)
    assert 200 < mixed["ess_median"] < 800 and mixed["rhat_max"] < 1.2
    apart = score.score(table, theta + random.standard_normal((4, 1, theta.shape[2])).astype(np.float32))
    assert apart["ess_median"] < 20 and apart["ess_within"] > 200 and apart["rhat_max"] > 2
    stuck = score.score(table, np.repeat(theta[:, :1], 100, axis=1))
    assert stuck["ess_within"] == 0 and score.per_draw(1.0, stuck)["s_per_within"] is None
    row = {"row": "a", "seconds": 1.0, "divergences": 0, **stuck, **score.per_draw(1.0, stuck)}
    assert json.loads(json.dumps(score.medians([row]), allow_nan=False))[0]["n"] == 1
    assert "-" in score.show([row])


def test_the_peer_starts_where_map_ended(bench: Any) -> None:
    """`MAP >> Stay` is where a sampler after the same MAP starts: a sampler that hardly moves is still there."""
    stay = bench("time_nescio").Stay()
    model = bench("time_score").network((2, 3, 2))
    x = torch.linspace(-1, 1, 40).reshape(20, 2)
    ends, moved = (
        fit(model, (x, x[:, :1]), 2 * (MAP(epochs=2) >> after), seed=5).theta[:, 0]  # type: ignore[attr-defined]
        for after in (stay, HMC(leapfrog=1, step_size=1e-9, warmup=0, draws=1))
    )
    torch.testing.assert_close(ends, moved, rtol=0, atol=1e-6)
    assert (ends[0] - ends[1]).abs().max() > 0.01


@pytest.mark.nightly
@pytest.mark.skipif(not PEERS.exists(), reason="no peers here (make peers)")
def test_every_peer_solves_the_same_problem(tmp_path: Path) -> None:
    kept = run("mcmc.py", tmp_path, "--rounds", "1", "--chains", "1", "--seconds", "0.1")
    rates = [row["acceptance"] for row in kept["rows"] if row["kind"] == "cost" and row["acceptance"] is not None]
    assert len(rates) > 4 and max(rates) - min(rates) < 0.3
    assert {"numpyro", "blackjax", "pyro-ppl", "posteriors"} <= set(kept["peers"])


def test_a_target_in_steps_is_scored_by_the_chance_of_its_step(bench: Any) -> None:
    """Chances of all steps sum to one, whatever the width; so certainty is worth no more than one."""
    tables = bench("tables")
    loc, scale = (torch.tensor(x, dtype=torch.float64).view(2, 1, 1) for x in ([4.6, 6.2], [1e-3, 0.8]))
    mixture = Drawn(torch.distributions.Normal(loc, scale))
    steps = torch.arange(-20.0, 30.0).double()
    chances = [math.exp(-tables.nll_of_step(mixture, y.view(1, 1), 1.0)) for y in steps]
    assert sum(chances) == pytest.approx(1.0, abs=1e-9)
    wide = stats.norm(6.2, 0.8)
    assert chances[25] == pytest.approx(0.5 + (wide.cdf(5.5) - wide.cdf(4.5)) / 2, rel=1e-9)  # the step of 5
    assert (
        tables.scored(mixture, steps[25].view(1, 1), 1.0, 0.0)["nll"]
        > 0
        > tables.scored(
            Drawn(torch.distributions.Normal(torch.full((1, 1, 1), 5.0), 1e-3)), torch.full((1, 1), 5.0), 0.0, 0.0
        )["nll"]
    )  # by density instead
