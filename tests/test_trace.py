"""What a sampler records travels with its draws: through thinning, blocks, files and ArviZ, each number at its own chain and draw."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import arviz_base
import arviz_stats
import numpy as np
import pytest
import torch
from torch import Tensor

import nescio.diagnose as d
from nescio import FileError, Model, UnsupportedError, fit, load
from nescio.infer import HMC, MALA, MAP, MCLMC, NUTS, SGLD, ULA, Metropolis, hmc
from nescio.infer.sampler import Sampler
from nescio.laws import Discrete, HalfCauchy, Normal
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.network import Network
from nescio.noise import Noise
from nescio.posterior import Draws
from nescio.posterior.mixing import in_functions, in_weights
from nescio.store import write


def problem() -> tuple[Model, tuple[Tensor, Tensor]]:
    x = Noise(1, dtype=torch.float64).normal(15, 1)
    with Noise(2).scope():
        net = mlp(1, 3, 1, activation=torch.nn.Tanh).double()
    return Model(net, Normal(0.0, 1.0), Gaussian(0.3)), (x, x.sin())


def drawn(method: Sampler) -> Draws:
    posterior = fit(*problem(), 3 * method, seed=4)
    assert isinstance(posterior, Draws)
    return posterior


# ---- which number stands where -------------------------------------------------------------------------------------------

MOMENTA: dict[str, tuple[Sampler, tuple[str, ...]]] = {  # without a warm-up the metric is the identity
    "HMC": (HMC(draws=7, warmup=0, leapfrog=4, step_size=0.05), ("momentum",)),
    "NUTS": (NUTS(draws=7, warmup=0, max_depth=3, step_size=0.05), ("momentum",)),
    "MALA": (MALA(draws=7, warmup=0, step_size=0.02), ("proposal",)),
    "ULA": (ULA(draws=7, warmup=2, step_size=1e-4), ()),  # which adapts nothing
}


def check_energy(name: str = "HMC") -> None:
    """H where the step begins: half the square of the momentum that is drawn in step t, minus log p of draw t - 1."""
    method, key = MOMENTA[name]
    posterior = drawn(method)
    energy, before = posterior.trace["energy"], posterior.log_joint[:, :-1]
    assert energy.shape == (3, 7) and energy.dtype == torch.float64
    noise = posterior.model.noise(4, "fit", "block", 0)
    steps = [noise.at("step", t) for t in range(method.warmup, method.warmup + 7)]
    momenta = [step.at(*key) if key else step for step in steps]
    kinetic = torch.stack([0.5 * p.normal(3, posterior.model.dim).square().sum(1) for p in momenta], 1)
    gap = (energy[:, 1:] - (kinetic[:, 1:] - before)).abs().max()
    assert gap < 1e-9, f"energies off by {float(gap)}"
    assert before.std(1).min() > 0  # chains move: another step's density would show


@pytest.mark.parametrize("name", MOMENTA)
def test_energy_is_that_of_the_momentum_just_drawn(name: str) -> None:
    check_energy(name)


TOUCHY = HMC(draws=60, warmup=0, leapfrog=4, step_size=0.1)


def touchy(thin: int = 1) -> Draws:
    """Sixty steps, some of which diverge: an energy error of 0.1 is enough."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hmc, "DIVERGENT", 0.1)
        return drawn(replace(TOUCHY, draws=60 // thin, thin=thin))


def check_thinning() -> None:
    """Noise is keyed by step, so the thinned run makes the same steps. Its energies are those of the steps that made the draws; what
    is counted or averaged is of all steps since the draw before."""
    every, third = touchy(), touchy(thin=3)
    assert torch.equal(third.theta, every.theta[:, 2::3])
    assert torch.equal(third.trace["energy"], every.trace["energy"][:, 2::3])
    steps = {name: x.reshape(3, 20, 3) for name, x in every.trace.items()}
    between = steps["divergent"].any(2) & ~steps["divergent"][:, :, 2]
    assert between.any() and not steps["divergent"].all()  # some diverged, and between two draws
    assert torch.equal(third.trace["divergent"], steps["divergent"].any(2)), "divergences between two draws are lost"
    assert torch.equal(third.trace["leapfrogs"], steps["leapfrogs"].sum(2).int())
    torch.testing.assert_close(third.trace["acceptance"], steps["acceptance"].mean(2))
    assert int(steps["divergent"].sum()) == third.info["divergences"] == every.info["divergences"]
    assert third.info["gradients"] == every.info["gradients"]
    assert third.info["acceptance"] == pytest.approx(every.info["acceptance"], rel=1e-6)


def test_thinning_forgets_no_divergence() -> None:
    check_thinning()


@pytest.mark.parametrize("method", [HMC(leapfrog=1), NUTS(max_depth=1), MCLMC(), Metropolis(), SGLD()], ids=repr)
def test_what_is_remembered_does_not_grow_with_the_steps(method: Sampler) -> None:
    """One Info a draw: neither those of the warm-up nor those between draws are kept."""
    held: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        true = Sampler.remember
        patch.setattr(
            Sampler, "remember", lambda self, infos, *more: (true(self, infos, *more), held.append(len(infos)))
        )
        posterior = drawn(replace(method, draws=3, warmup=50, thin=20))
    assert len(held) == 110 and max(held[:50]) == 1 and held[50:] == [1] * 20 + [2] * 20 + [3] * 20
    assert posterior.theta.shape[1] == 3


FIELDS: dict[str, tuple[Sampler, set[str]]] = {
    "HMC": (HMC(draws=5, warmup=3, leapfrog=2), {"energy", "acceptance", "divergent", "leapfrogs"}),
    "NUTS": (NUTS(draws=5, warmup=3, max_depth=2), {"energy", "acceptance", "divergent", "leapfrogs", "depth"}),
    "MCLMC": (MCLMC(draws=5, warmup=3), {"energy_error", "divergent", "leapfrogs"}),
    "Metropolis": (Metropolis(draws=5, warmup=3), {"acceptance"}),
    "SGLD": (SGLD(draws=5, warmup=3, batch_size=5), set()),
}


@pytest.mark.parametrize("name", FIELDS)
def test_every_sampler_records_what_it_has(name: str) -> None:
    method, fields = FIELDS[name]
    trace = drawn(method).trace
    assert set(trace) == fields
    assert all(x.shape == (3, 5) for x in trace.values())
    for x in (trace[key] for key in ("acceptance",) if key in trace):
        assert bool(((x >= 0) & (x <= 1)).all())
    if name == "NUTS":
        assert bool((trace["leapfrogs"] < 2 ** (trace["depth"].long() + 1)).all())


def test_flips_are_recorded_where_there_are_some() -> None:
    model = Model(torch.nn.Linear(2, 1, bias=False), Discrete(), Gaussian(1.0))
    x = Noise(0).normal(6, 2)
    posterior = fit(model, (x, x.sum(1, keepdim=True)), 2 * Metropolis(draws=4, warmup=2))
    assert isinstance(posterior, Draws) and posterior.trace["flips"].shape == (2, 4)


# ---- where it travels ----------------------------------------------------------------------------------------------------


def same(a: Draws, b: Draws) -> bool:
    return a.trace.keys() == b.trace.keys() and all(torch.equal(a.trace[name], b.trace[name]) for name in a.trace)


def check_travels(folder: Path) -> None:
    posterior = drawn(NUTS(draws=5, warmup=3, max_depth=2))
    parts = [posterior.chains(slice(0, 1)), posterior.chains(slice(1, 3))]
    assert torch.equal(parts[1].trace["energy"], posterior.trace["energy"][1:])
    assert same(Draws.join(parts, {}), posterior)
    posterior.save(folder / "p")
    again = load(folder / "p", posterior.model)
    assert isinstance(again, Draws) and same(again, posterior)
    assert again.trace["divergent"].dtype == torch.bool and again.trace["depth"].dtype == torch.int16


def test_chains_join_and_files_keep_it(tmp_path: Path) -> None:
    check_travels(tmp_path)


def test_point_estimates_have_none(tmp_path: Path) -> None:
    posterior = fit(*problem(), 2 * MAP(epochs=1))
    assert isinstance(posterior, Draws) and posterior.trace == {}
    posterior.save(tmp_path / "p")
    again = load(tmp_path / "p", posterior.model)
    assert isinstance(again, Draws) and again.trace == {}


def test_a_trace_of_another_shape_is_refused(tmp_path: Path) -> None:
    posterior = drawn(HMC(draws=5, warmup=0, leapfrog=2))
    tensors = {**posterior.tensors(), "trace.energy": posterior.trace["energy"].mT.contiguous()}
    write(tmp_path / "p", tensors, {"model": posterior.model.describe(), **posterior.header()})
    with pytest.raises(FileError, match=r"one trace.energy for each draw; got \(5, 3\) for \(3, 5\); write"):
        load(tmp_path / "p", posterior.model)


# ---- the verdict ---------------------------------------------------------------------------------------------------------


def check_verdict() -> None:
    """Divergences and slow energies are problems, in functions and in weights, with what to do."""
    posterior = touchy()
    count = int(posterior.trace["divergent"].sum())
    told = posterior.info["mixing"]
    assert count > 0 and told["divergences"] == count
    assert any(problem.startswith(f"divergences must be 0; got {count}; take smaller") for problem in told["problems"])
    assert told["ebfmi"] == pytest.approx(float(d.ebfmi(posterior.trace["energy"]).min()))
    slow = posterior.trace["energy"].clone()
    slow[1] = Noise(3, dtype=torch.float64).normal(60).cumsum(0)
    posterior.trace["energy"] = slow
    for verdict in (in_functions(posterior, problem()[1][0]), in_weights(posterior)):
        assert verdict.ebfmi is not None and verdict.ebfmi.shape == (3,)
        low = np.flatnonzero(verdict.ebfmi < 0.3).tolist()
        assert 1 in low
        found = [p for p in verdict.problems if p.startswith("E-BFMI must be >= 0.3; got down to")]
        assert len(found) == 1 and f"in chains {low}; reparameterise" in found[0]


def test_divergences_and_slow_energies_are_problems() -> None:
    check_verdict()


def test_blocks_of_chains_keep_their_divergences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Network, "vectorises", lambda *arguments, **more: False)  # every chain a block of its own
    posterior = touchy()
    assert len(posterior.info["blocks"]) == 3
    counts = [block["divergences"] for block in posterior.info["blocks"]]
    assert posterior.trace["divergent"].sum(1).tolist() == counts
    assert posterior.info["mixing"]["divergences"] == sum(counts) > 0


# ---- ArviZ ---------------------------------------------------------------------------------------------------------------


def check_arviz() -> None:
    """Every number in its place: weights against the named draws, statistics against the trace, R-hat against ours."""
    posterior = drawn(NUTS(draws=20, warmup=0, max_depth=2, step_size=0.05))
    tree = posterior.to_arviz()
    assert set(tree.children) == {"posterior", "sample_stats", "constant_data"}
    theirs = arviz_stats.rhat(tree)
    named = posterior.sample(60)  # all of them, chain after chain
    for name, parameter in posterior.model.network.net.named_parameters():
        x = tree.posterior[name]
        assert x.dims[:2] == ("chain", "draw") and x.shape == (3, 20, *parameter.shape)
        assert x.dtype == np.float64 and np.array_equal(x.values.reshape(60, *parameter.shape), named[name].numpy())
        assert np.allclose(theirs[name], d.rhat(x.values), rtol=1e-8)
    stats = tree.sample_stats
    assert set(stats.data_vars) == {"lp", "energy", "acceptance_rate", "diverging", "tree_depth", "n_steps"}
    pairs = {"energy": "energy", "acceptance_rate": "acceptance", "diverging": "divergent"}
    for name, own in {**pairs, "tree_depth": "depth", "n_steps": "leapfrogs"}.items():
        assert stats[name].dims == ("chain", "draw")
        assert np.array_equal(stats[name].values, posterior.trace[own].numpy()), name
    assert np.array_equal(stats["lp"].values, posterior.log_joint.numpy())
    np.testing.assert_allclose(arviz_stats.bfmi(tree)["energy"].values, d.ebfmi(posterior.trace["energy"]), rtol=1e-8)


def test_arviz_has_every_number_in_its_place() -> None:
    check_arviz()


def test_arviz_takes_the_tree_as_its_own() -> None:
    x = Noise(1).normal(15, 1)
    model = Model(mlp(1, 2, 1), Normal(0.0, HalfCauchy(1.0).per("layer")), Gaussian(HalfCauchy(1.0)))
    posterior = fit(model, (x, x.sin()), 2 * HMC(draws=20, warmup=5, leapfrog=2))
    assert isinstance(posterior, Draws)
    tree = posterior.to_arviz()
    assert "constant_data" not in tree.children  # here even the noise is random
    assert {"likelihood.noise", "prior.*.scale"} <= set(tree.posterior.data_vars)
    assert tree.posterior["0.weight"].dtype == np.float32
    table = arviz_stats.summary(tree)
    entries = sum(x[0, 0].size for x in tree.posterior.data_vars.values())
    assert len(table) == entries
    assert len(arviz_base.extract(tree)["sample"]) == 40
    assert tree.posterior.attrs["inference_library"] == "nescio" and tree.posterior.attrs["seed"] == 0
    point = fit(model, (x, x.sin()), 2 * MAP(epochs=1))
    assert isinstance(point, Draws) and set(point.to_arviz().sample_stats.data_vars) == {"lp"}


def test_a_known_noise_is_a_constant_of_arviz() -> None:
    tree = drawn(HMC(draws=5, warmup=0, leapfrog=2)).to_arviz()
    assert "likelihood.noise" not in tree.posterior and float(tree.constant_data["likelihood.noise"]) == 0.3


def test_without_arviz_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    posterior = drawn(HMC(draws=5, warmup=0, leapfrog=2))
    monkeypatch.setitem(sys.modules, "arviz_base", None)
    with pytest.raises(UnsupportedError, match=r"arviz-base; got an installation without it; .*nescio\[arviz\]"):
        posterior.to_arviz()
