"""Chains that cannot go on say so at once, what does not move is named, and what would not fit is refused before it is begun."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nescio import FileError, InputError, Model, UnsupportedError, fit, load
from nescio.data.source import source
from nescio.infer import (
    HMC,
    MALA,
    MAP,
    MCLMC,
    NUTS,
    SGHMC,
    SGLD,
    ULA,
    AdjustedMCLMC,
    Cycles,
    Laplace,
    Metropolis,
    RMSprop,
)
from nescio.infer.isokinetic import TRACE, Plan, Tuning
from nescio.infer.sampler import Sampler
from nescio.laws import Discrete, HalfCauchy, Learned, Normal
from nescio.likelihoods import Gaussian
from nescio.noise import Noise
from nescio.posterior.posterior import Ends
from nescio.report.figures.energy import draw_energy, energy_data
from nescio.report.figures.ranks import draw_ranks, ranks_data
from nescio.report.figures.trace import draw_trace, trace_data
from nescio.report.words import Mark, mixed, taught
from nescio.target import Target


def data(rows: int = 30) -> tuple[Tensor, Tensor]:
    x = Noise(3).normal(rows, 2)
    return x, x.sum(1, keepdim=True).sin()


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))


def model(noise: Any = 0.1) -> Model:
    return Model(network(), Normal(0, 1), Gaussian(noise))


EXACT = [HMC, NUTS, MALA, MCLMC, AdjustedMCLMC, Metropolis]


@pytest.mark.parametrize("sampler", EXACT)
def test_a_start_of_no_density_is_refused(sampler: type[Sampler]) -> None:
    """Residuals of 1 at a noise of 1e-20 have a density of zero in single precision: nothing would ever move."""
    with pytest.raises(
        InputError, match=r"finite where chains are.*-inf.*after 0 steps.*MAP\(\) >> " + sampler.__name__
    ):
        fit(model(1e-20), data(), 2 * sampler(draws=5, warmup=5))


@pytest.mark.parametrize("sampler", [ULA, SGLD, SGHMC])
def test_a_chain_that_is_lost_ends_the_run(sampler: type[Sampler]) -> None:
    """Long steps: NaN is noticed long before a million of them are done."""
    began = time.monotonic()
    with pytest.raises(
        InputError, match="chains must stay finite; got NaN or infinity in . of 2 after .* take smaller steps"
    ):
        fit(model(), data(), 2 * sampler(step_size=1.0, draws=10, warmup=0, thin=100_000))  # type: ignore[call-arg]
    assert time.monotonic() - began < 60


def test_one_lost_chain_of_several_is_enough() -> None:
    known = model()
    state = ULA().init(
        Target(known, source(data())), Ends(torch.stack([known.prior.draw(Noise(i)) for i in range(3)]), {}), Noise(0)
    )
    ULA().sound(state, 1)
    state.u[1, 0] = torch.nan
    with pytest.raises(InputError, match="in 1 of 3 after 7 steps of ULA"):
        ULA().sound(state, 7)


def test_a_chain_that_never_came_in_is_named() -> None:
    """A step too short to matter, from a start outside: the others go on, and the verdict names it."""
    known = model(0.1)
    ends = Ends(torch.stack([known.prior.draw(Noise(i)) for i in range(3)]), {})
    ends.theta[1] *= 1e30
    target = Target(known, source(data())).free(HMC().moves(known.prior), ends.theta)
    sampler = HMC(draws=4, warmup=0, step_size=1e-9)
    state = sampler.init(target, ends, Noise(0))
    sampler.sound(state, 0)
    kept, infos = [], []
    for step in range(4):
        state, info = sampler.step(target, state, target.batch(None), Noise(0).at(step))
        kept.append(sampler.keep(target, state))
        sampler.remember(infos, step, info)
    problems = sampler.posterior(target, kept, infos).info["problems"]
    assert [p for p in problems if "chains [1] that did not" in p and "MAP() >> HMC" in p]


def test_learned_numbers_stay_and_it_is_said() -> None:
    known = model(Learned(1.0))
    alone = fit(known, data(), 2 * HMC(draws=5, warmup=5))
    assert alone.info["fixed"] == ["likelihood.noise"]
    assert [
        p for p in alone.info["mixing"]["problems"] if "does not move what is Learned" in p and "likelihood.noise" in p
    ]
    after = fit(known, data(), 2 * (MAP(epochs=5) >> HMC(draws=5, warmup=5)))
    assert after.info["fixed"] == ["likelihood.noise"]
    assert not [p for p in after.info["mixing"]["problems"] if "Learned" in p]
    assert fit(model(HalfCauchy(1.0)), data(), MAP(epochs=5) >> HMC(draws=5, warmup=5)).info["fixed"] == []
    held = fit(known, data(), MAP(epochs=2) >> HMC(draws=5, warmup=5).on("2.*"))
    assert held.info["fixed"] == ["prior.* (in part)", "likelihood.noise"]


def test_a_learned_number_is_constant_data() -> None:
    pytest.importorskip("arviz_base")
    tree = fit(model(Learned(1.0)), data(), 2 * HMC(draws=5, warmup=5)).to_arviz()
    assert "likelihood.noise" in tree["constant_data"] and "likelihood.noise" not in tree["posterior"]
    ensemble = fit(model(Learned(1.0)), data(), 2 * (MAP(epochs=5) >> HMC(draws=5, warmup=5))).to_arviz()
    assert "likelihood.noise" in ensemble["posterior"]  # each chain has its own


HALVES = {"0.*": Discrete((-1.0, 1.0)), "*": Normal(0, 1)}


@pytest.mark.parametrize("after", [HMC, MCLMC, SGLD])
def test_discrete_weights_may_be_held(after: type[Sampler]) -> None:
    known = Model(network(), HALVES, Gaussian(0.5))
    with pytest.raises(UnsupportedError, match="follows gradients"):
        fit(known, data(), Metropolis(draws=5, warmup=5) >> after(draws=5, warmup=5))
    with pytest.raises(UnsupportedError, match="follows gradients"):
        fit(known, data(), Metropolis(draws=5, warmup=5) >> after(draws=5, warmup=5).on("0.weight"))
    posterior = fit(known, data(), 2 * Metropolis(draws=5, warmup=50) >> after(draws=5, warmup=5).on("2.*"))
    weights = posterior.sample(10)["0.weight"].reshape(2, 5, 4, 2)
    assert set(weights.unique().tolist()) == {-1.0, 1.0} and bool((weights == weights[:, :1]).all())
    assert float(posterior.sample(10)["2.weight"].std(0).min()) > 0
    fit(known, data(), 2 * Metropolis(draws=5, warmup=50) >> MAP(epochs=1).on("2.*") >> Laplace().on("2.*"))


def test_what_would_not_fit_is_refused() -> None:
    began = time.monotonic()
    for method in (HMC(draws=10**10), SGLD(draws=10**12), 10**10 * HMC(draws=1, warmup=2)):
        with pytest.raises(InputError, match="draws and chains must fit into memory; got .* GiB"):
            fit(model(), data(), method)
    assert time.monotonic() - began < 5


def test_a_long_warm_up_takes_no_more_memory() -> None:
    u = torch.zeros(64, 300)
    assert Tuning.start(u, None, False, 10_000_000).trace.shape == (64, TRACE, 256)
    first, last = Plan.of(10_000_000).trace
    assert (first, last) == (9_000_000 - TRACE, 9_000_000) and Plan.of(10_000).trace == (8000, 9000)


@pytest.mark.parametrize(
    "made",
    [
        lambda: Cycles("a"),  # type: ignore[arg-type]
        lambda: Cycles(1e-3, explore=None),  # type: ignore[arg-type]
        lambda: Cycles(1e-3, n=True),
        lambda: RMSprop(decay="a"),  # type: ignore[arg-type]
        lambda: RMSprop(decay=1.0),
        lambda: RMSprop(eps=float("inf")),
        lambda: SGLD(step_size=lambda: 1e-5),  # type: ignore[misc, arg-type]
        lambda: SGHMC(step_size=lambda t: -1.0),
    ],
)
def test_schedules_are_checked_when_they_are_made(made: Any) -> None:
    with pytest.raises(InputError):
        made()


def test_a_count_may_be_numpys() -> None:
    assert Cycles(1e-3, n=np.int64(3)).n == 3  # type: ignore[arg-type]


def test_a_sampler_ends_with_its_averaged_step() -> None:
    """Dual averaging swings about; the average of what it tried is what draws are made with."""
    for sampler in (MALA(draws=1, warmup=3), HMC(draws=1, warmup=3), NUTS(draws=1, warmup=3)):
        known = model()
        target = Target(known, source(data()))
        state = sampler.init(target, Ends(known.prior.draw(Noise(1))[None], {}), Noise(0))
        for step in range(3):
            state, _ = sampler.step(target, state, target.batch(None), Noise(0).at(step))
        assert abs(state.step_size.now / state.step_size.best - 1) > 1e-3
        _, info = sampler.step(target, state, target.batch(None), Noise(0).at(3))
        assert info.step_size == state.step_size.best


def test_a_net_is_not_a_model(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="fit takes a Model; got Sequential"):
        fit(network(), data(), MAP())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="load takes the Model"):
        load(tmp_path / "p.safetensors", network())  # type: ignore[arg-type]
    with pytest.raises(FileError):
        load(tmp_path / "p.safetensors", model())


def test_methods_are_written_as_they_were() -> None:
    a, b, c = MAP(), HMC(), NUTS()
    for method, said in (
        (8 * (a >> b), f"8 * ({a} >> {b})"),
        (a >> 4 * b, f"{a} >> 4 * {b}"),
        (a >> b >> c, f"{a} >> {b} >> {c}"),
        (a >> (b >> c), f"{a} >> ({b} >> {c})"),
        ((a >> b).on("0.*"), f"({a} >> {b}).on('0.*')"),
        (a >> b.on("0.*", "2.*"), f"{a} >> {b}.on('0.*', '2.*')"),
        (2 * (3 * a), f"2 * (3 * {a})"),
    ):
        assert repr(method) == said


def test_one_network_cannot_tell_what_it_does_not_know() -> None:
    """All of its uncertainty is noise by construction: no verdict that more data would change little."""
    parts = {"nats": np.array(0.0), "epistemic": np.zeros(5), "aleatoric": np.ones(5)}
    assert taught(parts).mark is Mark.FAIR and "cannot tell" in taught(parts).title
    assert "change little" in taught({**parts, "epistemic": np.full(5, 0.1)}).title
    alone = mixed({"mixing": {"chains": 1, "rhat": None, "problems": ["one"]}})
    assert alone.mark is Mark.FAIR and "nothing to agree with" in alone.title


def test_figures_ask_for_as_many_names_as_there_are_quantities() -> None:
    x = Noise(0).normal(4, 50, 3)
    for draw, numbers in ((draw_ranks, ranks_data(x)), (draw_trace, trace_data(x))):
        with pytest.raises(InputError, match="every quantity must have a name; got 1 for 3"):
            draw(numbers, ["a"], "title")
    with pytest.raises(InputError, match="every run must have a name; got 0 for 1"):
        draw_energy(energy_data(Noise(0).normal(4, 50)), [], "title")
    with pytest.raises(InputError, match="numbers must come as a tensor"):
        ranks_data(object())
