"""Convolutions of few channels, said as ones of many, are the same function with the same gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from nescio import narrow
from nescio.again import again
from nescio.machine import built, silence, traced
from nescio.narrow import BACKWARD, FORWARD, Settings, apart, convolution, convolution_backward, grouped
from nescio.nets import FilterResponseNorm
from nescio.rewritten import rewritten
from nescio.rounding import agree

aten: Any = torch.ops.aten
SHAPES = [
    (16, 16, 3, 4),
    (8, 8, 3, 8),
    (8, 16, 5, 4),
    (16, 8, 7, 4),
    (24, 8, 7, 2),
    (32, 32, 3, 2),
]  # in, out, columns, neighbours
EPS = torch.finfo(torch.float32).eps


def given(channels: int, out: int, columns: int) -> tuple[Tensor, Tensor, Tensor, list[Any]]:
    x = torch.randn(3, channels, 9, 16).to(memory_format=torch.channels_last)
    settings = [[1, 1], [1, columns // 2], [1, 1], False, [0, 0], 1]  # stride, padding, dilation, ...
    return x, torch.randn(out, channels, 3, columns), torch.randn(out), settings


def both(channels: int, out: int, columns: int) -> tuple[list[Tensor], list[Tensor]]:
    """Result and three gradients, in other words and in torch's."""
    x, w, bias, settings = given(channels, out, columns)
    wanted = aten.convolution(x, w, bias, *settings)
    g = torch.randn_like(wanted)
    slopes = aten.convolution_backward(g, x, w, [out], *settings, [True, True, True])
    ours = convolution_backward(g, x, w, [out], *settings, [True, True, True])
    return [convolution(x, w, bias, *settings), *ours], [wanted, *slopes]


@pytest.mark.parametrize(("channels", "out", "columns", "n"), SHAPES)
def test_the_same_sums(channels: int, out: int, columns: int, n: int) -> None:
    x, w, _, settings = given(channels, out, columns)
    assert narrow.neighbours(x, w, Settings(*settings)) == n
    ours, wanted = both(channels, out, columns)
    for a, b in zip(ours, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    assert all(image.is_contiguous(memory_format=torch.channels_last) for image in ours[:2])


@pytest.mark.parametrize(
    "fault", ["a column off", "outputs and inputs changed", "a gradient's column off", "half of the sums"]
)
def test_faults_are_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    widened, narrowed = narrow.widened, narrow.narrowed
    wrong: dict[str, tuple[str, Any]] = {
        "a column off": ("widened", lambda w, n: widened(w.roll(1, -1), n)),
        "outputs and inputs changed": ("widened", lambda w, n: widened(w, n).transpose(0, 1)),
        "a gradient's column off": ("narrowed", lambda *a: narrowed(*a).roll(1, -1)),
        "half of the sums": ("narrowed", lambda *a: narrowed(*a) / 2),
    }
    assert agree(*both(16, 16, 3), EPS)
    monkeypatch.setattr(narrow, *wrong[fault])
    assert not agree(*both(16, 16, 3), EPS)


def test_groups_divide_a_row() -> None:
    _, w, _, settings = given(16, 16, 3)
    for width, n in ((28, 4), (15, 3), (14, 2), (1, 1)):
        x = torch.randn(3, 16, 9, width).to(memory_format=torch.channels_last)
        assert narrow.neighbours(x, w, Settings(*settings)) == n
    x = torch.randn(3, 16, 9, 15).to(memory_format=torch.channels_last)
    torch.testing.assert_close(
        convolution(x, w, None, *settings), aten.convolution(x, w, None, *settings), rtol=1e-4, atol=1e-4
    )


def test_only_what_is_asked_for_is_computed() -> None:
    x, w, _, settings = given(16, 16, 3)
    g = torch.randn(3, 16, 9, 16)  # in another layout than the images
    wanted = aten.convolution_backward(g, x, w, [16], *settings, [True, True, True])
    for mask in ([True, False, False], [False, True, False], [False, False, True]):
        found = convolution_backward(g, x, w, [16], *settings, mask)
        for a, b, asked in zip(found, wanted, mask, strict=True):
            assert (a is not None) == asked and (a is None or torch.allclose(a, b, 1e-4, 1e-4))


def test_neighbours_lie_side_by_side_without_a_copy() -> None:
    x = torch.randn(2, 16, 4, 8).to(memory_format=torch.channels_last)
    pairs = grouped(x, 2)
    assert pairs.shape == (2, 32, 4, 4) and pairs.data_ptr() == x.data_ptr() and torch.equal(apart(pairs, 2), x)
    assert torch.equal(pairs[:, :16], x[..., ::2]) and torch.equal(pairs[:, 16:], x[..., 1::2])


@pytest.mark.parametrize(
    "change",
    [
        {"x": torch.randn(3, 16, 9, 16)},  # channels first
        {"x": torch.randn(3, 16, 9, 17).to(memory_format=torch.channels_last)},
        {"x": torch.randn(3, 16, 9, 16, dtype=torch.float64).to(memory_format=torch.channels_last)},
        {"w": torch.randn(16, 16, 3, 1), "padding": [1, 0]},
        {"w": torch.randn(40, 16, 3, 3)},
        {"w": torch.randn(12, 16, 3, 3)},
        {"w": torch.randn(16, 8, 3, 3), "groups": 2},
        {"padding": [1, 0]},
        {"stride": [2, 2]},
        {"dilation": [1, 2]},
        {"transposed": True},
    ],
    ids=lambda change: " ".join(change),
)
def test_others_stay_as_they_are(change: dict[str, Any]) -> None:
    x, w, _, settings = given(16, 16, 3)
    usual, other = Settings(*settings), dict(change)
    assert narrow.neighbours(x, w, usual) == 4
    assert narrow.neighbours(other.pop("x", x), other.pop("w", w), usual._replace(**other)) == 1


def test_a_compiled_network_has_them() -> None:
    """As on a GPU, and what is made again for the gradient is made again between them, too."""
    first, second = (nn.Conv2d(channels, 16, 3, padding=1) for channels in (3, 16))
    net = nn.Sequential(first, FilterResponseNorm(16), nn.SiLU(), second, FilterResponseNorm(16))
    names = [name for name, _ in net.named_parameters()]

    def function(x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        def loss(weights: tuple[Tensor, ...]) -> Tensor:
            f = functional_call(net, dict(zip(names, weights, strict=True)), (x,))
            return functional.mse_loss(f, torch.ones_like(f), reduction="sum")

        slopes, value = torch.func.grad_and_value(loss)(weights)
        return value[None], *slopes

    x = torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last)
    inputs = [x, *(p.detach() for p in net.parameters())]
    with silence():
        graph = traced(function, inputs, rewritten(cuda=True))
        targets = [node.target for node in graph.graph.nodes]
        assert [targets.count(op) for op in (*FORWARD, *BACKWARD)] == [1, 1, 1, 1]
        again(graph.graph)
        assert len(graph.graph.nodes) > len(targets)
        found = built(graph, inputs)(*inputs)
    assert agree(found, function(*inputs), EPS)
