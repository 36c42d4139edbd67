"""The divergence of dropout is weight decay: penalty, prior, length scale and precision from each other."""

from __future__ import annotations

import pytest
import torch
from chance import assert_mean
from dropout_cases import DOUBLE, SD, Enumerated, P, loss_of, normal, seeded
from torch import Tensor, nn

from nescio import InputError, Model, fit
from nescio.families import (
    BernoulliDropout,
    model_precision,
    papers_penalty,
    prior_scale,
    weight_decay,
)
from nescio.families.dropout import Spikes
from nescio.infer import MAP
from nescio.laws import Normal
from nescio.likelihoods import Gaussian as Noise_
from nescio.noise import Noise


def check_decay() -> None:
    """The slope of our divergence per observation is torch's weight decay on the same weights, and back."""
    n, scale = 7, 0.8
    exact = Enumerated()
    loss = loss_of(exact.net, BernoulliDropout(P), exact.x, exact.y)
    (loss.q.call().divergence() / n).backward()
    for factor in loss.q.parts():
        p = P if isinstance(factor, Spikes) else 0.0
        decay = weight_decay(scale, n, p)
        torch.testing.assert_close(factor.loc.grad, decay * factor.loc)  # type: ignore[attr-defined]
        assert prior_scale(decay, n, p) == pytest.approx(scale, rel=1e-12)


def test_the_divergence_is_weight_decay() -> None:
    check_decay()


def test_weight_decay_and_prior_give_the_same_network() -> None:
    """torch's SGD with weight decay on a mean loss ends where MAP under the prior does; both are ridge regression."""
    n, decay = 50, 0.03
    x, y = normal(n, 3), normal(n, 1, seed=1)
    net = seeded(lambda: nn.Linear(3, 1, bias=False))
    scale = prior_scale(decay, n, precision=1 / SD**2)
    map_ = fit(Model(net, Normal(0.0, scale), Noise_(SD)), (x, y), MAP(epochs=400, lr=0.05, batch_size=n))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3, weight_decay=decay)
    for _ in range(400):
        optimizer.zero_grad()
        (0.5 * (net(x) - y).square()).mean().backward()
        optimizer.step()
    ridge = torch.linalg.solve(x.T @ x / n + decay * torch.eye(3, dtype=DOUBLE), x.T @ y / n).T
    torch.testing.assert_close(net.weight.detach(), ridge, rtol=0, atol=1e-6)
    torch.testing.assert_close(map_.point()["weight"], ridge, rtol=0, atol=1e-4)


def check_ridge() -> None:
    """A linear network under dropout is ridge regression: there our gradients vanish in the mean, and torch's, with its own dropout."""
    n, p, scale = 40, 0.4, 0.15
    x = normal(n, 3)
    y = 2 * x.sum(1, keepdim=True) + normal(n, 1, seed=1)
    decay = weight_decay(scale, n, p, precision=1 / SD**2)
    moment = x.T @ x / n
    ridge = torch.linalg.solve(
        moment + p / (1 - p) * moment.diagonal().diag() + decay * torch.eye(3, dtype=DOUBLE), x.T @ y / n
    ).T
    net = nn.Sequential(nn.Dropout(p), seeded(lambda: nn.Linear(3, 1, bias=False))).train()
    with torch.no_grad():
        net[1].weight.copy_(ridge)
    loss = loss_of(net[1], BernoulliDropout(p), x, y, Normal(0.0, scale))
    slopes: dict[str, list[Tensor]] = {"ours": [], "torch": []}
    with Noise(0).scope():
        for _ in range(500):
            slopes["ours"].append(torch.autograd.grad(loss(x, y), list(loss.parameters()))[0][0])
            total = (0.5 * (net(x) - y).square()).mean() + 0.5 * decay * net[1].weight.square().sum()
            slopes["torch"].append(torch.autograd.grad(total, net[1].weight)[0][0])
    for values in slopes.values():
        assert_mean(torch.stack(values), torch.zeros(3))


def test_dropout_of_a_linear_network_is_ridge_regression() -> None:
    check_ridge()


def test_the_papers_relations() -> None:
    tau, length, p, n = 0.15, 1e-2, 0.1, 455
    penalty = papers_penalty(tau, length, p, n)
    assert penalty == pytest.approx(1e-4 * 0.9 / (2 * 455 * 0.15))
    assert model_precision(penalty, length, p, n) == pytest.approx(tau)
    assert weight_decay(1 / length, n, p, tau) == pytest.approx(2 * penalty / (1 - p) ** 2)  # of ‖E W‖² / 2, not ‖M‖²
    for build in (
        lambda: weight_decay(1.0, 10, p=1.0),
        lambda: prior_scale(-1.0, 10),
        lambda: model_precision(1.0, 1.0, 0.1, 0),
    ):
        with pytest.raises(InputError) as error:
            build()
        assert error.value.must and error.value.got and error.value.remedy
