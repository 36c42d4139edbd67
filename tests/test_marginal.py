"""The evidence as a function of every learned number, what maximises it, and its referee without an approximation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from chance import Z, within
from scipy import integrate, optimize, stats
from targets import Known, conjugate, grid, to_the_mode
from torch import Tensor, nn
from torch import distributions as td

from nescio import InputError, Model, UnsupportedError, anneal, evidence, fit, load, tune
from nescio.infer import MAP, Laplace, Method
from nescio.infer.curvature import Structure, diag, full, kfac, low_rank
from nescio.infer.curvature.full import Full
from nescio.laws import HalfCauchy, Learned, MatrixNormal, Normal
from nescio.laws.law import Number, positive
from nescio.likelihoods import Categorical, Gaussian, Likelihood, MultiTask
from nescio.marginal import Annealed, learned
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior import GaussianPosterior, Mixture

DOUBLE = torch.float64
Data = tuple[Any, Any]


def inputs(rows: int = 20, columns: int = 3) -> Tensor:
    return Noise(1, ("x",), dtype=DOUBLE).normal(rows, columns)


def targets(rows: int = 20, columns: int = 1) -> Tensor:
    return Noise(1, ("y",), dtype=DOUBLE).normal(rows, columns)


# ---- the numbers of the likelihood ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Robust(Likelihood):
    """An own likelihood with a number."""

    scale: Number = positive(1.0)

    def observe(self, f: Tensor, scale: Tensor) -> td.Distribution:
        return td.StudentT(4.0, f, scale)


class Tasks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 1), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = self.body(x).tanh()
        return {"a": self.a(h), "b": self.b(h)}


def network(outputs: int) -> nn.Module:
    torch.default_generator.manual_seed(1)
    return mlp(3, 3, outputs, activation=nn.Tanh).double()


def tasks() -> nn.Module:
    torch.default_generator.manual_seed(1)
    return Tasks().double()


# a likelihood with its number(s) at a value, a network, data, and where the number is
CASES: dict[str, tuple[Callable[[Any], Likelihood], Callable[[], nn.Module], Data, str, Tensor]] = {
    "one noise": (
        lambda s: Gaussian(s, loc=1.0, scale=2.0),
        lambda: network(2),
        (inputs(), targets(columns=2)),
        "likelihood.noise",
        torch.tensor(0.7, dtype=DOUBLE),
    ),
    "a noise for each output": (
        Gaussian,
        lambda: network(2),
        (inputs(), targets(columns=2)),
        "likelihood.noise",
        torch.tensor([0.7, 0.4], dtype=DOUBLE),
    ),
    "the temperature of classes": (
        Categorical,
        lambda: network(3),
        (inputs(), torch.arange(20) % 3),
        "likelihood.noise",
        torch.tensor(1.3, dtype=DOUBLE),
    ),
    "an own likelihood": (
        Robust,
        lambda: network(1),
        (inputs(), targets()),
        "likelihood.scale",
        torch.tensor(0.7, dtype=DOUBLE),
    ),
    "one task of two": (
        lambda s: MultiTask(a=Gaussian(s), b=Categorical()),
        tasks,
        (inputs(), {"a": targets(), "b": torch.arange(20) % 3}),
        "likelihood.a.noise",
        torch.tensor(0.7, dtype=DOUBLE),
    ),
}


def laplace(model: Model, data: Data, structure: Structure) -> GaussianPosterior:
    posterior = fit(model, data, Laplace(structure))
    assert isinstance(posterior, GaussianPosterior)
    return posterior


def check_likelihood_numbers(case: str, structures: tuple[Structure, ...] = (kfac, full, diag, low_rank(30))) -> None:
    """At another value: what Laplace gives at the same weights with that constant. And the slope: finite differences of it."""
    likelihood, net, data, name, value = CASES[case]

    def constant(s: Tensor) -> float:
        return float(evidence(laplace(Model(net(), prior, likelihood(s)), data, structure)))

    for structure in structures:
        prior = Normal(0, 0.1 if structure == Full(hessian=True) else 1)  # a Hessian is no hill far from a mode
        posterior = laplace(Model(net(), prior, likelihood(Learned(value))), data, structure)
        other = (1.4 * value).requires_grad_()
        found = evidence(posterior, {name: other}, data)
        assert float(found.detach()) == pytest.approx(constant(1.4 * value), abs=1e-7)
        (slope,) = torch.autograd.grad(found, other)
        for i in range(value.numel()):
            step = torch.zeros_like(value)
            step.view(-1)[i] = 1e-5
            wanted = (constant(1.4 * value + step) - constant(1.4 * value - step)) / 2e-5
            assert float(slope.reshape(-1)[i]) == pytest.approx(wanted, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_likelihood_numbers(case: str) -> None:
    check_likelihood_numbers(case, (kfac, full))


@pytest.mark.parametrize("structure", [diag, low_rank(30), Full(hessian=True)], ids=repr)
def test_likelihood_numbers_in_other_structures(structure: Structure) -> None:
    check_likelihood_numbers("one noise", (structure,))
    check_likelihood_numbers("a noise for each output", (structure,))


def test_likelihood_numbers_of_a_part() -> None:
    """Of the last layer alone: as Laplace gives it there with that constant, and the first layer's scale is none of its business."""
    noise, other = torch.tensor([0.7, 0.4], dtype=DOUBLE), torch.tensor([0.5, 0.6], dtype=DOUBLE)
    data = inputs(), targets(columns=2)
    models = [Model(network(2), Normal(0, 1), Gaussian(n)) for n in (Learned(noise), other)]
    learns, constant = (fit(model, data, Laplace(full).on("2.*")) for model in models)
    found = evidence(learns, {"likelihood.noise": other}, data)
    assert float(found) == pytest.approx(float(evidence(constant)), abs=1e-9)


def test_every_learned_number_has_a_slope() -> None:
    """Scales for each layer, for each input, and the noise, together; and single precision is good to its rounding."""
    x, y = inputs(), targets()
    prior = {"0.weight": Normal(0, Learned(1.0).per("input")), "*": Normal(0, Learned(0.7).per("layer"))}
    model = Model(network(1), prior, Gaussian(Learned(0.5)))
    posterior = laplace(model, (x, y), kfac)
    numbers = {
        k: v.requires_grad_()
        for k, v in learned.values_of(model.prior, posterior.theta, learned.learned(model.prior)).items()
    }
    assert {name: value.numel() for name, value in numbers.items()} == {
        "prior.0.weight.scale": 3,
        "prior.*.scale": 3,
        "likelihood.noise": 1,
    }
    slopes = torch.autograd.grad(evidence(posterior, numbers, (x, y)), list(numbers.values()))
    assert all(bool((slope != 0).all()) for slope in slopes)
    single = laplace(Model(network(1).float(), prior, Gaussian(Learned(0.5))), (x.float(), y.float()), kfac)
    close = evidence(single, {"likelihood.noise": torch.tensor(0.6)}, (x.float(), y.float()))
    assert float(close) == pytest.approx(
        float(evidence(posterior, {"likelihood.noise": torch.tensor(0.6)}, (x, y))), rel=1e-5
    )


def check_structured_slope() -> None:
    """A scale for each input of a correlated law, all equal to begin with: the slope in each, against finite differences."""
    rows, columns = torch.tensor([[2.0, 0.3], [0.3, 1.0]], dtype=DOUBLE), torch.eye(3, dtype=DOUBLE) + 0.4
    law = MatrixNormal(rows, columns, scale=Learned(1.3).per("input"))
    model = Model(nn.Linear(3, 2, bias=False).double(), law, Gaussian(0.5))
    posterior = laplace(model, (inputs(), targets(columns=2)), kfac)
    value = torch.full((3,), 1.3, dtype=DOUBLE, requires_grad=True)
    (slope,) = torch.autograd.grad(evidence(posterior, {"prior.*.scale": value}), value)
    for i in range(3):
        step = 1e-5 * torch.eye(3, dtype=DOUBLE)[i]
        ends = [float(evidence(posterior, {"prior.*.scale": value.detach() + s})) for s in (step, -step)]
        assert float(slope[i]) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-6)


def test_structured_slope() -> None:
    check_structured_slope()


def test_refusals() -> None:
    x, y = inputs(), targets()
    posterior = laplace(Model(network(1), Normal(0, 1), Gaussian(Learned(0.5))), (x, y), kfac)
    with pytest.raises(InputError, match=r"need the data; got none; write evidence\(posterior, numbers, data\)"):
        evidence(posterior, {"likelihood.noise": torch.ones(())})
    with pytest.raises(InputError, match="must have 1 entries; got 2"):
        evidence(posterior, {"likelihood.noise": torch.ones(2)}, (x, y))
    classes = Model(network(3), Normal(0, 1), Categorical(Learned(1.0)))
    sampled = fit(classes, (x, torch.arange(20) % 3), Laplace(kfac, samples=1))
    with pytest.raises(UnsupportedError, match=r"takes the exact one; got samples=1"):
        evidence(sampled, {"likelihood.noise": torch.ones(())}, (x, torch.arange(20) % 3))
    with pytest.raises(InputError, match="something must be Learned"):
        tune(Model(network(1), Normal(0, 1), Gaussian(0.5)), (x, y), Laplace(kfac))
    first = Model(network(1), {"0.weight": Normal(0, Learned(1.0)), "*": Normal(0, 1)}, Gaussian(0.5))
    with pytest.raises(InputError, match=r"must depend on a Learned number; got none of \['prior.0.weight.scale'\]"):
        tune(first, (x, y), Laplace(kfac).on("2.*"))
    with pytest.raises(InputError, match="at least one round"):
        tune(classes, (x, torch.arange(20) % 3), Laplace(kfac), rounds=0)
    with pytest.raises(UnsupportedError, match="known at a mode"):
        tune(classes, (x, torch.arange(20) % 3), MAP(epochs=1))


# ---- tune ----------------------------------------------------------------------------------------------------------


def linear_data(rows: int = 40) -> Data:
    """Five inputs, the last two irrelevant."""
    x = Noise(2, ("x",), dtype=DOUBLE).normal(rows, 5)
    return x, x @ torch.tensor([[1.5], [-0.8], [0.5], [0.0], [0.0]], dtype=DOUBLE) + 0.5 * Noise(
        2, ("noise",), dtype=DOUBLE
    ).normal(rows, 1)


def best(scales: Callable[[np.ndarray], np.ndarray], count: int, data: Data) -> tuple[np.ndarray, float]:
    """The maximum of the closed-form evidence over (log scales, log noise), by another library."""
    x, y = (t.numpy() for t in data)

    def minus(z: np.ndarray) -> float:
        covariance = (x * scales(np.exp(z[:-1])) ** 2) @ x.T + np.exp(2 * z[-1]) * np.eye(len(x))
        return -float(stats.multivariate_normal(np.zeros(len(x)), covariance).logpdf(y[:, 0]))

    found = optimize.minimize(minus, np.zeros(count + 1), method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9})
    return np.exp(found.x), -float(found.fun)


def check_tune(structures: tuple[Structure, ...] = (full, kfac)) -> None:
    data = linear_data()
    wanted, highest = best(lambda s: np.full(5, s[0]), 1, data)
    for structure in structures:
        net = nn.Linear(5, 1, bias=False).double()
        model = Model(net, Normal(0, Learned(1.0)), Gaussian(Learned(1.0)))
        posterior = tune(model, data, to_the_mode(40) >> Laplace(structure), rounds=12, tolerance=1e-9)
        tuned = [posterior.info["tuned"][name] for name in ("prior.*.scale", "likelihood.noise")]
        np.testing.assert_allclose(tuned, wanted, rtol=1e-4)
        assert posterior.info["settled"]
        assert posterior.info["evidence"][-1] == pytest.approx(highest, abs=1e-6)
        # what comes back is the posterior at these numbers, in mean, covariance and noise
        x, y = data
        covariance = torch.linalg.inv(x.mT @ x / wanted[1] ** 2 + torch.eye(5) / wanted[0] ** 2)
        assert isinstance(posterior, GaussianPosterior)
        torch.testing.assert_close(posterior.covariance.dense(), covariance, rtol=1e-3, atol=1e-8)
        mean = covariance @ x.mT @ y / wanted[1] ** 2
        torch.testing.assert_close(posterior.point()["weight"].mT, mean, rtol=1e-3, atol=1e-6)
        assert float(evidence(posterior)) == pytest.approx(highest, abs=1e-6)


def test_tune_finds_the_optimum_of_a_linear_model() -> None:
    check_tune()


def check_relevance() -> None:
    """A scale for each input: the optimum of the closed form, in which inputs that do nothing have none."""
    data = linear_data()
    wanted, highest = best(lambda s: s, 5, data)
    model = Model(nn.Linear(5, 1, bias=False).double(), Normal(0, Learned(1.0).per("input")), Gaussian(Learned(1.0)))
    posterior = tune(model, data, to_the_mode(40) >> Laplace(full), rounds=60, tolerance=1e-7)
    scales = np.array(posterior.info["tuned"]["prior.*.scale"])
    kept = wanted[:5] > 0.05
    assert kept[:3].all() and not kept[3:].all()
    np.testing.assert_allclose(scales[kept], wanted[:5][kept], rtol=1e-3)
    assert float(scales[~kept].max()) < 0.02
    assert posterior.info["evidence"][-1] == pytest.approx(highest, abs=1e-3)


def test_relevance() -> None:
    check_relevance()


def check_post_hoc() -> None:
    """One round leaves a trained network as it is and finds the best numbers at its weights; the evidence rises."""
    data = (inputs(40), targets(40))
    net = network(1)
    model = Model(net, Normal(0, Learned(1.0).per("layer")), Gaussian(Learned(0.3)))
    posterior = tune(model, data, Laplace(kfac), rounds=1)
    for name, weight in model.network.weights().items():
        assert torch.equal(posterior.point()[name], weight)
    before, after = posterior.info["evidence"]
    assert after > before + 1
    assert float(evidence(posterior)) == pytest.approx(after, abs=1e-5)
    numbers = {
        n: torch.tensor(v, dtype=DOUBLE).reshape(-1).requires_grad_() for n, v in posterior.info["tuned"].items()
    }
    value = evidence(posterior, numbers, data)
    slopes = torch.autograd.grad(value, list(numbers.values()))
    assert all(
        float((slope * number.detach()).abs().max()) < 1e-3
        for slope, number in zip(slopes, numbers.values(), strict=True)
    )


def test_post_hoc(tmp_path: Any) -> None:
    check_post_hoc()


def check_held() -> None:
    """Training holds the noise that is tuned: the fit's own noise would be that of the residuals, which is smaller."""
    data = linear_data(12)
    model = Model(nn.Linear(5, 1, bias=False).double(), Normal(0, 1), Gaussian(Learned(1.0)))
    posterior = tune(model, data, to_the_mode(12) >> Laplace(full), rounds=10, tolerance=1e-9)
    wanted = best(lambda s: np.ones(5), 0, data)[0][-1]
    fitted = float(fit(model, data, to_the_mode(12, 60)).point()["likelihood.noise"])
    assert posterior.info["tuned"]["likelihood.noise"] == pytest.approx(wanted, rel=1e-4)
    assert fitted < 0.9 * wanted


def test_training_holds_the_noise() -> None:
    check_held()


def test_interleaved_with_training(tmp_path: Any) -> None:
    """A few epochs a round, each from the weights of the last; members share their numbers; what comes back can be stored."""
    x, y = inputs(30), (inputs(30)[:, :1] * 2).sin()
    model = Model(network(1), Normal(0, Learned(1.0)), Gaussian(Learned(1.0)))
    method: Method = 2 * (MAP(epochs=20, lr=0.03) >> Laplace(kfac))
    posterior = tune(model, (x, y), method, rounds=4, tolerance=1e-9)
    assert isinstance(posterior, Mixture)
    assert len(posterior.parts) == 2
    one, two = (part.point() for part in posterior.parts)
    assert torch.equal(one["likelihood.noise"], two["likelihood.noise"])
    assert not torch.equal(one["0.weight"], two["0.weight"])
    trace = posterior.info["evidence"]
    assert len(trace) == 5
    assert trace[-1] > trace[0] + 1
    assert float(evidence(posterior)) == pytest.approx(trace[-1], abs=1e-4)
    posterior.save(tmp_path / "tuned")
    again = load(tmp_path / "tuned", model)
    assert float(evidence(again)) == pytest.approx(float(evidence(posterior)), abs=1e-9)
    assert again.info["tuned"] == posterior.info["tuned"]


def test_numbers_stay_within_reach() -> None:
    """Nothing speaks for a scale above zero: it falls until that is no gain any more, and not beyond its range."""
    net = nn.Linear(1, 1, bias=False).double()
    model = Model(net, Normal(0, Learned(1.0)), Gaussian(1.0))
    x = torch.ones(10, 1, dtype=DOUBLE)
    posterior = tune(model, (x, torch.zeros(10, 1, dtype=DOUBLE)), to_the_mode(10) >> Laplace(full))
    assert 0.99 / learned.RANGE <= posterior.info["tuned"]["prior.*.scale"] < 1e-2


# ---- the referee ---------------------------------------------------------------------------------------------------


def check_anneal(known: Known, **options: int) -> Annealed:
    """Within Z standard errors of the exact evidence, as far as the mean weight is normal."""
    found = anneal(known.model, known.data, **options)
    assert known.log_evidence is not None
    assert found.error < 0.1
    within((found.log_evidence - known.log_evidence) / found.error)
    return found


def test_annealing_agrees_with_the_closed_form() -> None:
    check_anneal(conjugate(20, 2), chains=400, temperatures=40)


def test_annealing_agrees_with_the_grid() -> None:
    """A network with a skewed posterior, of which Laplace's evidence is off by 0.138: the referee sees it."""
    known = grid()
    found = check_anneal(known, chains=3000, temperatures=20)
    assert found.error < 0.138 / Z
    by_laplace = float(evidence(fit(known.model, known.data, to_the_mode(5, 60) >> Laplace(full))))
    within((by_laplace - found.log_evidence - 0.138) / found.error)
    assert by_laplace - found.log_evidence > 0
    assert found.bound < found.log_evidence


def test_annealing_integrates_random_numbers() -> None:
    """One observation y ~ N(0, noise²) with a random noise and no weight that matters: a one-dimensional integral."""
    net = nn.Linear(1, 1, bias=False).double()
    data = torch.zeros(3, 1, dtype=DOUBLE), torch.tensor([[0.4], [-1.1], [0.7]], dtype=DOUBLE)
    y = data[1][:, 0].numpy()

    def joint(s: float) -> float:
        return float(np.exp(stats.norm.logpdf(y, 0, s).sum()) * stats.halfcauchy.pdf(s))

    wanted = float(np.log(integrate.quad(joint, 0, np.inf)[0]))
    check_anneal(
        Known(Model(net, Normal(0, 1), Gaussian(HalfCauchy(1.0))), data, np.zeros(2), np.eye(2), wanted),
        chains=800,
        temperatures=15,
    )


def test_annealing_refuses() -> None:
    known = conjugate(5, 1)
    with pytest.raises(InputError, match="two chains, two temperatures"):
        anneal(known.model, known.data, chains=1)
