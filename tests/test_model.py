"""A model is the joint law it says it is: priors over functions in closed form, densities by hand, and a net left in peace."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chance import assert_mean, between, within
from scipy import stats
from targets import DOUBLE, linear
from torch import Tensor, nn

from nescio import InputError, evaluate, fit
from nescio.errors import NescioError
from nescio.infer import MAP
from nescio.laws import Flat, HalfCauchy, HalfFlat, HalfNormal, Learned, Normal
from nescio.likelihoods import Categorical, Gaussian, Heteroscedastic, MultiTask
from nescio.model import Model
from nescio.nets import mlp

DRAWS = 4000


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.as_tensor(np.random.default_rng(seed).normal(size=shape))


def numbers(model: Model, seed: int = 0) -> Tensor:
    """An unconstrained vector."""
    return normal(model.dim, seed=seed)


# ---- the prior over functions (002-4) --------------------------------------------------------------------------------


def assert_prior_over_lines(scale: float, prior_scale: float) -> None:
    """f(x) = w·x + b with N(0, s²): mean 0 by z, variance s²(1 + |x|²) by chi-square."""
    net, x = nn.Linear(3, 1, dtype=DOUBLE), normal(6, 3)
    predictive = Model(net, Normal(0, prior_scale), Gaussian(0.3)).prior_predictive(x, draws=DRAWS)
    variance = scale**2 * (1 + x.numpy() ** 2 @ np.ones(3))
    within(predictive.mean[:, 0].numpy() / np.sqrt(variance / DRAWS), "mean")
    between(predictive.epistemic[:, 0].numpy() / variance * DRAWS, stats.chi2(DRAWS - 1), "epistemic")
    np.testing.assert_allclose(predictive.aleatoric, 0.09, rtol=1e-12)


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_the_prior_predictive_of_a_line_is_the_closed_form(scale: float) -> None:
    """Planted: a prior 20 % too wide, which 4000 draws see almost surely."""
    assert_prior_over_lines(scale, scale)
    with pytest.raises(AssertionError, match="epistemic too large"):
        assert_prior_over_lines(scale, 1.2 * scale)


def test_error_bars_move_with_the_prior() -> None:
    """The same draws, scaled: the interval of a line widens as its prior, and the noise is its floor."""
    x = normal(5, 2)
    widths = []
    for scale in (0.0001, 0.5, 1.0, 2.0, 4.0):
        low, high = linear(2, Normal(0, scale), Gaussian(0.3)).prior_predictive(x, draws=500).interval(0.9)
        widths.append((high - low)[:, 0].numpy())
    assert bool((np.diff(widths, axis=0) > 0).all())
    np.testing.assert_allclose(widths[0], 2 * 0.3 * stats.norm.isf(0.05), rtol=1e-3)
    np.testing.assert_allclose(widths[4] / widths[3], 2.0, rtol=0.2)  # the weights dominate


def test_a_wide_net_of_standard_normal_weights() -> None:
    """E f² of a one-layer tanh net: 1 + H E tanh(w·x + b)², by quadrature over the Gaussian w·x + b. n = 4000."""
    hidden, x = 7, normal(4, 2)
    model = Model(mlp(2, hidden, 1, activation=nn.Tanh).to(DOUBLE), Normal(0, 1), Gaussian(0.1))
    f = model.prior_predictive(x, draws=DRAWS).draws.mean[..., 0]  # type: ignore[attr-defined]
    z, weight = np.polynomial.hermite_e.hermegauss(80)
    spread = np.sqrt(1 + (x.numpy() ** 2).sum(1))[:, None]
    second = 1 + hidden * (np.tanh(spread * z) ** 2 * weight).sum(1) / math.sqrt(2 * math.pi)
    assert_mean(f, np.zeros(4))
    assert_mean(f**2, second)
    with pytest.raises(AssertionError):
        assert_mean(f**2, second - 1)  # planted: the last bias forgotten


def test_a_random_noise_scale_differs_from_draw_to_draw() -> None:
    """E σ² = 1 for a half-normal of scale 1."""
    predictive = linear(1, Normal(0, 1), Gaussian(HalfNormal(1.0))).prior_predictive(normal(3, 1), draws=DRAWS)
    variance = predictive.draws.variance[..., 0]  # type: ignore[attr-defined]
    assert bool((variance == variance[:, :1]).all())  # one σ a draw, at all points
    assert_mean(variance[:, 0], 1.0)
    assert len(variance[:, 0].unique()) == DRAWS


def test_the_prior_predictive_depends_on_its_seed_alone() -> None:
    model, x = Model(mlp(2, 5, 1), Normal(0, 1), Gaussian(0.1)), torch.ones(3, 2)
    state = torch.get_rng_state()
    first = model.prior_predictive(x, draws=4).mean
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(5)
    assert torch.equal(model.prior_predictive(x, draws=4).mean, first)
    assert not torch.equal(model.prior_predictive(x, draws=4, seed=1).mean, first)
    few, many = (model.prior_predictive(x, draws=n).draws.mean for n in (4, 6))  # type: ignore[attr-defined]
    torch.testing.assert_close(many[:4], few)  # more draws are more, not others


# ---- densities by hand (004-2) ---------------------------------------------------------------------------------------


def test_the_log_joint_of_a_standard_bayesian_net_by_hand() -> None:
    """W ~ N(0, I), y = tanh net + N(0, 0.1²), written out in numpy."""
    model = Model(mlp(2, 3, 1, activation=nn.Tanh).to(DOUBLE), Normal(0, 1), Gaussian(0.1))
    u, x, y = numbers(model), normal(9, 2, seed=1), normal(9, 1, seed=2)
    assert model.dim == 2 * 3 + 3 + 3 + 1
    w = u.numpy()
    f = np.tanh(x.numpy() @ w[:6].reshape(3, 2).T + w[6:9]) @ w[9:12][:, None] + w[12]
    prior = -0.5 * (w**2).sum() - 13 / 2 * math.log(2 * math.pi)
    residual = (y.numpy() - f) / 0.1
    likelihood = -0.5 * (residual**2).sum() - 9 * math.log(0.1) - 9 / 2 * math.log(2 * math.pi)
    assert model.log_prior(u).item() == pytest.approx(prior, rel=1e-10)
    assert model.log_likelihood(model.params(u), x, y).item() == pytest.approx(likelihood, rel=1e-10)
    each = model.log_prob(model.named(u[None]), x, y)
    assert each.shape == (1, 9)
    assert each.sum().item() == pytest.approx(likelihood, rel=1e-10)


def test_params_and_log_prior_are_the_priors() -> None:
    model = Model(mlp(2, 3, 1).to(DOUBLE), Normal(0, HalfCauchy(1.0).per("net")), Gaussian(HalfNormal(2.0)))
    u = numbers(model)
    unpacked = model.prior.unpack(u)
    want = model.prior.params(unpacked.values)
    got = model.params(u)
    assert list(got) == ["0.weight", "0.bias", "2.weight", "2.bias", "likelihood.noise"]
    assert all(torch.equal(got[name], want[name]) for name in want)
    assert {name: p.shape for name, p in got.items() if "noise" not in name} == {
        name: p.shape for name, p in model.network.weights().items()
    }
    assert model.log_prior(u).item() == float(unpacked.log_density)
    # non-centred: z ~ N(0, 1) and log τ, log σ with their Jacobians
    named = model.named(torch.cat(unpacked.values)[None])
    tau, sigma = named["prior.*.scale"].item(), named["likelihood.noise"].item()
    z = np.concatenate([p.numpy().ravel() for name, p in got.items() if "noise" not in name]) / tau
    by_hand = stats.norm.logpdf(z).sum() + stats.halfcauchy.logpdf(tau) + math.log(tau)
    by_hand += stats.halfnorm.logpdf(sigma, scale=2.0) + math.log(sigma)
    assert model.log_prior(u).item() == pytest.approx(by_hand, rel=1e-10)


def test_one_call_is_one_row_of_many() -> None:
    """forward under one set of parameters, observed under a stack of them."""
    model = Model(mlp(2, 3, 2).to(DOUBLE), Normal(0, 1), Heteroscedastic())
    x, theta = normal(5, 2), normal(4, model.dim, seed=1)
    stacked = model.observed(model.named(theta), x)
    assert stacked.batch_shape == (4, 5, 1)
    for i in range(4):
        one = model(model.params(theta[i]), x)
        torch.testing.assert_close(one.mean, stacked.mean[i])
        torch.testing.assert_close(one.variance, stacked.variance[i])


def test_a_noise_for_each_output_and_each_draw() -> None:
    """Numbers of shape (outputs,), one set a draw, meet (draws, points, outputs) on the right axes."""
    model = Model(nn.Linear(1, 2, bias=False, dtype=DOUBLE), Normal(0, 1), Gaussian(Learned(torch.ones(2))))
    theta = torch.tensor([[1.0, 2.0, 0.1, 0.2], [3.0, 4.0, 0.3, 0.4], [5.0, 6.0, 0.5, 0.6]], dtype=DOUBLE)
    x = torch.tensor([[1.0], [10.0], [100.0], [1000.0]], dtype=DOUBLE)
    observed = model.observed(model.named(theta), x)
    torch.testing.assert_close(observed.mean, x * theta[:, None, :2])
    torch.testing.assert_close(observed.stddev, theta[:, None, 2:].expand(3, 4, 2))


def test_patterns_say_which_law_is_whose() -> None:
    net = mlp(1, 2, 1).to(DOUBLE)
    model = Model(net, {"0.*": Normal(0, 0.1), "*.bias": Normal(3, 1), "*": Normal(1, 2)}, Gaussian(0.1))
    params = model.params(numbers(model))
    laws = {"0.weight": (0, 0.1), "0.bias": (0, 0.1), "2.bias": (3, 1), "2.weight": (1, 2)}  # first match wins
    want = sum(stats.norm.logpdf(params[name].numpy(), *law).sum() for name, law in laws.items())
    assert model.log_prior(numbers(model)).item() == pytest.approx(want, rel=1e-10)


# ---- the user's net --------------------------------------------------------------------------------------------------


def test_the_net_is_left_as_it_was(tmp_path: Path) -> None:
    """Bytes, gradients, modes, flags and identities, through everything that a model is used for."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.BatchNorm1d(4), nn.Linear(4, 1))
    net[3].eval()  # this part alone
    net[0].bias.requires_grad_(False)
    for p in net.parameters():
        p.grad = torch.full_like(p, 7.0)

    def state() -> Any:
        tensors = (*net.named_parameters(), *net.named_buffers())
        return (
            {name: t.detach().numpy().tobytes() for name, t in tensors},
            {name: id(t) for name, t in tensors},
            {name: (p.requires_grad, p.grad.sum().item() / p.numel()) for name, p in net.named_parameters()},  # type: ignore[union-attr]
            {name: (m.training, len(m._forward_hooks)) for name, m in net.named_modules()},
        )

    before = state()
    x, y = normal(24, 2).float() + 2, normal(24, 1, seed=1).float()
    model = Model(net, Normal(0, 1), Gaussian(Learned(0.5)))
    model.prior_predictive(x)
    posterior = fit(model, (x, y), MAP(epochs=2, hold_out=0.2) >> 2 * MAP(epochs=2))
    posterior.predict(x).sample(3)
    evaluate(posterior, (x, y))
    posterior.save(tmp_path / "p.safetensors")
    assert state() == before
    assert not net[3].training
    assert net[1].training


def test_a_model_keeps_the_net_as_it_was_handed_over() -> None:
    net = nn.Linear(1, 1)
    model = Model(net, Normal(0, 1), Gaussian(0.1))
    before = {name: p.clone() for name, p in model.network.weights().items()}
    with torch.no_grad():
        net.weight.fill_(99.0)
        net.bias.fill_(99.0)
    assert all(torch.equal(before[name], p) for name, p in model.network.weights().items())


def test_a_net_in_double_precision_stays_so() -> None:
    x, y = normal(20, 2), normal(20, 1, seed=1)
    law = Normal(0, HalfCauchy(1.0).per("layer"))
    for dtype in (torch.float32, DOUBLE):
        model = Model(mlp(2, 3, 1).to(dtype), law, Gaussian(HalfCauchy(1.0)))
        assert model.prior.draw(model.noise(0)).dtype == dtype
        assert model.prior_predictive(x.to(dtype)).mean.dtype == dtype
        posterior = fit(model, (x.to(dtype), y.to(dtype)), 2 * MAP(epochs=1))
        assert all(value.dtype == dtype for value in posterior.sample(2).values())
        predictive = posterior.predict(x.to(dtype))
        assert {predictive.mean.dtype, predictive.log_prob(y.to(dtype)).dtype, predictive.quantile(0.3).dtype} == {
            dtype
        }


class Two(nn.Module):
    """A category and a number, by position or by name."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(3, 2)
        self.layer = nn.Linear(3, 1)

    def forward(self, kind: Tensor, amount: Tensor) -> Tensor:
        return self.layer(torch.cat([self.embed(kind), amount], -1))


def test_inputs_by_position_and_by_name() -> None:
    model = Model(Two(), Normal(0, 1), Gaussian(0.1))
    kind, amount = torch.tensor([0, 2, 1, 1]), torch.ones(4, 1)
    by_position = model.prior_predictive((kind, amount), draws=5)
    by_name = model.prior_predictive({"amount": amount, "kind": kind}, draws=5)
    assert by_position.mean.shape == (4, 1)
    assert torch.equal(by_position.mean, by_name.mean)
    assert torch.equal(by_name.mean[2], by_name.mean[3])  # alike points
    assert not torch.equal(by_name.mean[0], by_name.mean[1])


def test_frozen_parameters_are_part_of_the_net_and_not_of_the_model() -> None:
    torch.manual_seed(0)
    net = mlp(2, 4, 1, activation=nn.Tanh)
    for p in net[0].parameters():
        p.requires_grad_(False)
    model = Model(net, Normal(0, 1), Gaussian(0.1))
    assert model.dim == 5
    assert list(model.params(torch.zeros(5))) == ["2.weight", "2.bias", "likelihood.noise"]
    x, y = normal(10, 2).float(), normal(10, 1, seed=1).float()
    got = fit(model, (x, y), 2 * MAP(epochs=2)).sample(2)
    assert "0.weight" not in got
    hidden = torch.tanh(net[0](x)).detach()
    want = torch.stack([hidden @ got["2.weight"][i].T + got["2.bias"][i] for i in range(2)])
    torch.testing.assert_close(model.observed(got, x).mean, want)


def test_tied_weights_are_one_number() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode = nn.Linear(2, 2, bias=False)
            self.decode = nn.Linear(2, 2, bias=False)
            self.decode.weight = self.encode.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.decode(self.encode(x))

    model = Model(Tied().to(DOUBLE), Normal(0, 1), Gaussian(0.1))
    assert model.dim == 4
    x, theta = normal(3, 2), normal(2, 4, seed=1)
    want = torch.stack([x @ w.T @ w.T for w in theta.view(2, 2, 2)])
    torch.testing.assert_close(model.observed(model.named(theta), x).mean, want)


def test_a_model_can_be_copied_and_described() -> None:
    model = Model(mlp(2, 3, 1), Normal(0, HalfCauchy(1.0)), MultiTask(a=Gaussian(Learned(1.0)), b=Categorical()))
    again = copy.deepcopy(model)
    assert again.describe() == model.describe()
    assert {"net", "shapes", "prior", "likelihood"} <= set(model.describe())
    u = numbers(model).float()
    assert torch.equal(again.log_prior(u), model.log_prior(u))


# ---- refusals --------------------------------------------------------------------------------------------------------


def frozen() -> nn.Module:
    net = nn.Linear(1, 1)
    for p in net.parameters():
        p.requires_grad_(False)
    return net


def plain() -> Model:
    return Model(nn.Linear(2, 1), Normal(0, 1), Gaussian(0.1))


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: Model(3, Normal(0, 1), Gaussian(0.1)), "net × prior × likelihood; got int.* and Gaussian; write Model"),  # type: ignore[arg-type]
    (lambda: Model(nn.Linear, Normal(0, 1), Gaussian(0.1)), "a model is net × prior × likelihood"),  # type: ignore[arg-type]
    (lambda: Model(nn.Linear(1, 1), Normal(0, 1), nn.MSELoss()), "got Linear.* and MSELoss; write Model"),  # type: ignore[arg-type]
    (lambda: Model(nn.Linear(1, 1), Normal(0, 1), Gaussian), "a model is net × prior × likelihood"),  # type: ignore[arg-type]
    (lambda: Model(frozen(), Normal(0, 1), Gaussian(0.1)), "a trainable parameter; got none; set requires_grad"),
    (lambda: Model(nn.ReLU(), Normal(0, 1), Gaussian(0.1)), "a trainable parameter; got none"),
    (lambda: Model(nn.Linear(1, 1), {"weight": Normal(0, 1)}, Gaussian(0.1)), "needs a prior; got none for 'bias'"),
    (
        lambda: Model(nn.Linear(1, 1), {"*": Normal(0, 1), "w*": Normal(0, 1)}, Gaussian(0.1)),
        r"got 'w\*'; the names are",
    ),
    (lambda: Model(nn.Linear(1, 1), {"*": 1.0}, Gaussian(0.1)), r"the prior of '\*' must be a law; got 1.0; write"),  # type: ignore[dict-item]
    (lambda: Model(nn.Linear(1, 1), Normal(0, 1), Gaussian(-0.1)), "likelihood.noise must satisfy .*; got -0.1"),
    (lambda: fit(plain(), (torch.ones(4, 3), torch.ones(4, 1)), MAP()), "the network must accept the inputs; got mat1"),
    (
        lambda: fit(plain(), (torch.ones(4, 2, dtype=DOUBLE), torch.ones(4, 1)), MAP()),
        "the network must accept the inputs; got .*; check the shape of x and that it is torch.float32",
    ),
    (lambda: fit(plain(), (torch.ones(4, 2), torch.ones(4)), MAP()), r"y must have shape \(N, 1\).*; use y\[:, None\]"),
    (lambda: fit(plain(), (torch.ones(4, 2), torch.ones(4, 1).int()), MAP()), "y must be torch.float32"),
    (lambda: plain().prior_predictive(np.ones((3, 2))), "inputs must be tensors .*; got ndarray; use torch.as_tensor"),
    (lambda: plain().prior_predictive([]), "inputs must be tensors"),
    (lambda: plain().prior_predictive(torch.tensor(1.0)), "inputs must be tensors with a first axis of points"),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=range(len(WRONG)))
def test_wrong_use_is_refused_in_three_parts(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        call()
    error: NescioError = caught.value
    assert all((error.must, error.got, error.remedy))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (
            torch.ones(3, 5),
            "the network must accept the inputs; got .*; check the shape of x and that it is torch.float32",
        ),
        (torch.ones(3, 2, dtype=DOUBLE), "the network must accept the inputs; got .*; check the shape of x"),
        ({"wrong": torch.ones(3, 2)}, "the network must accept the inputs; got .*unexpected keyword"),
        (torch.ones(0, 2), "inputs must hold at least one point; got none"),
    ],
    ids=["shape", "precision", "name", "empty"],
)
def test_points_that_do_not_fit_are_refused_at_prediction_too(x: Any, message: str) -> None:
    model = plain()
    posterior = fit(model, (torch.ones(4, 2), torch.ones(4, 1)), 2 * MAP(epochs=1))
    for ask in (posterior.predict, model.prior_predictive, plain().prior_predictive):
        with pytest.raises(InputError, match=message):
            ask(x)


def test_an_error_that_is_not_the_inputs_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise RuntimeError("out of memory")

    model = plain()
    monkeypatch.setattr(type(model.network), "stacked", full)
    with pytest.raises(RuntimeError, match="out of memory"):
        model.prior_predictive(torch.ones(3, 2))


def test_a_number_is_no_prior_and_no_draws_are_no_predictive() -> None:
    with pytest.raises(InputError, match="net × prior × likelihood; got Linear, float and Gaussian; write"):
        Model(nn.Linear(1, 1), 3.0, Gaussian(0.1))  # type: ignore[arg-type]
    for draws in (0, -1):
        with pytest.raises(InputError, match="at least one draw must be asked for; got"):
            plain().prior_predictive(torch.ones(3, 2), draws=draws)


def test_a_copy_on_a_device_is_the_same_model() -> None:
    """`fit(device=...)` copies the model; improper and positive laws must not lose what they are in the copy."""
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    model = Model(
        mlp(2, 3, 1), {"*.weight": Flat(), "*": Normal(0.0, HalfCauchy(1.0).per("layer"))}, Gaussian(HalfFlat())
    )
    here, there = (fit(model, (x, x[:, :1]), MAP(epochs=3), device=device) for device in (None, "cpu"))
    assert torch.equal(here.ends().theta, there.ends().theta)
    again = copy.deepcopy(model)
    assert torch.equal(
        again.prior.at(model.network.weights(), model.noise(0)), model.prior.at(model.network.weights(), model.noise(0))
    )
