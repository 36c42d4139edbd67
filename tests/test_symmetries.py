"""Many weights, one function: permuted hidden units and rescaled ReLU units leave outputs and likelihood as they are.

A Normal prior does not see a permutation (so modes come in families of equal height) but does see a rescaling.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nescio.laws import Normal
from nescio.likelihoods import Categorical
from nescio.model import Model
from nescio.nets import lenet5, mlp
from nescio.noise import Noise

Params = dict[str, Tensor]
Layers = list[tuple[str, str, int, int]]  # layer, next layer, units, inputs of the next layer that one unit feeds
Case = tuple[Model, Params, Tensor, Tensor, Layers]


def permute(params: Params, before: str, after: str, order: Tensor, per_unit: int = 1) -> Params:
    """Units of layer `before` in another order, and the inputs of `after` with them; a channel feeds `per_unit` inputs."""
    inputs = (order[:, None] * per_unit + torch.arange(per_unit)).reshape(-1)
    return {
        **params,
        f"{before}.weight": params[f"{before}.weight"][order],
        f"{before}.bias": params[f"{before}.bias"][order],
        f"{after}.weight": params[f"{after}.weight"][:, inputs],
    }


def rescale(params: Params, before: str, after: str, factor: Tensor, per_unit: int = 1) -> Params:
    """Units times a > 0, and what they feed by 1 / a: ReLU(x) = ReLU(a x) / a, and so for a max-pool."""
    weight, out = params[f"{before}.weight"], params[f"{after}.weight"]
    return {
        **params,
        f"{before}.weight": weight * factor.view(-1, *[1] * (weight.dim() - 1)),
        f"{before}.bias": params[f"{before}.bias"] * factor,
        f"{after}.weight": out / factor.repeat_interleave(per_unit).view(1, -1, *[1] * (out.dim() - 2)),
    }


# net, shape of an input, and what can be permuted
NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], Layers]] = {
    "mlp": (lambda: mlp(3, 8, 6, 4), (3,), [("0", "2", 8, 1), ("2", "4", 6, 1)]),
    "lenet5": (lambda: lenet5(1, 4, 20), (1, 20, 20), [("0", "2", 20, 1), ("2", "5", 50, 4), ("5", "7", 500, 1)]),
}


@pytest.fixture(params=NETS, scope="module")
def case(request: pytest.FixtureRequest) -> Case:
    build, shape, layers = NETS[request.param]
    torch.manual_seed(0)
    net = build().to(torch.float64)
    x = torch.as_tensor(np.random.default_rng(0).normal(size=(5, *shape)))
    params = {name: p.detach() for name, p in net.named_parameters()}
    return Model(net, Normal(0, 1), Categorical()), params, x, torch.tensor([0, 1, 2, 3, 0]), layers


def heights(model: Model, params: Params, x: Tensor, y: Tensor) -> tuple[Tensor, float, float]:
    """Outputs, log likelihood and log prior, all through the model's own flat vector."""
    u = model.prior.pack(model.prior.at(params, Noise(0)))
    named = model.params(u)
    assert all(torch.equal(named[name], value) for name, value in params.items())
    own = {name: named[name] for name in params}
    return model.network.call(own, x), model.log_likelihood(named, x, y).item(), model.log_prior(u).item()


def test_permuted_units_are_the_same_function_at_the_same_height(case: Case) -> None:
    model, params, x, y, layers = case
    f, likelihood, prior = heights(model, params, x, y)
    for before, after, units, per_unit in layers:
        order = torch.as_tensor(np.random.default_rng(1).permutation(units))
        moved = permute(params, before, after, order, per_unit)
        assert (moved[f"{before}.weight"] - params[f"{before}.weight"]).abs().max() > 0.01  # another point
        g, likelihood2, prior2 = heights(model, moved, x, y)
        torch.testing.assert_close(g, f, rtol=1e-10, atol=1e-12)
        assert likelihood2 == pytest.approx(likelihood, rel=1e-12)
        assert prior2 == pytest.approx(prior, rel=1e-12)


def test_rescaled_relu_units_are_the_same_function_at_another_height(case: Case) -> None:
    model, params, x, y, layers = case
    f, likelihood, prior = heights(model, params, x, y)
    for before, after, units, per_unit in layers:
        factor = torch.as_tensor(np.random.default_rng(2).uniform(0.2, 5.0, units))
        moved = rescale(params, before, after, factor, per_unit)
        g, likelihood2, prior2 = heights(model, moved, x, y)
        torch.testing.assert_close(g, f, rtol=1e-10, atol=1e-12)
        assert likelihood2 == pytest.approx(likelihood, rel=1e-10)
        squares = sum(float((moved[name] ** 2 - params[name] ** 2).sum()) for name in params)
        assert prior2 - prior == pytest.approx(-0.5 * squares, rel=1e-8)
        assert abs(prior2 - prior) > 0.1


def test_a_negative_factor_or_another_activation_breaks_it() -> None:
    """The claim is about a > 0 and ReLU: the same check sees it fail elsewhere."""
    x = torch.as_tensor(np.random.default_rng(0).normal(size=(5, 3)))
    for activation, factor in ((nn.ReLU, -2.0), (nn.Tanh, 2.0)):
        torch.manual_seed(0)
        net = mlp(3, 8, 2, activation=activation).to(torch.float64)
        model = Model(net, Normal(0, 1), Categorical())
        params = {name: p.detach() for name, p in net.named_parameters()}
        moved = rescale(params, "0", "2", torch.full((8,), factor, dtype=torch.float64))
        assert (model.network.call(moved, x) - model.network.call(params, x)).abs().max() > 0.01


def test_there_are_as_many_equal_modes_as_permutations() -> None:
    """Three hidden units: 3! = 6 distinct points with one and the same posterior density."""
    torch.manual_seed(0)
    net = mlp(2, 3, 2, activation=nn.Tanh).to(torch.float64)
    model = Model(net, Normal(0, 1), Categorical())
    params = {name: p.detach() for name, p in net.named_parameters()}
    x, y = torch.as_tensor(np.random.default_rng(0).normal(size=(6, 2))), torch.tensor([0, 1, 0, 1, 1, 0])
    orders = torch.cartesian_prod(*[torch.arange(3)] * 3)
    orders = orders[[len(set(order.tolist())) == 3 for order in orders]]
    vectors, joints = [], []
    for order in orders:
        moved = permute(params, "0", "2", order)
        vectors.append(torch.cat([moved[name].reshape(-1) for name in params]))
        joints.append(sum(heights(model, moved, x, y)[1:]))
    assert len(orders) == math.factorial(3)
    assert torch.cdist(torch.stack(vectors), torch.stack(vectors)).fill_diagonal_(1.0).min() > 0.1
    np.testing.assert_allclose(joints, joints[0], rtol=1e-12)
