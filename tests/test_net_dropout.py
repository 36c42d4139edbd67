"""MC dropout by the layers that a network has: the law of training mode, after the fact and in training."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from chance import assert_mean, within
from dropout_cases import SD, Enumerated, P, normal, seeded
from torch import Tensor, nn

from nescio import Model, UnsupportedError, fit, load
from nescio.families import (
    NetDropout,
)
from nescio.infer import MAP, VI
from nescio.laws import Normal
from nescio.likelihoods import Gaussian as Noise_
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior import Mixture, Variational


class Own(nn.Module):
    """One dropout layer, used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.drop = nn.Linear(2, 3), nn.Linear(3, 1), nn.Dropout(P)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.drop(torch.tanh(self.a(self.drop(x)))))


def check_net_dropout() -> None:
    """Mean and second moment of each output over all masks, of our draws and of torch in training mode; coherent over inputs."""
    exact = Enumerated()
    net = seeded(Own)
    net.a, net.b = exact.net[0], exact.net[2]
    exact.net[1] = nn.Tanh()
    x = torch.cat([exact.x[:3], exact.x[:1]])
    with torch.no_grad():
        outputs = exact.outputs(x)
    moments = torch.stack([exact.probability @ outputs, exact.probability @ outputs.square()], -1)
    posterior = Variational.around(NetDropout(), Model(net.eval(), Normal(0.0, 1.0), Noise_(SD)))
    ours = posterior.functions(x, 6000, seed=1)[0][:, :, 0]
    assert torch.equal(ours[:, 0], ours[:, 3]), "one function for all inputs"
    net.train()
    with Noise(2).scope(), torch.no_grad():
        theirs = net(x.repeat(6000, 1)).view(6000, 4)
    for out in (ours, theirs):
        assert_mean(torch.stack([out, out.square()], -1), moments)


def test_the_networks_own_dropout_has_the_law_of_training_mode() -> None:
    check_net_dropout()


@pytest.mark.parametrize(
    "layer",
    [nn.Dropout(P), nn.Dropout1d(P), nn.AlphaDropout(P), nn.FeatureAlphaDropout(P), nn.Dropout(P, inplace=True)],
    ids=repr,
)
def test_every_kind_of_dropout_layer(layer: nn.Module) -> None:
    """Mean and all products of outputs with the first one, against torch in training mode."""
    net = nn.Sequential(seeded(lambda: nn.Conv1d(2, 3, 1)), layer, nn.Flatten())
    x, n = normal(1, 2, 2), 6000
    posterior = Variational.around(NetDropout(), Model(net, Normal(0.0, 1.0), Noise_(SD)))
    ours = posterior.functions(x, n, seed=1)[0][:, 0]
    with Noise(2).scope(), torch.no_grad():
        theirs = net.train()(x.repeat(n, 1, 1))
    for function in (lambda out: out, lambda out: out * out[:, :1], lambda out: out.square()):
        a, b = function(ours), function(theirs)
        within((a.mean(0) - b.mean(0)) / ((a.var(0) + b.var(0)) / n).sqrt())


def test_a_trained_network_after_the_fact(tmp_path: Path) -> None:
    x, y = normal(40, 2).float(), normal(40, 1, seed=1).float()
    net = nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, 1))
    model = Model(net, Normal(0.0, 1.0), Noise_(SD))
    trained = fit(model, (x, y), MAP(epochs=5))
    posterior = Variational.around(NetDropout(), model, trained.ends())
    torch.testing.assert_close(posterior.at_mean().predict(x).mean, trained.predict(x).mean)
    assert torch.equal(posterior.predict(x, seed=3).mean, posterior.predict(x, seed=3).mean)
    whole = posterior.predict(x, draws=20).draws.mean
    assert torch.equal(posterior.predict(x[5:9], draws=20).draws.mean, whole[:, 5:9]), (
        "the same functions at other inputs"
    )
    with pytest.raises(UnsupportedError, match="masks of the network's units") as refused:
        posterior.sample(3)
    assert "predict" in refused.value.remedy
    posterior.save(tmp_path / "q.safetensors")
    again = load(tmp_path / "q.safetensors", model)
    assert torch.equal(again.predict(x).mean, posterior.predict(x).mean)


def test_training_with_the_networks_own_dropout() -> None:
    """The final bound is over masks: below the log likelihood at the averaged weights; an ensemble of such predicts."""
    x, y = normal(60, 2).float(), normal(60, 1, seed=1).float()
    net = nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, 1))
    model = Model(net, Normal(0.0, 1.0), Noise_(SD))
    posterior = fit(model, (x, y), 2 * VI(NetDropout(), epochs=30))
    assert isinstance(posterior, Mixture)
    part = posterior.parts[0]
    assert isinstance(part, Variational)
    naive = model.log_prob(part.at_mean().sample(1), x, y).sum() - part.q.call().divergence().detach()
    assert part.info["elbo"] < float(naive) - 1 and part.info["elbo_se"] > 0
    assert posterior.predict(x, draws=10).draws.mean.shape == (10, 60, 1)


class Folds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.drop = nn.Linear(2, 1), nn.Dropout(P)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.a(x).reshape(1, -1)).reshape(-1, 1)


def test_dropout_out_of_reach_is_refused() -> None:
    for net, x, message in [
        (mlp(2, 3, 1), torch.ones(3, 2), "with dropout layers"),
        (Folds(), torch.ones(3, 2), "first axis"),
        (nn.Sequential(nn.Dropout(P), nn.LSTM(2, 2, num_layers=2, dropout=P)), torch.ones(3, 1, 2), "dropout inside"),
    ]:
        posterior = Variational.around(NetDropout(), Model(net, Normal(0.0, 1.0), Noise_(SD)))
        with pytest.raises(UnsupportedError, match=message):
            posterior.functions(x, 2, 0)


def test_the_best_epoch_is_judged_by_rows_held_out() -> None:
    """Masks of units are no weights: held-out rows are predicted by functions, better after some training."""
    x = Noise(0).at("x").normal(60, 2)
    net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))
    model = Model(net, Normal(0.0, 1.0), Noise_(0.3))
    posterior = fit(model, (x, x[:, :1]), VI(NetDropout(), epochs=5, hold_out=0.2))
    held = posterior.info["held_out"]
    assert len(held) == 5 and all(math.isfinite(each) for each in held) and max(held) > held[0]
