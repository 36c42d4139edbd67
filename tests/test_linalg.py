"""Operators against their dense matrices: one contract for all of them, values and gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from chance import within
from torch import Tensor

from nescio import FileError, InputError, UnsupportedError
from nescio.linalg import Blocks, Dense, Diag, Kron, LowRank, Operator, described, operator, restored
from nescio.linalg.symmetric import eigen, gram
from nescio.noise import Noise

DOUBLE = torch.float64
Made = Callable[..., Operator]


def leaves(*shapes: tuple[int, ...]) -> list[Tensor]:
    """Numbers that are differentiated."""
    noise = Noise(3, (), dtype=DOUBLE)
    return [noise.at("leaf", i).normal(*shape).requires_grad_() for i, shape in enumerate(shapes)]


def spd(a: Tensor) -> Tensor:
    return a @ a.mT + 0.5 * torch.eye(len(a), dtype=a.dtype)


def permuted(size: int, *counts: int) -> tuple[Tensor, ...]:
    return Noise(5).permutations(1, size)[0].split(counts)


# name: (shapes of the leaves, leaves to operator)
CASES: dict[str, tuple[tuple[tuple[int, ...], ...], Made]] = {
    "Diag": (((6,),), lambda d: Diag(d.exp())),
    "Dense": (((6, 6),), lambda a: Dense(spd(a))),
    "Kron": (((2, 2), (3, 3)), lambda a, b: Kron(spd(a), spd(b))),
    "Kron, one factor diagonal": (((2, 2), (3,)), lambda a, b: Kron(spd(a), b.exp())),
    "Kron + Kron": (((2, 2), (3, 3), (2, 2), (3, 3)), lambda a, b, p, q: Kron(spd(a), spd(b)) + Kron(spd(p), spd(q))),
    "Kron + product": (((2, 2), (3, 3), (2,), (3,)), lambda a, b, p, q: Kron(spd(a), spd(b)) + Kron(p.exp(), q.exp())),
    "Kron + number": (((2, 2), (3, 3), ()), lambda a, b, d: Kron(spd(a), spd(b)).add_diag(d.exp())),
    "Kron + any diagonal": (((2, 2), (3, 3), (6,)), lambda a, b, d: Kron(spd(a), spd(b)).add_diag(d.exp())),
    "diagonal Krons": (((2,), (3,), (6,)), lambda a, b, d: Kron(a.exp(), b.exp()).add_diag(d[0].exp())),
    "LowRank": (((6,), (6, 2), (2,)), lambda d, f, w: LowRank(d.exp(), f, w.exp())),
    "LowRank + LowRank": (
        ((6,), (6, 2), (2,), (6, 1), (1,)),
        lambda d, f, w, g, v: LowRank(d.exp(), f, w.exp()) + LowRank(d.exp(), g, v.exp()),
    ),
    "Blocks": (
        ((2, 2), (3, 3), (4,)),
        lambda a, b, d: Blocks((Kron(spd(a), spd(b)), Diag(d.exp())), permuted(10, 6, 4)),
    ),
    "Blocks + Diag": (
        ((2, 2), (3, 3), (4, 4), (10,)),
        lambda a, b, c, d: Blocks((Kron(spd(a), spd(b)), Dense(spd(c))), permuted(10, 6, 4)).add_diag(d.exp()),
    ),
    "Blocks + Blocks that cross": (
        ((2, 2), (4,), (5, 5), (3,)),
        lambda a, d, c, e: (
            Blocks((Dense(spd(a)), Diag(d.exp()), Dense(spd(a))), permuted(8, 2, 4, 2))
            + Blocks((Dense(spd(c)), Diag(e.exp())), (torch.arange(5), torch.arange(5, 8)))
        ),
    ),
}


def same(got: Tensor, wanted: Tensor, given: list[Tensor]) -> None:
    """Values, and gradients in everything that the operator is made of."""
    torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-10)
    weights = Noise(9, (), dtype=DOUBLE).normal(*wanted.shape)
    slopes = [
        torch.autograd.grad((x * weights).sum(), given, retain_graph=True, allow_unused=True) for x in (got, wanted)
    ]
    for mine, theirs in zip(*slopes, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-7, atol=1e-8)


def check_contract(name: str) -> None:
    shapes, make = CASES[name]
    given = leaves(*shapes)
    op = make(*given)
    dense, size = op.dense(), op.size
    by_hand = torch.stack([op @ row for row in torch.eye(size, dtype=DOUBLE)], 1)
    torch.testing.assert_close(dense, by_hand)
    torch.testing.assert_close(dense, dense.mT)
    columns = Noise(7, (), dtype=DOUBLE).normal(size, 3)
    same(op.diagonal(), dense.diagonal(), given)
    same(op.logdet(), torch.linalg.slogdet(dense)[1], given)
    same(op.solve(columns), torch.linalg.solve(dense, columns), given)
    same(op.solve(columns[:, 0]), torch.linalg.solve(dense, columns[:, 0]), given)
    same(op.inverse().dense(), torch.linalg.inv(dense), given)
    same(op.inverse().logdet(), -torch.linalg.slogdet(dense)[1], given)
    same(op.times(2.5).dense(), 2.5 * dense, given)
    same((op + Dense(torch.eye(size, dtype=DOUBLE))).dense(), dense + torch.eye(size, dtype=DOUBLE), given)
    eye = torch.eye(size, dtype=DOUBLE)
    root, inverse_root = op.root(eye), op.inv_sqrt(eye)
    same(root @ root.mT, dense, given)
    same(inverse_root @ inverse_root.mT, torch.linalg.inv(dense), given)
    torch.testing.assert_close(op.root(eye[:, 0]), root[:, 0])


@pytest.mark.parametrize("name", CASES)
def test_contract(name: str) -> None:
    check_contract(name)


def check_structures_stay() -> None:
    """Sums that have a closed form are not made dense; what they mean is the sum of what they are made of."""
    a, b, p, q = (spd(x) for x in leaves((2, 2), (3, 3), (2, 2), (3, 3)))
    kron = Kron(a, b)
    wanted = torch.kron(a, b) + torch.kron(p, q)
    torch.testing.assert_close(kron.dense(), torch.kron(a, b))
    for total in (kron + Kron(p, q), Kron(p, q) + kron):
        assert total.kind == "Spectral"
        torch.testing.assert_close(total.dense(), wanted)
    by_row, by_column = torch.tensor([2.0, 3.0], dtype=DOUBLE), torch.tensor([1.0, 4.0, 0.5], dtype=DOUBLE)
    assert (kron + Diag((by_row[:, None] * by_column).reshape(-1))).kind == "Spectral"
    assert kron.add_diag(torch.arange(1.0, 7.0, dtype=DOUBLE)).kind == "Dense"
    flat = Kron(torch.zeros(2, 2, dtype=DOUBLE), torch.zeros(3, 3, dtype=DOUBLE))  # no curvature at all
    torch.testing.assert_close((flat + Kron(p, q)).dense(), torch.kron(p, q))
    torch.testing.assert_close((Kron(p, q) + flat).dense(), torch.kron(p, q))


def test_structures_stay() -> None:
    check_structures_stay()


def check_slope_at_a_product() -> None:
    """Numbers that are a product now, but need not be one a step further; eigenvalues that are equal."""
    (d,) = leaves((6,))
    values = torch.zeros_like(d).detach().requires_grad_()
    curvature = Kron(
        torch.diag(torch.tensor([1.0, 0.0], dtype=DOUBLE)), torch.diag(torch.tensor([2.0, 0, 0], dtype=DOUBLE))
    )
    op = curvature.add_diag(values.exp())
    assert op.kind == "Spectral"
    (slope,) = torch.autograd.grad(op.logdet(), values)
    (wanted,) = torch.autograd.grad(torch.linalg.slogdet(curvature.dense() + values.exp().diag())[1], values)
    torch.testing.assert_close(slope, wanted)


def test_slope_at_a_product() -> None:
    check_slope_at_a_product()


@pytest.mark.parametrize("name", ["Kron + Kron", "LowRank", "Blocks"])
def test_draws_have_the_covariance(name: str) -> None:
    """Whitened by the dense matrix, n draws have second moments with variance 1/n (2/n on the diagonal); L for
    its transpose moves them by more than a tenth."""
    shapes, make = CASES[name]
    op, n = make(*(leaf.detach() for leaf in leaves(*shapes))), 200_000
    drawn = op.sample(n, Noise(1))
    assert drawn.shape == (n, op.size)
    white = torch.linalg.solve_triangular(torch.linalg.cholesky(op.dense()), drawn.mT, upper=False)
    error = (white @ white.mT / n - torch.eye(op.size, dtype=DOUBLE)) * n**0.5
    spread = torch.ones_like(error) + torch.eye(op.size, dtype=DOUBLE) * (2**0.5 - 1)
    within(error / spread)


def test_stored_and_back() -> None:
    for shapes, make in CASES.values():
        op = make(*(leaf.detach() for leaf in leaves(*shapes)))
        again = restored(described(op), op.tensors())
        assert type(again) is type(op)
        torch.testing.assert_close(again.dense(), op.dense(), rtol=0, atol=0)
    with pytest.raises(FileError, match="must hold the tensors"):
        restored("Kron", {"left": torch.ones(2)})
    with pytest.raises(FileError, match="must hold the tensors"):
        restored("os.system", {"left": torch.ones(2)})
    with pytest.raises(FileError, match="must hold the tensors"):
        restored(["Diag"], {"0.values": torch.ones(2), "0.place": torch.tensor([1, 2])})
    with pytest.raises(FileError, match="must hold the tensors"):
        restored("LowRank", {"values": torch.ones(3), "directions": torch.ones(2, 1), "weights": torch.ones(1)})
    with pytest.raises(FileError, match="must hold the tensors"):
        restored(["Diag"], {"0.values": torch.ones(2)})


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="positive definite; got an eigenvalue -1"):
        Dense(torch.diag(torch.tensor([1.0, -1.0]))).logdet()
    with pytest.raises(InputError, match="positive definite; got an eigenvalue 0"):
        Diag(torch.tensor([1.0, 0.0])).inverse()
    with pytest.raises(InputError, match="cover every entry once"):
        Blocks((Diag(torch.ones(2)), Diag(torch.ones(2))), (torch.tensor([0, 1]), torch.tensor([1, 2])))
    with pytest.raises(InputError, match="one size"):
        Diag(torch.ones(2)) + Diag(torch.ones(3))
    monkeypatch.setattr(operator, "LARGEST", 5)
    with pytest.raises(UnsupportedError, match=r"made dense; got 6 rows"):
        Kron(torch.eye(2), torch.eye(3)).add_diag(torch.arange(1.0, 7.0))


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
def test_grams_and_eigenvectors_are_torch_s(dtype: torch.dtype) -> None:
    """To the error that a product or a decomposition of this size may have, whoever does it; and a half of it is the other."""
    rows = Noise(8, (), dtype=dtype).normal(40, 30)
    found, unit = gram(rows), 40 * torch.finfo(dtype).eps
    torch.testing.assert_close(found, rows.mT @ rows, rtol=0, atol=unit * float(rows.square().sum(0).max()))
    assert torch.equal(found, found.mT)
    values, vectors = eigen(found)
    size = unit * float(values[-1])
    torch.testing.assert_close(values, torch.linalg.eigvalsh(found), rtol=0, atol=size)
    torch.testing.assert_close(vectors * values @ vectors.mT, found, rtol=0, atol=size)
    torch.testing.assert_close(vectors.mT @ vectors, torch.eye(30, dtype=dtype), rtol=0, atol=unit)


def test_grams_and_eigenvectors_have_gradients() -> None:
    a = Noise(9, (), dtype=DOUBLE).normal(5, 3).requires_grad_()
    assert torch.autograd.gradcheck(gram, (a,))
    assert torch.autograd.gradcheck(lambda x: eigen(x.mT @ x)[0], (a,))
