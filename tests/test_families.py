"""Families beyond mean field and full rank: exact posteriors, densities against dense ones, bounds against evidence, natural gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from chance import Z, assert_gaussian_variance, assert_law, assert_mean, within
from check_method import check_method
from conjugate import DOUBLE, ROWS, SD, WIDTH, conjugate, gaussian, variational
from scipy import integrate, stats
from torch import Tensor, nn
from torch import distributions as td
from torch.nn import functional as F

from nescio import FileError, InputError, Model, UnsupportedError, fit, load
from nescio.families import (
    BernoulliDropout,
    Block,
    ConcreteDropout,
    Family,
    FullRank,
    Gaussian,
    GaussianDropout,
    InverseCDF,
    Logistic,
    LowRank,
    MatrixNormal,
    MeanField,
    MultiplicativeFlow,
    VariationalDropout,
)
from nescio.families.correlated import Correlated as OneGaussian
from nescio.families.covariance import Covariance, Full, LowRankPlusDiagonal
from nescio.families.family import Factor
from nescio.families.flows import Autoregressive, Coupling, Flow, through
from nescio.families.inverse_cdf import Shaped
from nescio.families.matrix_normal import Matrix
from nescio.families.multiplicative_flow import Multiplicative
from nescio.infer import IVON, MAP, VI, Constant, elbo_code
from nescio.infer.elbo import NegativeELBO
from nescio.laws import Correlated, Laplace, LogUniform, Normal, StudentT
from nescio.laws import MatrixNormal as MatrixLaw
from nescio.laws.law import Law
from nescio.laws.site import Site
from nescio.likelihoods import Gaussian as Noisy
from nescio.machine import traced
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.rewritten import rewritten
from nescio.weights import RandomWeight


class Student2(td.Distribution):
    """Student's t with two degrees of freedom: a class of somebody's own, with an inverse CDF."""

    arg_constraints = {}

    def __init__(self, loc: Tensor, scale: Tensor, validate_args: bool | None = None) -> None:
        self.loc, self.scale = loc, scale
        super().__init__(loc.shape, validate_args=False)

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (2 * value - 1) / (2 * value * (1 - value)).sqrt()

    def log_prob(self, value: Tensor) -> Tensor:
        return -1.5 * torch.log1p(((value - self.loc) / self.scale).square() / 2) - math.log(2**1.5) - self.scale.log()


class Crooked(td.Distribution):
    """Skewed, though its quartiles are as far from zero as each other."""

    arg_constraints = {}

    def __init__(self, loc: Tensor, scale: Tensor, validate_args: bool | None = None) -> None:
        self.loc, self.scale = loc, scale
        super().__init__(loc.shape, validate_args=False)

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (torch.logit(value) + (value - 0.5).square() - 0.0625)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def block(*shape: int, seed: int = 0) -> Block:
    return Block("w", Site("w", shape), normal(*shape, seed=seed).reshape(-1))


def stirred(factor: Factor, by: float = 0.3) -> Factor:
    """Away from its start, so that nothing is zero or the same."""
    with torch.no_grad():
        for i, p in enumerate(factor.parameters()):
            p.add_(by * normal(*p.shape, seed=10 + i))
    factor.begin()
    return factor


def dense(factor: Factor) -> td.MultivariateNormal:
    """A Gaussian factor as one with a whole covariance matrix, of its flattened weights."""
    factor.begin()
    with torch.no_grad():
        if isinstance(factor, Matrix):
            covariance = torch.kron(factor.rows.matrix(), factor.columns.matrix())
        else:
            assert isinstance(factor, OneGaussian)
            covariance = factor.covariance.matrix()
        return td.MultivariateNormal(factor.mean().detach(), covariance)


GAUSSIANS: dict[str, Any] = {
    "low rank": lambda: LowRank(2, sd=0.3).factor([block(2, 3), block(2, seed=1)]),
    "full rank": lambda: FullRank(sd=0.3).factor([block(2, 3), block(2, seed=1)]),
    "matrix": lambda: Matrix(block(2, 3), MatrixNormal(sd=0.3)),
    "matrix of directions": lambda: Matrix(block(2, 3), MatrixNormal(rank=1, sd=0.3)),
    "matrix of a convolution": lambda: Matrix(block(2, 1, 3), MatrixNormal(sd=0.3)),
}


# ---- densities, divergences and draws against dense ones -----------------------------------------------------------


def check_densities(name: str) -> None:
    factor = stirred(GAUSSIANS[name]())
    q, sizes = dense(factor), [len(b.start) for b in factor.blocks]
    u = q.loc + normal(sum(sizes), seed=5)
    assert float(factor.log_prob(u).detach()) == pytest.approx(float(q.log_prob(u)), rel=1e-9)
    laws = [td.Normal(normal(n, seed=6), normal(n, seed=7).exp()) for n in sizes]
    p = td.MultivariateNormal(
        torch.cat([law.loc for law in laws]), torch.cat([law.scale for law in laws]).square().diag()
    )
    kl = factor.kl(laws)
    assert kl is not None and float(kl.detach()) == pytest.approx(float(td.kl_divergence(q, p)), rel=1e-9)
    assert factor.kl([td.Laplace(law.loc, law.scale) for law in laws]) is None


@pytest.mark.parametrize("name", GAUSSIANS)
def test_densities_and_divergences_are_those_of_dense_gaussians(name: str) -> None:
    check_densities(name)


def check_draws(name: str) -> None:
    """Whitened draws have mean 0 and covariance 1."""
    factor, n = stirred(GAUSSIANS[name]()), 4000
    q = dense(factor)
    with Noise(0).scope(), torch.no_grad():
        drawn = torch.stack([factor.draw() for _ in range(n)])
    white = torch.linalg.solve_triangular(q.scale_tril, (drawn - q.loc).T, upper=False).T
    assert_mean(white, 0.0, 1.0)
    assert_gaussian_variance(white, 0.0, 1.0)
    products = (white.T @ white / n)[torch.tril_indices(*q.covariance_matrix.shape, -1).unbind()]
    within(products * math.sqrt(n), "correlation")


@pytest.mark.parametrize("name", GAUSSIANS)
def test_draws_have_the_law_of_the_density(name: str) -> None:
    check_draws(name)


@pytest.mark.parametrize("make", [partial(Full, 4, 0.3), partial(LowRankPlusDiagonal, 4, 2, 0.3)])
def test_a_covariance_is_one_matrix_however_it_is_asked(make: Any) -> None:
    covariance: Covariance = make(like=torch.zeros((), dtype=DOUBLE))
    stirred(covariance)  # type: ignore[arg-type]
    x, whole = normal(4, 3), covariance.matrix()
    torch.testing.assert_close(covariance.times(x), whole @ x)
    torch.testing.assert_close(covariance.solve(whole @ x), x)
    torch.testing.assert_close(covariance.variances(), whole.diagonal())
    torch.testing.assert_close(covariance.half_log_det(), 0.5 * torch.logdet(whole))
    root = covariance.root_times(torch.eye(covariance.width, dtype=DOUBLE))
    torch.testing.assert_close(root @ root.T, whole)


# ---- exact posteriors ----------------------------------------------------------------------------------------------


def check_low_rank() -> None:
    """With as many directions as numbers it is the exact posterior, over four layers: within 1%."""
    exact = conjugate()
    method = MAP(epochs=100, lr=0.1, batch_size=ROWS) >> VI(
        LowRank(WIDTH, sd=0.02, path_gradient=True), epochs=300, lr=0.03, samples=4, batch_size=ROWS
    )
    posterior = variational(fit(exact.model, (exact.x, exact.y), method))
    (factor,) = posterior.q.parts()
    q = dense(factor)
    assert float(((q.loc - exact.mean) / exact.covariance.diagonal().sqrt()).abs().max()) < 0.01
    assert float((q.covariance_matrix - exact.covariance).norm() / exact.covariance.norm()) < 0.01
    assert posterior.info["elbo"] < exact.evidence + 6 * posterior.info["elbo_se"]


def test_lengths_are_squares_however_badly_a_covariance_is_conditioned() -> None:
    """Σ⁻¹ x in single precision may point away from x: a density would grow without bound."""
    covariance = Full(12, 0.05, torch.zeros(12))
    with torch.no_grad():
        covariance.lower.fill_(30.0)
        covariance.begin()
        white = Noise(3).normal(12, 5)
        assert float(covariance.length(covariance.root_times(white))) >= 0
        covariance.lower.fill_(0.3)
        covariance.begin()
        x = covariance.root_times(white)
        torch.testing.assert_close(covariance.length(x).float(), white.square().sum())
        torch.testing.assert_close((x * covariance.solve(x)).sum(), white.square().sum())


def test_families_whose_draw_serves_all_rows_take_several_a_step() -> None:
    model, data = Model(mlp(1, 4, 1), Normal(0.0, 1.0), Noisy(0.1)), (torch.zeros(6, 1), torch.zeros(6, 1))
    taken = [VI(f).objective(model, data)[1].samples for f in (MeanField(), FullRank(), LowRank(2))]
    assert taken == [1, 4, 4] and VI(FullRank(), samples=1).objective(model, data)[1].samples == 1


def test_low_rank_with_all_directions_is_the_exact_posterior() -> None:
    check_low_rank()


def test_low_rank_finds_a_diagonal_and_two_directions() -> None:
    """Under data that say nothing the posterior is the prior, which is such a Gaussian."""
    size, directions = 6, 0.5 * normal(6, 2)
    truth = torch.linspace(0.2, 0.6, size, dtype=DOUBLE).square().diag() + directions @ directions.T
    model = Model(nn.Linear(size, 1, bias=False).double(), Correlated(truth), Noisy(1.0))
    data = torch.zeros(4, size, dtype=DOUBLE), torch.zeros(4, 1, dtype=DOUBLE)
    method = VI(LowRank(2, sd=0.3, path_gradient=True), epochs=1000, lr=0.05, batch_size=4)
    (factor,) = variational(fit(model, data, method)).q.parts()
    q = dense(factor)
    assert float((q.covariance_matrix - truth).norm() / truth.norm()) < 0.01
    assert float((q.loc / truth.diagonal().sqrt()).abs().max()) < 0.01


def check_matrix_normal(rank: int | None = None) -> None:
    """Regression of several outputs on the same inputs: the posterior is matrix normal, 1 ⊗ (XᵀX / SD² + 1)⁻¹. Within 1%."""
    x, outputs = normal(40, 4), 3
    x[:, 1:] += 0.6 * x[:, :-1]
    y = x @ normal(4, outputs, seed=1) + SD * normal(40, outputs, seed=2)
    columns = (x.T @ x / SD**2 + torch.eye(4, dtype=DOUBLE)).inverse().contiguous()
    mean = (columns @ x.T @ y / SD**2).T
    with Noise(0).scope():
        model = Model(nn.Linear(4, outputs, bias=False).double(), Normal(0.0, 1.0), Noisy(SD))
    method = MAP(epochs=100, lr=0.1, batch_size=40) >> VI(
        MatrixNormal(rank, sd=0.02), epochs=150, lr=0.03, samples=1500, batch_size=40
    )
    (factor,) = variational(fit(model, (x, y), method)).q.parts()
    q, exact = dense(factor), torch.kron(torch.eye(outputs, dtype=DOUBLE), columns)
    assert float((q.covariance_matrix - exact).norm() / exact.norm()) < 0.01
    assert float(((q.loc - mean.reshape(-1)) / exact.diagonal().sqrt()).abs().max()) < 0.015  # of a standard deviation


@pytest.mark.parametrize("rank", [None, 4])
def test_matrix_normal_is_the_exact_posterior(rank: int | None) -> None:
    check_matrix_normal(rank)


def check_matrix_prior() -> None:
    """Where q is the prior, log q - log p is zero, draw by draw: rows are outputs in both, and columns inputs."""
    parts = [normal(n, n, seed=n) for n in (2, 3)]
    rows, columns = (a @ a.T + 0.1 * torch.eye(len(a), dtype=DOUBLE) for a in parts)
    model = Model(nn.Linear(3, 2, bias=False).double(), MatrixLaw(rows, columns), Noisy(1.0))
    posterior, loss = VI(MatrixNormal()).objective(model, (torch.ones(2, 3).double(), torch.ones(2, 2).double()))
    (factor,) = posterior.q.parts()
    assert isinstance(factor, Matrix)
    with torch.no_grad(), Noise(0).scope():
        factor.loc.zero_()
        for own, whole in ((factor.rows, rows), (factor.columns, columns)):
            assert isinstance(own, Full)
            root = torch.linalg.cholesky(whole)
            own.rho.copy_(root.diagonal().expm1().log())
            own.lower.copy_(root / root.diagonal()[:, None])
        divergences = torch.stack([loss.q.call().divergence() for _ in range(5)])
    assert float(divergences.abs().max()) < 1e-9


def test_matrix_normal_under_its_own_law() -> None:
    check_matrix_prior()


# ---- rules: per-example noise has the law of coherent draws --------------------------------------------------------


RULES: dict[str, Any] = {
    "matrix": lambda: Matrix(block(3, 2), MatrixNormal(sd=0.3)),
    "matrix of directions": lambda: Matrix(block(3, 2), MatrixNormal(rank=2, sd=0.3)),
    "flow": lambda: Multiplicative(block(3, 2), MultiplicativeFlow(hidden=6, sd=0.3, z_sd=0.5)),
    "inverse flow": lambda: Multiplicative(block(3, 2), MultiplicativeFlow(2, 6, True, sd=0.3, z_sd=0.5)),
    "Laplace": lambda: Shaped(block(3, 2), td.Laplace, 0.3),
    "Logistic": lambda: Shaped(block(3, 2), Logistic, 0.3),
}


def check_rule(name: str) -> None:
    """Outputs for two inputs, by the rule and by drawn weights: the same means, and the same products of the outputs of one example;
    by the rule none between examples. With a Gaussian bias."""
    factor, n = stirred(RULES[name](), 0.5 if name.startswith("matrix") else 0.2), 3000
    bias = Gaussian(Block("b", Site("b", (3,)), normal(3, seed=3)), 0.2)
    bias.begin()
    x = torch.tensor([[1.0, -0.5], [0.3, 2.0]], dtype=DOUBLE)
    copies = 1 if isinstance(factor, Shaped) else n  # whose draw is one for all, with signs of their own

    def by_rule() -> Tensor:
        factor.begin()
        own, shift = (
            RandomWeight.of(f, lambda f=f: f.draw().view(f.blocks[0].shape), torch.empty(f.blocks[0].shape).double())
            for f in (factor, bias)
        )
        out = F.linear(x.repeat(copies, 1), own, shift)
        assert isinstance(factor, Shaped) or own.drawn is None, "the rule was not used"
        return out.view(copies, 2, 3)

    def by_draw() -> Tensor:
        factor.begin()
        return F.linear(x, factor.draw().view(3, 2), bias.draw())

    with Noise(0).scope(), torch.no_grad():
        rule = torch.cat([by_rule() for _ in range(n // copies)])  # (n, examples, outputs)
        draw = torch.stack([by_draw() for _ in range(n)])
    centre = draw.mean(0)

    def moments(out: Tensor) -> Tensor:
        away = out - centre
        products = (away[..., :, None] * away[..., None, :]).flatten(2)  # between the outputs of an example
        return torch.cat([away, products], 2).flatten(1)

    a, b = moments(rule), moments(draw)
    within((a.mean(0) - b.mean(0)) / ((a.var(0) + b.var(0)) / n).sqrt())
    if not isinstance(factor, Shaped):  # whose bias is one draw for all
        assert_mean((rule - rule.mean(0)).prod(1), 0.0)


@pytest.mark.parametrize("name", RULES)
def test_noise_of_its_own_has_the_law_of_a_coherent_draw(name: str) -> None:
    check_rule(name)


@pytest.mark.parametrize("family", [LowRank(2), MatrixNormal(), MultiplicativeFlow(1, 4), InverseCDF(td.Gumbel)])
def test_convolutions_and_tokens_work_by_draws(family: Family) -> None:
    net = nn.Sequential(nn.Conv1d(2, 3, 2), nn.Tanh(), nn.Linear(3, 2), nn.Flatten(), nn.Linear(6, 1))
    x, y = torch.randn(8, 2, 4), torch.randn(8, 1)
    posterior, loss = VI(family, samples=2).objective(Model(net, Normal(0.0, 1.0), Noisy(1.0)), (x, y))
    loss(x, y).backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in loss.parameters())
    assert posterior.predict(x).mean.shape == (8, 1)


def check_samples_are_draws() -> None:
    """Without a rule, two samples are two draws and not one draw on twice the rows: the variance of the estimate halves."""
    exact = conjugate()
    spread = []
    for samples in (1, 8):
        _, loss = VI(FullRank(sd=0.3), samples=samples).objective(exact.model, (exact.x, exact.y))
        with Noise(0).scope(), torch.no_grad():
            spread.append(float(torch.stack([loss.estimate(exact.x, exact.y) for _ in range(150)]).var()))
    assert spread[1] < 0.5 * spread[0]


def test_several_samples_are_several_draws() -> None:
    check_samples_are_draws()


# ---- flows ---------------------------------------------------------------------------------------------------------


def flows_of(kind: type[Coupling | Autoregressive], size: int) -> list[Flow]:
    made = [kind(size, 7, turn, Noise(turn)).double() for turn in range(3)]
    return [stirred_flow(flow) for flow in made]


def stirred_flow(flow: Flow) -> Flow:
    with torch.no_grad():
        for i, p in enumerate(flow.parameters()):
            p.add_(0.7 * normal(*p.shape, seed=20 + i))
    return flow


def check_flow(kind: type[Coupling | Autoregressive]) -> None:
    """The log determinant is that of the Jacobian, the inverse is one, and all numbers come to depend on each other."""
    for size in (1, 2, 5):
        flows = nn.ModuleList(flows_of(kind, size))
        z = normal(4, size)
        out, log_det = through(flows, z)
        for i in range(4):
            jacobian = torch.autograd.functional.jacobian(lambda v, own=flows: through(own, v[None])[0][0], z[i])
            assert float(log_det[i].detach()) == pytest.approx(float(torch.linalg.slogdet(jacobian)[1]), abs=1e-9)
        if size > 1:
            assert bool((jacobian.abs() > 1e-9).sum() > size)
        back = out.detach()
        for flow in reversed(list(flows)):
            assert isinstance(flow, Flow)
            back = flow.inverse(back)
        torch.testing.assert_close(back.detach(), z, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kind", [Coupling, Autoregressive])
def test_flows_know_their_determinant_and_their_inverse(kind: type[Coupling | Autoregressive]) -> None:
    check_flow(kind)


def check_normalised(autoregressive: bool = False) -> None:
    """E_q [g(W) r(z | W) / (q(W | z) q(z))] = ∫ g r = 1 for every density g: nothing of the bound is missing or counted twice."""
    factor = Multiplicative(block(1, 2), MultiplicativeFlow(2, 6, autoregressive, sd=0.5, z_sd=0.4))
    stirred(factor, 0.1)
    with torch.no_grad():
        factor.r_log_sd.sub_(0.3)  # narrower than q: the weights have few outliers
    ratios = []
    with Noise(0).scope(), torch.no_grad():
        draws = []
        for _ in range(200):
            factor.begin()
            draws.append(factor.draw())
        g = td.Normal(torch.stack(draws).mean(0), 0.6 * torch.stack(draws).std(0))
        for _ in range(2500):
            factor.begin()
            u = factor.draw()
            ratios.append((g.log_prob(u).sum() - factor.log_prob(u)).exp())
    found = torch.stack(ratios)
    assert_mean(found, 1.0)
    assert float(found.std()) < 5, "too wild to tell"


@pytest.mark.parametrize("autoregressive", [False, True])
def test_the_auxiliary_bound_is_normalised(autoregressive: bool) -> None:
    check_normalised(autoregressive)


def check_flow_divergence() -> None:
    """The divergence that is closed given z, and the one by draws."""
    factor = Multiplicative(block(3, 2), MultiplicativeFlow(2, 6, sd=0.4, z_sd=0.4))
    stirred(factor, 0.1)
    prior, closed, drawn = td.Normal(torch.tensor(0.2).double(), torch.tensor(0.8).double()), [], []
    with Noise(0).scope(), torch.no_grad():
        for _ in range(1000):
            factor.begin()
            closed.append(factor.kl([prior]))
            factor.begin()
            u = factor.draw()
            drawn.append(factor.log_prob(u) - prior.log_prob(u).sum())
    a, b = torch.stack(closed), torch.stack(drawn)  # type: ignore[arg-type]
    within((a.mean() - b.mean()) / ((a.var() + b.var()) / 1000).sqrt())


def test_the_divergence_of_a_flow_in_both_ways() -> None:
    check_flow_divergence()


UNITS, NOISE = 6, 0.05


class Bent(nn.Module):
    """Its data say that the weights of each input are nearly equal, and that their two means lie on a parabola."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, UNITS, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        w = self.inner(torch.eye(2).to(x))  # (inputs, units)
        c = w.sum(1) / UNITS**0.5
        return x * torch.cat([(w - w.mean(1, keepdim=True)).flatten(), 2 * NOISE * (c[1] + c[0] ** 2)[None]])


def bent_evidence() -> float:
    """Under N(0, 1): the two means by quadrature, the others, of which one direction is noise alone, in closed form."""
    grid = torch.linspace(-7, 7, 1401, dtype=DOUBLE)
    a, b = torch.meshgrid(grid, grid, indexing="ij")
    white = td.Normal(torch.zeros((), dtype=DOUBLE), 1.0)
    each = white.log_prob(a) + white.log_prob(b) + stats_normal(NOISE - 2 * NOISE * (b + a**2), NOISE)
    others = -UNITS * math.log(2 * math.pi) - (UNITS - 1) * math.log1p(NOISE**2) - 2 * math.log(NOISE)
    return float(each.flatten().logsumexp(0) + 2 * math.log(0.01)) + others


def stats_normal(away: Tensor, sd: float) -> Tensor:
    return -0.5 * (away / sd).square() - math.log(sd) - 0.5 * math.log(2 * math.pi)


def bound(model: Model, data: tuple[Tensor, Tensor], family: Family, epochs: int, lr: float) -> Tensor:
    """Estimates of the bound after training."""
    posterior = variational(fit(model, data, VI(family, epochs=epochs, lr=lr, samples=2, batch_size=1)))
    _, loss = VI(family).objective(model, data)
    loss.q.load_state_dict(posterior.q.state_dict())
    with Noise(1).scope(), torch.no_grad():
        return torch.stack([loss.estimate(*data) for _ in range(400)])


def check_flow_bound(autoregressive: bool = False) -> None:
    """On a curved posterior a flow is above mean field and below the evidence, each by more than six standard errors."""
    data = torch.ones(1, 1, dtype=DOUBLE), torch.zeros(1, 2 * UNITS + 1, dtype=DOUBLE)
    data[1][0, -1] = NOISE
    with Noise(0).scope():
        model = Model(Bent().double(), Normal(0.0, 1.0), Noisy(NOISE))
    field = bound(model, data, MeanField(sd=0.05), 200, 0.03)
    flow = bound(model, data, MultiplicativeFlow(2, 50, autoregressive, 0.05, 1.0), 300, 0.05)
    se = math.sqrt(float(flow.var() + field.var()) / 400)
    assert float(flow.mean() - field.mean()) > Z * se
    assert bent_evidence() - float(flow.mean()) > Z * math.sqrt(float(flow.var()) / 400)


@pytest.mark.parametrize("autoregressive", [False, True])
def test_a_flow_is_between_mean_field_and_the_evidence(autoregressive: bool) -> None:
    check_flow_bound(autoregressive)


def test_a_flow_starts_at_the_networks_own_weights() -> None:
    net = nn.Linear(4, 3)
    posterior, _ = VI(MultiplicativeFlow()).objective(
        Model(net, Normal(0.0, 1.0), Noisy(1.0)), (torch.ones(3, 4), torch.ones(3, 3))
    )
    torch.testing.assert_close(posterior.point()["weight"], net.weight.detach(), rtol=0.3, atol=0.02)


# ---- inverse CDFs --------------------------------------------------------------------------------------------------


SHAPES: dict[str, tuple[type[td.Distribution], Any]] = {
    "Laplace": (td.Laplace, stats.laplace()),
    "Logistic": (Logistic, stats.logistic()),
    "Student2": (Student2, stats.t(2)),
    "Gumbel": (td.Gumbel, stats.gumbel_r()),
    "Cauchy": (td.Cauchy, stats.cauchy()),
}


def check_shape(name: str) -> None:
    """Draws have the law, the density is that law's, the middle is its mean or median, and the slopes are those of μ + σ F⁻¹."""
    q, law = SHAPES[name]
    factor = stirred(Shaped(block(2, 3), q, 0.4))
    assert isinstance(factor, Shaped)
    loc, sd = factor.loc.detach().reshape(-1), factor.sd.detach().reshape(-1)
    with Noise(0).scope():
        drawn = torch.stack([factor.draw() for _ in range(3000)])
        white = ((drawn.detach() - loc) / sd).numpy()
        for i in range(6):
            assert_law(white[:, i], law.cdf)
    assert float(factor.log_prob(drawn[0]).detach()) == pytest.approx(
        float((torch.from_numpy(law.logpdf(white[0])) - sd.log()).sum())
    )
    middle = law.mean() if math.isfinite(law.mean()) else law.median()
    torch.testing.assert_close(factor.mean().detach(), loc + sd * middle)
    (slope,) = torch.autograd.grad(drawn[0].sum(), factor.rho)
    torch.testing.assert_close(slope.reshape(-1), torch.from_numpy(white[0]) * (1 - (-sd).exp()))


@pytest.mark.parametrize("name", SHAPES)
def test_an_inverse_cdf_draws_its_law(name: str) -> None:
    check_shape(name)


def check_laplace_bound() -> None:
    """The ELBO of a regression under Laplace weights, whose squares are exact. The divergence by quadrature: from a Normal and a Laplace
    prior it is known in closed form, from Student's by draws."""
    x, y = normal(20, 2), normal(20, 1, seed=1)
    cases = {
        Normal(0.0, 0.8): stats.norm(0, 0.8),
        Laplace(0.0, 0.8): stats.laplace(0, 0.8),
        StudentT(5.0, 0.0, 0.8): stats.t(5, 0, 0.8),
    }
    for prior, law in cases.items():
        with Noise(4).scope():
            model = Model(nn.Linear(2, 1, bias=False).double(), prior, Noisy(SD))
        _, loss = VI(InverseCDF(td.Laplace, sd=0.3)).objective(model, (x, y))
        (factor,) = loss.q.parts()
        factor.begin()
        loc, kl = factor.mean().detach(), 0.0
        for m in loc.tolist():
            q = stats.laplace(m, 0.3)

            def inside(u: float, q: Any = q, law: Any = law) -> float:
                return q.pdf(u) * (q.logpdf(u) - law.logpdf(u))

            kl += integrate.quad(inside, m - 9, m + 9, points=[0, m])[0]
        with Noise(0).scope(), torch.no_grad():
            divergences = torch.stack([loss.q.call().divergence() for _ in range(1000)])
            estimates = torch.stack([loss.estimate(x, y) for _ in range(500)])
        if isinstance(prior, StudentT):
            assert_mean(divergences, kl)
        else:
            assert divergences.tolist() == pytest.approx([kl] * 1000, rel=1e-6)
        residual = (y[:, 0] - x @ loc).square() + x.square().sum(1) * 2 * 0.3**2
        assert_mean(estimates, float((-0.5 * residual / SD**2 - 0.5 * math.log(2 * math.pi * SD**2)).sum()) - kl)


def test_the_bound_under_laplace_weights_is_exact() -> None:
    check_laplace_bound()


@pytest.mark.parametrize("q", [td.Laplace, td.Normal, td.Gumbel, Logistic])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_uniform_number_that_is_zero_gives_a_finite_weight(
    q: type[td.Distribution], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.rand is zero once in 2^24 times: in a network of a million weights every sixteenth step."""
    factor = Shaped(Block("w", None, torch.zeros(3, dtype=dtype)), q, 0.1)
    factor.begin()
    monkeypatch.setattr(torch, "rand_like", torch.zeros_like)
    assert bool(factor.draw().isfinite().all()) and float(factor.draw()[0].detach()) < -0.2


def test_a_shape_with_symmetric_quartiles_alone_has_no_random_signs() -> None:
    assert Shaped(Block("w", None, torch.zeros(1)), td.Laplace, 0.1).symmetric
    assert not Shaped(Block("w", None, torch.zeros(1)), Crooked, 0.1).symmetric


def test_a_shape_is_restored_by_the_name_of_its_class(tmp_path: Path) -> None:
    x, y = torch.randn(8, 2), torch.randn(8, 1)
    model = Model(nn.Linear(2, 1), Normal(0.0, 1.0), Noisy(1.0))
    posterior = fit(model, (x, y), VI(InverseCDF(Student2), epochs=1))
    posterior.save(tmp_path / "q.safetensors")
    again = load(tmp_path / "q.safetensors", model)
    assert torch.equal(again.sample(2)["weight"], posterior.sample(2)["weight"])
    posterior.info["family"] = {"name": "InverseCDF", "q": "os", "sd": 0.1}
    posterior.save(tmp_path / "q.safetensors")
    with pytest.raises(FileError, match="known distribution"):
        load(tmp_path / "q.safetensors", model)
    for broken in ({"sd": 0.1}, {"q": "Laplace"}, {"q": "Laplace", "sd": None}, {"q": "Laplace", "sd": -1.0}):
        posterior.info["family"] = {"name": "InverseCDF", **broken}
        posterior.save(tmp_path / "q.safetensors")
        with pytest.raises(FileError, match="must describe its InverseCDF"):
            load(tmp_path / "q.safetensors", model)


# ---- natural gradients ---------------------------------------------------------------------------------------------


class Twice(nn.Module):
    """Its weight is drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(1, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + self.inner(x)


def check_ivon_step() -> None:
    """Two steps of algorithm 1 of Shen et al. (2024), written down from the paper, on a drawn weight with the same noise."""
    x, y = torch.tensor([[1.0], [2.0], [-1.0]], dtype=DOUBLE), torch.tensor([[0.5], [1.5], [0.3]], dtype=DOUBLE)
    with Noise(3).scope():
        model = Model(Twice().double(), Normal(0.0, 0.7), Noisy(SD))
    _, loss = VI(MeanField(sd=0.4)).objective(model, (x, y))
    m, sd, n = float(loss.q.mean()), 0.4, 3
    alpha, beta1, beta2, delta = 0.3, 0.8, 0.9, 1 / (0.7**2 * n)
    h, g, first = 1 / (n * sd**2) - delta, 0.0, 0.0
    optimizer = IVON(loss.q.named_parameters(), lr=alpha, betas=(beta1, beta2), observations=n)
    for t in (1, 2):
        with Noise(t).scope():
            epsilon = torch.randn(1, 1, dtype=DOUBLE).item()
        theta = m + sd * epsilon
        slope = float((-(y - 2 * theta * x) * 2 * x).mean()) / SD**2  # of the mean negative log likelihood
        curvature = slope * (theta - m) / sd**2
        g = beta1 * g + (1 - beta1) * slope
        r = 1 - beta2
        h = beta2 * h + r * curvature + 0.5 * r**2 * (h - curvature) ** 2 / (h + delta)
        decay, before = delta * m, m
        m = m - alpha * (g / (1 - beta1**t) + decay) / (h + delta)
        sd = 1 / math.sqrt(n * (h + delta))
        if t == 2:  # here the prior's slope is averaged, too
            averaged = (beta1 * (1 - beta1) * first + (1 - beta1) * delta * before) / (1 - beta1**2)
            m = m - alpha * (averaged - decay) / (h + delta)
        first = delta * before
        optimizer.zero_grad()
        with Noise(t).scope():
            loss.estimate(x, y)
        optimizer.step()
    (factor,) = loss.q.parts()
    assert isinstance(factor, Gaussian)
    factor.begin()
    assert float(factor.sd.detach()) == pytest.approx(sd, rel=1e-9)
    assert float(factor.loc.detach()) == pytest.approx(m, rel=1e-9)


def test_ivon_takes_the_steps_of_the_paper() -> None:
    check_ivon_step()


def check_ivon() -> None:
    """The optimum of mean field on the conjugate problem, as with Adam."""
    exact = conjugate()
    method = MAP(epochs=300, lr=0.1, batch_size=ROWS) >> VI(
        MeanField(sd=0.04), epochs=120, lr=0.1, samples=600, batch_size=ROWS, optimizer=partial(IVON, betas=(0.9, 0.9))
    )
    q = gaussian(variational(fit(exact.model, (exact.x, exact.y), method)))
    optimum = 1 / exact.covariance.inverse().diagonal()
    assert float((q.variance / optimum - 1).abs().max()) < 0.01
    assert float(((q.loc - exact.mean) / optimum.sqrt()).abs().max()) < 0.01


def test_ivon_reaches_the_optimum_of_mean_field() -> None:
    check_ivon()


def test_ivon_learns_a_network_and_its_noise() -> None:
    x = normal(80, 2).float()
    y = torch.sin(x[:, :1]) + 0.2 * normal(80, 1, seed=1).float()
    from nescio.laws import Learned

    model = Model(mlp(2, 10, 1), Normal(0.0, 1.0), Noisy(Learned(1.0)))
    posterior = fit(model, (x, y), VI(optimizer=IVON, lr=0.1, epochs=150))
    assert float(posterior.predict(x).mean.sub(y).square().mean()) < 0.12
    assert float(posterior.sample(1)["likelihood.noise"]) < 0.5


# ---- the method ----------------------------------------------------------------------------------------------------


METHODS: Sequence[VI] = [
    VI(LowRank(2), epochs=1),
    VI(LowRank(2, by_layer=True, path_gradient=True), epochs=1),
    VI(MatrixNormal(), epochs=1),
    VI(MultiplicativeFlow(1, 4), epochs=1),
    VI(InverseCDF(td.Laplace), epochs=1),
    VI(optimizer=IVON, lr=0.05, epochs=1, schedule=Constant()),
]


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_contract(method: VI) -> None:
    check_method(method)


def test_a_run_that_was_stopped_goes_on_to_the_bit() -> None:
    import test_resume

    test_resume.MORE["ivon"] = VI(optimizer=IVON, epochs=2, batch_size=15, lr=0.05)
    try:
        test_resume.check_resumes("ivon")
    finally:
        del test_resume.MORE["ivon"]


# ---- machine code --------------------------------------------------------------------------------------------------


def small(*layers: nn.Module, prior: Law = Normal(0.0, 1.0)) -> tuple[Model, tuple[Tensor, Tensor]]:
    with Noise(0).scope():
        net = nn.Sequential(nn.Linear(2, 4), *layers, nn.Tanh(), nn.Linear(4, 1))
        return Model(net, prior, Noisy(0.3)), (torch.randn(30, 2), torch.randn(30, 1))


def parameters(posterior: Any) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in variational(posterior).q.parameters()])


def not_ours(patch: pytest.MonkeyPatch) -> None:
    """No code in C: it is torch's compiler that is to be tested."""
    patch.setattr(elbo_code.CompiledELBO, "own", lambda self, function, given: None)


def check_coded(method: VI | None = None, maker: str = "torch") -> None:
    """What is compiled has the noise of the plain run and takes the same steps; "torch": what its compiler would see, only traced."""
    method = method or VI(epochs=3, batch_size=8, kl_warmup=0.5)
    model, data = small(prior=LogUniform() if isinstance(method.family, VariationalDropout) else Normal(0.0, 1.0))

    def machine_code(function: Any, given: Sequence[Tensor], fed: bool) -> tuple[Any, float]:
        assert maker == "torch"
        graph = traced(function, given, rewritten(cuda=False))
        return lambda inputs, times: graph(*inputs), 1e-7

    with pytest.MonkeyPatch.context() as patch:
        if maker == "torch":
            not_ours(patch)
        patch.setattr(elbo_code, "machine_code", machine_code)
        coded = fit(model, data, method, compile=True)
    plain = fit(model, data, method, compile=False)
    assert coded.info["compiled"] is True and "compiled" not in plain.info
    torch.testing.assert_close(parameters(coded), parameters(plain), rtol=1e-3, atol=1e-5)
    assert coded.info["elbo_trace"] == pytest.approx(plain.info["elbo_trace"], rel=1e-4)


CODED: Sequence[VI] = [
    VI(epochs=2, batch_size=15, samples=3),
    VI(FullRank(), epochs=2, batch_size=15, samples=3),
    VI(LowRank(2), epochs=2, batch_size=15),
    VI(MatrixNormal(), epochs=2, batch_size=15),
    VI(MultiplicativeFlow(1, 4), epochs=2, batch_size=15),
    VI(InverseCDF(td.Laplace), epochs=2, batch_size=15),
    VI(BernoulliDropout(0.2), epochs=2, batch_size=15),
    VI(GaussianDropout(0.2), epochs=2, batch_size=15),
    VI(ConcreteDropout(), epochs=2, batch_size=15),
    VI(VariationalDropout(), epochs=2, batch_size=15),
    VI(epochs=2, batch_size=15, optimizer=IVON),
]


@pytest.mark.parametrize("maker", ["C", "torch"])
@pytest.mark.parametrize("method", [None, *CODED], ids=repr)
def test_what_is_compiled_takes_the_plain_steps(method: VI | None, maker: str) -> None:
    if maker == "C" and method is not None and isinstance(method.family, LowRank):
        pytest.skip("decompositions are left to torch's compiler")
    check_coded(method, maker)


def test_a_compiled_run_is_the_plain_run(monkeypatch: pytest.MonkeyPatch) -> None:
    not_ours(monkeypatch)
    model, data = small()
    method = VI(epochs=2, batch_size=15)
    coded, plain = (fit(model, data, method, compile=compile) for compile in (True, False))
    assert coded.info["compiled"] is True
    torch.testing.assert_close(parameters(coded), parameters(plain), rtol=1e-3, atol=1e-5)


def test_what_cannot_be_compiled_says_why_and_runs_plainly() -> None:
    for layer, why in ((nn.BatchNorm1d(4), "norm statistics"), (nn.Dropout(0.5), "draws by itself")):
        model, data = small(layer)
        coded, plain = (fit(model, data, VI(epochs=1, batch_size=15), compile=compile) for compile in (True, False))
        assert why in coded.info["compiled"]
        assert torch.equal(parameters(coded), parameters(plain))


def test_nothing_is_said_of_machine_code_that_was_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a method that has no use for it."""
    true = VI.step
    monkeypatch.setattr(VI, "step", lambda self, target, *rest: true(self, replace(target, code=None), *rest))
    model, data = small()
    assert "compiled" not in fit(model, data, VI(epochs=1), compile=True).info


def test_blocks_whose_priors_differ_are_counted_once_each() -> None:
    """Normal laws are computed at once, the others one by one: together the sum over blocks."""
    priors = {
        "0.weight": Normal(0.3, 0.5),
        "0.bias": StudentT(3.0, 0.0, 1.0),
        "2.weight": Normal(0.0, 2.0),
        "*": Normal(0.0, 1.0),
    }
    model = Model(mlp(2, 3, 1).double(), priors, Noisy(1.0))
    _, loss = VI(MeanField(sd=0.2)).objective(model, (normal(4, 2), normal(4, 1)))
    laws = [td.Normal(0.3, 0.5), td.StudentT(3.0, 0.0, 1.0), td.Normal(0.0, 2.0), td.Normal(0.0, 1.0)]
    blocks = loss.q.layout.blocks
    assert [b.name for b in blocks] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    want = sum(
        float(td.kl_divergence(td.Normal(b.start, torch.tensor(0.2).double()), law).sum())
        for b, law in zip(blocks, laws, strict=True)
        if isinstance(law, td.Normal)
    )
    with Noise(0).scope(), torch.no_grad():
        found = loss.q.call().closed_forms()
    assert [name for name, kl in zip("abcd", found.values(), strict=True) if kl is None] == ["b"]
    assert sum(float(kl) for kl in found.values() if kl is not None) == pytest.approx(want, rel=1e-6)


def test_wrong_use_is_refused_in_three_parts() -> None:
    for build in (
        lambda: LowRank(0),
        lambda: LowRank(sd=0.0),
        lambda: MatrixNormal(rank=0),
        lambda: MultiplicativeFlow(hidden=0),
        lambda: InverseCDF(td.Laplace, sd=0.0),
        lambda: InverseCDF(td.StudentT),  # torch's has no inverse
        lambda: InverseCDF(td.Bernoulli),
        lambda: IVON([torch.ones(2)]),  # type: ignore[list-item]
        lambda: IVON([("loc", torch.ones(2))], lr=-1.0),
        lambda: VI(FullRank(), optimizer=IVON),
        lambda: VI(FullRank(), optimizer=partial(IVON, betas=(0.9, 0.9))),
    ):
        with pytest.raises(InputError) as error:
            build()
        assert error.value.must and error.value.got and error.value.remedy
    big = Model(nn.Linear(6000, 1), Normal(0.0, 1.0), Noisy(1.0))
    data = torch.ones(3, 6000), torch.ones(3, 1)
    with pytest.raises(UnsupportedError, match="give MatrixNormal a rank"):
        VI(MatrixNormal()).objective(big, data)
    loss = VI(MatrixNormal(rank=2)).objective(big, data)[1]
    assert isinstance(loss, NegativeELBO) and math.isfinite(float(loss.estimate(*data)))
