"""Predictions by dropout: averaged weights against draws, coherent functions, what is computed once."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from chance import assert_mean, within
from dropout_cases import DOUBLE, SD, Enumerated, P, normal, seeded
from torch import Tensor, nn
from torch.func import functional_call

from nescio import Model
from nescio.families import (
    BernoulliDropout,
)
from nescio.laws import Normal
from nescio.likelihoods import Gaussian as Noise_
from nescio.nets import mlp
from nescio.network import Network
from nescio.posterior import Variational, variational


def check_monte_carlo() -> None:
    """The error of the mean of S draws has variance Var / S for S = 1, 4, 16: it falls as 1 / √S."""
    exact = Enumerated()
    with torch.no_grad():
        outputs = exact.outputs(exact.x[:1])[:, 0]
    mean = exact.probability @ outputs
    variance = exact.probability @ (outputs - mean).square()
    posterior = Variational.around(BernoulliDropout(P), Model(exact.net, Normal(0.0, 1.0), Noise_(SD)))
    for draws in (1, 4, 16):
        f = posterior.functions(exact.x[:1], 200 * draws, seed=draws)[0].view(200, draws)
        scaled = (f.mean(1) - mean).square() * draws
        assert_mean(scaled, variance)


def test_the_error_falls_with_the_root_of_the_number_of_draws() -> None:
    check_monte_carlo()


def test_naive_and_monte_carlo_predictions() -> None:
    """At the mean of q it is the network in evaluation mode; by draws the mean over all masks, which differs."""
    exact = Enumerated()
    model = Model(exact.net, Normal(0.0, 1.0), Noise_(SD))
    posterior = Variational.around(BernoulliDropout(P), model)
    with torch.no_grad():
        torch.testing.assert_close(posterior.at_mean().predict(exact.x).mean, exact.net(exact.x))
        outputs = exact.outputs(exact.x)
        drawn = posterior.functions(exact.x, 4000, seed=0)[0][:, :, 0]
        assert_mean(drawn, exact.probability @ outputs)
        assert float((exact.probability @ outputs - exact.net(exact.x)[:, 0]).abs().max()) > 0.01


def test_the_variance_is_that_of_the_passes_and_of_the_noise() -> None:
    """A linear network, whose masks can be enumerated: Σ x² w² p / (1 - p), and 1 / τ = SD² on top."""
    draws, x = 4000, normal(5, 3)
    net = seeded(lambda: nn.Linear(3, 1, bias=False))
    predictive = Variational.around(BernoulliDropout(P), Model(net, Normal(0.0, 1.0), Noise_(SD))).predict(x, draws)
    masks = torch.tensor(list(itertools.product([0.0, 1.0], repeat=3)), dtype=DOUBLE)
    chances = (masks * (1 - P) + (1 - masks) * P).prod(1)
    away = (masks / (1 - P) - 1) @ (x * net.weight.detach()).mT  # of f from its mean, (masks, points)
    exact = (x * net.weight.detach()).square().sum(1) * P / (1 - P)
    torch.testing.assert_close(chances @ away.square(), exact)
    error = ((chances @ away**4 - exact.square()) / draws).sqrt()
    within((predictive.epistemic[:, 0] - exact) / error)
    torch.testing.assert_close(predictive.variance[:, 0], predictive.epistemic[:, 0] + SD**2)


def check_predict_is_sample() -> None:
    """Chunks of draws, and what is computed once for all of them, change nothing."""
    net = seeded(lambda: mlp(3, 5, 4, 2))
    model = Model(net, Normal(0.0, 1.0), Noise_(SD))
    posterior = Variational.around(BernoulliDropout({"0.*": 0.0, "*": P}), model)
    x, drawn = normal(6, 3), posterior.sample(7, seed=2)
    assert drawn["0.weight"].stride(0) == 0 and drawn["2.weight"].stride(0) != 0
    with torch.no_grad():
        want = torch.stack(
            [
                functional_call(net, {name: w[i] for name, w in drawn.items() if name[0].isdigit()}, (x,))
                for i in range(7)
            ]
        )
    torch.testing.assert_close(posterior.predict(x, draws=7, seed=2).draws.mean, want)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(variational, "WEIGHTS", 70)
        seen: list[int] = []
        true = Network.outputs

        def spy(self: Network, params: Any, x: Any) -> Any:
            seen.append(len(params["2.weight"]))
            return true(self, params, x)

        patch.setattr(Network, "outputs", spy)
        torch.testing.assert_close(posterior.predict(x, draws=7, seed=2).draws.mean, want)
    assert seen == [2, 2, 2, 1]


def test_predictions_are_those_of_the_sampled_weights() -> None:
    check_predict_is_sample()


def test_the_first_layer_is_computed_once_for_all_draws() -> None:
    """Of a network whose inputs are not dropped: a function of the inputs alone is not repeated."""
    rows: list[int] = []

    class Counted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            rows.append(torch._C._functorch.is_batchedtensor(x))
            return x

    net = nn.Sequential(nn.Linear(3, 4), Counted(), nn.ReLU(), nn.Linear(4, 4), Counted(), nn.Linear(4, 1))
    posterior = Variational.around(BernoulliDropout({"0.*": 0.0, "*": P}), Model(net, Normal(0.0, 1.0), Noise_(SD)))
    posterior.predict(torch.ones(5, 3))
    rows.clear()
    posterior.predict(torch.ones(5, 3))
    assert rows == [False, True]


def test_a_network_that_writes_in_place_is_not_shared() -> None:
    class Adds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.a(x)
            x += self.b(x)
            return self.c(x)

    net = seeded(Adds)
    posterior = Variational.around(BernoulliDropout({"a.*": 0.0, "*": P}), Model(net, Normal(0.0, 1.0), Noise_(SD)))
    x, drawn = normal(4, 3), posterior.sample(5)
    with torch.no_grad():
        want = torch.stack(
            [functional_call(net, {n: w[i] for n, w in drawn.items() if n[0] in "abc"}, (x,)) for i in range(5)]
        )
    torch.testing.assert_close(posterior.predict(x, draws=5).draws.mean, want)
