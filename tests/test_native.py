"""Code in C does what torch does: each operation, products of every shape, loops, writes and whole networks; or it says that it cannot."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from random_nets import random_net
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from nescio import Model, fit
from nescio.compiled import Compiled
from nescio.infer import HMC, MAP
from nescio.laws import Normal
from nescio.likelihoods import Categorical, Gaussian
from nescio.native import Chainwise, Unsupported, build, chainwise, products
from nescio.nets import mlp

SINGLE, DOUBLE = torch.float32, torch.float64
Tensors = Sequence[Tensor]


def ours(
    function: Callable[..., tuple[Tensor, ...]],
    chains: Tensors,
    others: Tensors = (),
    times: int | None = None,
    until: int | None = None,
) -> tuple[Tensor, ...]:
    return Chainwise(function, chains, others, times is not None, until)(chains, others, times or 1)


# ---- operations on single numbers ------------------------------------------------------------------------------------

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: getattr(torch, name) for name in ("exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "abs", "neg", "sign")},
    **{name: getattr(torch, name) for name in ("sin", "cos", "erf", "lgamma", "floor", "reciprocal", "square", "relu")},
    **{name: getattr(torch, name) for name in ("tanh", "sigmoid", "isnan", "isinf", "isfinite", "logical_not")},
    **{name: getattr(functional, name) for name in ("softplus", "silu", "elu", "leaky_relu", "hardtanh")},
    **{name: getattr(functional, name) for name in ("logsigmoid", "mish", "softsign", "hardswish", "relu6", "selu")},
    "gelu": lambda x: functional.gelu(x.clamp(-50, 50)),  # torch's own is NaN at infinity
    "cubed": lambda x: x**3,
    "to a power": lambda x: x.abs() ** 1.7,
    "inverse root": lambda x: x**-0.5,
    "clamped": lambda x: x.clamp(-1.5, 2.0),
    "clamped above": lambda x: x.clamp(max=0.3),
    "whole": lambda x: x.nan_to_num(0, 0, 0).clamp(-100, 100).long(),
    "true": lambda x: x > 0.5,
    "remainder": lambda x: torch.remainder(x, 0.7),
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    **{name: getattr(torch, name) for name in ("add", "sub", "mul", "div", "maximum", "minimum", "logaddexp", "rsub")},
    **{name: getattr(torch, name) for name in ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or")},
    "where": lambda a, b: torch.where(a > b, a, 2.0),
    "with a number": lambda a, b: torch.add(a, b, alpha=3) - 1.5 / b,
    "power": lambda a, b: a.abs() ** b,
    "remainder": lambda a, b: torch.remainder(a, b.abs() + 0.1),
}
SPECIAL = [0.0, -0.0, 1.0, -1.0, torch.inf, -torch.inf, torch.nan, 1e-30, -1e-30, 1e30, 89.0, -104.0, 1e-42, 0.5, 2.0]


def numbers(dtype: torch.dtype) -> Tensor:
    """Two chains of what is usual, and what is not."""
    usual = torch.cat([torch.randn(40, dtype=DOUBLE), torch.logspace(-8, 1.9, 40, dtype=DOUBLE)])
    return torch.cat([usual, -usual, torch.tensor(SPECIAL, dtype=DOUBLE)]).to(dtype).expand(2, -1).clone()


def assert_right(got: Tensor, wanted: Tensor, units: float) -> None:
    """To some units of the last place, relative to the number and to one: functions near a zero of theirs lose digits, in torch as here."""
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    if not wanted.is_floating_point():
        assert torch.equal(got, wanted)
        return
    assert torch.equal(got.isnan(), wanted.isnan())
    room = units * torch.finfo(wanted.dtype).eps * (1 + wanted.abs())
    near = (got - wanted).abs() <= room
    tiny = torch.finfo(wanted.dtype).max / 2  # overflow may come a unit earlier
    assert bool((near | wanted.isnan() | (got == wanted) | ((got.abs() > tiny) & (wanted.abs() > tiny))).all())


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
@pytest.mark.parametrize("name", list(UNARY))
def test_functions_of_one_number(name: str, dtype: torch.dtype) -> None:
    x, function = numbers(dtype), UNARY[name]
    (got,) = ours(lambda x: (function(x),), [x])
    assert_right(got, function(x), 16)


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
@pytest.mark.parametrize("name", list(BINARY))
def test_functions_of_two_numbers(name: str, dtype: torch.dtype) -> None:
    x, function = numbers(dtype), BINARY[name]
    a, b = x, x[:, torch.randperm(x.shape[1])]
    (got,) = ours(lambda a, b: (function(a, b),), [a, b])
    assert_right(got, function(a, b), 64)


def test_whole_numbers_and_truth() -> None:
    n, m = torch.randint(-20, 20, (2, 30)), torch.randint(1, 5, (2, 30))
    with pytest.raises(Unsupported, match="may be 0"):
        ours(lambda n, m: (n % m,), [n, m])

    def function(n: Tensor, m: Tensor) -> tuple[Tensor, ...]:
        odd, some = (n & 1) == 1, n > m
        return (
            n + 3 * m,
            n % 3,
            n << m,
            n >> 1,
            ~n,
            odd & some,
            odd | some,
            odd ^ some,
            ~odd,
            n * 0.5,
            n.double(),
            n / m,
        )

    for got, wanted in zip(ours(function, [n, m]), function(n, m), strict=True):
        assert_right(got, wanted, 2)


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
def test_logarithms_and_exponentials_to_the_last_digits(dtype: torch.dtype) -> None:
    """Relative to themselves, over the whole range."""
    x = torch.logspace(-37, 37, 20_001, dtype=DOUBLE).to(dtype)[None]
    t = torch.linspace(-87, 88, 20_001, dtype=DOUBLE).to(dtype)[None]
    log, log1p, exp = ours(lambda x, t: (x.log(), x.log1p(), t.exp()), [x, t])
    for got, wanted in ((log, x.double().log()), (log1p, x.double().log1p()), (exp, t.double().exp())):
        assert bool(((got.double() - wanted).abs() <= 4 * torch.finfo(dtype).eps * wanted.abs()).all())


# ---- sums, views, indices, products ----------------------------------------------------------------------------------


def test_a_long_sum_of_single_numbers_is_right() -> None:
    """Number after number in single precision the sum of a million 0.1 is off by 1%."""
    (got,) = ours(lambda x: (x.sum(1),), [torch.full((1, 1_000_000), 0.1)])
    assert float(got) == pytest.approx(100_000, rel=1e-7)


@pytest.mark.parametrize("dims", [(1,), (2,), (3,), (1, 2), (1, 3), (2, 3), (1, 2, 3)])
def test_reductions(dims: tuple[int, ...]) -> None:
    x = torch.randn(2, 5, 19, 33)
    functions: list[Callable[[Tensor], Tensor]] = [
        lambda x: x.sum(dims),
        lambda x: x.mean(dims, keepdim=True),
        lambda x: x.amax(dims),
        lambda x: x.amin(dims),
        lambda x: torch.linalg.vector_norm(x, dim=dims),
        lambda x: x.logsumexp(dims),
        lambda x: (x > 2).sum(dims),
        lambda x: (x - x.mean(dims, keepdim=True)).square().sum(dims),
        lambda x: x.permute(0, 3, 1, 2).exp().sum(dims),
    ]
    for got, function in zip(ours(lambda x: tuple(f(x) for f in functions), [x]), functions, strict=True):
        torch.testing.assert_close(got, function(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["amax", "amin"])
def test_the_largest_of_numbers_that_are_none_is_none(kind: str) -> None:
    """Wherever NaN stands, in a vector's first lane or its last: a density must not lose it."""
    x = torch.randn(40, 37)
    x[torch.arange(37), torch.arange(37)] = torch.nan
    (got,) = ours(lambda x: (getattr(x, kind)(1),), [x])
    torch.testing.assert_close(got, getattr(x, kind)(1), equal_nan=True)
    assert int(got.isnan().sum()) == 37


NOTHING: list[Callable[..., tuple[Tensor, ...]]] = [
    lambda x, none: (x[:, 5:].square().sum(1) + x[:, 0],),
    lambda x, none: (torch.cat([x[:, none], x, x[:, 5:]], 1),),
    lambda x, none: (x.index_select(1, none).sum(1) + 1,),
]


@pytest.mark.parametrize("function", NOTHING)
def test_where_there_is_nothing_nothing_is_found(function: Callable[..., tuple[Tensor, ...]]) -> None:
    """Dimensions of size 0: as in torch, or refused."""
    x, none = torch.randn(2, 5), torch.empty(0, dtype=torch.long)
    try:
        (got,) = ours(function, [x], [none])
    except Unsupported as error:
        assert "none" in str(error)
    else:
        torch.testing.assert_close(got, function(x, none)[0])


@pytest.mark.parametrize("vector", [16, 32])
@pytest.mark.parametrize("seed", range(6))
def test_products_where_vectors_are_narrow(seed: int, vector: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on processors without AVX-512: 64 bytes are several vectors."""
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, f"-DVECTOR={vector}"))
    monkeypatch.setattr(products, "TILES", {"columns": (2, 2), "dots": (3, 3)})
    build.built.cache_clear()
    for dtype in (SINGLE, DOUBLE):
        test_products_of_every_shape(seed, dtype)
    build.built.cache_clear()


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
@pytest.mark.parametrize("seed", range(12))
def test_products_of_every_shape(seed: int, dtype: torch.dtype) -> None:
    """Whole vectors and what is left over, as they lie and turned, slices of wider ones and constants."""
    chance = random.Random(seed)
    m, n, k = (chance.choice([1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 64, 65, 130]) for _ in range(3))
    a, b, c = (torch.randn(3, p, q, dtype=dtype) for p, q in ((m, k), (k, n), (n, m + 3)))
    fixed = torch.randn(k, n, dtype=dtype)

    def function(a: Tensor, b: Tensor, c: Tensor, fixed: Tensor) -> tuple[Tensor, ...]:
        ab, part = a @ b, c[:, :, 2 : 2 + m]
        return (
            ab,
            a @ fixed,
            (b.mT @ a.mT),
            part @ ab.tanh(),
            part.mT @ b.mT,
            fixed.mT @ a.mT,
            functional.linear(a, fixed.mT),
        )

    for got, wanted in zip(ours(function, [a, b, c], [fixed]), function(a, b, c, fixed), strict=True):
        torch.testing.assert_close(
            got, wanted, rtol=1e-4 if dtype == SINGLE else 1e-12, atol=1e-4 if dtype == SINGLE else 1e-11
        )


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
def test_products_that_are_few_long_sums(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds, tiled = [], products.tiled
    monkeypatch.setattr(products, "tiled", lambda kind, *given: (kinds.append(kind), tiled(kind, *given))[1])
    x = torch.zeros(1, 1, dtype=dtype)
    for m, n, k in ((3, 2, 130), (5, 3, 531), (2, 6, 33), (7, 7, 999)):
        a, b = torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype)
        (got,) = ours(lambda x, a, b: (x[:, :, None] + a @ b,), [x], [a, b])
        torch.testing.assert_close(
            got[0], a @ b, rtol=1e-4 if dtype == SINGLE else 1e-12, atol=1e-4 if dtype == SINGLE else 1e-11
        )
    assert kinds.count("dots") >= 3


def test_triangular_systems() -> None:
    a, b = torch.randn(2, 6, 6, dtype=DOUBLE) + 5 * torch.eye(6, dtype=DOUBLE), torch.randn(2, 6, 4, dtype=DOUBLE)

    def function(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        solve = torch.linalg.solve_triangular
        lower, upper, unit = (
            solve(a, b, upper=False),
            solve(a, b, upper=True),
            solve(a, b, upper=False, unitriangular=True),
        )
        return lower, upper, unit, solve(a, b.mT, upper=True, left=False), solve(a, b.mT, upper=False, left=False)

    for got, wanted in zip(ours(function, [a, b]), function(a, b), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


def test_views_and_pieces() -> None:
    x, i = torch.randn(2, 6, 5), torch.randint(-6, 6, (2, 4))

    def function(x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
        y = x.mT.reshape(len(x), 3, 10)[:, ::2, 3:]
        parts = torch.cat([x[:, 1:3], x.flip(1)[:, :2], x[:, :0]], 1)
        rows = x[torch.arange(len(x))[:, None], i]
        z = torch.where(x.diagonal(dim1=1, dim2=2)[:, :, None] > 0, x[:, :5], 0.0)
        return (
            y.exp(),
            parts,
            rows,
            torch.stack([x, -x], 2).flatten(1),
            z,
            x.select(1, 2).unsqueeze(1).expand(-1, 3, -1),
            i % 6,
        )

    for got, wanted in zip(ours(function, [x, i]), function(x, i), strict=True):
        torch.testing.assert_close(got, wanted)


def test_numbers_that_are_gathered_and_scattered() -> None:
    x, i, v = torch.randn(2, 6), torch.randint(0, 6, (2, 3, 4)), torch.randn(2, 4, 3)
    words = torch.randint(0, 6, (5, 3))

    def function(x: Tensor, i: Tensor, v: Tensor, words: Tensor) -> tuple[Tensor, ...]:
        chain, flat, table = torch.arange(len(x))[:, None], i.flatten(1), torch.stack([x, -x], 2)
        added = x.index_put((chain, flat), v.flatten(1), accumulate=True)  # several to one place
        turned = x.index_put((chain[:, None], i.mT), v, accumulate=True)  # indices that lie askew
        found = torch.stack([functional.embedding(words.T, rows) for rows in table])
        return (
            x.gather(1, flat),
            x.scatter_add(1, flat, v.flatten(1)),
            added,
            turned,
            found,
            x.index_select(1, words[0]),
        )

    for got, wanted in zip(ours(function, [x, i, v], [words]), function(x, i, v, words), strict=True):
        torch.testing.assert_close(got, wanted)


def test_parts_of_a_matrix_that_are_put_back() -> None:
    """By a row, some rows, a diagonal, a triangle; and small whole numbers, which begin anew after 255."""
    x, row, some, line = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4), torch.randn(2, 3, 2, 4), torch.randn(2, 3, 3)

    def function(x: Tensor, row: Tensor, some: Tensor, line: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.select_scatter(x, row, -2, 1),
            torch.slice_scatter(x, some, -2, 0, 4, 2),
            torch.diagonal_scatter(x, row, 0, -2, -1),
            torch.diagonal_scatter(x, line, 1, 2, 3),
            x.tril() + x.triu(1),
            x.sum(1, keepdim=True).squeeze_(1),
            200 + torch.arange(100, dtype=torch.uint8).expand(len(x), -1),
        )

    for got, wanted in zip(ours(function, [x, row, some, line]), function(x, row, some, line), strict=True):
        assert got.dtype == wanted.dtype
        torch.testing.assert_close(got, wanted)


def test_an_index_that_is_not_there_is_an_error() -> None:
    """Code that was made for rows that fit meets rows that do not. Negative ones are counted from the end by x[i], and by nothing else."""
    table, fits = torch.randn(1, 5, 2), torch.tensor([4, 3, 2, 1, 0])
    for function, wrongs in (
        (lambda w, i: (functional.embedding(i, w[0])[None],), (5, -1, -6, 2**40)),
        (lambda w, i: (w.index_select(1, i),), (5, -1)),
        (lambda w, i: (w.gather(1, i[None, :, None].expand(-1, -1, 2)),), (5, -1)),
        (lambda w, i: (w[:, i],), (5, -6)),
    ):
        code = Chainwise(function, [table], [torch.arange(5)], False, None)
        torch.testing.assert_close(code([table], [fits], 1)[0], table.flip(1))
        for wrong in wrongs:
            with pytest.raises(IndexError, match="out of range"):
                code([table], [torch.tensor([0, 1, wrong, 2, 3])], 1)


# ---- loops and writes ------------------------------------------------------------------------------------------------


def test_each_chain_goes_on_as_long_as_it_is_told() -> None:
    def turn(n: Tensor, going: Tensor, last: Tensor) -> tuple[Tensor, ...]:
        return n + 1, n + 1 < last

    last = torch.tensor([3.0, 1, 7, 50])
    n, going = ours(turn, [torch.zeros(4), torch.tensor([True, True, True, False]), last], times=20, until=1)
    assert n.tolist() == [3, 1, 7, 0] and not going.any()
    assert ours(turn, [torch.zeros(4), torch.ones(4, dtype=torch.bool), last], times=5)[0].tolist() == [5.0] * 4


def test_results_may_change_places() -> None:
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    x, y = ours(lambda a, b: (b, a), [a, b], times=3)
    assert torch.equal(x, b) and torch.equal(y, a)
    x, y = ours(lambda a, b: (b, a + b), [a, b], times=3)
    torch.testing.assert_close(x, 2 * b + a)
    torch.testing.assert_close(y, 3 * b + 2 * a)
    with pytest.raises(Unsupported, match="more results"):
        ours(lambda a, b, c: (a, b, a), [a, b], [torch.zeros(4)], times=2)
    with pytest.raises(Unsupported, match="do not fit"):
        ours(lambda a, b: (b[:, :1], a), [a, b], times=2)


def test_what_was_read_before_a_write_stays() -> None:
    """Copies and sums of a tensor that is then written to; views of it change with it."""

    def turn(x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
        before, copy, view = 2 * x, x.clone(), x[:, 1:]
        x.index_copy_(1, at[0, :1], torch.full_like(x[:, :1], 7))
        own = copy.clone()
        own.index_put_((torch.arange(len(x))[:, None], at), torch.full_like(x[:, :1], 9))
        return before, copy, view.clone(), own, x.sum(1)

    x, y, at = torch.randn(2, 5), torch.empty(2, 5), torch.full((2, 1), 3)
    y.copy_(x)
    for got, wanted in zip(ours(turn, [x, at]), turn(y, at), strict=True):
        torch.testing.assert_close(got, wanted)
    assert torch.equal(x, y) and x[:, 3].tolist() == [7.0, 7.0]


def test_a_write_reaches_a_tensor_that_lies_askew() -> None:
    code, x = Compiled(lambda x: (x.add_(1).sum(1),), compiler=False), torch.zeros(3, 2).T
    assert not x.is_contiguous() and code([x], [])[0].tolist() == [3.0, 3.0]
    assert code.note is None and torch.equal(x, torch.ones(2, 3))


def test_buffers_that_count_are_counted() -> None:
    """A norm in training, whose statistics change: copies of them, in place."""
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))
    named, x = {**dict(net.named_parameters()), **dict(net.named_buffers())}, torch.randn(8, 3)

    def function(*given: Tensor) -> tuple[Tensor, ...]:
        own = {name: t[0].clone() for name, t in zip(named, given, strict=False)}
        f = functional_call(net, own, (given[-1],))
        return f.detach()[None], *(own[name].detach()[None] for name, _ in net.named_buffers())

    start = [t.detach()[None] for t in named.values()]
    got, wanted = ours(function, start, [x]), function(*start, x)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b)
    assert int(got[-1]) == 1 and not torch.equal(got[1], start[-3])


def test_what_all_chains_share_is_not_written_to() -> None:
    x, table = torch.randn(3, 2), torch.zeros(2)
    for function in (lambda x, t: (t.add_(1) + x,), lambda x, t: (torch.zeros(2).add_(x[0])[None] + x,)):
        with pytest.raises(Unsupported):
            ours(function, [x], [table])
    assert not table.any()


# ---- networks --------------------------------------------------------------------------------------------------------


def slopes(net: nn.Module, x: Tensor) -> tuple[list[Tensor], Callable[..., tuple[Tensor, ...]]]:
    names, start = zip(*net.named_parameters(), strict=True)

    def function(*given: Tensor) -> tuple[Tensor, ...]:
        leaves = [g[0].detach().requires_grad_() for g in given[: len(names)]]
        value = functional_call(net, dict(zip(names, leaves, strict=True)), (given[-1],)).square().mean()
        return value.detach()[None], *(s[None] for s in torch.autograd.grad(value, leaves))

    return [p.detach()[None] for p in start], function


@pytest.mark.parametrize("seed", range(60))
def test_gradients_of_random_networks(seed: int) -> None:
    """In double precision sums in another order differ by 1e-12; convolutions are refused, and nothing else."""
    torch.manual_seed(seed)
    net, x = random_net(seed)
    net, x = net.double().eval(), x.double()
    start, function = slopes(net, x)
    try:
        got = ours(function, start, [x])
    except Unsupported as error:
        assert "convolution" in str(error) and any(isinstance(m, nn.Conv2d) for m in net.modules())
        return
    for a, b in zip(got, function(*start, x), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_some_random_networks_have_no_convolutions() -> None:
    nets = [random_net(seed)[0] for seed in range(60)]
    assert sum(not any(isinstance(m, nn.Conv2d) for m in net.modules()) for net in nets) >= 10


@pytest.mark.parametrize("norm", [nn.LayerNorm(6), nn.BatchNorm1d(6).eval(), nn.Identity()], ids=repr)
def test_posteriors_of_networks_with_norms(norm: nn.Module) -> None:
    x, labels = torch.randn(40, 4), torch.randint(0, 3, (40,))
    model = Model(
        nn.Sequential(nn.Linear(4, 6), norm, nn.GELU(), nn.Linear(6, 3)).double(), Normal(0, 1), Categorical()
    )
    plain, quick = (
        fit(model, (x.double(), labels), 2 * HMC(draws=6, warmup=2, leapfrog=3), compile=c) for c in (False, True)
    )
    assert quick.info["compiled"] is True
    torch.testing.assert_close(quick.theta, plain.theta, rtol=1e-6, atol=1e-6)


# ---- rules that a fuzzer found wrong ---------------------------------------------------------------------------------

NAN = float("nan")
RARE: dict[str, tuple[Callable[..., tuple[Tensor, ...]], list[Tensor]]] = {
    "a copy is written to": (lambda x: (x.to(x.dtype, copy=True).add_(1), x * 1), [torch.zeros(2, 3)]),
    "a bound is none": (
        lambda x, low: (x.clamp(min=low),),
        [torch.ones(2, 4), torch.tensor([[NAN, 0.0, 2.0, NAN]]).repeat(2, 1)],
    ),
    "the highest is none": (lambda x: (x.clamp(max=NAN),), [torch.ones(2, 4)]),
    "none times nothing": (
        lambda n, x: (torch.addmm(n[0], x[0], x[0], beta=0)[None],),
        [torch.full((1, 2, 2), NAN), torch.ones(1, 2, 2)],
    ),
    "a variance of too few": (lambda x: (torch.var_mean(x[:, :1], 1, correction=2)[0],), [torch.ones(2, 4)]),
    "a slope that is hardly there": (
        lambda x: (1 / slope_of(functional.softplus, x),),
        [torch.tensor([[-95.0, -88.0, 3.0, 30.0]])],
    ),
    "a number of another precision": (
        lambda x: (x * torch.full((2,), 0.1, dtype=SINGLE), x * torch.full((2,), 2.7, dtype=torch.long)),
        [torch.ones(2, 2, dtype=DOUBLE)],
    ),
}


def slope_of(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(function(x).sum(), x)[0]


@pytest.mark.filterwarnings("ignore:var_mean")
@pytest.mark.parametrize("name", list(RARE))
def test_rare_cases_are_those_of_torch(name: str) -> None:
    function, inputs = RARE[name]
    before = [x.clone() for x in inputs]
    got = Chainwise(function, inputs, [], False, None)(inputs, [], 1)
    for x, wanted in zip(got, function(*before), strict=True):
        assert torch.equal(x.isfinite(), wanted.isfinite()) and x.dtype == wanted.dtype
        torch.testing.assert_close(x, wanted, rtol=1e-6 if x.dtype == SINGLE else 1e-14, atol=0.0, equal_nan=True)
    for x, y in zip(inputs, before, strict=True):
        torch.testing.assert_close(x, y, rtol=0.0, atol=0.0, equal_nan=True)


def test_no_chains_are_no_error() -> None:
    code = Compiled(lambda x: (2 * x,), compiler=False)
    assert code([torch.ones(2, 3)], [])[0].shape == (2, 3) and code([torch.ones(0, 3)], [])[0].shape == (0, 3)


MORE: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: x.softmax(-1) * torch.arange(5),
    "log_softmax": lambda x: functional.log_softmax(x, 1)[..., 2],
    "std": lambda x: x.std(-1),
    "var": lambda x: x.var((1, 2), correction=0),
    "exp2": torch.exp2,
    "power": lambda x: 3.0**x,
    "group norm": lambda x: functional.group_norm(x.mT[:, :4], 2),
}


@pytest.mark.parametrize("name", list(MORE))
def test_gradients_of_more_functions(name: str) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        return MORE[name](x).reshape(len(x), -1), slope_of(lambda x: MORE[name](x).square().sum(), x)

    x = torch.randn(4, 3, 5, dtype=DOUBLE)
    for got, wanted in zip(Chainwise(function, [x], [], False, None)([x], [], 1), function(x), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-13)


# ---- where it is not for ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patch", "says"),
    [
        (lambda m: m.setattr(chainwise, "compiler", lambda: None), "no C compiler"),
        (lambda m: m.setattr(build, "FLAGS", ("--no-such-flag", "-shared")), "no-such-flag"),
        (lambda m: m.setattr(chainwise, "PRELUDE", build.PRELUDE.with_name("build.py")), ""),
    ],
    ids=["no compiler", "a compiler that fails", "text that is no C"],
)
def test_without_a_compiler_runs_are_plain_and_say_so(
    patch: Callable[[pytest.MonkeyPatch], None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch(monkeypatch)
    build.built.cache_clear()
    code = Compiled(lambda x: (x.tanh(),), compiler=False)
    x = torch.randn(3, 2)
    assert torch.equal(code([x], [])[0], x.tanh())
    assert code.note is not None and code.note.startswith("Unsupported") and says in code.note


def test_text_that_would_take_long_to_compile_is_left() -> None:
    """A recurrent network of many steps, written out; a few steps are compiled."""

    def recurrent(steps: int) -> Callable[..., tuple[Tensor, ...]]:
        def function(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
            h = x
            for _ in range(steps):
                h = (h @ w).tanh() + h.sigmoid() * (h @ w.mT).sin()
            return (h,)

        return function

    x, w = torch.randn(1, 3, 4), torch.randn(4, 4)
    assert Chainwise(recurrent(3), [x], [w], False, None)
    with pytest.raises(Unsupported, match="characters of C"):
        Chainwise(recurrent(200), [x], [w], False, None)


def test_a_compiler_that_takes_too_long_ends_with_all_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CC may have arguments. What its children leave lies in a folder that goes."""
    script, pids = tmp_path / "slow.sh", tmp_path / "pids"
    script.write_text(f"touch $TMPDIR/left; sleep 100 & echo $! $TMPDIR > {pids}; wait")
    monkeypatch.setenv("CC", f"sh {script}")
    monkeypatch.setattr(build, "PATIENCE", 1)
    build.built.cache_clear()
    with pytest.raises(Unsupported, match="not done after 1 seconds"):
        build.built("int x;")
    child, folder = pids.read_text().split()
    assert not Path(folder).exists()
    for _ in range(100):
        if not Path("/proc", child).exists() or " Z " in Path("/proc", child, "stat").read_text():
            break
        time.sleep(0.02)
    else:
        pytest.fail("a child is still at work")


def test_code_that_draws_is_plain_and_says_so() -> None:
    code, x = Compiled(lambda x, z: (x + z,), draws=[lambda: torch.ones(3, 2)], compiler=False), torch.zeros(3, 2)
    assert torch.equal(code([x], [])[0], torch.ones(3, 2)) and code.note is not None and "random numbers" in code.note


def test_a_product_that_all_cores_share_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chainwise, "ALONE", 10.0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    a, b = torch.randn(1, 3, 4), torch.randn(4, 5)
    with pytest.raises(Unsupported, match="all cores"):
        Chainwise(lambda a, b: (a @ b,), [a], [b], False, None)
    assert Chainwise(lambda a, b: (a @ b,), [a.expand(2, -1, -1)], [b], False, None)


def test_runs_of_some_length_are_written_in_c_though_no_other_compiler_pays() -> None:
    x, y = torch.randn(20, 3), torch.randn(20, 1)
    model = Model(mlp(3, 4, 1), Normal(0, 1), Gaussian(0.5))
    assert fit(model, (x, y), MAP(epochs=2600, batch_size=20)).info["compiled"] is True
    assert "compiled" not in fit(model, (x, y), MAP(epochs=100, batch_size=20)).info
    conv = Model(nn.Sequential(nn.Conv1d(1, 2, 2), nn.Flatten(), nn.Linear(4, 1)), Normal(0, 1), Gaussian(0.5))
    assert "convolution" in str(fit(conv, (x[:, None], y), MAP(epochs=2600, batch_size=20)).info["compiled"])
