"""Networks: sizes by hand formulas, norms and recurrences against hand computations, vmap against a loop."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional as F

from nescio.errors import InputError
from nescio.nets import FilterResponseNorm, lenet5, lenet_300_100, lstm_classifier, mlp, resnet20

DTYPES = [torch.float32, torch.float64]
TOKENS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]])


def images(channels: int, size: int) -> Callable[[torch.dtype], Tensor]:
    return lambda dtype: torch.randn(
        2, channels, size, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    ).to(dtype)


# (name, build, inputs of a dtype, shape of the output)
NETS = [
    ("mlp", lambda: mlp(3, 7, 4, activation=nn.Tanh), lambda d: images(1, 3)(d)[:, 0], (2, 3, 4)),
    ("lenet_300_100", lambda: lenet_300_100(), images(1, 28), (2, 10)),
    ("lenet5", lambda: lenet5(channels=2, classes=3, size=17), images(2, 17), (2, 3)),
    ("resnet20", lambda: resnet20(), images(3, 16), (2, 10)),
    ("lstm_classifier", lambda: lstm_classifier(10, 4, 5, 3), lambda d: TOKENS, (2, 3)),
]
all_nets = pytest.mark.parametrize(("build", "inputs", "shape"), [n[1:] for n in NETS], ids=[n[0] for n in NETS])


def count(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def conv(c_in: int, c_out: int, kernel: int) -> int:
    return c_out * (c_in * kernel**2 + 1)


def jiggle(net: nn.Module) -> nn.Module:
    """Every parameter away from its start, so that ones and zeros hide nothing."""
    with torch.no_grad():
        for p in net.parameters():
            p += 0.1 * torch.randn_like(p)
    return net


def reset(net: nn.Module, seed: int) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    for module in net.modules():
        if callable(restart := getattr(module, "reset_parameters", None)):
            restart()
    return {name: p.detach().clone() for name, p in net.named_parameters()}


@all_nets
@pytest.mark.parametrize("dtype", DTYPES)
def test_forward_backward(
    build: Callable[[], nn.Module], inputs: Callable[[torch.dtype], Tensor], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    net = jiggle(build().to(dtype))
    out = net(inputs(dtype))
    assert out.shape == shape
    assert out.dtype == dtype
    out.square().sum().backward()
    for name, p in net.named_parameters():
        assert p.grad is not None, name
        assert p.grad.dtype == dtype
        assert p.grad.isfinite().all(), name
        assert p.grad.abs().sum() > 0, name


@all_nets
def test_functional_call_uses_given_parameters(
    build: Callable[[], nn.Module], inputs: Callable[[torch.dtype], Tensor], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    here, there = jiggle(build()), jiggle(build())
    x = inputs(torch.float32)
    out = functional_call(here, dict(there.named_parameters()), (x,))
    torch.testing.assert_close(out, there(x), rtol=0, atol=1e-6)
    assert (out - here(x)).abs().max() > 1e-3


@all_nets
def test_vmap_over_parameters_is_a_loop(
    build: Callable[[], nn.Module], inputs: Callable[[torch.dtype], Tensor], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    nets = [jiggle(build()) for _ in range(3)]
    stacked, _ = stack_module_state(nets)
    x = inputs(torch.float32)
    together = vmap(lambda p: functional_call(nets[0], p, (x,)))(stacked)
    assert together.shape == (3, *shape)
    torch.testing.assert_close(together, torch.stack([net(x) for net in nets]), rtol=1e-5, atol=1e-5)


@all_nets
def test_vmap_of_gradient_is_a_loop(
    build: Callable[[], nn.Module], inputs: Callable[[torch.dtype], Tensor], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    nets = [jiggle(build().double()) for _ in range(2)]
    stacked, _ = stack_module_state(nets)
    x = inputs(torch.float64)
    gradients = vmap(grad(lambda p: functional_call(nets[0], p, (x,)).square().sum()))(stacked)
    for i, net in enumerate(nets):
        net(x).square().sum().backward()
        for name, p in net.named_parameters():
            assert p.grad is not None
            torch.testing.assert_close(gradients[name][i], p.grad, rtol=1e-7, atol=1e-7)


@all_nets
def test_reset_parameters_restarts_every_parameter(
    build: Callable[[], nn.Module], inputs: Callable[[torch.dtype], Tensor], shape: tuple[int, ...]
) -> None:
    net = build()
    for module in net.modules():  # else a restarted ensemble member would keep them
        if any(True for _ in module.parameters(recurse=False)):
            assert callable(getattr(module, "reset_parameters", None)), type(module)
    jiggle(net)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    first, again, other = reset(net, 5), reset(net, 5), reset(net, 6)
    for name in first:
        assert not torch.equal(first[name], before[name]), name
        assert torch.equal(first[name], again[name]), name
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_mlp_layers_and_parameter_count() -> None:
    net = mlp(13, 50, 1)
    assert [type(layer) for layer in net] == [nn.Linear, nn.ReLU, nn.Linear]
    assert count(net) == 13 * 50 + 50 + 50 + 1
    assert [type(layer) for layer in mlp(2, 3)] == [nn.Linear]
    assert isinstance(mlp(2, 3, 4, activation=nn.Tanh)[1], nn.Tanh)


def test_lenet_parameter_counts() -> None:
    assert count(lenet_300_100()) == 784 * 300 + 300 + 300 * 100 + 100 + 100 * 10 + 10 == 266_610
    assert count(lenet5()) == conv(1, 20, 5) + conv(20, 50, 5) + (800 * 500 + 500) + (500 * 10 + 10) == 431_080
    assert lenet5()(torch.zeros(1, 1, 28, 28)).shape == (1, 10)
    assert lenet5(size=16)(torch.zeros(1, 1, 16, 16)).shape == (1, 10)


def test_lenet5_has_one_relu() -> None:
    assert [type(m) for m in lenet5() if isinstance(m, nn.ReLU)] == [nn.ReLU]


def test_resnet20_parameter_count() -> None:
    stages = 6 * conv(16, 16, 3)
    for c in (32, 64):
        stages += conv(c // 2, c, 3) + 5 * conv(c, c, 3) + conv(c // 2, c, 1)
    normed = 16 + 6 * 16 + 7 * 32 + 7 * 64  # a norm for every convolution, the two shortcuts included
    without = conv(3, 16, 3) + stages + 64 * 10 + 10
    assert count(resnet20()) == without + 3 * normed == 274_042
    assert count(resnet20(norm=nn.BatchNorm2d, activation=nn.ReLU)) == without + 2 * normed
    assert count(resnet20(classes=100, channels=1)) == 274_042 + 64 * 90 + 90 - 2 * 9 * 16


@pytest.mark.parametrize("size", [32, 28, 30, 9])  # 30 has an odd side on the way
def test_resnet20_takes_any_size_and_halves_twice(size: int) -> None:
    net = resnet20(channels=1)
    x = torch.zeros(2, 1, size, size)
    for layer in list(net)[:-3]:
        x = layer(x)
    quarter = math.ceil(size / 4)
    assert x.shape == (2, 64, quarter, quarter)


def test_resnet20_against_a_written_out_forward() -> None:
    torch.manual_seed(0)
    net = jiggle(resnet20().double())
    p = dict(net.named_parameters())

    def layer(x: Tensor, at: str, stride: int = 1) -> Tensor:
        weight = p[f"{at}.conv.weight"]
        if weight.shape[-1] == 3:  # XLA's "SAME": even sides at stride 2 are padded on the far side alone
            x = F.pad(x, (1, 1, 1, 1) if stride == 1 else (0, 1, 0, 1))
        x = F.conv2d(x, weight, p[f"{at}.conv.bias"], stride)
        gamma, beta, tau = (p[f"{at}.norm.{name}"][:, None, None] for name in ("gamma", "beta", "tau"))
        return torch.maximum(gamma * x / (x.square().mean((2, 3), keepdim=True) + 1e-6).sqrt() + beta, tau)

    def swish(x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)

    image = images(3, 32)(torch.float64)
    x = swish(layer(image, "0"))
    for block in range(9):
        at, stride = str(block + 2), 2 if block in (3, 6) else 1
        y = layer(swish(layer(x, f"{at}.first", stride)), f"{at}.second")
        x = swish((layer(x, f"{at}.shortcut", 2) if stride == 2 else x) + y)
    expected = x.mean((2, 3)) @ p["13.weight"].T + p["13.bias"]
    torch.testing.assert_close(net(image), expected, rtol=1e-10, atol=1e-10)


def test_resnet20_with_batch_norm() -> None:
    torch.manual_seed(0)
    net = resnet20(norm=nn.BatchNorm2d, activation=nn.ReLU)
    x = images(3, 16)(torch.float32)
    net(x).sum().backward()
    assert not any(isinstance(m, nn.SiLU | FilterResponseNorm) for m in net.modules())
    net.eval()
    stacked = {name: torch.stack([q, q + 0.01]).detach() for name, q in net.named_parameters()}
    together = vmap(lambda q: functional_call(net, q, (x,)))(stacked)
    loop = [functional_call(net, {name: q[i] for name, q in stacked.items()}, (x,)) for i in range(2)]
    torch.testing.assert_close(together, torch.stack(loop), rtol=1e-5, atol=1e-5)


def test_filter_response_norm_by_hand() -> None:
    norm = FilterResponseNorm(2, eps=1.0)
    assert {name: tuple(p.shape) for name, p in norm.named_parameters()} == {"gamma": (2,), "beta": (2,), "tau": (2,)}
    assert norm.gamma.tolist() == [1, 1]
    assert norm.beta.tolist() == norm.tau.tolist() == [0, 0]
    with torch.no_grad():
        norm.gamma.copy_(torch.tensor([2.0, 3.0]))
        norm.beta.copy_(torch.tensor([0.5, -1.0]))
        norm.tau.copy_(torch.tensor([-1.0, 0.25]))
    x = torch.tensor([[[[1.0, -3.0], [1.0, 1.0]], [[0.0, 4.0], [4.0, 4.0 * 2**0.5 - 4.0]]]])
    # Channel 0: mean square 12 / 4 = 3, so the root is 2 and y = x + 0.5, cut at -1.
    assert norm(x)[0, 0].tolist() == [[1.5, -1.0], [1.5, 1.5]]
    root = (x[0, 1].square().sum().item() / 4 + 1.0) ** 0.5
    expected = torch.tensor([[0.25, 12 / root - 1], [12 / root - 1, max(3 * x[0, 1, 1, 1].item() / root - 1, 0.25)]])
    torch.testing.assert_close(norm(x)[0, 1], expected)


def test_filter_response_norm_and_its_gradients_are_the_formula() -> None:
    norm, x = FilterResponseNorm(3).double(), images(3, 5)(torch.float64).requires_grad_()
    with torch.no_grad():
        for p in norm.parameters():
            p.copy_(torch.randn(3))
    gamma, beta, tau = (p.reshape(1, 3, 1, 1) for p in (norm.gamma, norm.beta, norm.tau))
    formula = torch.maximum(gamma * x / (x.square().mean((2, 3), keepdim=True) + norm.eps).sqrt() + beta, tau)
    weights, leaves = torch.randn_like(x), [x, *norm.parameters()]
    torch.testing.assert_close(norm(x), formula)
    for ours, other in zip(
        *(torch.autograd.grad((y * weights).sum(), leaves) for y in (norm(x), formula)), strict=True
    ):
        torch.testing.assert_close(ours, other)


def test_filter_response_norm_of_halves() -> None:
    """Squares of 300 overflow in float16: arithmetic is single, the result is a half again; and nothing hides a NaN."""
    norm, x = FilterResponseNorm(3), images(3, 5)(torch.float32)
    half = norm((300 * x).half())
    assert half.dtype == torch.float16
    torch.testing.assert_close(half.float(), norm(300 * x), rtol=2e-3, atol=2e-3)
    x[0, 0, 0, 0] = torch.nan
    assert norm(x)[0, 0].isnan().all() and not norm(x)[1:].isnan().any()


def test_filter_response_norm_knows_one_image_at_a_time() -> None:
    norm, x = FilterResponseNorm(3), images(3, 5)(torch.float32)
    torch.testing.assert_close(norm(x)[:1], norm(x[:1]), rtol=0, atol=0)


def test_threshold_comes_before_swish() -> None:
    net = resnet20(channels=1)
    with torch.no_grad():
        net.get_parameter("0.norm.tau").fill_(-2.0)
        net.get_parameter("0.norm.beta").fill_(-5.0)  # every response is far below the threshold
    out = net[1](net[0](torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 0.01))
    # swish(max(y, -2)) = swish(-2) = -0.238; the other order would give max(swish(y), -2) = swish(-5) or so, -0.03
    torch.testing.assert_close(out.min(), F.silu(torch.tensor(-2.0)))
    assert (out[0].flatten(1).min(dim=1).values < -0.2).all()


def test_lstm_parameter_count() -> None:
    v, e, h, c = 11, 4, 6, 3
    assert count(lstm_classifier(v, e, h, c)) == v * e + 4 * h * (e + h + 1) + (h + 1) * c


def test_lstm_is_torchs_lstm() -> None:
    torch.manual_seed(0)
    net = lstm_classifier(10, 4, 5, 3).double()
    p = dict(net.named_parameters())
    reference = nn.LSTM(4, 5, batch_first=True).double()
    reference.load_state_dict(
        {
            "weight_ih_l0": p["from_input.weight"],
            "bias_ih_l0": p["from_input.bias"],
            "weight_hh_l0": p["from_state.weight"],
            "bias_hh_l0": torch.zeros_like(p["from_input.bias"]),
        }
    )
    for row, length in zip(TOKENS, (5, 3), strict=True):
        states, _ = reference(p["embedding.weight"][row[:length]][None])
        expected = states[0, -1] @ p["head.weight"].T + p["head.bias"]
        torch.testing.assert_close(net(row[None])[0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("padding", [0, 7])
def test_lstm_does_not_see_padding(padding: int) -> None:
    torch.manual_seed(0)
    net = lstm_classifier(10, 4, 5, 3, padding=padding)
    x = torch.tensor([[3, 1, 4], [9, 2, 6]])
    pad = torch.full((2, 2), padding)
    out = net(x)
    for padded in (torch.cat([x, pad], 1), torch.cat([pad, x], 1), torch.cat([x[:, :1], pad, x[:, 1:]], 1)):
        torch.testing.assert_close(net(padded), out, rtol=0, atol=1e-6)
    assert (net(torch.cat([x, pad + 1], 1)) - out).abs().max() > 1e-3  # another token is seen
    torch.testing.assert_close(net(pad), net.get_parameter("head.bias").expand(2, 3), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda: mlp(),
        lambda: mlp(3),
        lambda: mlp(3, 0, 1),
        lambda: mlp(3, -2, 1),
        lambda: mlp(3, 2.5, 1),  # type: ignore[arg-type]
        lambda: mlp(3, True, 1),
        lambda: lenet_300_100(inputs=0),
        lambda: lenet5(size=15),
        lambda: lenet5(channels=0),
        lambda: resnet20(classes=0),
        lambda: FilterResponseNorm(0),
        lambda: FilterResponseNorm(3, eps=0.0),
        lambda: FilterResponseNorm(3, eps=float("nan")),
        lambda: FilterResponseNorm(3)(torch.zeros(2, 4, 5, 5)),
        lambda: FilterResponseNorm(3)(torch.zeros(3, 5, 5)),
        lambda: lstm_classifier(10, 4, 0, 3),
        lambda: lstm_classifier(10, 4, 5, 3, padding=10),
        lambda: lstm_classifier(10, 4, 5, 3, padding=-1),
        lambda: lstm_classifier(10, 4, 5, 3)(torch.zeros(2, 5)),
        lambda: lstm_classifier(10, 4, 5, 3)(torch.zeros(5, dtype=torch.long)),
    ],
)
def test_wrong_sizes_say_what_would_work(call: Callable[[], object]) -> None:
    with pytest.raises(InputError) as caught:
        call()
    error = caught.value
    assert error.must
    assert error.got
    assert error.remedy
    assert str(error) == f"{error.must}; got {error.got}; {error.remedy}"


def test_wrong_width_is_named() -> None:
    with pytest.raises(InputError, match=r"width 1 of mlp must be a positive int; got -2; pass"):
        mlp(3, -2, 1)
