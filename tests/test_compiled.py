"""Machine code gives what plain code gives: densities, gradients and whole steps of the samplers; where it cannot, it says so."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from test_resume import Stop, assert_same, resumed
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from nescio import Model, compiled, cores, fit
from nescio.again import again
from nescio.compiled import Compiled, confirm
from nescio.data.source import source
from nescio.infer import HMC, MAP, MCLMC, NUTS, SGHMC, driver, isokinetic, resume
from nescio.infer.sampler import Sampler
from nescio.laws import HalfCauchy, Horseshoe, Normal, StudentT
from nescio.likelihoods import Categorical, Gaussian, Heteroscedastic
from nescio.machine import looped, traced
from nescio.native import Unsupported, chainwise
from nescio.native.build import compiler
from nescio.nets import FilterResponseNorm, mlp
from nescio.noise import Noise
from nescio.posterior import Draws, Posterior
from nescio.rewritten import rewritten, tanh
from nescio.rounding import TF32, agree, rounding
from nescio.store import checkpoint
from nescio.target import Target

DOUBLE = torch.float64


def refuse(*given: object, **named: object) -> None:
    raise Unsupported("not in this test")


@pytest.fixture(params=["C", "torch"])
def maker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who makes the code; the other cannot."""
    monkeypatch.setattr(compiled, "machine_code" if request.param == "C" else "Chainwise", refuse)
    return str(request.param)


def conv_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 3), FilterResponseNorm(3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(27, 3))


def problem(name: str) -> tuple[Model, tuple[Tensor, Tensor]]:
    x, y = torch.randn(30, 4), torch.randn(30, 1)
    images, labels = torch.randn(20, 1, 8, 8), torch.randint(0, 3, (20,))
    return {
        "gaussian": (Model(mlp(4, 5, 1, activation=nn.Tanh), Normal(0, 1), Gaussian(HalfCauchy(1.0))), (x, y)),
        "horseshoe": (Model(mlp(4, 5, 2), Horseshoe(0.1), Heteroscedastic()), (x, y)),
        "student": (Model(mlp(4, 5, 1, activation=nn.SiLU), StudentT(3, 0, 1), Gaussian(0.3)), (x, y)),
        "images": (Model(conv_net(), Normal(0, 1), Categorical()), (images, labels)),
    }[name]


@pytest.mark.parametrize("name", ["gaussian", "horseshoe", "student", "images"])
def test_gradients_are_those_of_plain_code(name: str, maker: str) -> None:
    if (name, maker) == ("images", "C"):
        pytest.skip("convolutions are left to torch")
    model, data = problem(name)
    target = Target(model, source(data), temperature=1.3)
    u = 0.3 * torch.randn(6, model.dim)
    plain = target.value_and_grad(u, target.batch(None))
    quick = replace(target, code={})
    for rows in (6, 1):  # one chain of six is padded, or has a version of its own
        value, gradient = quick.value_and_grad(u[:rows], target.batch(None))
        torch.testing.assert_close(value, plain[0][:rows], rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(gradient, plain[1][:rows], rtol=1e-3, atol=1e-3)
    assert quick.code is not None and [code.note for code in quick.code.values()] == [None]


def test_shards_add_up_and_the_prior_counts_once() -> None:
    model, data = problem("gaussian")
    target = Target(model, source(data))
    u = 0.3 * torch.randn(3, model.dim)
    whole = target.value_and_grad(u, target.batch(None))
    for quick in (replace(target, most_rows=7), replace(target, most_rows=7, code={})):
        value, gradient = quick.value_and_grad(u, target.batch(None))
        torch.testing.assert_close(value, whole[0], rtol=1e-6, atol=1e-4)
        torch.testing.assert_close(gradient, whole[1], rtol=1e-4, atol=1e-4)


SAMPLERS: dict[str, Sampler] = {
    "HMC": HMC(draws=8, warmup=3, leapfrog=3, step_size=1e-3),
    "HMC, dense": HMC(draws=3, warmup=3, leapfrog=3, step_size=1e-3, dense=True),
    "NUTS": NUTS(draws=3, warmup=1, max_depth=7, step_size=1e-4),  # longer than one set of coins
    "MCLMC": MCLMC(draws=8, warmup=2, step_size=1e-2),
    "SGHMC": SGHMC(draws=4, warmup=1, batch_size=7),
}


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_samplers_take_the_same_steps(name: str, maker: str) -> None:
    """In double precision rounding cannot grow to 1e-6 in a few steps; another step would show at once."""
    x, y = torch.randn(22, 3, dtype=DOUBLE), torch.randn(22, 1, dtype=DOUBLE)
    model = Model(mlp(3, 4, 1).double(), Normal(0, 1), Gaussian(0.5))
    plain, quick = (fit(model, (x, y), 5 * SAMPLERS[name], compile=c) for c in (False, True))
    assert quick.info["compiled"] is True and "compiled" not in plain.info
    torch.testing.assert_close(quick.theta, plain.theta, rtol=1e-6, atol=1e-6)
    assert not torch.equal(plain.theta[:, 0], plain.theta[:, -1])  # they moved


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def test_tasks_run_at_once_each_on_one_core() -> None:
    """Tasks that wait for each other end; in each torch takes one core, and outside as many as before; errors come through."""
    meet = threading.Barrier(3, timeout=60)
    with torch_threads(3):
        seen = cores.each([lambda: (meet.wait(), torch.get_num_threads())[1]] * 3)
        assert seen == [1, 1, 1] and torch.get_num_threads() == 3
        assert cores.each([lambda i=i: i * i for i in range(20)]) == [i * i for i in range(20)]
        with pytest.raises(ZeroDivisionError):
            cores.each([lambda: 1, lambda: 1 // 0])


def test_nothing_is_at_work_any_more_when_one_task_fails() -> None:
    """An interrupt comes from outside, as an error here: code that still ran would write into memory that is given back."""
    begun, ended, at_work = [], [], threading.Event()

    def fails() -> None:
        assert at_work.wait(60)
        raise ZeroDivisionError

    def slow(i: int) -> None:
        begun.append(i)
        at_work.set()
        time.sleep(0.2)
        ended.append(i)

    with torch_threads(2), pytest.raises(ZeroDivisionError):
        cores.each([fails, *(partial(slow, i) for i in range(50))])
    assert begun and sorted(begun) == sorted(ended) and len(begun) < 50  # what had not begun never does


@pytest.mark.parametrize("name", ["HMC", "HMC, dense", "MCLMC", "NUTS"])
def test_a_chain_is_the_same_on_whatever_core(name: str) -> None:
    """To the last bit: its numbers are computed by themselves, weights that stay fixed among them."""
    x, y = torch.randn(22, 3), torch.randn(22, 1)
    model = Model(mlp(3, 4, 1), Normal(0, 1), Gaussian(0.5))
    for method in (5 * SAMPLERS[name], 5 * SAMPLERS[name].on("2.*")):
        made = []
        for threads in (1, 2, 3):
            with torch_threads(threads):
                made.append(fit(model, (x, y), method, compile=True))
                assert torch.get_num_threads() == threads and made[-1].info["compiled"] is True
        assert torch.equal(made[0].theta, made[1].theta) and torch.equal(made[0].theta, made[2].theta)
        assert not torch.equal(made[0].theta[0], made[0].theta[-1])


def test_a_warm_up_in_stretches_is_that_of_single_steps(maker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isokinetic, "FINDING", 2)
    x, y = torch.randn(22, 3, dtype=DOUBLE), torch.randn(22, 1, dtype=DOUBLE)
    model = Model(mlp(3, 4, 1).double(), Normal(0, 1), Gaussian(0.5))
    sampler = MCLMC(draws=2, warmup=60, step_size=1e-3)
    strides, step = [], 0
    while step < 60:
        strides.append(sampler.together(step, 1.0))
        step += strides[-1]
    assert step == 60 and max(strides) == isokinetic.STRETCH and len(strides) < 30
    plain, quick = (fit(model, (x, y), 4 * sampler, compile=c) for c in (False, True))
    torch.testing.assert_close(quick.theta, plain.theta, rtol=1e-6, atol=1e-6)
    assert quick.info["step_size"] == pytest.approx(plain.info["step_size"], rel=1e-6) != sampler.step_size
    assert quick.info["length"] == pytest.approx(plain.info["length"], rel=1e-6)


def test_fixed_weights_follow_their_chain(maker: str) -> None:
    x, y = torch.randn(22, 3, dtype=DOUBLE), torch.randn(22, 1, dtype=DOUBLE)
    model = Model(mlp(3, 4, 1).double(), Normal(0, 1), Gaussian(0.5))
    method = 5 * NUTS(draws=4, warmup=0, max_depth=4, step_size=0.05).on("2.*")  # drops out at different depths
    plain, quick = (fit(model, (x, y), method, compile=c) for c in (False, True))
    torch.testing.assert_close(quick.theta, plain.theta, rtol=1e-6, atol=1e-6)
    assert quick.info["compiled"] is True


LONG: dict[str, Sampler] = {  # longer than one call of machine code takes steps
    "HMC": HMC(draws=150, warmup=12, leapfrog=3),
    "NUTS": NUTS(draws=150, warmup=12, max_depth=3),
    "MCLMC": MCLMC(draws=150, warmup=40, step_size=1e-3),
}


def run(name: str, folder: Path | None = None) -> Posterior:
    x, y = Noise(1).at("x").normal(22, 3), Noise(1).at("y").normal(22, 1)
    with Noise(1).at("net").scope():
        model = Model(mlp(3, 4, 1), Normal(0, 1), Gaussian(0.5))
    return fit(model, (x, y), 2 * LONG[name], compile=True, folder=folder)


def stopped(name: str, folder: Path, half: int) -> int:
    """Run until a checkpoint was saved at this step or later, and stop there."""
    true_save = resume.Stored.save

    def save(self: resume.Stored, step: int, *more: Any) -> None:
        true_save(self, step, *more)
        if step >= half:
            raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resume, "CHECKPOINT_SECONDS", 0.0)
        patch.setattr(resume.Stored, "save", save)
        with pytest.raises(Stop):
            run(name, folder)
    found = checkpoint.newest(folder / "block-0")
    assert found is not None
    return found.step


def check_goes_on(name: str, *parts: str) -> None:
    """Stopped after a checkpoint half way through the warm-up, or the draws, a run goes on from there, to the same bits."""
    want, sampler = run(name), LONG[name]
    assert isinstance(want, Draws) and want.info["compiled"] is True
    assert not torch.equal(want.theta[:, 0], want.theta[:, -1])  # they moved
    ends = {"warm-up": (0, sampler.warmup), "draws": (sampler.warmup, sampler.steps(1))}
    for first, end in [ends[part] for part in parts]:
        with tempfile.TemporaryDirectory() as folder:
            at = stopped(name, Path(folder), (first + end) // 2)
            got, begun = resumed(partial(run, name), folder)
        assert first < at < end and begun == [at], f"stopped at {at}, went on at {begun}"
        assert_same(got, want)
        assert isinstance(got, Draws) and got.trace.keys() == want.trace.keys()
        assert all(torch.equal(x, want.trace[key]) for key, x in got.trace.items())


@pytest.mark.skipif(compiler() is None, reason="no C compiler here")
@pytest.mark.parametrize("name", LONG)
def test_a_killed_run_goes_on_compiled(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "machine_code", refuse)  # C, or nothing
    check_goes_on(name, *(["draws"] if name == "NUTS" else ["warm-up", "draws"]))  # it adapts as HMC does


def test_a_killed_run_goes_on_in_code_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "Chainwise", refuse)
    check_goes_on("HMC", "draws")


def test_making_code_leaves_no_trace_in_what_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network with dropout draws as its code is traced and tried; a run that is resumed makes its code at another step."""

    def tried(function: compiled.Function, inputs: Sequence[Tensor], fed: bool, until: int | None) -> None:
        function(*inputs)
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(compiled, "machine_code", tried)
    x, y = torch.randn(20, 3), torch.randn(20, 1)
    model = Model(nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1)), Normal(0, 1), Gaussian(0.5))
    plain, code = (fit(model, (x, y), MAP(epochs=2, batch_size=10), compile=c) for c in (False, True))
    assert "no compiler here" in code.info["compiled"] and torch.equal(plain.ends().theta, code.ends().theta)


def test_code_that_draws_is_compared_by_the_same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls draw other numbers: what is compared are two ways to make one call."""

    def written(
        function: compiled.Function, inputs: Sequence[Tensor], fed: bool, until: int | None
    ) -> tuple[compiled.Version, float]:
        return looped(traced(function, inputs, {})), 1e-7

    monkeypatch.setattr(compiled, "machine_code", written)
    code = Compiled(lambda x: (x + torch.rand(5, 3),))
    with Noise(4).scope():
        (out,) = code([torch.zeros(5, 3)], [])
    with Noise(4).scope():
        assert code.note is None and torch.equal(out, torch.rand(5, 3))


def test_long_runs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.randn(22, 3), torch.randn(22, 1)
    model = Model(mlp(3, 4, 1), Normal(0, 1), Gaussian(0.5))
    monkeypatch.setattr(driver, "PAYS", 100)
    assert "compiled" not in fit(model, (x, y), HMC(draws=10, warmup=0, leapfrog=9)).info  # 50 gradients
    assert fit(model, (x, y), HMC(draws=20, warmup=0, leapfrog=9)).info["compiled"] is True  # 100
    assert "compiled" not in fit(model, (x, y), HMC(draws=20, warmup=0, leapfrog=9), compile=False).info


class Branching(nn.Module):
    """Its way depends on its numbers: nothing that one trace could follow."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, 3))

    def forward(self, x: Tensor) -> Tensor:
        f = functional.linear(x, self.weight)
        return f if f.sum() > 0 else 2 * f


def test_says_why_it_did_not_compile() -> None:
    x, y = torch.randn(22, 3), torch.randn(22, 1)
    model, method = Model(Branching(), Normal(0, 1), Gaussian(0.5)), HMC(draws=5, warmup=0, leapfrog=3)
    posterior = fit(model, (x, y), method, compile=True)
    assert isinstance(posterior.info["compiled"], str) and posterior.info["compiled"]
    assert torch.equal(posterior.theta, fit(model, (x, y), method, compile=False).theta)


def test_a_loop_ends_when_few_chains_go_on(maker: str) -> None:
    def count(n: Tensor, going: Tensor, last: Tensor) -> tuple[Tensor, ...]:
        return n + 1, n + 1 < last

    code, last = Compiled(count), torch.tensor([1.0, 2, 3, 4, 5, 6, 7, 9])
    n, going = code([torch.zeros(8), torch.ones(8, dtype=torch.bool), last], [], times=20, until=1)
    assert code.note is None and len(code.versions) == (maker == "torch")
    if maker == "C":  # each goes on by itself
        assert torch.equal(n, last) and not going.any()
    else:
        assert n.tolist() == [6.0] * 8 and going.tolist() == [False] * 6 + [True] * 2  # a quarter


def test_a_loop_writes_down_its_turns(maker: str) -> None:
    def turn(x: Tensor, at: Tensor, drawn: Tensor, record: Tensor) -> tuple[Tensor, ...]:
        x = x + drawn.index_select(1, at[:1])[:, 0]
        record.index_copy_(1, at[:1], x[:, None])
        return x, at + 1

    code, drawn, record = Compiled(turn), torch.randn(2, 4, 3), torch.zeros(2, 4, 3)
    x, _ = code([torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), drawn, record], [], times=3)
    torch.testing.assert_close(record[:, :3], drawn[:, :3].cumsum(1))
    assert code.note is None and torch.equal(x, record[:, 2]) and not record[:, 3].any()


def test_a_tensor_given_twice_is_two_inputs(maker: str) -> None:
    code, a, b = Compiled(lambda v, w: (v - w,)), torch.randn(3, 2), torch.randn(3, 2)
    assert torch.equal(code([a, a], [])[0], torch.zeros(3, 2))
    assert torch.equal(code([a, b], [])[0], a - b) and code.note is None


def test_wrong_code_is_not_trusted(maker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nescio.rewritten.tanh", lambda x: tanh(x) * 1.01)
    u = torch.randn(3, 4)
    code = Compiled(lambda v: (v.tanh().sum(1), v.tanh()))
    assert torch.equal(code([u], [])[1], u.tanh()) and code.note is not None
    assert "differ" in (code.left if maker == "C" else code.note)


@pytest.mark.parametrize(("dtype", "units"), [(torch.float32, 8), (DOUBLE, 1e6)])
def test_tanh_is_right_where_it_is_small_and_where_it_is_one(dtype: torch.dtype, units: float) -> None:
    """In single precision relative to itself everywhere; the form of doubles is right to 1e-16 of one, here from 1e-6 on."""
    x = torch.cat([torch.logspace(-6, 2, 4001, dtype=dtype), torch.zeros(1, dtype=dtype)])
    for y, wanted in ((tanh(x), x.double().tanh()), (-tanh(-x), x.double().tanh())):
        assert bool(((y.double() - wanted).abs() <= units * torch.finfo(dtype).eps * wanted).all())
    assert (
        bool(tanh(torch.tensor(torch.nan, dtype=dtype)).isnan()) and float(tanh(x).max()) <= 1 + torch.finfo(dtype).eps
    )


def test_agreement_sees_shape_precision_and_value() -> None:
    a = torch.randn(5)
    eps = torch.finfo(torch.float32).eps
    assert agree([a], [a + 1e-6], eps) and agree([a.log()], [a.log()], eps)
    for other in (a[:, None], a.double(), 1.01 * a, torch.where(a == a.max(), torch.nan, a)):
        assert not agree([other], [a], eps)


def test_what_hangs_by_a_digit_may_differ_and_nothing_else() -> None:
    """exp(a - b) of numbers that are large beside their difference, in the first chain: no two ways to round give the same."""
    a = torch.tensor([[2e10, 1.0], [1.0, 2.0], [3.0, 1.0]], dtype=DOUBLE)
    b = torch.tensor([[2e10 - 1, 1.5], [0.5, 0.5], [2.0, 3.0]], dtype=DOUBLE)

    def function(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return ((a - b).exp(),)

    def other(factor: Tensor) -> compiled.Version:
        return lambda given, times: (factor * (given[0] - given[1]).exp(),)

    eps, off = torch.finfo(DOUBLE).eps, torch.tensor([1e-7, 0.0, 0.0], dtype=DOUBLE)[:, None]
    confirm(other(1 + off), function, [a, b], eps)
    for wrong in (1e-2 * (off > 0), off.roll(1), off.roll(2)):
        with pytest.raises(ArithmeticError, match="differ"):
            confirm(other(1 + wrong), function, [a, b], eps)


def test_agreement_of_halves_is_one_of_vectors() -> None:
    """A unit of bfloat16 is so coarse that single numbers may be all rounding; a gradient that is wrong is still seen."""
    a = torch.randn(2, 300)
    eps = torch.finfo(torch.bfloat16).eps
    small = a * (a.abs() > 0.1)
    assert agree([a], [1.05 * a], eps) and agree([a], [small], eps)
    for other in (torch.zeros_like(a), -a, 2 * a, a.flip(0), torch.cat([a[:, :150], torch.zeros(2, 150)], 1)):
        assert not agree([other], [a], eps)


def test_the_unit_is_that_of_what_a_gpu_multiplies_in() -> None:
    single, double = torch.finfo(torch.float32).eps, torch.finfo(torch.float64).eps
    assert rounding(torch.float32, convolves=False) == single and rounding(torch.float64, convolves=True) == double
    with torch.backends.cudnn.flags(allow_tf32=True):
        assert rounding(torch.float32, convolves=True) == TF32 > single
    with torch.backends.cudnn.flags(allow_tf32=False):
        assert rounding(torch.float32, convolves=True) == single


def test_shapes_that_never_repeat_end_in_plain_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nescio.compiled.VERSIONS", 2)
    code = Compiled(lambda v, w: ((v * w[0]).sum(1),))
    for n in range(1, 5):
        w = torch.randn(n)
        torch.testing.assert_close(code([torch.ones(2, 3)], [w])[0], 3 * w[:1].expand(2))
    assert code.note is not None and "shapes vary" in code.note


def gradient_of(net: nn.Module) -> tuple[list[Tensor], Callable[..., tuple[Tensor, ...]]]:
    x, weights = torch.randn(4, 2, 6, 6).to(memory_format=torch.channels_last), dict(net.named_parameters())
    start = [w.detach() for w in weights.values()]

    def function(*given: Tensor) -> tuple[Tensor, ...]:
        leaves = [g.detach().requires_grad_() for g in given]
        value = functional_call(net, dict(zip(weights, leaves, strict=True)), (x,)).square().sum()
        return value.detach(), *torch.autograd.grad(value, leaves)

    return start, function


def test_what_is_computed_again_is_the_same() -> None:
    net = nn.Sequential(*(m for c in (2, 3) for m in (nn.Conv2d(c, 3, 3, padding=1), FilterResponseNorm(3), nn.SiLU())))
    start, function = gradient_of(net)
    graph = traced(function, start, {})
    before = len(graph.graph.nodes)
    again(graph.graph)
    graph.recompile()
    assert len(graph.graph.nodes) > before + 5  # the first norm and its activation, once more
    for ours, plain in zip(graph(*start), function(*start), strict=True):
        assert torch.equal(ours, plain)
    order = list(graph.graph.nodes)
    late = order[next(i for i, n in enumerate(order) if n.target is torch.ops.aten.convolution_backward.default) :]
    kept = {n for n in order if n not in late}
    read = {x.target for n in late for x in n.all_input_nodes if x in kept and x.op == "call_function"}
    assert torch.ops.aten.where.self not in read  # nothing elementwise waits in memory for the backward pass


def test_nothing_is_computed_again_where_tensors_are_written_to() -> None:
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(inplace=True), nn.SiLU(), nn.Conv2d(3, 3, 3))
    start, function = gradient_of(net)
    graph = traced(function, start, {})
    before = len(graph.graph.nodes)
    again(graph.graph)
    assert len(graph.graph.nodes) == before


def test_a_fill_keeps_the_layout_of_images() -> None:
    """Of a maximum, say, whose gradient is filled with zeros: contiguous, it would be copied before every convolution."""

    def function(x: Tensor, tau: Tensor) -> tuple[Tensor, ...]:
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(torch.maximum(leaf, tau).square().sum(), leaf)

    x = torch.randn(4, 2, 6, 6).to(memory_format=torch.channels_last)
    graph = traced(function, [x, torch.zeros(2, 1, 1)], rewritten(cuda=True))
    targets = {node.target for node in graph.graph.nodes}
    assert torch.ops.aten.copy_.default in targets and torch.ops.aten.masked_fill_.Scalar not in targets
    (slope,) = graph(x, torch.zeros(2, 1, 1))
    assert slope.is_contiguous(memory_format=torch.channels_last) and torch.equal(slope, 2 * x * (x > 0))


@pytest.mark.skipif(compiler() is None, reason="no C compiler here")
def test_a_run_that_goes_on_in_other_code_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler is gone when the run is resumed: the draws are right, but bits may differ, and the posterior says so."""
    monkeypatch.setattr(compiled, "machine_code", refuse)
    stopped("HMC", tmp_path, 80)
    with monkeypatch.context() as patch:
        patch.setattr(chainwise, "compiler", lambda: None)
        posterior = run("HMC", tmp_path)
    assert "code by plain, where the run had begun with C" in posterior.info["note"]
    assert posterior.info["compiled"] is not True
    again = run("HMC", tmp_path)  # read back
    assert again.info["compiled"] == posterior.info["compiled"] and torch.equal(
        again.ends().theta, posterior.ends().theta
    )
