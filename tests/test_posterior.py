"""Posteriors as sets of draws: which draws are used, and that a stored one comes back bit for bit or not at all."""

from __future__ import annotations

import errno
import json
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from targets import DOUBLE
from torch import Tensor, nn

import nescio
from nescio import FileError, fit, load
from nescio.infer import MAP
from nescio.laws import HalfCauchy, Laplace, Learned, Normal
from nescio.laws.site import Site, fan_in
from nescio.likelihoods import Gaussian, Heteroscedastic, MultiTask
from nescio.model import Model
from nescio.nets import mlp
from nescio.posterior import Draws, Mixture, Posterior
from nescio.posterior.posterior import evenly, spread_evenly
from nescio.store import atomic, write
from nescio.store import header as store_header


def one_weight() -> Model:
    return Model(nn.Linear(1, 1, bias=False, dtype=DOUBLE), Normal(0, 1), Gaussian(0.1))


def numbered(chains: int, draws: int, first: int = 0) -> Draws:
    """Draw d of chain c is the number 10 c + d (+ 100 `first`), and its chain's statistics are c."""
    theta = (100 * first + 10 * torch.arange(chains)[:, None] + torch.arange(draws)).to(DOUBLE)
    return Draws(one_weight(), theta[..., None], -theta, {"buffer": torch.arange(chains)}, {"log_joint": float(first)})


def whose(posterior: Posterior, n: int) -> list[int]:
    return [int(w) for w in posterior.sample(n)["weight"].flatten()]


def net(*, activation: Callable[[], nn.Module] = nn.Tanh, hidden: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, hidden), nn.BatchNorm1d(hidden), activation(), nn.Linear(hidden, 1))


def noisy_model(dtype: torch.dtype = torch.float32) -> Model:
    """Batch norm, a random scale in the prior and one in the likelihood."""
    return Model(net().to(dtype), Normal(0, HalfCauchy(1.0).per("layer")), Gaussian(HalfCauchy(1.0)))


def data(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(0)
    return torch.as_tensor(rng.normal(size=(20, 2)), dtype=dtype), torch.as_tensor(
        rng.normal(size=(20, 1)), dtype=dtype
    )


@pytest.fixture(scope="module")
def fitted() -> Draws:
    posterior = fit(noisy_model(), data(), MAP(epochs=2) >> 3 * MAP(epochs=2))
    assert isinstance(posterior, Draws)
    return posterior


@pytest.fixture(scope="module")
def file(fitted: Draws, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("posterior") / "p.safetensors"
    fitted.save(path)
    return path


# ---- which draws -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "want"),
    [
        (1, [2]),
        (2, [2, 12]),
        (3, [2, 12, 22]),
        (6, [1, 3, 11, 13, 21, 23]),
        (7, [0, 2, 3, 11, 13, 21, 23]),
        (12, [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]),
        (15, [0, 1, 2, 2, 3, 10, 11, 12, 12, 13, 20, 21, 22, 22, 23]),
        (24, [c * 10 + d for c in range(3) for d in range(4) for _ in range(2)]),
    ],
)
def test_draws_are_thinned_evenly_over_chains(n: int, want: list[int]) -> None:
    assert whose(numbered(3, 4), n) == want


def test_thinning_is_even_for_every_number() -> None:
    """Chains differ by at most one, draws within a chain too, and gaps are as even as whole numbers can be."""
    posterior = numbered(3, 5)
    for n in range(1, 50):
        got = np.array(whose(posterior, n))
        shares = np.bincount(got // 10, minlength=3)
        assert shares.max() - shares.min() <= 1
        for chain in range(3):
            own = got[got // 10 == chain] % 10
            assert bool((np.diff(own) >= 0).all())
            times = np.bincount(own, minlength=5)
            assert times.max() - times.min() <= 1
    for count in (1, 2, 7, 100):
        for wanted in range(1, count + 1):
            gaps = np.diff(evenly(count, wanted).numpy())
            assert len(set(evenly(count, wanted).tolist())) == wanted
            assert wanted < 2 or gaps.max() - gaps.min() <= 1
    assert spread_evenly(7, 3) == [3, 2, 2]
    assert spread_evenly(2, 3) == [1, 1, 0]


def test_statistics_are_those_of_the_draws_own_chain() -> None:
    got = numbered(3, 4).sample(7)
    assert (got["weight"].flatten() // 10).long().tolist() == got["buffer"].tolist() == [0, 0, 0, 1, 1, 2, 2]


def test_predictions_use_all_draws_or_the_thinned_ones() -> None:
    posterior, x = numbered(2, 3), torch.ones(1, 1, dtype=DOUBLE)
    means = lambda draws: posterior.predict(x, draws=draws).draws.mean.flatten().tolist()  # type: ignore[attr-defined]  # noqa: E731
    assert means(None) == means(100) == means(6) == [0, 1, 2, 10, 11, 12]  # never more than there are
    assert means(2) == [1, 11]
    assert posterior.count() == 6
    assert len(numbered(30, 5).predict(x).draws.mean) == 100  # type: ignore[attr-defined]


def test_the_point_is_the_draw_of_the_highest_density() -> None:
    posterior = numbered(3, 4)
    posterior.log_joint[1, 2] = 99.0
    point = posterior.point()
    assert point["weight"].item() == 12
    assert point["weight"].shape == (1, 1)
    assert point["buffer"].item() == 1
    assert point["likelihood.noise"].item() == 0.1
    assert numbered(3, 4).point()["weight"].item() == 0


def test_the_next_method_starts_at_the_last_draw_of_every_chain() -> None:
    ends = numbered(3, 4).ends()
    assert ends.theta.flatten().tolist() == [3, 13, 23]
    assert ends.statistics["buffer"].tolist() == [0, 1, 2]


def test_blocks_of_chains_join_in_order() -> None:
    joined = Draws.join([numbered(2, 3), numbered(1, 3, first=1)], {"a": 1})
    assert joined.theta.shape == (3, 3, 1)
    assert whose(joined, 9) == [0, 1, 2, 10, 11, 12, 100, 101, 102]
    assert joined.sample(9)["buffer"].tolist() == [0] * 3 + [1] * 3 + [0] * 3
    assert joined.info == {"a": 1}


# ---- mixtures --------------------------------------------------------------------------------------------------------


def test_a_mixture_gives_every_part_its_share() -> None:
    mixture = Mixture([numbered(1, 4), numbered(2, 2, first=1), numbered(1, 1, first=2)], {})
    assert whose(mixture, 7) == [0, 2, 3, 101, 111, 200, 200]
    assert whose(mixture, 2) == [2, 101]
    assert mixture.count() == 9
    got = mixture.sample(7)
    assert {len(value) for value in got.values()} == {7}
    assert got["buffer"].tolist() == [0, 0, 0, 0, 1, 0, 0]
    x = torch.ones(2, 1, dtype=DOUBLE)
    assert mixture.predict(x, draws=7).mean[0].item() == pytest.approx(sum(whose(mixture, 7)) / 7)


def test_a_mixtures_point_and_ends() -> None:
    mixture = Mixture([numbered(1, 4), numbered(2, 2, first=2), numbered(1, 1, first=1)], {})
    assert mixture.point()["weight"].item() == 200  # the part with the highest log_joint in its info
    assert mixture.ends().theta.flatten().tolist() == [3, 201, 211, 100]
    assert mixture.ends().statistics["buffer"].tolist() == [0, 0, 1, 0]


def test_mixtures_of_mixtures_are_stored_and_read_back(tmp_path: Path) -> None:
    inner = Mixture([numbered(1, 2), numbered(1, 2, first=1)], {"who": "inner"})
    outer = Mixture([inner, numbered(2, 3, first=2)], {"who": "outer"})
    outer.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors", one_weight())
    assert isinstance(again, Mixture)
    assert isinstance(again.parts[0], Mixture)
    assert again.info == {"who": "outer"}
    assert again.parts[0].info == {"who": "inner"}
    assert again.parts[0].parts[1].info == {"log_joint": 1.0}
    assert whose(again, 8) == whose(outer, 8) == [0, 1, 100, 101, 200, 202, 210, 212]
    assert again.sample(8)["buffer"].tolist() == outer.sample(8)["buffer"].tolist()


def test_eleven_parts_are_told_apart(tmp_path: Path) -> None:
    """Part 1 must not take what belongs to part 10."""
    mixture = Mixture([numbered(1, 1, first=i) for i in range(11)], {})
    mixture.save(tmp_path / "m.safetensors")
    assert whose(load(tmp_path / "m.safetensors", one_weight()), 11) == [100 * i for i in range(11)]


# ---- stored and read back --------------------------------------------------------------------------------------------


def assert_same(a: Draws, b: Posterior) -> None:
    assert isinstance(b, Draws)
    pairs = [(a.theta, b.theta), (a.log_joint, b.log_joint)]
    assert set(a.statistics) == set(b.statistics)
    pairs += [(a.statistics[name], b.statistics[name]) for name in a.statistics]
    for one, two in pairs:
        assert one.dtype == two.dtype
        assert one.shape == two.shape
        assert one.contiguous().numpy().tobytes() == two.contiguous().numpy().tobytes()
    assert a.info == b.info


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
def test_a_posterior_comes_back_bit_for_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    model, path, (x, y) = noisy_model(dtype), tmp_path / "p.safetensors", data(dtype)
    before = fit(model, (x, y), MAP(epochs=2) >> 3 * MAP(epochs=2, hold_out=0.2), seed=5)
    before.save(path)
    after = load(path, noisy_model(dtype))
    assert isinstance(before, Draws)
    assert_same(before, after)
    assert {"method", "seed", "seconds", "before", "loss", "held_out"} <= set(after.info)
    assert after.info["seed"] == 5
    assert {"1.running_mean", "1.num_batches_tracked"} <= set(after.sample(1))
    one, two = before.predict(x), after.predict(x)
    for number in ("mean", "variance", "epistemic"):
        assert torch.equal(getattr(one, number), getattr(two, number))
    assert torch.equal(one.log_prob(y), two.log_prob(y))
    assert torch.equal(one.quantile(0.1), two.quantile(0.1))
    assert torch.equal(one.sample(5, seed=1), two.sample(5, seed=1))
    assert all(torch.equal(before.point()[name], value) for name, value in after.point().items())
    after.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_a_stored_posterior_can_be_fitted_further(file: Path) -> None:
    model = noisy_model()
    posterior = load(file, model)
    assert isinstance(posterior, Draws)
    assert posterior.model is model
    assert torch.equal(posterior.ends().theta, posterior.theta[:, -1])


def test_the_safetensors_library_opens_the_file(file: Path, fitted: Draws) -> None:
    with safe_open(file, "pt") as opened:
        assert set(opened.keys()) == set(fitted.tensors())
        assert torch.equal(opened.get_tensor("theta"), fitted.theta)
        header = json.loads(opened.metadata()["nescio"])
    assert header["kind"] == "Draws"
    assert header["info"] == fitted.info
    assert header["model"] == fitted.model.describe()


def others() -> dict[str, tuple[Model, str]]:
    """Models that are not the stored one, each in one respect."""
    law, likelihood = Normal(0, HalfCauchy(1.0).per("layer")), Gaussian(HalfCauchy(1.0))
    no_statistics = nn.Sequential(
        nn.Linear(2, 3), nn.BatchNorm1d(3, track_running_stats=False), nn.Tanh(), nn.Linear(3, 1)
    )
    return {
        "wider net": (Model(net(hidden=4), law, likelihood), "another net"),
        "activation": (Model(net(activation=nn.ReLU), law, likelihood), "another net"),
        "no statistics": (Model(no_statistics, law, likelihood), "another net"),
        "another net": (Model(mlp(2, 3, 1), law, likelihood), "another net"),
        "prior": (Model(net(), Laplace(0, HalfCauchy(1.0).per("layer")), likelihood), "another prior"),
        "prior's number": (Model(net(), Normal(0, HalfCauchy(2.0).per("layer")), likelihood), "another prior"),
        "prior's sharing": (Model(net(), Normal(0, HalfCauchy(1.0).per("input")), likelihood), "another prior"),
        "prior by patterns": (Model(net(), {"0.*": law, "*": law}, likelihood), "another prior"),
        "likelihood": (Model(net(), law, Heteroscedastic()), "another likelihood"),
        "likelihood's number": (Model(net(), law, Gaussian(HalfCauchy(2.0))), "another likelihood"),
        "likelihood's units": (Model(net(), law, Gaussian(HalfCauchy(1.0), scale=2.0)), "another likelihood"),
        "learned noise": (Model(net(), law, Gaussian(Learned(1.0))), "another likelihood"),
        "precision": (noisy_model(DOUBLE), "draws of .* torch.float64 numbers; got .*torch.float32"),
    }


@pytest.mark.parametrize("name", others())
def test_another_model_is_refused_in_three_parts(name: str, file: Path) -> None:
    model, message = others()[name]
    with pytest.raises(FileError, match=f"p.safetensors must hold .*{message}.*; build the same model") as caught:
        load(file, model)
    assert all((caught.value.must, caught.value.got, caught.value.remedy))
    assert len(str(caught.value)) < 600


def test_damaged_files_are_refused(file: Path, fitted: Draws, tmp_path: Path) -> None:
    """150 cuts and 300 flipped bits: an error with three parts, never another posterior."""
    whole, path, model, draw = file.read_bytes(), tmp_path / "bad.safetensors", noisy_model(), random.Random(0)
    cuts = [whole[:n] for n in {0, 1, 7, 8, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(145))}]
    flips = []
    for _ in range(300):
        flipped = bytearray(whole)
        flipped[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        flips.append(bytes(flipped))
    harmless = 0
    for content in [*cuts, *flips]:
        path.write_bytes(content)
        try:
            again = load(path, model)
        except FileError as error:
            assert all((error.must, error.got, error.remedy))
        else:
            assert_same(fitted, again)
            harmless += 1
    assert harmless <= 3  # a blank between two tokens may become another one
    path.write_bytes(whole + b"\0")
    with pytest.raises(FileError):
        load(path, model)


def test_foreign_files_are_refused(tmp_path: Path, file: Path, fitted: Draws) -> None:
    path, model = tmp_path / "foreign", noisy_model()
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: save_file(fitted.tensors(), path), "the file must be one of nescio's; got another safetensors file"),
        (lambda: torch.save(fitted.theta, path), "a zip archive or a pickle"),
        (lambda: path.write_bytes(pickle.dumps([1])), "the file must be one of nescio's and whole"),
        (lambda: write(path, fitted.tensors(), {}), "must hold a posterior of this model; got another net: None"),
        (lambda: write(path, {}, {"model": []}), "must hold a posterior of this model"),
        (
            lambda: write(path, {}, {"model": model.describe()}),
            r"a known kind of posterior; got None; .*'Draws', .*'Mixture'",
        ),
        (lambda: write(path, {}, {"model": model.describe(), "kind": "Exec"}), "a known kind of posterior; got 'Exec'"),
    ]
    for make, message in cases:
        make()
        with pytest.raises(FileError, match=message) as caught:
            load(path, model)
        assert all((caught.value.must, caught.value.got, caught.value.remedy))
    with pytest.raises(FileError, match="the file must exist; got no file at .*; check the name"):
        load(tmp_path / "nowhere", model)
    with pytest.raises(FileError, match="path must name a file; got a folder"):
        load(tmp_path, model)


def test_draws_of_another_length_are_refused(tmp_path: Path, fitted: Draws) -> None:
    path, model = tmp_path / "short", noisy_model()
    tensors = {**fitted.tensors(), "theta": fitted.theta[..., 1:]}
    write(path, tensors, {"model": model.describe(), **fitted.header()})
    with pytest.raises(FileError, match=f"must hold draws of {model.dim} torch.float32 numbers; got "):
        load(path, model)


def test_a_newer_format_is_refused(tmp_path: Path, fitted: Draws, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "newer"
    with monkeypatch.context() as patch:
        patch.setattr(store_header, "FORMAT", 2)
        patch.setattr(store_header, "__version__", "99.0")
        fitted.save(path)
    with pytest.raises(
        FileError, match=r"the format must be at most 1; got format 2, made by nescio '99.0'.*newer nescio"
    ):
        load(path, noisy_model())


@pytest.mark.parametrize("step", ["_open", "_write", "_fsync", "_read_back", "_replace"])
def test_a_failing_write_leaves_the_old_file(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.safetensors"
    numbered(1, 2).save(path)
    before = path.read_bytes()

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic, step, full)
    with pytest.raises(FileError, match="No space left on device.*free some space") as caught:
        numbered(2, 2).save(path)
    assert all((caught.value.must, caught.value.got, caught.value.remedy))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert load(path, one_weight()).count() == 2


def test_a_posterior_that_is_not_finite_is_not_written(tmp_path: Path) -> None:
    posterior = numbered(1, 2)
    posterior.theta[0, 1] = float("nan")
    with pytest.raises(
        nescio.InputError, match="every tensor must be sound; got values that are not finite in 'theta'"
    ):
        posterior.save(tmp_path / "p")
    assert not list(tmp_path.iterdir())


# ---- no pickle -------------------------------------------------------------------------------------------------------

SEEN: list[str] = []
LISTENING = False


def listen(event: str, arguments: tuple[Any, ...]) -> None:
    named = event == "import" and "pickle" in str(arguments[0])
    if LISTENING and (named or event.startswith(("pickle", "exec", "compile", "marshal"))):
        SEEN.append(event)


@contextmanager
def listening() -> Iterator[list[str]]:
    """What the interpreter reports; a hook cannot be taken off again, so it sleeps outside."""
    global LISTENING
    if not getattr(listen, "hooked", False):
        sys.addaudithook(listen)
        listen.hooked = True  # type: ignore[attr-defined]
    SEEN.clear()
    LISTENING = True
    try:
        yield SEEN
    finally:
        LISTENING = False


def test_neither_saving_nor_loading_runs_or_pickles_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    posterior, path = numbered(2, 3), tmp_path / "p.safetensors"
    nested = Mixture([posterior, posterior], {})
    for p in (posterior, nested):  # whatever is imported late is here now
        p.save(path)
        load(path, one_weight())
    model = one_weight()

    def forbidden(*args: object, **kwargs: object) -> None:
        raise AssertionError("pickle was called")

    with monkeypatch.context() as patch, listening() as seen:
        for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
            patch.setattr(pickle, name, forbidden)
        patch.setattr(torch, "load", forbidden)
        patch.setattr(torch, "save", forbidden)
        for p in (posterior, nested):
            p.save(path)
            load(path, model)
    assert seen == []
    with listening() as seen:  # the hook is awake
        pickle.loads(pickle.dumps(Path("a")))
    assert "pickle.find_class" in seen


# ---- what makes a model the same -------------------------------------------------------------------------------------


def half(site: Site) -> float:
    return 0.5 * fan_in(site)


def test_a_law_with_a_callable_can_be_read_in_another_process(tmp_path: Path) -> None:
    """A function's repr says where it lies in memory, which is elsewhere the next time."""
    path = tmp_path / "p"

    def model(scale: Callable[[Site], float]) -> Model:
        return Model(nn.Linear(4, 1, dtype=DOUBLE), Normal(0, scale), Gaussian(0.1))

    Draws(model(fan_in), torch.zeros(1, 1, 5, dtype=DOUBLE), torch.zeros(1, 1), {}, {}).save(path)
    script = (
        "import sys, torch; from torch import nn; from nescio import Model, load; from nescio.laws import Normal;"
        "from nescio.laws.site import fan_in; from nescio.likelihoods import Gaussian;"
        "load(sys.argv[1], Model(nn.Linear(4, 1, dtype=torch.float64), Normal(0, fan_in), Gaussian(0.1)))"
    )
    # another hash seed, another layout of memory
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert " at 0x" not in json.dumps(model(lambda site: 1.0).describe())
    with pytest.raises(FileError, match="another prior"):
        load(path, model(half))
    Draws(model(lambda s: 1.0), torch.zeros(1, 1, 5, dtype=DOUBLE), torch.zeros(1, 1), {}, {}).save(path)
    load(path, model(lambda s: 1.0))
    with pytest.raises(FileError, match="another constants"):  # the same name, but other numbers
        load(path, model(lambda s: 2.0))


def test_the_order_of_patterns_matters(tmp_path: Path) -> None:
    """First match wins: the same laws in another order are another prior, and another order of the vector."""
    path, a, b = tmp_path / "p", Normal(0, 1), Normal(5, 1)

    def model(laws: dict[str, Normal]) -> Model:
        return Model(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1, bias=False)).to(DOUBLE), laws, Gaussian(0.1))

    one, two = model({"*.weight": a, "0.*": b}), model({"0.*": b, "*.weight": a})
    Draws(one, torch.tensor([[[1.0, 2.0, 3.0]]], dtype=DOUBLE), torch.zeros(1, 1), {}, {}).save(path)
    assert load(path, one).sample(1)["1.weight"].item() == 2
    with pytest.raises(FileError, match="another prior"):
        load(path, two)


def test_frozen_weights_and_tensors_are_compared_by_value(tmp_path: Path) -> None:
    path = tmp_path / "p"

    def model(frozen: float = 1.25, scale: float = 1.25, loc: float = 1.25) -> Model:
        net = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)).to(DOUBLE)
        net[0].requires_grad_(False)
        nn.init.constant_(net[0].weight, frozen)
        nn.init.constant_(net[0].bias, 0.0)
        law = Normal(0, torch.full((1,), scale, dtype=DOUBLE))
        return Model(net, law, MultiTask(a=Gaussian(0.1, loc=torch.full((1,), loc, dtype=DOUBLE))))

    Draws(model(), torch.zeros(1, 1, 2, dtype=DOUBLE), torch.zeros(1, 1), {}, {}).save(path)
    load(path, model())
    for other, message in (
        (model(frozen=1.25001), "another frozen weights"),
        (model(scale=1.25001), "another constants"),
        (model(loc=1.25001), "another constants"),
    ):
        with pytest.raises(FileError, match=message):
            load(path, other)


def test_headers_that_lie_are_refused(tmp_path: Path) -> None:
    """Sealed and whole, but not written by save."""
    path, model = tmp_path / "p", one_weight()
    own, theta = {"model": model.describe()}, torch.zeros(1, 1, 1, dtype=DOUBLE)
    wrong: list[tuple[dict[str, Tensor], dict[str, object]]] = [
        ({}, {"kind": "Draws"}),
        ({"theta": theta}, {"kind": "Draws"}),
        ({"theta": torch.tensor(1.0)}, {"kind": "Draws"}),
        ({}, {"kind": ["Draws"]}),
        ({}, {"kind": "Mixture"}),
        ({}, {"kind": "Mixture", "parts": []}),
        ({}, {"kind": "Mixture", "parts": [1]}),
        ({}, {"kind": "Mixture", "parts": [{"kind": "Draws"}]}),
    ]
    for tensors, header in wrong:
        write(path, tensors, {**own, **header})
        with pytest.raises(FileError) as caught:
            load(path, model)
        assert all((caught.value.must, caught.value.got, caught.value.remedy))


@pytest.mark.parametrize("n", [0, -1])
def test_no_draws_are_refused(n: int) -> None:
    x = torch.ones(1, 1, dtype=DOUBLE)
    for posterior in (numbered(2, 2), Mixture([numbered(1, 2), numbered(1, 2)], {})):
        for ask in (posterior.sample, lambda n, p=posterior: p.predict(x, draws=n)):
            with pytest.raises(nescio.InputError, match="at least one draw must be asked for; got"):
                ask(n)


class Endless(Posterior):
    """Can be sampled without end, and remembers by which seeds it was."""

    def __init__(self) -> None:
        self.model, self.info, self.seeds = one_weight(), {}, list[int]()

    def sample(self, n: int, seed: int = 0) -> dict[str, Tensor]:
        self.seeds.append(seed)
        return numbered(1, 1).sample(n)

    def point(self) -> Any: ...
    def count(self) -> None: ...
    def ends(self) -> Any: ...
    def header(self) -> Any: ...
    def tensors(self) -> Any: ...


def test_no_part_of_a_mixture_shares_its_noise_with_another() -> None:
    """Nor with itself under another seed: 3 parts and 3 seeds, twice each."""
    parts = [Endless() for _ in range(3)]
    for seed in (0, 1, 2, 0, 1, 2):
        Mixture(parts, {}).sample(3, seed)
    assert len({seed for part in parts for seed in part.seeds}) == 9
    assert all(part.seeds[:3] == part.seeds[3:] for part in parts)
    assert Mixture(parts, {}).count() is None
    assert len(Mixture(parts, {}).predict(torch.ones(1, 1, dtype=DOUBLE), draws=None).draws.mean) == 100  # type: ignore[attr-defined]
