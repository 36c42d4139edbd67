"""The dropout families as methods: the contract, rates by name, what is refused, learning."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from check_method import check_method
from dropout_cases import SD, P, loss_of, normal
from torch import nn

from nescio import InputError, Model, UnsupportedError, fit, load
from nescio.families import (
    BernoulliDropout,
    ConcreteDropout,
    Family,
    GaussianDropout,
    NetDropout,
    Point,
    VariationalDropout,
)
from nescio.families.dropout import Spikes
from nescio.infer import VI, Constant
from nescio.laws import LogUniform, Normal
from nescio.likelihoods import Categorical
from nescio.likelihoods import Gaussian as Noise_
from nescio.nets import mlp
from nescio.posterior import Variational


@pytest.mark.parametrize(
    "family",
    [BernoulliDropout(0.2), GaussianDropout(0.3), ConcreteDropout(per_unit=True), VariationalDropout()],
    ids=repr,
)
def test_contract(family: Family) -> None:
    check_method(VI(family, epochs=1, batch_size=30))


def test_rates_by_name() -> None:
    net = mlp(2, 3, 1)
    loss = loss_of(net, BernoulliDropout({"0.*": 0.0, "*": P}), torch.ones(3, 2))
    kinds = {factor.blocks[0].name: type(factor) for factor in loss.q.parts()}
    assert kinds == {"0.weight": Point, "0.bias": Point, "2.weight": Spikes, "2.bias": Point}
    for rates, message in [({"0.*": P}, "every layer needs a rate"), ({"first.*": 0.0, "*": P}, "every pattern")]:
        with pytest.raises(InputError, match=message):
            loss_of(net, BernoulliDropout(rates), torch.ones(3, 2))


def test_rates_by_name_are_stored(tmp_path: Path) -> None:
    model = Model(mlp(2, 3, 1), Normal(0.0, 1.0), Noise_(SD))
    posterior = Variational.around(ConcreteDropout({"0.*": 0.0, "*": P}), model)
    posterior.save(tmp_path / "q.safetensors")
    again = load(tmp_path / "q.safetensors", model)
    assert isinstance(again, Variational) and again.q.family == posterior.q.family
    assert torch.equal(again.sample(3)["2.weight"], posterior.sample(3)["2.weight"])


def test_wrong_use_is_refused_in_three_parts() -> None:
    for build in (
        lambda: BernoulliDropout(1.0),
        lambda: BernoulliDropout({"*": -0.1}),
        lambda: GaussianDropout(-1.0),
        lambda: ConcreteDropout(temperature=0.0),
        lambda: VariationalDropout(0.0),
    ):
        with pytest.raises(InputError) as error:
            build()
        assert error.value.must and error.value.got and error.value.remedy
    for family in (BernoulliDropout(), GaussianDropout(), ConcreteDropout()):
        loss = loss_of(nn.Linear(2, 1, bias=False), family, torch.ones(3, 2), prior=LogUniform())
        with pytest.raises(UnsupportedError, match="finite at zero"):
            loss(torch.ones(3, 2), torch.ones(3, 1))


@pytest.mark.parametrize("family", [BernoulliDropout(0.2), GaussianDropout(0.2), ConcreteDropout()], ids=repr)
def test_it_learns(family: Family) -> None:
    x = normal(300, 1, 6, 6).float()
    labels = (x.mean((1, 2, 3)) > 0).long()
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
    posterior = fit(
        Model(net, Normal(0.0, 1.0), Categorical()),
        (x, labels),
        VI(family, epochs=20, batch_size=50, lr=0.02, schedule=Constant()),
    )
    assert float((posterior.predict(x).mean.argmax(-1) == labels).float().mean()) > 0.9


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize(
    "family", [BernoulliDropout(0.2), GaussianDropout(0.2), ConcreteDropout(), VariationalDropout(), NetDropout()]
)
def test_on_a_gpu(family: Family) -> None:
    x, y = torch.randn(60, 2), torch.randn(60, 1)
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 1))
    posterior = fit(Model(net, Normal(0.0, 1.0), Noise_(SD)), (x, y), VI(family, epochs=3), device="cuda")
    assert posterior.predict(x.cuda()).mean.is_cuda
