"""Means and variances through a network: each rule against quadrature, a whole network where the rules are exact, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from chance import Z, assert_mean
from scipy import integrate, stats
from torch import Tensor, nn
from torch.func import functional_call, vmap

from nescio import UnsupportedError
from nescio.moments import Moments, Propagation
from nescio.moments import gaussian as rules
from nescio.nets import mlp
from nescio.nets.norm import FilterResponseNorm
from nescio.noise import Noise

DOUBLE = torch.float64
PLACES = [(-3.0, 0.5), (-0.4, 2.0), (0.0, 1.0), (0.7, 0.1), (2.0, 3.0)]  # (mean, standard deviation)


def given() -> Moments:
    m, s = torch.tensor(PLACES, dtype=DOUBLE).mT
    return Moments(m, s.square())


def by_quadrature(function: Callable[[float], float], narrower: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance under each of the Gaussians; the corner at zero is a break."""
    found = []
    for m, s in [(m, s / narrower) for m, s in PLACES]:
        breaks = sorted([m - 9 * s, min(max(0.0, m - 9 * s), m + 9 * s), m + 9 * s])
        powers = [
            sum(
                integrate.quad(lambda x, p=p, m=m, s=s: function(x) ** p * stats.norm.pdf(x, m, s), a, b, epsabs=1e-13)[
                    0
                ]
                for a, b in pairwise(breaks)
            )
            for p in (1, 2)
        ]
        found.append((powers[0], powers[1] - powers[0] ** 2))
    return tuple(np.array(column) for column in zip(*found, strict=True))  # type: ignore[return-value]


def check_relu() -> None:
    for slope in (0.0, 0.2):
        mean, variance = by_quadrature(lambda x, k=slope: max(x, 0.0) + k * min(x, 0.0))
        got = rules.relu(given(), slope)
        np.testing.assert_allclose(got.mean, mean, atol=1e-8)
        np.testing.assert_allclose(got.variance, variance, atol=1e-8)
    certain = rules.relu(Moments(torch.tensor([-1.0, 0.0, 2.0]), torch.zeros(3)))
    assert certain.mean.tolist() == pytest.approx([0, 0, 2], abs=1e-9) and float(certain.variance.max()) < 1e-9


def test_relu() -> None:
    check_relu()


def test_other_activations() -> None:
    """Five nodes: good to a hundredth of the function's range up to a standard deviation of 0.75, which is much for a unit."""
    for function, plain in ((torch.tanh, math.tanh), (torch.sigmoid, lambda x: 1 / (1 + math.exp(-x)))):
        mean, variance = by_quadrature(plain, 4.0)
        got = rules.through(function, Moments(given().mean, given().variance / 16))
        np.testing.assert_allclose(got.mean, mean, atol=0.02)
        np.testing.assert_allclose(got.variance, variance, atol=0.02)
    cubic = rules.through(lambda x: x**3, given())  # its square has degree six: exact
    m, v = given()
    torch.testing.assert_close(cubic.mean, m**3 + 3 * m * v)
    torch.testing.assert_close(cubic.variance, 9 * m**4 * v + 36 * m**2 * v**2 + 15 * v**3)


def check_pairs() -> None:
    """Products, sums and the larger of two, on a grid of both."""
    x, y = (
        Moments(torch.tensor([0.3], dtype=DOUBLE), torch.tensor([0.8], dtype=DOUBLE)),
        torch.tensor([-0.5], dtype=DOUBLE),
    )
    other = Moments(y, torch.tensor([1.7], dtype=DOUBLE))
    t = np.linspace(-9, 9, 1201)
    a, b = 0.3 + math.sqrt(0.8) * t[:, None], -0.5 + math.sqrt(1.7) * t[None]
    weight = stats.norm.pdf(t)[:, None] * stats.norm.pdf(t)
    weight /= weight.sum()
    for function, plain, close in (
        (rules.product, np.multiply, 1e-9),
        (rules.total, np.add, 1e-9),
        (rules.larger, np.maximum, 1e-4),  # a corner on the grid
    ):
        got: Any = function(x, other)
        mean = float((plain(a, b) * weight).sum())
        assert float(got.mean) == pytest.approx(mean, abs=close)
        assert float(got.variance) == pytest.approx(float(((plain(a, b) - mean) ** 2 * weight).sum()), abs=close)
    fixed: Any = rules.larger(x, y)
    exact: Any = rules.relu(Moments(x.mean - y, x.variance))
    torch.testing.assert_close(fixed.mean, exact.mean + y)
    torch.testing.assert_close(fixed.variance, exact.variance)


def test_pairs() -> None:
    check_pairs()


def test_the_normal_law_in_both_precisions() -> None:
    """Φ to the formula's 1.5e-7 / 2 and five roundings of numbers below 1, in double to roundings alone; far out nothing is denormal."""
    a = torch.linspace(-20, 20, 4001, dtype=DOUBLE)
    for precision, formula in ((torch.float32, 0.75e-7), (DOUBLE, 0.0)):
        rough = formula + 5 * torch.finfo(precision).eps / 2
        edge, below = rules.normal(a.to(precision, copy=True))
        torch.testing.assert_close(below.double(), torch.special.ndtr(a), rtol=0, atol=rough)
        torch.testing.assert_close(edge.double(), torch.exp(-0.5 * a * a), rtol=0, atol=rough)
        assert float(edge.min()) >= torch.finfo(torch.float32).tiny


def propagation(net: nn.Module, x: Tensor, sd: float, factored: bool = False) -> tuple[Propagation, dict[str, Tensor]]:
    net = net.eval().requires_grad_(False)
    graph = torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim("rows", min=1)},)).module()
    variances = {
        name: sd**2 * (0.5 + Noise(0, (name,), dtype=p.dtype).uniform(*p.shape)) for name, p in net.named_parameters()
    }
    return Propagation(graph, variances, factored), variances


def draws(net: nn.Module, variances: dict[str, Tensor], x: Tensor, n: int) -> np.ndarray:
    own = dict(net.named_parameters())
    noise = Noise(1, (), dtype=x.dtype)
    many = {name: p + variances[name].sqrt() * noise.at(name).normal(n, *p.shape) for name, p in own.items()}
    return vmap(lambda p: functional_call(net, p, (x,)))(many).numpy()


def check_one_hidden_layer(hidden: nn.Module | None = None) -> None:
    """Independent weights: hidden units are independent Gaussians before the ReLU, so mean and variance of the outputs are exact.

    40,000 draws; a mean of squares is nearly normal.
    """
    torch.default_generator.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 6), nn.ReLU() if hidden is None else hidden, nn.Linear(6, 2)).double()
    x = Noise(2, (), dtype=DOUBLE).normal(4, 3)
    module, variances = propagation(net, x, 0.4)
    mean, variance = module(x)
    f = draws(net, variances, x, 40_000)
    assert_mean(f.reshape(len(f), -1), mean.flatten())
    square = (f - mean.numpy()) ** 2
    assert_mean(square.reshape(len(f), -1), variance.flatten())


def test_one_hidden_layer_is_exact() -> None:
    check_one_hidden_layer()


def check_convolution() -> None:
    """One convolution with random weights and bias: exact at each position; two of them in a row with few channels, nearly."""
    torch.default_generator.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.BatchNorm2d(3)).double()
    net[1].running_mean += 1.5
    net[1].running_var *= 0.5  # so that what γ multiplies is far from zero, and its noise counts
    x = Noise(2, (), dtype=DOUBLE).normal(2, 2, 6, 6)
    module, variances = propagation(net, x, 0.3)
    mean, variance = module(x)
    f = draws(net, variances, x, 20_000)
    assert_mean(f.reshape(len(f), -1), mean.flatten())
    assert_mean(((f - mean.numpy()) ** 2).reshape(len(f), -1), variance.flatten())


def test_convolution_and_batch_norm_are_exact() -> None:
    check_convolution()


class Normed(nn.Module):
    """A map, perhaps something that does nothing, and a norm."""

    def __init__(self, first: nn.Module, norm: nn.Module, apart: bool) -> None:
        super().__init__()
        self.first, self.norm, self.apart = first, norm, apart

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return torch.relu(self.norm(y.permute(list(range(y.dim()))) if self.apart else y))


@pytest.mark.parametrize("factored", [False, True])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("first", [nn.Conv2d(2, 3, 3, padding="same"), nn.Linear(4, 3), nn.Linear(4, 5, bias=False)])
def test_a_norm_within_the_map_before_it(first: nn.Module, affine: bool, factored: bool) -> None:
    """The same as both one after the other. Of a linear map that meets the second axis of three the norm is another matter."""
    shape = (2, 2, 6, 6) if isinstance(first, nn.Conv2d) else (2, 4) if first.bias is not None else (2, 3, 4)
    norm = (nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d)(3, affine=affine).double()
    norm.running_mean += Noise(5, (), dtype=DOUBLE).normal(3)
    norm.running_var += 1.0
    if affine:
        with torch.no_grad():
            norm.weight *= 1.3
            norm.bias += 0.2
    x = Noise(2, (), dtype=DOUBLE).normal(*shape)
    one, _ = propagation(Normed(first.double(), norm, False), x, 0.3, factored)
    two, _ = propagation(Normed(first.double(), norm, True), x, 0.3, factored)
    assert len(list(one.graph.nodes)) < len(list(two.graph.nodes)) - (len(shape) != 3)
    for a, b in zip(one(x), two(x), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_a_norm_without_a_scale_stays_as_it_is() -> None:
    """What γ multiplies cannot be found from γ times it if γ is nothing."""
    net = Normed(nn.Linear(4, 3), nn.BatchNorm1d(3), False).double()
    with torch.no_grad():
        net.norm.weight[1] = 0.0  # type: ignore[index,operator]
    x = Noise(2, (), dtype=DOUBLE).normal(2, 4)
    one, _ = propagation(net, x, 0.3)
    two, _ = propagation(Normed(net.first, net.norm, True), x, 0.3)
    for a, b in zip(one(x), two(x), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
        assert bool(a.isfinite().all())


def check_factored() -> None:
    """Exact where variances are products of rows, columns and places of a kernel; else such a product takes their place beside m²."""
    net = mlp(3, 5, 2).double()
    x = Noise(2, (), dtype=DOUBLE).normal(4, 3)
    plain, variances = propagation(net, x, 0.3)
    graph = torch.export.export(net, (x,)).module()
    outer = {
        name: v if v.dim() == 1 else v.sum(1, keepdim=True) * v.sum(0, keepdim=True) / v.sum()
        for name, v in variances.items()
    }
    exact, fast = Propagation(graph, outer)(x), Propagation(graph, outer, factored=True)(x)
    torch.testing.assert_close(fast.variance, exact.variance, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(fast.mean, exact.mean, rtol=1e-9, atol=1e-12)
    fast = Propagation(graph, variances, factored=True)(x)
    weight, own = dict(net.named_parameters()), variances
    m, v = x @ weight["0.weight"].mT + weight["0.bias"], x.square() @ outer["0.weight"].mT + own["0.bias"]
    m, v = rules.relu(Moments(m, v))
    spread = v @ (weight["2.weight"].square() + own["2.weight"]).mT + m.square() @ outer["2.weight"].mT + own["2.bias"]
    torch.testing.assert_close(fast.variance, spread, rtol=1e-9, atol=1e-12)
    ones = torch.ones(2, 3, dtype=DOUBLE)
    first = nn.Linear(3, 5).double()
    one, own = propagation(first, ones, 0.3)
    two, _ = propagation(first, ones, 0.3, factored=True)
    torch.testing.assert_close(one(ones).variance, two(ones).variance, rtol=1e-9, atol=1e-12)
    assert own and not torch.equal(plain(x).variance, fast.variance)
    net, x = (
        nn.Sequential(nn.Conv2d(4, 6, 3, stride=2), nn.ReLU(), nn.Conv2d(6, 4, 2, groups=2)).double(),
        x.new_ones(2, 4, 9, 9),
    )
    graph = torch.export.export(net, (x,)).module()
    rows, columns, places = (0.5 + Noise(3, (i,), dtype=DOUBLE).uniform(n) for i, n in enumerate((6, 4, 9)))
    outer = {
        "0.weight": 0.01 * torch.einsum("o,i,k->oik", rows, columns, places).view(6, 4, 3, 3),
        "0.bias": 0.1 * rows,
        "2.weight": 0.02 * torch.ones(4, 3, 2, 2, dtype=DOUBLE),  # in groups: as it is
    }
    x = Noise(2, (), dtype=DOUBLE).normal(2, 4, 9, 9)
    exact, fast = (
        Propagation(graph, outer)(x),
        Propagation(torch.export.export(net, (x,)).module(), outer, factored=True)(x),
    )
    torch.testing.assert_close(fast.variance, exact.variance, rtol=1e-9, atol=1e-12)


def test_factored() -> None:
    check_factored()


class Everything(nn.Module):
    """One of each operation that is known."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.frn = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), FilterResponseNorm(4)
        self.group, self.layer = nn.GroupNorm(2, 4), nn.LayerNorm(16)
        self.drop, self.first, self.last = nn.Dropout(0.5), nn.Linear(16, 8), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        x = x + torch.nn.functional.silu(self.frn(x)) * 0.5 - self.group(x)
        x = nn.functional.max_pool2d(nn.functional.pad(x, (0, 2, 0, 2)), 2)
        x = nn.functional.avg_pool2d(x, 2).view(-1, 16)
        x = self.drop(nn.functional.gelu(self.layer(x)))
        x = nn.functional.leaky_relu(self.first(x), 0.1)
        return self.last(torch.cat([torch.tanh(x), torch.sigmoid(-x) / 2], 1))


def check_certain_weights() -> None:
    """Without variances the means are the network's own outputs, through every operation; a little variance moves them a little."""
    torch.default_generator.manual_seed(0)
    net, x = Everything().double(), Noise(2, (), dtype=DOUBLE).normal(3, 2, 6, 6)
    module, _ = propagation(net, x, 0.0)
    mean, variance = module(x)
    torch.testing.assert_close(mean, net(x), rtol=1e-7, atol=1e-8)
    assert float(variance.abs().max()) < 1e-12
    small, _ = propagation(net, x, 1e-3)
    m, v = small(x)
    assert float(v.min()) > 0 and float(v.max()) < 1e-2 and float((m - mean).abs().max()) < 0.01
    torch.testing.assert_close(small(x[:1]).variance, v[:1], rtol=1e-9, atol=1e-15)  # any number of rows


def test_certain_weights() -> None:
    check_certain_weights()


def test_gradients_by_the_inputs() -> None:
    """Of means and variances; what is written in place elsewhere is not where a gradient needs it."""
    torch.default_generator.manual_seed(0)
    net, x = Everything().double(), Noise(2, (), dtype=DOUBLE).normal(2, 2, 6, 6).requires_grad_()
    module, _ = propagation(net, x.detach(), 0.1)
    assert torch.autograd.gradcheck(lambda t: tuple(module(t)), x)
    single, _ = propagation(Everything(), x.detach().float(), 0.1)
    single.load_state_dict({name: b.float() for name, b in module.state_dict().items()})
    near = x.detach().float().requires_grad_()
    one, two = (torch.autograd.grad(m(t).variance.sum(), t)[0].double() for m, t in ((module, x), (single, near)))
    torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4 * float(one.abs().max()))


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.sorter, self.after = nn.Linear(3, 4), Sorter(), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.sorter(self.before(x)))


class Sorter(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(1)


def test_unknown_operations_are_named() -> None:
    with pytest.raises(UnsupportedError, match=r"the node 'cumsum' \(aten.cumsum.default\) in 'sorter'"):
        propagation(Odd(), torch.ones(2, 3), 0.1)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 1))
    x = torch.ones(2, 3)
    with pytest.raises(UnsupportedError, match="batch_norm"):
        propagation(net, x, 0.1)[0](x)


def test_the_bound_of_chance_is_used() -> None:
    """A variance that is off by a twentieth would be seen: the bound at 40,000 draws is below it."""
    assert Z * math.sqrt(2 / 40_000) < 0.05
