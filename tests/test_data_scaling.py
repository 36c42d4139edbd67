"""Standardisation: exact statistics, exact storage, and offsets that float32 alone would lose."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nescio.data import Scaling, Standardize, standardize, steps
from nescio.errors import InputError
from nescio.noise import Noise


def rows(n: int = 200, d: int = 3) -> torch.Tensor:
    return Noise(0).at("scaling").to(torch.device("cpu"), torch.float64).normal(n, d)


def test_statistics_and_inverse() -> None:
    x = 5 + 3 * rows()
    scaling = Scaling.of(x)
    z = scaling.forward(x)
    torch.testing.assert_close(z.mean(0), torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(z.std(0, correction=0), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(scaling.inverse(z), x)
    assert scaling.forward(x.float()).dtype == torch.float32
    assert scaling.constant == ()


def test_only_the_rows_given_count() -> None:
    x = rows()
    before = Scaling.of(x[:100])
    x[100:] = 1e6
    after = Scaling.of(x[:100])
    assert torch.equal(before.loc, after.loc)
    assert torch.equal(before.scale, after.scale)
    assert not torch.equal(before.loc, Scaling.of(x).loc)  # the planted leak is seen


def test_constant_columns_are_said() -> None:
    x = torch.stack([torch.full((7,), 0.1), torch.arange(7.0)], dim=1)
    scaling = Scaling.of(x)
    assert scaling.constant == (0,)
    assert scaling.scale[0] == 1
    assert torch.equal(scaling.forward(x)[:, 0], torch.zeros(7))


def test_extreme_units() -> None:
    x = rows() * torch.tensor([1e-200, 1.0, 1e200], dtype=torch.float64)
    scaling = Scaling.of(x)
    torch.testing.assert_close(scaling.forward(x), Scaling.of(rows()).forward(rows()))
    with pytest.raises(InputError, match="fit float32"):
        standardize(scaling)


def test_json_is_exact() -> None:
    x = rows() / 3
    x[:, 1] = 0.1
    scaling = Scaling.of(x)
    again = Scaling.from_json(scaling.to_json())
    assert torch.equal(again.loc, scaling.loc)
    assert torch.equal(again.scale, scaling.scale)
    assert again.constant == scaling.constant == (1,)
    for text in ("", "{}", "[]", '{"loc": ["a"], "scale": [1], "constant": []}', "[" * 100_000):
        with pytest.raises(InputError, match="to_json"):
            Scaling.from_json(text)
    for text in ('{"loc": [0], "scale": [0], "constant": []}', '{"loc": [NaN], "scale": [1], "constant": []}'):
        with pytest.raises(InputError, match="finite"):
            Scaling.from_json(text)


@pytest.mark.parametrize("x", [torch.zeros(0, 2), torch.zeros(3), torch.tensor([[1.0], [float("nan")]])])
def test_refusals(x: torch.Tensor) -> None:
    with pytest.raises(InputError):
        Scaling.of(x)


def test_module_has_buffers_only_and_survives_storage() -> None:
    x = 5 + 3 * rows()
    module = standardize(Scaling.of(x))
    assert isinstance(module, Standardize)
    assert not list(module.parameters())
    other = standardize(Scaling.of(rows()))
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(x), module(x))
    assert module(x).dtype == module(x.float()).dtype == torch.float32
    net = nn.Sequential(module, nn.Linear(3, 1))
    assert net(x).shape == (200, 1)
    assert net.double()(x).dtype == torch.float64
    with pytest.raises(InputError, match="last dimension must be 3"):
        module(x[:, :2])


@pytest.mark.parametrize("offset", [1e8, -1e8 + 0.3, 123456789.0])
def test_huge_offsets_survive(offset: float) -> None:
    """1e8 ± 1 in float64: right to the rounding of the float32 output. Plain float32 is off by far more than 0.1."""
    x = offset + rows()
    scaling = Scaling.of(x)
    exact = (x - scaling.loc) / scaling.scale
    eps = torch.finfo(torch.float32).eps
    for module in (standardize(scaling), standardize(scaling).float(), standardize(scaling).double().float()):
        torch.testing.assert_close(module(x).double(), exact, rtol=4 * eps, atol=4 * eps)
    naive = (x.float() - scaling.loc.float()) / scaling.scale.float()
    assert (naive.double() - exact).abs().max() > 0.1
    # Where x is float32 already, what is left of it is centred without a further loss.
    coarse = x.float()
    exact = (coarse.double() - scaling.loc) / scaling.scale
    torch.testing.assert_close(standardize(scaling)(coarse).double(), exact, rtol=4 * eps, atol=4 * eps)


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([3.0, 5.0, 6.0, 8.0, 3.0], 1.0),
        ([0.25, 1.0, 1.75, 10.0], 0.75),
        ([0.25, 1.0, 1.8, 10.0], 0.0),  # not multiples
        ([0.0, 0.001, 5.0, 9.0], 0.0),  # too fine to matter
        ([2.0, 2.0], 0.0),
    ],
)
def test_steps(values: list[float], step: float) -> None:
    assert steps(torch.tensor(values)[:, None]) == pytest.approx(step, abs=1e-6)


def test_steps_of_several_targets() -> None:
    assert steps(torch.arange(10.0).view(5, 2)) == 0.0
