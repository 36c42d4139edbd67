"""Variational inference against exact posteriors, exact bounds, hand-made gradients and brute force."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from chance import assert_mean, between, within
from check_method import check_method
from conjugate import DOUBLE, ROWS, SD, WIDTH, Conjugate, conjugate, gaussian, variational
from scipy import integrate, stats
from torch import Tensor, nn
from torch import distributions as td

from nescio import FileError, InputError, Model, UnsupportedError, fit, load
from nescio.data.source import source
from nescio.families import Approximation, Block, Family, FullRank, Gaussian, MeanField, Point
from nescio.families.family import Factor
from nescio.infer import MAP, VI, Constant, vi
from nescio.infer.elbo import NegativeELBO
from nescio.laws import (
    Cauchy,
    Discrete,
    HalfCauchy,
    HalfNormal,
    Horseshoe,
    Laplace,
    Learned,
    LogUniform,
    MatrixNormal,
    Normal,
    SpikeSlab,
    StudentT,
    fan_in,
)
from nescio.laws import Correlated as CorrelatedLaw
from nescio.laws.law import Law
from nescio.likelihoods import Categorical
from nescio.likelihoods import Gaussian as Noisy
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior import Draws, Mixture, Variational
from nescio.target import Target

# ---- the exact posterior -------------------------------------------------------------------------------------------


def check_full_rank(temperature: float = 1.0) -> None:
    """Mean within 1% of a standard deviation, covariance within 1%, and the bound is the evidence less the divergence."""
    exact = conjugate(temperature=temperature)
    start = MAP(epochs=300, lr=0.1, batch_size=ROWS)
    method = start >> VI(FullRank(sd=0.02, path_gradient=True), epochs=600, lr=0.03, batch_size=ROWS)
    posterior = variational(fit(exact.model, (exact.x, exact.y), method, temperature=temperature))
    q = gaussian(posterior)
    assert float(((q.loc - exact.mean) / exact.covariance.diagonal().sqrt()).abs().max()) < 0.01
    assert float((q.covariance_matrix - exact.covariance).norm() / exact.covariance.norm()) < 0.01
    if temperature == 1:
        gap = float(td.kl_divergence(q, exact.posterior))
        assert posterior.info["elbo"] == pytest.approx(exact.evidence - gap, abs=6 * posterior.info["elbo_se"] + 1e-6)
        assert posterior.info["elbo_se"] < 0.05


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_full_rank_is_the_exact_posterior_split_over_four_layers(temperature: float) -> None:
    check_full_rank(temperature)


def test_mean_field_has_the_known_optimum() -> None:
    """Variances 1 / diagonal of the precision, the exact mean. By draws: their noise is about 0.4% of a variance here."""
    exact = conjugate()
    method = MAP(epochs=300, lr=0.1, batch_size=ROWS) >> VI(
        MeanField(sd=0.04), epochs=400, lr=0.005, samples=300, batch_size=ROWS
    )
    q = gaussian(variational(fit(exact.model, (exact.x, exact.y), method)))
    optimum = 1 / exact.covariance.inverse().diagonal()
    assert float((q.variance / optimum - 1).abs().max()) < 0.01
    assert float(((q.loc - exact.mean) / optimum.sqrt()).abs().max()) < 0.01


def loss_at(
    exact: Conjugate, family: Family, mean: Tensor, sd: Tensor, data: Any = None, temperature: float = 1.0
) -> NegativeELBO:
    """The loss with a mean-field q that has this mean and these deviations."""
    given = (exact.x, exact.y) if data is None else data
    _, loss = VI(family).objective(exact.model, given, temperature=temperature)
    with torch.no_grad():
        for factor, loc, spread in zip(loss.q.parts(), mean.view(4, 1, 2), sd.view(4, 1, 2), strict=True):
            assert isinstance(factor, Gaussian)
            factor.loc.copy_(loc)
            factor.rho.copy_(spread.expm1().log())
    return loss


def check_bound(scale: float = 1.0, temperature: float = 1.0) -> None:
    """ELBO(q) = log evidence - KL(q, posterior) for a q that is far from the optimum; from batches of unequal size."""
    exact = conjugate(scale)
    mean, sd = exact.mean + 0.02, torch.linspace(0.01, 0.1, WIDTH, dtype=DOUBLE)
    loss = loss_at(exact, MeanField(), mean, sd, temperature=temperature)
    estimates = []
    with Noise(0).scope(), torch.no_grad():
        for _ in range(400):
            order = torch.randperm(ROWS)
            parts = [order[:70], order[70:]]
            each = [loss.estimate(exact.x[rows], exact.y[rows]) * len(rows) / ROWS for rows in parts]
            estimates.append(torch.stack(each).sum())
    q = td.Normal(mean, sd)
    residual = (exact.y[:, 0] - exact.x @ mean).square() + exact.x.square() @ sd.square()
    fit_ = (-0.5 * residual / SD**2 - 0.5 * math.log(2 * math.pi * SD**2)).sum()
    prior = td.Normal(torch.zeros((), dtype=DOUBLE), torch.tensor(scale, dtype=DOUBLE))
    kl = td.kl_divergence(q, prior).sum()
    cross = kl + q.entropy().sum()  # -E log p
    if temperature == 1:
        joint = td.MultivariateNormal(mean, sd.square().diag())
        assert float(fit_ - kl) == pytest.approx(
            exact.evidence - float(td.kl_divergence(joint, exact.posterior)), abs=1e-8
        )
    assert_mean(torch.stack(estimates), (fit_ - cross) / temperature + q.entropy().sum())


@pytest.mark.parametrize(("scale", "temperature"), [(1.0, 1.0), (0.3, 1.0), (0.3, 0.5)])
def test_the_bound_is_the_evidence_less_the_divergence(scale: float, temperature: float) -> None:
    check_bound(scale, temperature)


def test_every_batch_is_unbiased() -> None:
    """Over all disjoint batches of an epoch, the last one ragged, the ELBO at zero spread is that of all data."""
    exact = conjugate()
    loss = loss_at(exact, MeanField(), exact.mean, torch.full((WIDTH,), 1e-9, dtype=DOUBLE))
    with torch.no_grad():
        whole = loss.estimate(exact.x, exact.y)
        parts = exact.x.split(30), exact.y.split(30)  # 30, 30, 30, 10
        mean = sum(loss.estimate(x, y) * len(x) / ROWS for x, y in zip(*parts, strict=True))
    assert float(mean) == pytest.approx(float(whole), rel=1e-6)


def check_hand_gradients() -> None:
    """∇μ = dL/dw + dKL/dμ and ∇ρ = (dL/dw ε + dKL/dσ) σ'(ρ), the ε included, on a drawn weight."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(1, 1, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(self.inner(x))  # used twice, so it is drawn

    with Noise(3).scope():
        net = Twice().double()
    x, y = torch.tensor([[1.0], [2.0]], dtype=DOUBLE), torch.tensor([[0.5], [1.5]], dtype=DOUBLE)
    _, loss = VI(MeanField(sd=0.4)).objective(Model(net, Normal(0.2, 0.7), Noisy(SD)), (x, y))
    mu, rho = (p.detach().clone() for p in loss.parameters())
    with Noise(9).scope():
        loss(x, y).backward()
    with Noise(9).scope():
        epsilon = torch.randn(1, 1, dtype=DOUBLE)
    sd = torch.log1p(rho.exp())
    w = mu + sd * epsilon
    slope = ((w**2 * x - y) * 2 * w * x).sum() / SD**2  # of the negative log likelihood
    by_mu = slope + (mu - 0.2) / 0.49
    by_rho = (slope * epsilon + sd / 0.49 - 1 / sd) * torch.sigmoid(rho)
    got = [p.grad for p in loss.parameters()]
    for g, want in zip(got, (by_mu / 2, by_rho / 2), strict=True):  # per observation
        torch.testing.assert_close(g, want)


def test_gradients_are_those_by_hand() -> None:
    check_hand_gradients()


def check_coherent() -> None:
    """posterior.sample has the law of q: mean, standard deviations, and the same weights for all inputs."""
    exact = conjugate()
    mean, sd = exact.mean, torch.linspace(0.1, 0.8, WIDTH, dtype=DOUBLE)
    loss = loss_at(exact, MeanField(), mean, sd)
    posterior = Variational(exact.model, loss.q, {}, {})
    drawn = posterior.sample(4000, seed=1)
    weights = torch.cat([drawn[f"parts.{i}.weight"][:, 0] for i in range(4)], 1)
    white = (weights - mean) / sd
    assert_mean(white, 0.0, 1.0)
    assert_mean(white.square(), 1.0, math.sqrt(2.0))
    assert torch.equal(posterior.sample(5, seed=1)["parts.0.weight"], drawn["parts.0.weight"][:5])
    assert not torch.equal(posterior.sample(5, seed=2)["parts.0.weight"], drawn["parts.0.weight"][:5])


def test_draws_are_coherent_functions() -> None:
    check_coherent()


# ---- other nets and priors -----------------------------------------------------------------------------------------


def check_convolution() -> None:
    """The ELBO of a small convolutional net under the default rule is that of brute force, by drawn weights."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(4, 1, 6, generator=generator, dtype=DOUBLE), torch.randn(4, 1, generator=generator, dtype=DOUBLE)
    with Noise(0).scope():
        net = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8, 1)).double()
        model = Model(net, Normal(0.0, 1.0), Noisy(SD))
    posterior, loss = VI(MeanField(sd=0.4)).objective(model, (x, y))
    assert loss.acting == {"0.weight", "0.bias", "3.weight", "3.bias"}
    with Noise(1).scope(), torch.no_grad():
        ours = torch.stack([loss.estimate(x, y) for _ in range(1500)])
        divergence = loss.q.call().divergence()
    brute = model.log_prob(posterior.sample(10_000), x, y).sum(1) - divergence
    within((ours.mean() - brute.mean()) / (ours.var() / len(ours) + brute.var() / len(brute)).sqrt())
    joint = math.sqrt(float(brute.var() / ours.var()))
    assert joint > 1.0, "noise of their own for the examples makes the estimate quieter"


def test_the_bound_of_a_convolutional_net() -> None:
    check_convolution()


def check_hierarchy() -> None:
    """y ~ N(w, 1), w ~ N(0, s), s ~ HalfCauchy(3), q(w) and q(log s) Gaussian: against quadrature."""

    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.tensor(0.7, dtype=DOUBLE))

        def forward(self, x: Tensor) -> Tensor:
            return self.w * x

    x, y = torch.ones(3, 1, dtype=DOUBLE), torch.tensor([[0.5], [1.0], [1.5]], dtype=DOUBLE)
    for family in (MeanField(sd=0.3), FullRank(sd=0.3)):
        model = Model(One(), Normal(0.0, HalfCauchy(3.0)), Noisy(1.0))
        _, loss = VI(family).objective(model, (x, y))
        start = {block.name: float(block.start) for block in loss.q.layout.blocks}
        mu, m = start["w"], start["prior.*.scale"]

        def inside(u: float, m: float = m, mu: float = mu) -> float:
            s = math.exp(u)
            kl = float(td.kl_divergence(td.Normal(mu, 0.3), td.Normal(0.0, s)))
            scale = stats.norm.logpdf(u, m, 0.3) - stats.halfcauchy.logpdf(s, scale=3) - u  # the Jacobian of s = e^u
            return stats.norm.pdf(u, m, 0.3) * (kl + scale)

        divergence = integrate.quad(inside, m - 3, m + 3)[0]
        fit_ = float(-0.5 * ((y - mu).square() + 0.09).sum() - 1.5 * math.log(2 * math.pi))
        with Noise(0).scope(), torch.no_grad():
            estimates = torch.stack([loss.estimate(x, y) for _ in range(1000)])
        assert_mean(estimates, fit_ - divergence)


def test_a_random_scale_against_quadrature() -> None:
    check_hierarchy()


PRIORS: list[Law | dict[str, Law]] = [
    Normal(0.0, fan_in),
    Laplace(0.0, 1.0),
    StudentT(3.0, 0.0, 1.0),
    Cauchy(0.0, 1.0),
    SpikeSlab(0.5, 1.0, 0.1),
    Horseshoe(0.1),
    LogUniform(),
    HalfNormal(1.0),
    Normal(0.0, HalfCauchy(1.0).per("input")),
    Normal(0.0, Learned(1.0)),
    Normal(0.0, 1.0).per("layer"),
    {"*.weight": MatrixNormal(), "*": Normal(0.0, 1.0)},
    CorrelatedLaw(lambda site: 0.5 * torch.eye(site.size) + 0.5, 0.0, HalfCauchy(1.0)),
]


def check_prior(prior: Law | dict[str, Law]) -> None:
    """E_q [log q - log p] by draws and the target's own density is what the divergence says."""
    with Noise(2).scope():
        model = Model(mlp(2, 3, 1).double(), prior, Noisy(HalfCauchy(1.0)))
    free = MAP().moves(model.prior)
    theta = model.prior.at({n: w.abs() for n, w in model.network.weights().items()}, Noise(0, dtype=DOUBLE))
    q = Approximation(MeanField(sd=0.2), model.prior, free, theta)
    with Noise(3).scope(), torch.no_grad():
        divergence = torch.stack([q.call().divergence() for _ in range(400)])
        draws = []
        for _ in range(400):
            call = q.call()
            log_q = sum(float(factor.log_prob(call.draw(i))) for i, factor in enumerate(call.factors))
            u = model.prior.pack(call.theta(), centred=True)
            draws.append(log_q - float(model.prior.unpack(u, centred=True).log_density))
    brute = torch.tensor(draws, dtype=DOUBLE)
    se = (brute.var() / len(brute) + divergence.var() / len(divergence)).sqrt()
    within((brute.mean() - divergence.mean()) / se)


@pytest.mark.parametrize("prior", PRIORS, ids=lambda prior: re.sub(r" at 0x\w+", "", repr(prior)))
def test_the_divergence_under_every_kind_of_prior(prior: Law | dict[str, Law]) -> None:
    check_prior(prior)


def test_under_a_constant_prior_nothing_is_drawn_for_the_divergence() -> None:
    _, loss = VI().objective(conjugate().model, (conjugate().x, conjugate().y))
    with Noise(0).scope():
        before = torch.get_rng_state()
        values = {float(loss.q.call().divergence().detach()) for _ in range(3)}
        assert len(values) == 1 and torch.equal(before, torch.get_rng_state())


def test_discrete_latents_are_refused() -> None:
    x, y = torch.randn(5, 2), torch.randn(5, 1)
    with pytest.raises(UnsupportedError, match="VI follows gradients"):
        fit(Model(mlp(2, 3, 1), Discrete(), Noisy(1.0)), (x, y), VI(epochs=1))


def test_learned_noise_is_a_point_and_random_noise_is_not() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 2, generator=generator)
    y = x[:, :1] + 0.3 * torch.randn(200, 1, generator=generator)
    for noise in (Learned(1.0), HalfCauchy(1.0)):
        model = Model(nn.Linear(2, 1), Normal(0.0, 1.0), Noisy(noise))
        posterior = fit(model, (x, y), VI(epochs=60, lr=0.05))
        drawn = posterior.sample(200)["likelihood.noise"]
        assert float(drawn.mean()) == pytest.approx(0.3, abs=0.03)
        assert (len(drawn.unique()) == 1) is isinstance(noise, Learned)


# ---- the method ----------------------------------------------------------------------------------------------------


METHODS: Sequence[VI] = [
    VI(epochs=2),
    VI(FullRank(by_layer=True), epochs=2, samples=2, kl_warmup=0.5),
    VI(
        MeanField(sd=0.1), epochs=2, hold_out=0.2, patience=1, optimizer=partial(torch.optim.SGD, momentum=0.9), lr=1e-3
    ),
]


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_contract(method: VI) -> None:
    check_method(method)


def test_replicas_are_a_mixture_and_their_point_is_that_of_the_highest_bound() -> None:
    x, y = torch.randn(40, 2), torch.randn(40, 1)
    posterior = fit(Model(mlp(2, 4, 1), Normal(0.0, 1.0), Noisy(0.5)), (x, y), 3 * VI(epochs=3))
    assert isinstance(posterior, Mixture) and len(posterior.parts) == 3
    best = max(posterior.parts, key=lambda part: part.info["elbo"])
    assert torch.equal(posterior.point()["0.weight"], best.point()["0.weight"])


def test_it_starts_where_the_method_before_ended() -> None:
    x, y = torch.randn(40, 2), torch.randn(40, 1)
    model = Model(mlp(2, 4, 1), Normal(0.0, 1.0), Noisy(0.5))
    first = MAP(epochs=5, batch_size=40)
    start = fit(model, (x, y), first)
    after = fit(model, (x, y), first >> VI(MeanField(sd=0.01), epochs=1, lr=1e-9))
    torch.testing.assert_close(after.point()["0.weight"], start.point()["0.weight"], rtol=0, atol=1e-6)


def test_on_leaves_the_others_fixed_and_counts_them_as_data_of_their_scale() -> None:
    x, y = torch.randn(40, 2), torch.randn(40, 1)
    net = mlp(2, 4, 1)
    model = Model(net, Normal(0.0, HalfCauchy(1.0).per("net")), Noisy(0.5))
    posterior = variational(fit(model, (x, y), VI(epochs=2).on("2.*")))
    drawn = posterior.sample(3)
    assert torch.equal(drawn["0.weight"], net[0].weight.detach().expand(3, -1, -1))
    assert len(drawn["2.weight"].unique(dim=0)) == 3 and len(drawn["prior.*.scale"].unique()) == 3
    with torch.no_grad(), Noise(0).scope():
        call = posterior.q.call()
        s, fixed = call[0], torch.cat([net[0].weight.flatten(), net[0].bias])
        law = td.Normal(0.0, s)
        own = sum(f.kl([call.law(b) for b in f.blocks]) or 0.0 for f in call.factors if f.blocks[0].site is not None)
        i = next(i for i, f in enumerate(call.factors) if f.blocks[0].site is None)
        scale = call.factors[i].log_prob(call.draw(i)) - call.log_prior(call.factors[i].blocks[0])
        want = own + scale - law.log_prob(fixed).sum()
        assert float(call.divergence()) == pytest.approx(float(want), rel=1e-5)


def test_early_stopping_returns_to_the_best_epoch() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 8, generator=generator), torch.randn(60, 1, generator=generator)  # nothing to learn
    model = Model(mlp(8, 50, 1), Normal(0.0, 1.0), Noisy(0.3))
    method = VI(MeanField(sd=0.01), epochs=200, hold_out=0.2, patience=3, schedule=Constant())
    posterior = variational(fit(model, (x, y), method))
    trace = posterior.info["held_out"]
    assert posterior.info["epochs"] < 200 and len(trace) - 1 - trace.index(max(trace)) == 4
    view = method.view(Target(model, source((x, y))), model.noise(0, "fit"))
    _, loss = method.objective(model, (x, y))
    loss.q.load_state_dict(posterior.q.state_dict())
    score = vi.predicted(view, loss, Noise(0, ("held out",)))
    assert float(score) == pytest.approx(max(trace), abs=1e-5)


def test_the_trace_has_its_noise() -> None:
    """q stands still and all rows are the same: the spread of the trace is what the standard errors say."""
    exact = conjugate()
    same = exact.x[:1].expand(ROWS, -1).clone(), exact.y[:1].expand(ROWS, -1).clone()
    info = fit(exact.model, same, VI(epochs=60, batch_size=10, lr=1e-9)).info
    trace, se = torch.tensor(info["elbo_trace"]), torch.tensor(info["elbo_trace_se"])
    assert len(trace) == len(se) == info["epochs"] == 60
    ratio = float(trace.var() / se.square().mean())  # about F(59, 540)
    between(ratio / min(max(ratio, 0.8), 1.25), stats.f(59, 540))  # log densities are not quite Gaussian
    noise = math.sqrt(info["elbo_se"] ** 2 + float(trace.var()) / 60)
    assert abs(float(trace.mean()) - info["elbo"]) < 8 * noise  # ten draws: Student t
    whole = fit(exact.model, same, VI(epochs=2, batch_size=ROWS)).info
    assert whole["elbo_trace_se"] is None and json.dumps(whole, allow_nan=False)


def test_kl_warmup_fades_the_divergence_in() -> None:
    seen: list[float] = []
    exact = conjugate()
    with pytest.MonkeyPatch.context() as patch:
        true = NegativeELBO.estimate

        def spy(self: NegativeELBO, x: Any, y: Any, part: float = 1.0) -> Tensor:
            seen.append(part)
            return true(self, x, y, part)

        patch.setattr(NegativeELBO, "estimate", spy)
        fit(exact.model, (exact.x, exact.y), VI(epochs=10, batch_size=ROWS, kl_warmup=0.5))
    assert seen == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 1.0, 1.0, 1.0])


def test_norm_statistics_are_learned_and_belong_to_the_posterior(tmp_path: Path) -> None:
    x, y = 3 + 2 * torch.randn(64, 2), torch.randn(64, 1)
    net = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1))
    model = Model(net, Normal(0.0, 1.0), Noisy(1.0))
    posterior = variational(fit(model, (x, y), VI(epochs=20)))
    torch.testing.assert_close(posterior.statistics["0.running_mean"], x.mean(0), rtol=0.1, atol=0.1)
    assert torch.equal(net[0].running_mean, torch.zeros(2))
    posterior.save(tmp_path / "q.safetensors")
    again = load(tmp_path / "q.safetensors", model)
    assert torch.equal(again.sample(2)["0.running_mean"], posterior.sample(2)["0.running_mean"])


def test_an_own_training_loop() -> None:
    exact = conjugate()
    posterior, loss = VI().objective(exact.model, (exact.x, exact.y))
    optimizer = torch.optim.Adam(loss.parameters(), lr=0.05)
    before = float(posterior.predict(exact.x).mean.sub(exact.y).square().mean())
    with Noise(0).scope():
        for _ in range(150):
            optimizer.zero_grad()
            for rows in torch.randperm(ROWS).split(50):
                (loss(exact.x[rows], exact.y[rows]) / 2).backward()  # gradients of two batches add up
            optimizer.step()
    after = float(posterior.predict(exact.x).mean.sub(exact.y).square().mean())
    assert after < 1.3 * SD**2 < before


def test_averaged_weights_are_a_choice() -> None:
    exact = conjugate()
    posterior = variational(fit(exact.model, (exact.x, exact.y), VI(epochs=2)))
    naive = posterior.at_mean()
    assert isinstance(naive, Draws) and naive.count() == 1
    weights = torch.cat([posterior.point()[f"parts.{i}.weight"][0] for i in range(4)])
    torch.testing.assert_close(naive.predict(exact.x).mean, exact.x @ weights[:, None])
    assert float(naive.predict(exact.x).epistemic.max()) < 1e-12 < float(posterior.predict(exact.x).epistemic.min())


def test_a_file_of_an_unknown_family_is_refused(tmp_path: Path) -> None:
    exact = conjugate()
    posterior = fit(exact.model, (exact.x, exact.y), VI(epochs=1))
    for family in ({"name": "Nobody"}, {"name": "MeanField", "sd": 0.1, "other": 3}, "MeanField", {"name": "FullRank"}):
        posterior.info["family"] = family
        posterior.save(tmp_path / "q.safetensors")
        with pytest.raises(FileError):
            load(tmp_path / "q.safetensors", exact.model)


def test_wrong_use_is_refused_in_three_parts() -> None:
    for build in (
        lambda: VI(epochs=0),
        lambda: VI(samples=0),
        lambda: VI(kl_warmup=2.0),
        lambda: VI(hold_out=1.0),
        lambda: VI(MeanField),  # type: ignore[arg-type]
        lambda: MeanField(sd=0.0),
        lambda: FullRank(sd=-1.0),
    ):
        with pytest.raises(InputError) as error:
            build()
        assert error.value.must and error.value.got and error.value.remedy
    big = Model(nn.Linear(200, 200), Normal(0.0, 1.0), Noisy(1.0))
    with pytest.raises(UnsupportedError, match="MeanField"):
        VI(FullRank()).objective(big, (torch.ones(3, 200), torch.ones(3, 200)))


def test_a_family_is_a_short_file() -> None:
    """One that has nothing but draws and a mean works under a Normal prior through its own divergence."""

    class Masked(Factor):
        def __init__(self, block: Block) -> None:
            super().__init__(block)
            self.loc = nn.Parameter(block.start.clone())

        def draw(self) -> Tensor:
            return self.loc * (torch.rand_like(self.loc) < 0.5) * 2

        def mean(self) -> Tensor:
            return self.loc

        def kl(self, priors: Sequence[td.Distribution]) -> Tensor:
            (prior,) = priors
            assert isinstance(prior, td.Normal)
            return (self.loc / prior.scale).square().sum()

    class Halves(Family):
        def factors(self, blocks: Sequence[Block]) -> Sequence[Factor]:
            return [Masked(block) if block.site is not None else Gaussian(block) for block in blocks]

        def describe(self) -> dict[str, Any]:
            return {}

    x, y = torch.randn(30, 2), torch.randn(30, 1)
    model = Model(mlp(2, 4, 1), Normal(0.0, HalfCauchy(1.0)), Noisy(0.5))
    posterior = fit(model, (x, y), VI(Halves(), epochs=2))
    assert bool((posterior.sample(20)["0.weight"] == 0).any()) and math.isfinite(posterior.info["elbo"])
    with pytest.raises(UnsupportedError, match="density of Masked"):
        fit(Model(mlp(2, 4, 1), Normal(0.0, 1.0), Noisy(0.5)), (x, y), VI(Halves(), epochs=1), temperature=0.5)


def test_a_family_that_forgets_a_block_is_told() -> None:
    class Forgetful(Family):
        def factors(self, blocks: Sequence[Block]) -> Sequence[Factor]:
            return [Gaussian(block) for block in blocks[1:]]

    exact = conjugate()
    with pytest.raises(InputError, match="each block into one factor"):
        VI(Forgetful()).objective(exact.model, (exact.x, exact.y))


def test_points_under_a_prior_are_the_mode() -> None:
    class Points(Family):
        def factors(self, blocks: Sequence[Block]) -> Sequence[Factor]:
            return [Point(block) for block in blocks]

        def describe(self) -> dict[str, Any]:
            return {}

    exact = conjugate()
    posterior = variational(fit(exact.model, (exact.x, exact.y), VI(Points(), epochs=300, lr=0.1, batch_size=ROWS)))
    torch.testing.assert_close(posterior.q.mean(), exact.mean, rtol=0, atol=1e-5)  # of a Gaussian: the mean


def test_a_run_that_was_stopped_goes_on_to_the_bit(tmp_path: Path) -> None:
    import test_resume

    for name, method in {
        "vi": 2 * VI(epochs=2, batch_size=15),
        "vi held out": VI(FullRank(), epochs=6, batch_size=12, lr=0.5, hold_out=0.2, patience=1, samples=2),
    }.items():
        test_resume.MORE[name] = method
        try:
            test_resume.check_resumes(name)
        finally:
            del test_resume.MORE[name]


@pytest.mark.parametrize("name", ["classes", "images"])
def test_it_learns(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 1, 6, 6, generator=generator)
    labels = (x.mean((1, 2, 3)) > 0).long()
    net = (
        nn.Sequential(nn.Flatten(), mlp(36, 20, 2))
        if name == "classes"
        else nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
    )
    posterior = fit(Model(net, Normal(0.0, 1.0), Categorical()), (x, labels), VI(epochs=60))
    accuracy = (posterior.predict(x).mean.argmax(-1) == labels).float().mean()
    assert float(accuracy) > 0.9


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_on_a_gpu(tmp_path: Path) -> None:
    x, y = torch.randn(60, 2), torch.randn(60, 1)
    model = Model(mlp(2, 8, 1), Normal(0.0, HalfCauchy(1.0).per("layer")), Noisy(HalfCauchy(1.0)))
    for family in (MeanField(), FullRank(by_layer=True)):
        posterior = fit(model, (x, y), VI(family, epochs=5, hold_out=0.2), device="cuda")
        assert posterior.predict(x.cuda()).mean.is_cuda
        posterior.save(tmp_path / "q.safetensors")
        load(tmp_path / "q.safetensors", posterior.model).predict(x.cuda())
