"""Laplace against exact posteriors, exact evidence, exact functions; and where it is known to be wrong, against how wrong it is."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chance import within
from scipy import integrate, special, stats
from targets import conjugate, to_the_mode, truth_logistic
from torch import Tensor, nn
from torch import distributions as td

from nescio import FileError, InputError, Model, Posterior, UnsupportedError, evidence, fit, load
from nescio.infer import MAP, Laplace, Method, NeuralLinear
from nescio.infer.curvature import Structure, diag, full, kfac, low_rank
from nescio.infer.curvature.full import Full
from nescio.infer.curvature.prior import precision
from nescio.laws import Cauchy, Correlated, Discrete, Flat, HalfCauchy, Learned, MatrixNormal, Normal, StudentT, fan_in
from nescio.likelihoods import Bernoulli, Categorical, Gaussian, Heteroscedastic, MultiTask
from nescio.linalg import Blocks, Dense, Diag
from nescio.links import Bridge, Sampled, probit
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior import GaussianPosterior, Mixture

DOUBLE = torch.float64
STRUCTURES = (full, kfac, low_rank(3), Full(hessian=True))


def gaussian(model: Model, data: Any, method: Method, **options: Any) -> GaussianPosterior:
    posterior = fit(model, data, method, **options)
    assert isinstance(posterior, GaussianPosterior)
    return posterior


# ---- linear models with Gaussian noise: everything is exact --------------------------------------------------------


def check_linear(structures: tuple[Structure, ...] = STRUCTURES) -> None:
    known = conjugate()
    x = Noise(1, (), dtype=DOUBLE).normal(6, 3)
    y = Noise(2, (), dtype=DOUBLE).normal(6, 1)
    assert known.predict is not None
    wanted = known.predict(x.numpy())
    for structure in structures:
        searched = gaussian(known.model, known.data, to_the_mode(40) >> Laplace(structure))
        np.testing.assert_allclose(searched.theta, known.mean, atol=1e-8)
        posterior = gaussian(known.model, known.data, NeuralLinear() >> Laplace(structure))  # the mode in closed form
        np.testing.assert_allclose(posterior.theta, known.mean, atol=1e-10)
        np.testing.assert_allclose(posterior.covariance.dense(), known.covariance, rtol=1e-9, atol=1e-12)
        assert known.log_evidence is not None
        assert float(evidence(posterior)) == pytest.approx(known.log_evidence, abs=1e-8)
        predicted = posterior.linearize().predict(x)
        np.testing.assert_allclose(predicted.mean[:, 0], wanted.mean, atol=1e-8)
        np.testing.assert_allclose(predicted.variance[:, 0], wanted.variance, rtol=1e-9)
        np.testing.assert_allclose(predicted.aleatoric[:, 0], 0.25, rtol=1e-12)
        np.testing.assert_allclose(predicted.log_prob(y), wanted.log_prob(y[:, 0].numpy()), atol=1e-8)


def test_linear_model() -> None:
    check_linear()


def several(prior: Any, noise: Tensor, rows: int = 12) -> tuple[Model, tuple[Tensor, Tensor], Tensor]:
    """Two outputs with a bias; model, data, and inputs with a one."""
    torch.default_generator.manual_seed(0)
    x, y = Noise(3, (), dtype=DOUBLE).normal(rows, 3), Noise(4, (), dtype=DOUBLE).normal(rows, 2)
    model = Model(nn.Linear(3, 2).double(), prior, Gaussian(noise))
    return model, (x, y), torch.cat([x, torch.ones(rows, 1, dtype=DOUBLE)], 1)


def check_several_outputs(structures: tuple[Structure, ...] = (full, kfac, low_rank(8))) -> None:
    """Two outputs with noise of their own, weights and biases with priors of their own: by rows (w, b) of each output apart."""
    noise, scales = torch.tensor([0.3, 2.0], dtype=DOUBLE), torch.tensor([0.5, 0.5, 0.5, 1.5], dtype=DOUBLE)
    model, (x, y), a = several({"weight": Normal(0, 0.5), "bias": Normal(0, 1.5)}, noise)
    wanted = [torch.linalg.inv(a.mT @ a / s**2 + torch.diag(scales**-2)) for s in noise]
    total = sum(
        stats.multivariate_normal(
            np.zeros(12), a.numpy() @ np.diag(scales**2) @ a.numpy().T + float(s) ** 2 * np.eye(12)
        ).logpdf(row)
        for s, row in zip(noise, y.mT.numpy(), strict=True)
    )
    for structure in structures:
        posterior = gaussian(model, (x, y), to_the_mode(12, 60) >> Laplace(structure))
        covariance = posterior.covariance.dense()
        for output, block in enumerate(wanted):
            own = torch.tensor(
                [3 * output, 3 * output + 1, 3 * output + 2, 6 + output]
            )  # weight row by row, then the bias
            torch.testing.assert_close(covariance[own][:, own], block, rtol=1e-8, atol=1e-10)
            rest = torch.tensor([i for i in range(8) if i not in own.tolist()])
            assert float(covariance[own][:, rest].abs().max()) < 1e-10
        assert float(evidence(posterior)) == pytest.approx(float(total), abs=1e-6)


def test_several_outputs() -> None:
    check_several_outputs()


def check_structured_prior() -> None:
    """A matrix-normal prior by Kronecker factors, one over all weights as a block: both against the closed form."""
    torch.default_generator.manual_seed(1)
    a, b = (Noise(5, (i,), dtype=DOUBLE).normal(n, n) for i, n in enumerate((2, 3)))
    rows, columns = a @ a.mT + torch.eye(2), b @ b.mT + torch.eye(3)
    x, y = Noise(3, (), dtype=DOUBLE).normal(9, 3), Noise(4, (), dtype=DOUBLE).normal(9, 2)
    data = torch.kron(torch.eye(2, dtype=DOUBLE), x.mT @ x) / 0.25
    prior = torch.linalg.inv(torch.kron(rows, columns)) / 4
    for law, kind in (
        (MatrixNormal(rows, columns, scale=2.0), "Spectral"),
        (Correlated(torch.kron(rows, columns), scale=2.0), "Dense"),
    ):
        model = Model(nn.Linear(3, 2, bias=False).double(), law, Gaussian(0.5))
        posterior = gaussian(model, (x, y), to_the_mode(9, 60) >> Laplace(kfac))
        torch.testing.assert_close(posterior.covariance.dense(), torch.linalg.inv(data + prior), rtol=1e-8, atol=1e-10)
        assert isinstance(posterior.covariance, Blocks)
        assert posterior.covariance.operators[0].kind == kind
        marginal = (
            4
            * torch.kron(torch.eye(2, dtype=DOUBLE), x)
            @ torch.kron(rows, columns)
            @ torch.kron(torch.eye(2, dtype=DOUBLE), x).mT
        )
        normal = stats.multivariate_normal(np.zeros(18), marginal.numpy() + 0.25 * np.eye(18))
        assert float(evidence(posterior)) == pytest.approx(float(normal.logpdf(y.mT.reshape(-1).numpy())), abs=1e-6)


def test_structured_priors() -> None:
    check_structured_prior()


def test_reference_posteriors(truth: Path) -> None:
    """Known noise: mean, covariance and normaliser from outside, to 1e-6."""
    for name in (
        "linear/arK-arK",
        "linear/sblrc-blr",
        "informative/nes1996-nes.informative",
        "informative/arK-arK.duplicate",
    ):
        told = json.loads((truth / f"{name}.json").read_text())
        arrays = np.load(truth / f"{name}.npz", allow_pickle=False)
        x, y = torch.as_tensor(arrays["X"]), torch.as_tensor(arrays["y"])[:, None]
        entries = told["model"]["weight_prior"]
        entries = entries if isinstance(entries, list) else [entries]
        entries = entries * (x.shape[1] if len(entries) == 1 else 1)
        loc, scale = (torch.tensor([[e[k] for e in entries]], dtype=DOUBLE) for k in ("loc", "scale"))
        exact = told["fixed_sigma"]
        model = Model(nn.Linear(x.shape[1], 1, bias=False).double(), Normal(loc, scale), Gaussian(exact["sigma"]))
        posterior = gaussian(model, (x, y), to_the_mode(len(x), 200) >> Laplace(full))
        sd = np.asarray(exact["sd"])
        np.testing.assert_allclose(
            (posterior.theta.numpy() - np.asarray(exact["mean"])) / sd, 0, atol=1e-5, err_msg=name
        )
        np.testing.assert_allclose(posterior.covariance.diagonal().sqrt(), sd, rtol=1e-6)
        assert float(evidence(posterior)) == pytest.approx(exact["log_normaliser"], abs=1e-6)


def test_laplace_is_as_wrong_as_it_is(truth: Path) -> None:
    """German credit: Laplace's own numbers, which are not those of the posterior."""
    known = truth_logistic(truth)
    posterior = gaussian(known.model, known.data, to_the_mode(1000, 30) >> Laplace(full))
    told = json.loads((truth / "logistic" / "german_credit.json").read_text())["laplace"]
    np.testing.assert_allclose(posterior.theta, told["map"], atol=1e-6)
    np.testing.assert_allclose(posterior.covariance.diagonal().sqrt(), told["sd"], rtol=1e-6)
    assert float(evidence(posterior)) == pytest.approx(told["log_evidence"], abs=1e-6)
    with np.load(truth / "logistic" / "german_credit.npz", allow_pickle=False) as arrays:
        np.testing.assert_allclose(posterior.covariance.dense(), arrays["laplace_cov"], rtol=1e-5, atol=1e-9)


# ---- what enters and what stays ------------------------------------------------------------------------------------


def regression(rows: int = 30) -> tuple[Tensor, Tensor]:
    x = Noise(6, (), dtype=DOUBLE).normal(rows, 2)
    return x, (x[:, :1] * 2).sin() + 0.1 * Noise(7, (), dtype=DOUBLE).normal(rows, 1)


def small(prior: Any = None, noise: Any = 0.3) -> Model:
    torch.default_generator.manual_seed(2)
    return Model(mlp(2, 4, 1).double(), Normal(0, 1) if prior is None else prior, Gaussian(noise))


def test_a_trained_network_stays_what_it_is() -> None:
    model, data = small(), regression()
    posterior = gaussian(model, data, Laplace(kfac))
    for name, weight in model.network.weights().items():
        assert torch.equal(posterior.point()[name], weight)
    assert posterior.info["fixed"] == []
    assert set(posterior.info["structure"].values()) == {"Kron"}


def check_on() -> None:
    """A last layer is linear regression on its features, exactly; everything else stays."""
    model, (x, y) = small(Normal(0, 0.8)), regression()
    posterior = gaussian(model, (x, y), to_the_mode(30, 40) >> to_the_mode(30, 40).on("2.*") >> Laplace(full).on("2.*"))
    last = ["2.weight", "2.bias"]
    point = posterior.point()
    features = (x @ point["0.weight"].mT + point["0.bias"]).relu()
    a = torch.cat([features, torch.ones(30, 1, dtype=DOUBLE)], 1)
    wanted = torch.linalg.inv(a.mT @ a / 0.09 + torch.eye(5, dtype=DOUBLE) / 0.64)
    torch.testing.assert_close(posterior.covariance.dense(), wanted, rtol=1e-8, atol=1e-10)
    normal = stats.multivariate_normal(np.zeros(30), (0.64 * a @ a.mT + 0.09 * torch.eye(30)).numpy())
    assert float(evidence(posterior)) == pytest.approx(float(normal.logpdf(y[:, 0].numpy())), abs=1e-6)
    drawn = posterior.sample(5)
    for name, weight in drawn.items():
        if name in model.network.weights():
            assert bool((weight == weight[0]).all()) is (name not in last)
    exact = posterior.linearize().predict(x)
    torch.testing.assert_close(exact.epistemic[:, 0], ((a @ wanted) * a).sum(1), rtol=1e-8, atol=1e-10)
    assert set(posterior.info["fixed"]) == set(model.network.weights()) - set(last)


def test_on_the_last_layer() -> None:
    check_on()


def check_prior_counted_once() -> None:
    """Without curvature the posterior is the prior, whatever the structure: weights behind a dead unit."""
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).double()
    with torch.no_grad():
        net[0].bias.fill_(-100.0)
        net[0].weight.mul_(0.01)
    model, data = Model(net, {"0.*": Normal(0, 200.0), "*": Normal(0, 0.5)}, Gaussian(0.3)), regression()
    for structure in (diag, kfac, full, low_rank(2)):
        variance = gaussian(model, data, Laplace(structure)).covariance.diagonal()
        wanted = torch.cat([torch.full((9,), 200.0**2), torch.full((3,), 0.25)]).to(variance)
        torch.testing.assert_close(variance[:12], wanted)
        torch.testing.assert_close(variance[12], 1 / (30 / variance.new_tensor(0.09) + 4))  # the last bias sees 30 rows


def test_prior_counted_once() -> None:
    check_prior_counted_once()


def test_priors_enter_by_their_own_curvature() -> None:
    """Elementwise laws by -∂² log p, scales where they are: by row and column Kronecker factors survive, else they cannot."""
    data = regression()
    student = gaussian(small(StudentT(5.0, 0.0, 0.7)), data, Laplace(diag))
    curvature, t = student.curvature, student.theta / 0.7
    assert isinstance(curvature, Diag)
    by_hand = (5 + 1) * (5 - t.square()) / (5 + t.square()).square() / 0.49
    torch.testing.assert_close(1 / student.covariance.diagonal(), curvature.values + by_hand)
    for law in (Normal(0, fan_in), Normal(0, HalfCauchy(1.0).per("input")), Normal(0, HalfCauchy(1.0).per("unit"))):
        posterior = gaussian(small(law), data, Laplace(kfac))
        assert isinstance(posterior.covariance, Blocks)
        assert {operator.kind for operator in posterior.covariance.operators} == {"Spectral"}
        assert bool(posterior.info["fixed"]) is not isinstance(law.scale, type(fan_in))
    per_weight = gaussian(small(Normal(0, HalfCauchy(1.0).per("weight"))), data, MAP(epochs=3) >> Laplace(kfac))
    assert isinstance(per_weight.covariance, Blocks)
    assert [operator.kind for operator in per_weight.covariance.operators] == [
        "Dense",
        "Spectral",
    ]  # one row is a product


def test_temperature() -> None:
    known = conjugate()
    cold = gaussian(known.model, known.data, Laplace(full), temperature=0.25)
    np.testing.assert_allclose(cold.covariance.dense(), known.covariance / 4, rtol=1e-9)
    with pytest.raises(UnsupportedError, match=r"a temperature of 0\.25"):
        evidence(cold)


def test_refusals() -> None:
    data = regression()
    with pytest.raises(InputError, match=r"modes of their own; got 3 .*write 3 \* \(MAP\(\) >> Laplace"):
        fit(small(), data, 3 * Laplace())
    with pytest.raises(UnsupportedError, match="discrete latents"):
        fit(small(Discrete((-1.0, 1.0))), data, Laplace())
    with pytest.raises(UnsupportedError, match="a real number of its own for each weight"):
        fit(small(Normal(0, 1).per("layer")), data, Laplace())
    with pytest.raises(InputError, match="a structure is diag, kfac"):
        Laplace("kfac")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs a weight"):
        fit(small(noise=Learned(0.3)), data, Laplace().on("likelihood.*"))
    with pytest.raises(InputError, match="positive definite"):
        fit(small(Cauchy(0, 1e-3)), data, Laplace(diag))
    with pytest.raises(UnsupportedError, match="integrates to one; got Flat"):
        evidence(fit(Model(nn.Linear(2, 1).double(), Flat(), Gaussian(0.3)), data, Laplace(full)))
    with pytest.raises(UnsupportedError, match=r"known at a mode .* got Draws"):
        evidence(fit(small(), data, MAP(epochs=1)))
    with pytest.raises(
        InputError, match=r"one of the prior's or the likelihood's; got 'scale'; the names are \['prior"
    ):
        evidence(fit(small(Normal(0, Learned(1.0))), data, Laplace(full)), {"scale": torch.ones(())})


# ---- functions -----------------------------------------------------------------------------------------------------


def check_functions(structure: Structure) -> None:
    """J Σ Jᵀ by brute force, for each point and jointly, two outputs, through a convolution and a linear layer."""
    torch.default_generator.manual_seed(3)
    net = nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 2, (1, 2)), nn.Flatten(), nn.Tanh(), nn.LayerNorm(4), nn.Linear(4, 2)
    ).double()
    x = Noise(8, (), dtype=DOUBLE).normal(7, 4)
    posterior = gaussian(
        Model(net, Normal(0, 1), Gaussian(0.5)), (x, torch.zeros(7, 2, dtype=DOUBLE)), Laplace(structure)
    )
    rows = []
    for output in net(x).reshape(-1):
        grads = torch.autograd.grad(output, list(net.parameters()), retain_graph=True)
        rows.append(torch.cat([g.reshape(-1) for g in grads]))
    jacobian = torch.stack(rows)
    wanted = (jacobian @ posterior.covariance.dense() @ jacobian.mT).view(7, 2, 7, 2)
    linear = posterior.linearize()
    found = linear.outputs(x, joint=True)
    torch.testing.assert_close(found.mean, net(x).detach())
    torch.testing.assert_close(found.covariance, wanted, rtol=1e-8, atol=1e-10)
    each = linear.outputs(x).covariance
    torch.testing.assert_close(each, torch.stack([wanted[n, :, n] for n in range(7)]), rtol=1e-8, atol=1e-10)
    predicted, y = linear.predict(x), Noise(9, (), dtype=DOUBLE).normal(7, 2)
    by_hand = [
        stats.multivariate_normal(m.numpy(), (c + 0.25 * torch.eye(2)).numpy()).logpdf(row.numpy())
        for m, c, row in zip(found.mean, each, y, strict=True)
    ]
    np.testing.assert_allclose(predicted.log_prob(y), by_hand, rtol=1e-9)
    low, high = predicted.interval(0.5)
    torch.testing.assert_close((high - low) / 2, predicted.std * stats.norm.ppf(0.75))
    drawn = predicted.sample(4000)
    within((drawn.mean(0) - predicted.mean) / (predicted.std / 4000**0.5))


@pytest.mark.parametrize("structure", [diag, kfac, full, low_rank(5)], ids=repr)
def test_functions(structure: Structure) -> None:
    check_functions(structure)


def test_units_of_y() -> None:
    """y = loc + scale f: the spread of functions in the units of y, for each output."""
    torch.default_generator.manual_seed(4)
    net, (x, y) = mlp(2, 3, 2).double(), regression()
    y = torch.cat([y, y], 1)
    plain = gaussian(Model(net, Normal(0, 1), Gaussian(0.5)), (x, y), Laplace(full)).linearize().predict(x)
    scaled = Gaussian(0.5, loc=3.0, scale=torch.tensor([2.0, 5.0], dtype=DOUBLE))
    units = gaussian(Model(net, Normal(0, 1), scaled), (x, y), Laplace(full)).linearize().predict(x)
    torch.testing.assert_close(units.mean, 3 + plain.mean * torch.tensor([2.0, 5.0], dtype=DOUBLE))
    torch.testing.assert_close(units.epistemic, plain.epistemic * torch.tensor([4.0, 25.0], dtype=DOUBLE))
    torch.testing.assert_close(units.aleatoric, plain.aleatoric * torch.tensor([4.0, 25.0], dtype=DOUBLE))


def test_draws_of_weights_and_of_functions_agree_in_a_linear_model() -> None:
    known = conjugate()
    posterior = gaussian(known.model, known.data, to_the_mode(40) >> Laplace(kfac))
    x, n = Noise(1, (), dtype=DOUBLE).normal(4, 3), 20_000
    sampled, exact = posterior.predict(x, draws=n), posterior.linearize().predict(x)
    within((sampled.mean - exact.mean) / (exact.epistemic / n).sqrt())
    within((sampled.epistemic / exact.epistemic - 1) * (n / 2) ** 0.5)  # a sum of squares


def classes() -> tuple[Model, tuple[Tensor, Tensor]]:
    torch.default_generator.manual_seed(5)
    x = Noise(6, (), dtype=DOUBLE).normal(40, 2)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
    return Model(mlp(2, 6, 3).double(), Normal(0, 1), Categorical()), (x, y)


def test_links() -> None:
    """Draws of functions against another sampler of the Gaussian logits; the closed forms against their formulae."""
    model, (x, y) = classes()
    posterior = gaussian(model, (x, y), MAP(epochs=60, batch_size=40, lr=0.05) >> Laplace(full))
    outside = torch.cat([x[:6], 4 * x[:3]])
    f = posterior.linearize().outputs(outside)
    draws = np.stack(
        [
            np.random.default_rng(i).multivariate_normal(m.numpy(), c.numpy(), 40_000)
            for i, (m, c) in enumerate(zip(f.mean, f.covariance, strict=True))
        ],
        1,
    )
    probabilities = special.softmax(draws, -1)
    wanted = probabilities.mean(0)
    sampled = posterior.linearize(Sampled(40_000)).predict(outside)
    within((sampled.mean.numpy() - wanted) / (probabilities.std(0) * (2 / 40_000) ** 0.5))
    mixture = posterior.linearize().predict(outside, draws=40_000)
    within((mixture.mean.numpy() - wanted) / (probabilities.std(0) * (2 / 40_000) ** 0.5))
    for link in (probit, Bridge(), Bridge(normalised=False)):
        found = posterior.linearize(link).predict(outside)
        torch.testing.assert_close(found.mean.sum(1), torch.ones(9, dtype=DOUBLE))
        torch.testing.assert_close(found.total, -(found.mean * found.mean.log()).sum(1))
        assert bool((found.epistemic >= 0).all())
        labels = torch.arange(9) % 3
        torch.testing.assert_close(found.log_prob(labels), found.mean.log()[torch.arange(9), labels])
        assert found.sample(3).shape == (3, 9)
    found, v = posterior.linearize(probit).predict(outside), f.covariance.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(found.mean, (f.mean / (1 + math.pi * v / 8).sqrt()).softmax(1))
    entropies = -(probabilities * np.log(probabilities + 1e-300)).sum(-1)
    within((found.aleatoric.numpy() - entropies.mean(0)) / (entropies.std(0) * (1 / 256 + 1 / 40_000) ** 0.5))
    with pytest.raises(UnsupportedError, match="a link is for labels"):
        gaussian(small(), regression(), Laplace(full)).linearize(probit).predict(x)


def check_bridge() -> None:
    """From a Dirichlet to Gaussian logits by the bridge's own map, whatever the level of the logits, and back: the same one."""
    alpha = torch.tensor([[0.7, 2.0, 5.0], [3.0, 3.0, 0.5]], dtype=DOUBLE)
    inverse, one = alpha.reciprocal(), torch.ones(3, dtype=DOUBLE)
    mean = alpha.log() - alpha.log().mean(1, keepdim=True)
    pairs = inverse[:, :, None] * one + inverse[:, None, :] * one[:, None] - inverse.mean(1)[:, None, None]
    covariance = torch.diag_embed(inverse) - pairs / 3
    found = Bridge(normalised=False).predictive(td.Categorical, mean + 2.0, covariance + 0.4, Noise())
    torch.testing.assert_close(found.mean, alpha / alpha.sum(1, keepdim=True))
    for row, left in zip(alpha, found.aleatoric, strict=True):
        p = stats.dirichlet(row.numpy()).rvs(100_000, random_state=0)
        entropy = special.entr(p).sum(1)
        within((float(left) - entropy.mean()) / (entropy.std() / 100_000**0.5))


def test_bridge() -> None:
    check_bridge()


def test_probit_of_two_classes_by_quadrature() -> None:
    """A logit N(m, v): the probit is within 0.02 of the integral of the sigmoid (MacKay's bound is about 0.01)."""
    net = nn.Linear(2, 1).double()
    x = Noise(6, (), dtype=DOUBLE).normal(10, 2)
    posterior = gaussian(Model(net, Normal(0, 3), Bernoulli()), (x, (x[:, :1] > 0).double()), Laplace(full))
    f, found = posterior.linearize().outputs(x), posterior.linearize(probit).predict(x)
    for n in range(10):
        law = stats.norm(float(f.mean[n]), math.sqrt(float(f.covariance[n])))
        exact = integrate.quad(lambda t, law=law: special.expit(t) * law.pdf(t), *law.interval(1 - 1e-12))[0]
        assert float(found.mean[n]) == pytest.approx(exact, abs=0.02)


def test_other_likelihoods_meet_draws_of_functions() -> None:
    x, y = regression()
    net = mlp(2, 4, 2).double()
    posterior = gaussian(Model(net, Normal(0, 1), Heteroscedastic()), (x, y), MAP(epochs=20) >> Laplace(kfac))
    linear = posterior.linearize()
    f, predicted = linear.outputs(x), linear.predict(x, draws=20_000)
    within((predicted.mean[:, 0] - f.mean[:, 0]) / (f.covariance[:, 0, 0] / 20_000).sqrt())
    within((predicted.epistemic[:, 0] / f.covariance[:, 0, 0] - 1) * (20_000 / 2) ** 0.5)  # a sum of squares


class Tasks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.a, self.b = nn.Linear(2, 4), nn.Linear(4, 1), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = self.body(x).tanh()
        return {"a": self.a(h), "b": self.b(h)}


def test_several_tasks() -> None:
    x, y = regression()
    model = Model(Tasks().double(), Normal(0, 1), MultiTask(a=Gaussian(0.3), b=Categorical()))
    posterior = gaussian(model, (x, {"a": y, "b": torch.arange(30) % 3}), Laplace(kfac))
    predicted = posterior.linearize().predict(x, draws=50)
    assert predicted["a"].mean.shape == (30, 1)
    assert predicted["b"].mean.shape == (30, 3)
    assert posterior.linearize().outputs(x).covariance.shape == (30, 4, 4)


# ---- evidence ------------------------------------------------------------------------------------------------------


def check_evidence_slope() -> None:
    """In the scale of the prior: against finite differences of the exact evidence, through Kronecker factors, a diagonal and the rest."""
    x, y = regression()
    for structure in (kfac, full, diag, low_rank(3)):
        model = small({"*weight": Normal(0, Learned(1.0).per("layer")), "*": Normal(0, Learned(0.7))})
        posterior = gaussian(model, (x, y), Laplace(structure))
        names = [variable.name for variable in model.prior.variables if variable.nested]
        given = {
            name: value.double().clone().requires_grad_() for name, value in posterior.point().items() if name in names
        }
        assert len(given) == 2
        value = evidence(posterior, given)
        assert float(value.detach()) == pytest.approx(float(evidence(posterior)), abs=1e-10)
        slopes = torch.autograd.grad(value, list(given.values()))
        for name, slope in zip(given, slopes, strict=True):
            for i in range(given[name].numel()):
                ends = []
                for step in (1e-5, -1e-5):
                    moved = {n: v.detach().clone() for n, v in given.items()}
                    moved[name].view(-1)[i] += step
                    ends.append(float(evidence(posterior, moved)))
                assert float(slope.reshape(-1)[i]) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-6)


def test_evidence_slope() -> None:
    check_evidence_slope()


def test_evidence_finds_the_exact_optimum_of_a_linear_model() -> None:
    """The mode moves with the scale, so it is found again: exact evidence everywhere, and its maximum."""
    known = conjugate()
    x, y = known.data

    def exact(scale: float) -> float:
        covariance = scale**2 * (x @ x.mT).numpy() + 0.25 * np.eye(40)
        return float(stats.multivariate_normal(np.zeros(40), covariance).logpdf(y[:, 0].numpy()))

    for scale in (0.5, 1.0, 3.0):
        net = nn.Linear(3, 1, bias=False).double()
        posterior = gaussian(
            Model(net, Normal(0, Learned(scale)), Gaussian(0.5)), (x, y), to_the_mode(40) >> Laplace(full)
        )
        name = next(v.name for v in posterior.model.prior.variables if v.nested)
        s = torch.tensor([scale], dtype=DOUBLE, requires_grad=True)
        value = evidence(posterior, {name: s})
        assert float(value.detach()) == pytest.approx(exact(scale), abs=1e-6)
        (slope,) = torch.autograd.grad(
            value, s
        )  # at the mode the envelope theorem holds only for the joint: log det is explicit
        assert float(slope) == pytest.approx((exact(scale + 1e-5) - exact(scale - 1e-5)) / 2e-5, rel=1e-4)


# ---- a mixture, files, the whole prior -----------------------------------------------------------------------------


def test_mixture_of_modes(tmp_path: Path) -> None:
    model, data = small(), regression()
    posterior = fit(model, data, 3 * (MAP(epochs=20) >> Laplace(kfac)))
    assert isinstance(posterior, Mixture)
    assert len(posterior.parts) == 3
    modes = [part.point()["0.weight"] for part in posterior.parts]
    assert not torch.equal(modes[0], modes[1])
    assert posterior.sample(7)["0.weight"].shape[0] == 7
    x = data[0]
    expected = torch.stack([evidence(part) for part in posterior.parts]).exp().mean().log()
    torch.testing.assert_close(evidence(posterior), expected)
    linear = Mixture([part.linearize() for part in posterior.parts if isinstance(part, GaussianPosterior)], {})
    assert linear.predict(x, draws=30).mean.shape == (30, 1)
    posterior.save(tmp_path / "mixture")
    again = load(tmp_path / "mixture", model)
    torch.testing.assert_close(again.predict(x).mean, posterior.predict(x).mean, rtol=0, atol=0)


@pytest.mark.parametrize("structure", [diag, kfac, full, low_rank(4)], ids=repr)
def test_files(structure: Structure, tmp_path: Path) -> None:
    torch.default_generator.manual_seed(6)
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 1)).double()
    model, data = Model(net, Normal(0, Learned(1.0)), Gaussian(0.3)), regression()
    posterior = gaussian(model, data, MAP(epochs=5) >> Laplace(structure))
    posterior.save(tmp_path / "p")
    again = load(tmp_path / "p", model)
    assert isinstance(again, GaussianPosterior)
    assert again.info == posterior.info
    for a, b in ((again, posterior), (again.linearize(), posterior.linearize())):
        torch.testing.assert_close(a.predict(data[0]).variance, b.predict(data[0]).variance, rtol=1e-12, atol=0)
    torch.testing.assert_close(evidence(again), evidence(posterior), rtol=1e-12, atol=0)
    assert again.point()["1.running_mean"].abs().max() > 0
    with pytest.raises(UnsupportedError, match="is not stored"):
        posterior.linearize().save(tmp_path / "q")


def test_a_foreign_file_is_refused() -> None:
    model = small()
    dim = model.dim
    good = {"theta": torch.zeros(dim, dtype=DOUBLE), "slots": torch.arange(dim)}
    covariance = {"covariance.values": torch.ones(dim, dtype=DOUBLE)}
    info = {"operators": {"covariance": "Diag"}}
    assert GaussianPosterior.restore(model, {**good, **covariance}, info).covariance.size == dim
    for bad in (
        {"slots": torch.arange(1, dim + 1)},
        {"slots": torch.zeros(dim, dtype=torch.long)},
        {"slots": torch.ones(dim)},
    ):
        with pytest.raises(FileError, match="of the model's numbers"):
            GaussianPosterior.restore(model, {**good, **covariance, **bad}, info)
    with pytest.raises(FileError, match="of the random entries"):
        GaussianPosterior.restore(model, {**good, "covariance.values": torch.ones(2)}, info)
    with pytest.raises(FileError, match="tensors of its operators"):
        GaussianPosterior.restore(model, {**good, **covariance}, {})


def test_prior_precision_is_the_hessian_of_the_prior() -> None:
    """For every entry, and over a part of the vector, against autograd on the log density of the model itself."""
    torch.default_generator.manual_seed(7)
    rows = torch.tensor([[2.0, 0.3], [0.3, 1.0]], dtype=DOUBLE)
    laws = {
        "0.weight": StudentT(4.0, 0.1, 0.5),
        "2.weight": MatrixNormal(columns=rows),
        "*": Normal(0, HalfCauchy(1.0).per("unit")),
    }
    model = Model(nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 2)).double(), laws, Gaussian(0.3))
    theta = model.prior.draw(model.noise(0, "draw"))

    def density(t: Tensor) -> Tensor:
        values = model.prior.split(t)
        return sum(
            v.bound.log_prob(x, v.numbers(values))
            for v, x in zip(model.prior.variables, values, strict=True)
            if v.bound
        )

    whole = -torch.autograd.functional.hessian(density, theta)
    weights = model.prior.mask(lambda v: not v.nested).nonzero()[:, 0]
    for slots in (weights, weights[2:9]):
        torch.testing.assert_close(precision(model.prior, theta, slots).dense(), whole[slots][:, slots])


def test_dense_and_operators_agree_on_samples() -> None:
    """n draws of all weights have the covariance of the operator: whitened second moments within Z of the identity."""
    posterior, n = gaussian(small(), regression(), Laplace(kfac)), 20_000
    flat = torch.cat([posterior.sample(n)[name].flatten(1) for name in posterior.model.network.weights()], 1)
    centred = flat - posterior.theta[posterior.slots]
    white = torch.linalg.solve_triangular(Dense(posterior.covariance.dense()).lower, centred.mT, upper=False)
    size = len(white)
    error = (white @ white.mT / n - torch.eye(size)) * n**0.5 / (1 + (2**0.5 - 1) * torch.eye(size))
    within(error)


def test_draws_come_in_pieces_that_fit_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    posterior, x = gaussian(small(), regression(), Laplace(kfac)), regression()[0][:3]
    whole = posterior.sample(2, seed=1)
    monkeypatch.setattr("nescio.posterior.gaussian.WEIGHTS", 2 * posterior.model.dim)
    drawn = posterior.sample(5, seed=1)
    assert all(torch.equal(drawn[name][:2], value) for name, value in whole.items())
    assert len(drawn["0.weight"].flatten(1).unique(dim=0)) == 5
    own = {name: value for name, value in drawn.items() if name in posterior.model.network.weights()}
    torch.testing.assert_close(posterior.functions(x, 5, seed=1)[0], posterior.model.network.outputs(own, x))


def test_posterior_face() -> None:
    posterior: Posterior = fit(small(), regression(), Laplace(kfac))
    assert posterior.count() is None
    assert repr(posterior) == "GaussianPosterior(Blocks over 17 numbers)"
    ends = posterior.ends()
    assert ends.theta.shape == (1, 17)
    again = fit(small(), regression(), Laplace(kfac) >> MAP(epochs=1))
    assert again.info["before"]["structure"]["0.weight"] == "Kron"
