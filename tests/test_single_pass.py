"""A posterior as a plain module of one pass: against exact predictions, against quadrature, through torch.export and ONNX."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chance import assert_mean
from scipy import integrate, stats
from torch import Tensor, nn

from nescio import InputError, Model, UnsupportedError, fit
from nescio.compression import to_onnx
from nescio.infer import HMC, MAP, SWAG, VI, Laplace, NeuralLinear
from nescio.infer.curvature import diag, full, kfac, low_rank
from nescio.infer.families import MeanField
from nescio.laws import Correlated, InverseGamma, Learned, Normal
from nescio.likelihoods import Bernoulli, Categorical, ContinuousBernoulli, Gaussian, Heteroscedastic
from nescio.linalg import Diag
from nescio.links import probit
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior import GaussianPosterior, Posterior
from nescio.posterior.compiled import SinglePass

DOUBLE = torch.float64
X, Y = Noise(1, (), dtype=DOUBLE).normal(20, 3), Noise(2, (), dtype=DOUBLE).normal(20, 2)
LABELS = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()


def regression(likelihood: Any = None, prior: Any = None) -> Model:
    torch.default_generator.manual_seed(0)
    likelihood = Gaussian(torch.tensor([0.5, 0.8], dtype=DOUBLE), 1.0, 2.0) if likelihood is None else likelihood
    return Model(mlp(3, 5, 2).double(), Normal(0, 1.2) if prior is None else prior, likelihood)


def classes() -> Model:
    torch.default_generator.manual_seed(0)
    return Model(mlp(3, 5, 3).double(), Normal(0, 1.2), Categorical())


def agree(module: nn.Module, posterior: Posterior, x: Tensor = X) -> None:
    predicted, told = posterior.predict(x), module(x)
    for got, wanted in zip(told, (predicted.mean, predicted.epistemic, predicted.aleatoric), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-8)


def check_last_layer() -> None:
    """Mean, epistemic and aleatoric to 1e-8: every structure, and the conjugate head with known and with unknown noise."""
    for structure in (full, kfac, diag, low_rank(4)):
        posterior: Any = fit(regression(), (X, Y), Laplace(structure).on("2.*"))
        agree(posterior.linearize().compile(), posterior.linearize())
        agree(posterior.compile(), posterior.linearize())  # the last layer alone: functions are Gaussian anyway
    agree((known := fit(regression(), (X, Y), NeuralLinear())).compile(), known)
    shared = Gaussian(InverseGamma(2.0, 1.0).sqrt(), 1.0, 2.0)
    agree((student := fit(regression(shared), (X, Y), NeuralLinear(scaled=True))).compile(), student)
    a = Noise(5, (), dtype=DOUBLE).normal(10, 10)
    tied = regression(prior={"2.weight": Correlated(a @ a.mT + torch.eye(10)), "*": Normal(0, 1)})
    agree((whole := fit(tied, (X, Y), NeuralLinear())).compile(), whole)
    only: Any = fit(Model(nn.Linear(3, 2).double(), Normal(0, 1), Gaussian(0.5)), (X, Y), Laplace(full))
    agree(only.compile(), only.linearize())  # nothing before the last layer


def test_last_layer() -> None:
    check_last_layer()


def check_classes() -> None:
    """Probabilities are those of the probit link; the expected entropy near that of 256 draws, 0.05 nats on average."""
    for structure in (kfac, full):
        posterior: Any = fit(classes(), (X, LABELS), MAP(epochs=20) >> Laplace(structure).on("2.*"))
        probabilities, epistemic, aleatoric = posterior.compile()(3 * X)
        wanted = posterior.linearize(probit).predict(3 * X)
        torch.testing.assert_close(probabilities, wanted.mean, rtol=0, atol=1e-8)
        assert float((epistemic - wanted.epistemic).abs().mean()) < 0.05 < float(wanted.epistemic.mean())
        whole = -(probabilities * probabilities.log()).sum(1)
        torch.testing.assert_close(epistemic + aleatoric, whole, rtol=0, atol=1e-10)


def test_classes() -> None:
    check_classes()


def check_yes_and_no() -> None:
    """One output, its logit Gaussian: against quadrature to 1e-3."""
    torch.default_generator.manual_seed(0)
    model = Model(mlp(3, 5, 1).double(), Normal(0, 1.2), Bernoulli())
    posterior: Any = fit(model, (X, LABELS[:, None].gt(0).double()), MAP(epochs=20) >> Laplace(full).on("2.*"))
    p, epistemic, aleatoric = posterior.compile()(X[:4])
    f = posterior.linearize().outputs(X[:4])
    for i in range(4):
        m, s = float(f.mean[i, 0]), float(f.covariance[i, 0, 0]) ** 0.5

        def expected(function: Any, m: float = m, s: float = s) -> float:
            return integrate.quad(
                lambda t: function(1 / (1 + math.exp(-t))) * stats.norm.pdf(t, m, s), m - 9 * s, m + 9 * s
            )[0]

        def entropy(q: float) -> float:
            return float(stats.bernoulli(q).entropy())

        mean = expected(lambda q: q)
        assert float(p[i]) == pytest.approx(mean, abs=1e-3)
        assert float(aleatoric[i]) == pytest.approx(expected(entropy), abs=1e-3)
        assert float(epistemic[i]) == pytest.approx(entropy(mean) - expected(entropy), abs=2e-3)


def test_yes_and_no() -> None:
    check_yes_and_no()


def check_whole_network() -> None:
    """One hidden layer, all weights independent: moments are exact. 20,000 draws."""
    for likelihood in (Gaussian(0.5, 1.0, 2.0), Heteroscedastic(1.0, 2.0)):
        y = Y if isinstance(likelihood, Gaussian) else Y[:, :1]
        posterior: Any = fit(regression(likelihood), (X, y), Laplace(diag))
        wide = GaussianPosterior(
            posterior.model, posterior.theta, posterior.slots, Diag(posterior.covariance.values / 4), {}, posterior.info
        )
        mean, epistemic, aleatoric = wide.compile()(X[:3])
        f, _ = wide.functions(X[:3], 20_000, seed=1)
        means = (1 + 2 * f[..., : y.shape[1]]).numpy()
        assert_mean(means.reshape(20_000, -1), mean.flatten())
        assert_mean(((means - mean.numpy()) ** 2).reshape(20_000, -1), epistemic.flatten())
        if isinstance(likelihood, Gaussian):
            assert torch.equal(aleatoric, torch.ones(3, 2, dtype=DOUBLE))
        else:
            noise = (4 * np.logaddexp(0, f[..., 1:].numpy()) ** 2).mean(0)
            np.testing.assert_allclose(aleatoric, noise, rtol=0.05)  # a Gaussian raw scale stands for a sum of ReLUs


def test_whole_network() -> None:
    check_whole_network()


def test_what_can_be_compiled() -> None:
    single = X.float(), Y.float()
    net = mlp(3, 5, 2)
    model = Model(net, Normal(0, 1), Gaussian(0.5))
    for method in (SWAG(2, epochs=2), VI(MeanField(), epochs=2), Laplace(kfac), Laplace(diag).on("0.*")):
        posterior = fit(model, single, method)
        module = posterior.compile()
        mean, epistemic, aleatoric = module(X.float())
        assert isinstance(module, SinglePass) and mean.shape == epistemic.shape == aleatoric.shape == (20, 2)
        assert float(epistemic.min()) > 0 and not any(p.requires_grad for p in module.parameters())
        assert not torch.equal(posterior.compile(factored=True)(X.float())[1], epistemic)
        torch.testing.assert_close(copy.deepcopy(module)(X.float())[1], epistemic)
    assert torch.equal(next(iter(net.parameters())), model.network.weights()["0.weight"]), "the network is left alone"
    with pytest.raises(UnsupportedError, match="last layer is random"):
        fit(model, single, Laplace(diag)).linearize().compile()  # type: ignore[attr-defined]
    with pytest.raises(UnsupportedError, match="Gaussian"):
        fit(model, single, 2 * (MAP(epochs=1) >> Laplace(diag))).compile()
    other = Model(mlp(3, 5, 2), Normal(0, 1), ContinuousBernoulli())
    with pytest.raises(UnsupportedError, match="compiled posterior is for"):
        fit(other, (single[0], single[1].sigmoid()), Laplace(diag)).compile()
    loose: Any = fit(model, single, Laplace(diag))
    loose.info.pop("input")
    with pytest.raises(InputError, match="form of an input"):
        loose.compile()
    assert loose.compile(single[0][:1])(single[0])[0].shape == (20, 2)


def convolutional() -> tuple[Model, tuple[Tensor, Tensor]]:
    torch.default_generator.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(27, 6), nn.Tanh(), nn.Linear(6, 3)),
    )
    return Model(net, Normal(0, 1), Categorical()), (Noise(1).normal(20, 1, 8, 8), LABELS)


def check_export() -> None:
    """What torch.export makes gives the same numbers for any number of rows, and calls nothing but torch."""
    model, data = convolutional()
    for method in (Laplace(diag), Laplace(kfac).on("7.*")):
        module = fit(model, data, method).compile()
        rows = {0: torch.export.Dim("rows", min=1)}
        program = torch.export.export(module, (data[0][:2],), dynamic_shapes=(rows,))
        for n in (1, 7, 20):
            for got, wanted in zip(program.module()(data[0][:n]), module(data[0][:n]), strict=True):
                torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
        targets = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
        assert all(target.startswith(("aten.", "<built-in")) for target in targets), targets


def check_members() -> nn.Module:
    """The very numbers of predict, norm statistics and noise of each member included."""
    model, (single, y) = convolutional()
    x = single.double()
    for likelihood, outcome in (
        (Categorical(), y),
        (Heteroscedastic(), x[:, 0, 0, :1]),
        (Gaussian(Learned(0.5)), x[:, 0, 0, :2]),
    ):
        net = nn.Sequential(model.network.net[:-1], nn.Linear(6, 3 if outcome.dim() == 1 else 2)).double()
        posterior = fit(Model(net, Normal(0, 1), likelihood), (x, outcome), 3 * MAP(epochs=2))
        module: nn.Module = posterior.compile(x[:1])
        agree(module, posterior, x)
    return module


def test_an_ensemble_compiles_to_its_members() -> None:
    """For any number of rows through torch.export; of many draws it is predict(x, 64)."""
    module, x = check_members(), convolutional()[1][0].double()
    program = torch.export.export(module, (x[:2],), dynamic_shapes=({0: torch.export.Dim("rows", min=1)},))
    for got, wanted in zip(program.module()(x[:7]), module(x[:7]), strict=True):
        torch.testing.assert_close(got, wanted)
    many = fit(regression(), (X, Y), 2 * HMC(draws=50, warmup=2, leapfrog=2))
    for got, name in zip(many.compile()(X), ("mean", "epistemic", "aleatoric"), strict=True):
        torch.testing.assert_close(got, getattr(many.predict(X, draws=64), name))


def test_export() -> None:
    check_export()


def test_onnx(tmp_path: Path) -> None:
    """A Gaussian posterior and an ensemble in another runtime, for any number of rows."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason="needs the extra `export`")
    import onnxruntime

    x, model = X.float(), Model(mlp(3, 5, 3), Normal(0, 1), Categorical())
    for method in (Laplace(diag).on("2.*"), 2 * MAP(epochs=1)):
        module = fit(model, (x, LABELS), method).compile()
        to_onnx(module, x[:2], tmp_path / "a.onnx")
        session = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"))
        given = session.run(["y_mean", "epistemic", "aleatoric"], {"x": x.numpy()})
        for got, wanted in zip(given, module(x), strict=True):
            np.testing.assert_allclose(got, wanted.numpy(), atol=1e-5)
