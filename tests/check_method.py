"""The contract of a method: what every present and future one has to satisfy, an own one included.

    check_method(MAP(epochs=2))

Reproducible from one seed; the network, the model, the data and torch's global generator are left as they were; the three
combinators mean what they say; what is saved is what is loaded; a result describes itself; bad input gets the one form of error.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import is_dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from nescio import InputError, Model, NescioError, fit, load
from nescio.infer.method import Method, Progress
from nescio.laws import HalfCauchy, Normal
from nescio.likelihoods import Categorical, Gaussian
from nescio.nets import mlp
from nescio.posterior import Posterior


def regression(seed: int = 0) -> tuple[Model, tuple[Tensor, Tensor], nn.Module]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(60, 2, generator=generator)
    y = torch.sin(x[:, :1]) + 0.1 * torch.randn(60, 1, generator=generator)
    net = mlp(2, 8, 1)
    return Model(net, Normal(0.0, HalfCauchy(1.0).per("layer")), Gaussian(HalfCauchy(1.0))), (x, y), net


def classification() -> tuple[Model, tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(60, 2, generator=generator)
    return Model(mlp(2, 8, 3), Normal(0.0, 1.0), Categorical()), (x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long())


def same(a: Posterior, b: Posterior) -> bool:
    left, right = a.tensors(), b.tensors()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def check_method(method: Method) -> None:
    check_is_a_value(method)
    check_reproducible(method)
    check_leaves_no_trace(method)
    check_replicas(method)
    check_then(method)
    check_on(method)
    check_save_and_load(method)
    check_predictions(method)
    check_describes_itself(method)
    check_progress(method)
    check_bad_input(method)


def check_is_a_value(method: Method) -> None:
    assert is_dataclass(method), "a method is a dataclass: configuration only"
    name = next(iter(vars(method)))
    with pytest.raises(AttributeError):  # frozen
        setattr(method, name, None)
    assert repr(method).startswith(type(method).__name__)


def check_reproducible(method: Method) -> None:
    model, data, _ = regression()
    assert same(fit(model, data, method, seed=3), fit(model, data, method, seed=3)), "one seed, one posterior"
    assert not same(fit(model, data, 2 * method, seed=3), fit(model, data, 2 * method, seed=4)), (
        "the seed decides nothing"
    )


def check_leaves_no_trace(method: Method) -> None:
    model, (x, y), net = regression()
    held = [x.clone(), y.clone(), *(p.detach().clone() for p in net.parameters())]
    inside = {name: t.clone() for name, t in model.state_dict().items()}
    modes, state = [m.training for m in net.modules()], torch.get_rng_state()
    fit(model, (x, y), method, seed=0).predict(x)
    assert torch.equal(state, torch.get_rng_state()), "the global generator was moved"
    assert all(torch.equal(a, b) for a, b in zip(held, [x, y, *net.parameters()], strict=True)), (
        "data or network changed"
    )
    assert all(torch.equal(inside[name], t) for name, t in model.state_dict().items()), "the model changed"
    assert modes == [m.training for m in net.modules()] and all(p.grad is None for p in net.parameters())


def check_replicas(method: Method) -> None:
    model, data, _ = regression()
    posterior = fit(model, data, 3 * method, seed=0)
    weights = posterior.sample(3)["0.weight"]
    assert len(posterior.ends().theta) == 3
    assert not torch.equal(weights[0], weights[1]) and not torch.equal(weights[1], weights[2]), (
        "replicas share their noise"
    )
    assert same(posterior, fit(model, data, method.repeat(3), seed=0))


def check_then(method: Method) -> None:
    model, data, _ = regression()
    assert len(fit(model, data, 2 * (method >> method), seed=0).ends().theta) == 2
    assert same(fit(model, data, 2 * (method >> method)), fit(model, data, (2 * method) >> method)), (
        "n * (a >> b) is (n * a) >> b"
    )
    assert same(fit(model, data, method >> method), fit(model, data, method.then(method)))
    assert "before" in fit(model, data, method >> method).info


def check_on(method: Method) -> None:
    model, data, net = regression()
    posterior = fit(model, data, method.on("2.*"), seed=0)
    drawn = posterior.sample(1)
    for name, parameter in net.named_parameters():
        moved = not torch.equal(drawn[name][0], parameter)
        assert moved is name.startswith("2."), f"{name} {'moved' if moved else 'stayed'} under .on('2.*')"
    with pytest.raises(InputError, match=r"'tail\.\*'.*the names are"):
        fit(model, data, method.on("tail.*"))


def check_save_and_load(method: Method) -> None:
    model, data, _ = regression()
    posterior = fit(model, data, 2 * method, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "posterior.safetensors"
        posterior.save(path)
        again = load(path, model)
    assert type(again) is type(posterior) and same(posterior, again) and again.info == posterior.info
    assert torch.equal(posterior.predict(data[0]).mean, again.predict(data[0]).mean)


def check_predictions(method: Method) -> None:
    model, (x, y), _ = regression()
    predictive = fit(model, (x, y), 2 * method, seed=0).predict(x)
    low, high = predictive.interval(0.9)
    assert predictive.mean.shape == low.shape == high.shape == y.shape and bool((low < high).all())
    assert predictive.log_prob(y).shape == (len(x),) and bool(predictive.log_prob(y).isfinite().all())
    torch.testing.assert_close(predictive.total, predictive.aleatoric + predictive.epistemic)
    model, (x, labels) = classification()
    predictive = fit(model, (x, labels), 2 * method, seed=0).predict(x)
    assert predictive.mean.shape == (len(x), 3)
    torch.testing.assert_close(predictive.mean.sum(-1), torch.ones(len(x)))


def check_describes_itself(method: Method) -> None:
    model, data, _ = regression()
    info = fit(model, data, method, seed=5, temperature=0.5).info
    assert info["method"] == repr(method) and info["seed"] == 5 and info["temperature"] == 0.5 and info["rows"] == 60
    assert json.loads(json.dumps(info, allow_nan=False)) == info, "info must be plain JSON"


def check_progress(method: Method) -> None:
    model, data, _ = regression()
    told: list[Progress] = []
    fit(model, data, method, progress=told.append)
    assert told and told[-1].done == told[-1].total, "the last report says that all is done"


def check_bad_input(method: Method) -> None:
    model, (x, y), _ = regression()
    hole = x.clone()
    hole[7, 1] = torch.nan
    cases = {
        "NaN": (hole, y),
        "rows": (x[:-1], y),
        "shape of y": (x, y[:, 0]),
        "width of x": (x[:, :1], y),
        "precision": (x.double(), y),
        "empty": (x[:0], y[:0]),
        "arrays": (x.numpy(), y.numpy()),
        "nothing": None,
    }
    for name, data in cases.items():
        try:
            fit(model, data, method)
        except NescioError as error:
            assert error.must and error.got and error.remedy, name
        else:
            raise AssertionError(f"{name}: bad input was accepted")
    with pytest.raises(InputError, match="temperature"):
        fit(model, (x, y), method, temperature=0.0)
