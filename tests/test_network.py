"""A network as a function: stacked parameters, chunks and the loop all give what one call at a time gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from chance import within
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nescio import InputError, UnsupportedError, fit, network
from nescio.infer import HMC, MAP, Method
from nescio.laws import Normal
from nescio.likelihoods import Gaussian
from nescio.model import Model
from nescio.nets import mlp, resnet20
from nescio.network import Network, Params, rows
from nescio.noise import Noise


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def stack(net: Network, draws: int, seed: int = 0) -> Params:
    """Some parameters, (draws, ...), and the buffers as they are."""
    noise = Noise(seed)
    random = {name: noise.at(name).normal(draws, *p.shape).to(p) for name, p in net.weights().items()}
    return {**random, **{name: torch.stack([b] * draws) for name, b in net.statistics().items()}}


def one_by_one(net: Network, params: Params, x: Any) -> Tensor:
    """Each draw loaded into a plain copy of the module."""
    out = []
    for i in range(len(next(iter(params.values())))):
        net.net.load_state_dict({name: p[i] for name, p in params.items()}, strict=False)
        out.append(net.net(**x) if isinstance(x, dict) else net.net(*x) if isinstance(x, tuple) else net.net(x))
    return torch.stack(out).detach()


class LastOfLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2, 3, batch_first=True)
        self.head = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Branches(nn.Linear):
    """Asks its data which way to go: a branch that vmap cannot take."""

    def forward(self, input: Tensor) -> Tensor:
        f = super().forward(input)
        return f if bool(f.sum() > 0) else -f


class TwoHeads(nn.Linear):
    def forward(self, input: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
        f = super().forward(input)
        return {"a": f[:, :1], "b": f[:, 1:]}


VECTORISED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: mlp(3, 8, 2), (13, 3)),
    "batch norm": (lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1)), (13, 3)),
    "layer norm": (lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Dropout(0.5), nn.Linear(4, 1)), (13, 3)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2)),
        (13, 2, 4, 4),
    ),
    "group norm": (lambda: nn.Sequential(nn.Conv2d(2, 4, 1), nn.GroupNorm(2, 4), nn.MaxPool2d(2)), (13, 2, 4, 4)),
}


# ---- stacked parameters ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VECTORISED)
def test_vectorised_is_the_loop_is_the_module(name: str) -> None:
    build, shape = VECTORISED[name]
    net, x = Network(build()), Noise(1).normal(*shape)
    params = stack(net, 5)
    assert net.vectorises(x)
    vector, loop = net.stacked(params, x, True), net.stacked(params, x, False)
    torch.testing.assert_close(vector, loop, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net.outputs(params, x), loop, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(loop, one_by_one(net, params, x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("build", "shape"), [(LastOfLSTM, (6, 4, 2)), (lambda: Branches(2, 1), (6, 2))], ids=["LSTM", "branch"]
)
def test_what_does_not_vectorise_is_looped_over(build: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    net, x = Network(build()), Noise(1).normal(*shape)
    assert not net.vectorises(x)
    params = stack(net, 4)
    got = net.outputs(params, x)
    assert got.shape == (4, 6, 1)
    torch.testing.assert_close(got, one_by_one(net, params, x))
    predictive = Model(build(), Normal(0, 1), Gaussian(0.1)).prior_predictive(x, draws=3)
    assert predictive.mean.shape == (6, 1)
    assert bool((predictive.epistemic > 0).all())


def test_one_row_is_enough_to_find_out() -> None:
    net = Network(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    assert net.vectorises(torch.ones(1, 2))
    assert net.outputs(stack(net, 3), torch.ones(1, 2)).shape == (3, 1, 3)


def test_looking_leaves_no_trace() -> None:
    """Finding out what a network can do draws no global noise, keeps no hook and writes into no buffer."""
    net, x = Network(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))), torch.randn(5, 2)
    state, before = torch.get_rng_state(), {k: v.clone() for k, v in net.state_dict().items()}
    net.vectorises(x)
    net.bytes_per_point(x)
    net.outputs(stack(net, 2), x)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], t) for name, t in net.state_dict().items())
    assert not any(module._forward_hooks for module in net.modules())


# ---- chunks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1, 300, 1000, 2**40])
@pytest.mark.parametrize("points", [1, 13])
@pytest.mark.parametrize("draws", [1, 7])
def test_chunks_give_what_one_call_gives(budget: int, points: int, draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no call takes more than the budget, unless one point of one draw does."""
    net, x = Network(mlp(3, 4, 2)), Noise(1).normal(points, 3)
    params, each = stack(net, draws), net.bytes_per_point(x)
    whole = net.stacked(params, x, False)
    net.vectorises(x)
    largest, stacked = 0, Network.stacked

    def spy(self: Network, params: Params, x: Tensor, vector: bool) -> Any:
        nonlocal largest
        largest = max(largest, len(next(iter(params.values()))) * len(x) * each)
        return stacked(self, params, x, vector)

    monkeypatch.setattr(network, "BUDGET", budget)
    monkeypatch.setattr(Network, "stacked", spy)
    torch.testing.assert_close(net.outputs(params, x), whole, rtol=1e-5, atol=1e-6)
    assert 0 < largest <= max(budget, each)


@pytest.mark.parametrize("budget", [1, 100])
def test_chunks_of_dictionaries_tuples_and_loops(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Sum(nn.Linear):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(a + b)

    x, small = torch.randn(9, 2), torch.randn(5, 4, 2)
    cases: list[tuple[Network, Any]] = [
        (Network(TwoHeads(2, 3)), x),
        (Network(Sum(2, 1)), (x, 2 * x)),
        (Network(Sum(2, 1)), {"b": x, "a": 2 * x}),
        (Network(LastOfLSTM()), small),
    ]
    want = [net.stacked(stack(net, 4), inputs, False) for net, inputs in cases]
    monkeypatch.setattr(network, "BUDGET", budget)
    for (net, inputs), whole in zip(cases, want, strict=True):
        torch.testing.assert_close(net.outputs(stack(net, 4), inputs), whole)


def test_bytes_per_point_counts_the_outputs_of_the_modules() -> None:
    """8 + 8 + 2 numbers from the layers, and the container's own two again."""
    build = lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))  # noqa: E731
    single = Network(build()).bytes_per_point(torch.ones(100, 4))
    assert 4 * 18 <= single <= 4 * 2 * 18
    assert Network(build().double()).bytes_per_point(torch.ones(1, 4).double()) == 2 * single
    wide = Network(nn.Sequential(nn.Linear(4, 800), nn.Tanh(), nn.Linear(800, 2))).bytes_per_point(torch.ones(3, 4))
    assert 4 * 1602 <= wide <= 4 * 2 * 1602
    assert Network(TwoHeads(2, 3)).bytes_per_point(torch.ones(1, 2)) >= 12
    image = Network(nn.Conv2d(1, 5, 1))
    assert image.bytes_per_point(torch.ones(2, 1, 6, 6)) >= 4 * 5 * 36


def test_what_no_draw_moves_takes_its_room_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A last layer under a hundred draws, behind a wide body: the body is called once for each chunk of points, not for chunks of draws."""
    net, x = Network(nn.Sequential(nn.Linear(3, 1000), nn.Tanh(), nn.Linear(1000, 2))), Noise(1).normal(40, 3)
    same = {name: p.expand(100, *p.shape) for name, p in net.weights().items()}
    head = {"2.weight": Noise(2).normal(100, 2, 1000), "2.bias": Noise(3).normal(100, 2)}
    params, before = same | head, 4 * (1000 + 1000)
    assert net.bytes_before(x, set(head)) == (before, net.bytes_per_point(x) - before)
    assert net.bytes_before(x, {"0.bias"}) == net.bytes_before(x, set()) == (0, net.bytes_per_point(x))
    whole, called = net.stacked(params, x, False), []
    net.vectorises(x)
    next(net.net.children()).register_forward_hook(lambda *_: called.append(1))
    # all points of all draws, where the head and the container have four numbers a draw; then half of them
    monkeypatch.setattr(network, "BUDGET", 40 * (before + 100 * 16))
    torch.testing.assert_close(net.outputs(params, x), whole, rtol=1e-4, atol=1e-4)
    assert len(called) == 1
    monkeypatch.setattr(network, "BUDGET", 20 * (before + 100 * 16))
    torch.testing.assert_close(net.outputs(params, x), whole, rtol=1e-4, atol=1e-4)
    assert len(called) == 1 + 2


def test_weights_that_their_parent_reads_and_tied_ones_count_from_the_start() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.held = nn.Linear(3, 50), nn.Linear(50, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.first(x + self.held.bias) @ self.held.weight.T

    x = torch.ones(4, 3)
    assert Network(Reads()).bytes_before(x, {"held.weight"})[0] == 0
    layer = nn.Linear(3, 3)
    tied = Network(nn.Sequential(layer, nn.Linear(3, 3), layer))
    assert tied.bytes_before(x, {"0.weight"})[0] == 0 and tied.bytes_before(x, {"1.weight"})[0] == 12


def test_rows() -> None:
    assert rows(torch.ones(3, 2)) == rows((torch.ones(3), torch.ones(3, 1))) == rows({"a": torch.ones(3)}) == 3
    for wrong in ([1.0, 2.0], None, (), torch.tensor(1.0), {"a": torch.ones(3), "b": 3}):
        with pytest.raises(InputError, match="inputs must be tensors with a first axis of points; got .*; use"):
            rows(wrong)


# ---- starts ----------------------------------------------------------------------------------------------------------


def test_restarts_are_keyed_and_independent() -> None:
    net = Network(resnet_like())
    first, again, other = (net.restarted(Noise(0, ("start", i)))[0] for i in (0, 0, 1))
    assert list(first) == list(net.weights())
    assert all(torch.equal(first[name], again[name]) for name in first)
    drawn = [name for name in first if first[name].dim() > 1]  # norm layers restart at ones and zeros
    assert drawn
    for name in drawn:
        assert not torch.equal(first[name], other[name])
        assert not torch.equal(first[name], net.weights()[name])
        if first[name].numel() > 50:  # r of independent numbers: sd 1/sqrt(n)
            pair = torch.stack([first[name].flatten(), other[name].flatten()]).double()
            within(torch.corrcoef(pair)[0, 1] * pair.shape[1] ** 0.5, name)


def resnet_like() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(32, 4))


def test_restarts_leave_the_network_and_the_generator_alone() -> None:
    net = Network(resnet_like())
    state, before = torch.get_rng_state(), {k: v.clone() for k, v in net.state_dict().items()}
    net.restarted(Noise(0))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], t) for name, t in net.state_dict().items())


def test_restarts_begin_with_fresh_statistics() -> None:
    module = resnet_like()
    module[1].running_mean.fill_(1000.0)
    statistics = Network(module).restarted(Noise(0))[1]
    assert not bool(statistics["1.running_mean"].any())


def test_parents_are_initialised_after_their_children() -> None:
    """Attention zeroes the bias of its output, which would be undone if that child were reset later."""
    weights = Network(nn.MultiheadAttention(4, 2)).restarted(Noise(0))[0]
    assert not bool(weights["out_proj.bias"].any()) and bool(weights["out_proj.weight"].any())


def test_a_network_that_draws_in_its_forward_pass_predicts_the_same_twice() -> None:
    class Noisy(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + torch.randn(1)

    net, x = Network(Noisy(2, 1)), torch.ones(3, 2)
    params = {name: p[None] for name, p in net.weights().items()}
    state = torch.get_rng_state()
    assert torch.equal(net.outputs(params, x), net.outputs(params, x)) and torch.equal(state, torch.get_rng_state())


def test_facts_are_found_anew_for_larger_inputs() -> None:
    net = Network(nn.Sequential(nn.Conv1d(1, 4, 3), nn.Flatten()))
    assert net.bytes_per_point(torch.ones(1, 1, 8000)) > 500 * net.bytes_per_point(torch.ones(1, 1, 8))


def test_restarts_leave_out_what_is_frozen() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    module[0].weight.requires_grad_(False)
    net = Network(module)
    assert list(net.restarted(Noise(0))[0]) == ["0.bias", "1.weight", "1.bias"] == list(net.weights())
    assert net.like is next(p for p in net.net.parameters() if p.requires_grad)


def test_a_real_net_restarts_and_vectorises() -> None:
    net, x = Network(resnet20(classes=4)), torch.randn(2, 3, 8, 8)
    assert net.vectorises(x)
    one, two = (net.restarted(Noise(i))[0] for i in range(2))
    stacked = {name: torch.stack([one[name], two[name]]) for name in one}
    torch.testing.assert_close(net.outputs(stacked, x), net.stacked(stacked, x, False), rtol=1e-3, atol=1e-3)


def test_statistics_are_copies_and_the_two_nets_share_their_weights() -> None:
    net = Network(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    net.statistics()["1.running_mean"].fill_(9.0)
    assert not bool(net.statistics()["1.running_mean"].any())
    pairs = zip(net.net.parameters(), net.training_net.parameters(), strict=True)
    assert all(a is b for a, b in pairs)
    assert net.training_net.training
    assert not net.net.training


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(checkpoint(lambda z: torch.tanh(self.inner(z)), x, use_reentrant=False))


@pytest.mark.parametrize("method", [MAP(epochs=1), 2 * HMC(draws=1, warmup=0)], ids=["MAP", "HMC"])
def test_a_network_that_is_called_again_on_the_way_back_is_refused(method: Method) -> None:
    """Its gradients would be those at other weights, and nobody would see it."""
    x, y = torch.randn(6, 3), torch.randn(6, 1)
    with pytest.raises(UnsupportedError, match="checkpoint"):
        fit(Model(Checkpointed(), Normal(0, 1), Gaussian(0.5)), (x, y), method)
    plain = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 1))
    assert Network(Checkpointed()).recomputes(x) and not Network(plain).recomputes(x)


def test_inputs_are_moved_to_the_network() -> None:
    """No second device is needed to see it: `meta` has shapes only."""
    network = Network(nn.Linear(2, 1).to("meta"))
    x = {"input": torch.ones(3, 2)}
    assert network.here(x)["input"].device.type == "meta" and x["input"].device.type == "cpu"
    assert network.probe(x).shape == (3, 1)
