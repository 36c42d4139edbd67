"""Groups of weights with a random scale: divergences against quadrature, draws against moments, rules against brute force."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chance import assert_mean, within
from scipy import integrate, stats
from torch import Tensor, nn

from nescio import Model, fit, load
from nescio.compression import GroupSignalToNoise, moments
from nescio.compression.rules import log_alpha
from nescio.data.source import source
from nescio.families import Approximation, Family, MeanField, MultiplicativeFlow, Scaled
from nescio.families.independent import Gaussian as Independent
from nescio.families.scales import Signed
from nescio.infer import MAP, VI
from nescio.infer.elbo import NegativeELBO, lengths
from nescio.laws import (
    Correlated,
    Exponential,
    HalfCauchy,
    HalfLogUniform,
    HalfNormal,
    HalfScaleMixture,
    Laplace,
    Normal,
)
from nescio.laws.law import Law
from nescio.likelihoods import Gaussian
from nescio.model import sort
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior import Variational
from nescio.target import Target

DOUBLE = torch.float64


def group(scale: Law, net: nn.Module | None = None, sd: float = 0.3) -> tuple[Model, Approximation, Scaled]:
    with Noise(1).scope():
        net = (nn.Linear(3, 4, bias=False) if net is None else net).double()
    model = Model(net, Normal(0.0, scale), Gaussian(1.0))
    theta = model.prior.at(model.network.weights(), Noise(0, dtype=DOUBLE))
    q = Approximation(MeanField(sd=sd), model.prior, MAP().moves(model.prior), theta)
    scaled = [part for part in q.parts() if isinstance(part, Scaled)]
    return model, q, scaled[0]


def by_quadrature(log_prior: object, m: float, s: float, power: float = 1.0) -> float:
    """KL of log-normals by scipy: log_prior is the log density of v = z^(1/power)."""

    def inside(g: float) -> float:
        q = stats.norm.logpdf(g, m, s)
        return math.exp(q) * (q - log_prior(math.exp(g)) - g)  # type: ignore[operator]

    return integrate.quad(inside, m - 12 * s, m + 12 * s, limit=400, points=[m])[0]


def two(v: float) -> float:
    return float(np.logaddexp(stats.norm.logpdf(v, 0, 1), stats.norm.logpdf(v, 0, 0.1)))


CASES: list[tuple[Law, object, float]] = [
    (HalfCauchy(0.5).per("input"), lambda v: stats.halfcauchy.logpdf(v, scale=0.5), 1e-4),
    (HalfNormal(2.0).per("output"), lambda v: stats.halfnorm.logpdf(v, scale=2.0), 1e-6),
    (HalfScaleMixture(0.5, 1.0, 0.1).per("input"), two, 5e-3),
    (Exponential(0.7).sqrt().per("input"), lambda v: stats.expon.logpdf(v, scale=1 / 0.7), 1e-6),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case[0]))
@pytest.mark.parametrize("spread", [0.05, 0.4, 1.0])
def test_the_divergence_of_the_scales_against_quadrature(case: tuple[Law, object, float], spread: float) -> None:
    check_quadrature(case, spread)


def check_quadrature(case: tuple[Law, object, float], spread: float) -> None:
    law, log_prior, tolerance = case
    model, q, factor = group(law)
    with torch.no_grad():
        factor.scales.loc.copy_(torch.linspace(-2.5, 1.0, len(factor.scales.loc)))
        factor.scales.rho.fill_(math.log(math.expm1(spread)))
    factor.begin()
    with torch.no_grad():
        found = float(factor.scales.kl(q.call().law(factor.blocks[0])))
    truth = sum(by_quadrature(log_prior, float(m), spread) for m in factor.scales.loc.detach())
    assert found == pytest.approx(truth, abs=tolerance * len(factor.scales.loc))


def test_the_divergence_of_signed_scales_against_quadrature() -> None:
    check_signed()


def check_signed() -> None:
    """Within the error of variational dropout's approximation, 0.0094 nats each."""
    _, q, factor = group(HalfLogUniform().per("input"))
    with torch.no_grad():
        factor.scales.loc.copy_(torch.tensor([0.2, 1.0, -3.0]))
    factor.begin()
    with torch.no_grad():
        found = float(factor.scales.kl(q.call().law(factor.blocks[0])))
    truth = 0.0
    for m, s in zip(factor.scales.loc.tolist(), factor.scales.sd.tolist(), strict=True):
        log_half = integrate.quad(lambda z: stats.norm.pdf(z, m, s) * -math.log(2 * abs(z)), -12, 12, points=[0, m])[0]  # noqa: B023
        truth += -0.5 * math.log(2 * math.pi * math.e * s * s) - log_half
    assert found == pytest.approx(truth, abs=3 * 0.0094)


LAWS: list[Law] = [
    HalfCauchy(1.0).per("input"),
    HalfCauchy(HalfCauchy(0.5).per("layer")).per("output"),
    HalfCauchy(HalfCauchy(HalfNormal(2.0).per("net")).per("layer")).per("input"),
    HalfCauchy(HalfCauchy(0.5).per("net")).sqrt().per("input"),
    HalfCauchy(1.0).per("unit"),
    HalfScaleMixture(0.5, 1.0, 0.1).per("input"),
    Exponential(0.5).sqrt().per("input"),
]


def check_divergence(law: Law, n: int = 300) -> None:
    """E_q [log q - log p] by draws and the target's own density is what the divergence says; both are far from noise alone."""
    model, q, factor = group(law, mlp(2, 3, 1))
    with torch.no_grad():
        factor.scales.loc += 0.3
    with Noise(3).scope(), torch.no_grad():
        divergence = torch.stack([q.call().divergence() for _ in range(n)])
        brute = []
        for _ in range(n):
            call = q.call()
            log_q = sum(float(part.log_prob(call.draw(i))) for i, part in enumerate(call.factors))
            u = model.prior.pack(call.theta(), centred=True)
            brute.append(log_q - float(model.prior.unpack(u, centred=True).log_density))
    other = torch.tensor(brute, dtype=DOUBLE)
    se = float((other.var() / n + divergence.var() / n).sqrt())
    within(max(abs(float(other.mean() - divergence.mean())) - 1e-3 * len(factor.scales.loc), 0) / se)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_whole_divergence_against_draws(law: Law) -> None:
    check_divergence(law)


def test_signed_scales_bound_the_divergence_and_a_laplace_goes_by_draws() -> None:
    """Where w̃ is known well, w tells the sign of z that (|z|, w) forgets: the bound is tight but for the approximation."""
    model, q, factor = group(HalfLogUniform().per("input"), mlp(2, 3, 1), sd=0.1)
    with Noise(3).scope(), torch.no_grad():
        divergence = float(q.call().divergence())
        brute = []
        for _ in range(300):
            call = q.call()
            u = model.prior.pack(call.theta(), centred=True)
            brute.append(
                sum(float(part.log_prob(call.draw(i))) for i, part in enumerate(call.factors))
                - float(model.prior.unpack(u, centred=True).log_density)
            )
    other = torch.tensor(brute, dtype=DOUBLE)
    groups = len(factor.scales.loc)
    within(max(abs(float(other.mean()) - divergence) - 0.0094 * groups, 0) / float(other.std()) * math.sqrt(300))
    laplace = Model(mlp(2, 3, 1).double(), Laplace(0.0, HalfCauchy(1.0).per("input")), Gaussian(1.0))
    q = Variational.around(MeanField(), laplace).q
    assert isinstance(q.parts()[0], Scaled)
    with torch.no_grad(), Noise(0).scope():
        assert bool(q.call().divergence().isfinite())


def check_moments(law: Law) -> None:
    """Draws have the mean and the variance that the factor states."""
    _, q, factor = group(law, sd=0.2)
    n = 5_000
    with Noise(4).scope(), torch.no_grad():
        draws = []
        for _ in range(n):
            factor.begin()
            draws.append(factor.draw())
        own = slice(len(factor.scales.loc), len(factor.scales.loc) + len(factor.weights[0].start))
        x, mean = torch.stack(draws)[:, own], factor.mean()[own]
        variance = factor.variances()["weight"].reshape(-1)
    assert_mean(x.numpy(), mean.numpy())
    assert_mean((x - mean).square().numpy(), variance.numpy())


NESTED = HalfCauchy(HalfCauchy(0.5).per("net")).per("input")


@pytest.mark.parametrize("law", [HalfCauchy(1.0).per("input"), HalfLogUniform().per("output"), NESTED], ids=repr)
def test_moments_of_the_weights(law: Law) -> None:
    check_moments(law)


def net_of(kind: str) -> tuple[nn.Module, Tensor]:
    with Noise(5).scope():
        if kind == "linear":
            return mlp(3, 4, 2), torch.randn(2, 3)
        conv = nn.Sequential(nn.Conv2d(2, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2))
        return conv, torch.randn(2, 2, 3, 3)


@pytest.mark.parametrize("above", [1.0, HalfCauchy(0.5).per("net")], ids=repr)
@pytest.mark.parametrize("axis", ["input", "output", "unit"])
@pytest.mark.parametrize("kind", ["linear", "conv"])
def test_acting_weights_give_the_law_of_drawn_ones(kind: str, axis: str, above: float | Law) -> None:
    """Mean and square of each output, by 100 calls of 40 equal rows and by 1000 draws."""
    check_acting(kind, axis, above=above)


def check_acting(kind: str, axis: str, calls: int = 100, above: float | Law = 1.0) -> None:
    net, x = net_of(kind)
    model = Model(net, Normal(0.0, HalfCauchy(above).per(axis)), Gaussian(1.0))  # type: ignore[arg-type]
    theta = model.prior.at(model.network.weights(), Noise(0))
    q = Approximation(MeanField(sd=0.3), model.prior, MAP().moves(model.prior), theta)
    for part in q.parts():
        if isinstance(part, Scaled):
            part.scales.loc.data += 1.0  # scales about two: one that is left out shows
    loss = NegativeELBO(Target(model, source((x, torch.zeros(2, 2))), 1.0, centred=True), q, {})
    assert loss.acting >= {name for name in model.network.weights() if name.endswith("weight")}
    many, found = x[:1].repeat(40, *[1] * (x.dim() - 1)), []
    with torch.no_grad(), Noise(6).scope():
        for _ in range(calls):
            f = model.network.call(sort(q.call().params(loss.acting), model.likelihood)[0], many)
            found.append(torch.stack([f.mean(0), f.square().mean(0)]))
        drawn = model.network.outputs(sort(q.named(1000), model.likelihood)[0], x[:1])[:, 0]
    a, b = torch.stack(found).double(), torch.stack([drawn, drawn.square()], 1).double()  # (calls, 2, outputs)
    within((a.mean(0) - b.mean(0)) / (a.var(0) / len(a) + b.var(0) / len(b)).sqrt())


@pytest.mark.parametrize("family", [MeanField(sd=0.3), MultiplicativeFlow(flows=1, sd=0.3, z_sd=0.5)], ids=repr)
def test_the_bound_by_coherent_draws_is_that_of_training(family: Family) -> None:
    """Factors that remember what they drew draw anew for each estimate, and the means agree."""
    net, x = net_of("linear")
    model = Model(net, Normal(0.0, HalfCauchy(1.0).per("input")), Gaussian(1.0))
    theta = model.prior.at(model.network.weights(), Noise(0))
    q = Approximation(family, model.prior, MAP().moves(model.prior), theta)
    y = torch.tensor([[1.0, -1.0], [0.5, 2.0]])
    loss = NegativeELBO(Target(model, source((x, y)), 1.0, centred=True), q, {})
    with torch.no_grad(), Noise(8).scope():
        fit, divergence = lengths(loss, 400)
        trained = torch.stack([loss.estimate(x, y) for _ in range(400)])
    assert len(fit.unique()) == len(fit)
    coherent = fit - divergence
    within((coherent.mean() - trained.mean()) / ((coherent.var() + trained.var()) / 400).sqrt())


def test_a_call_ends_when_the_next_one_begins() -> None:
    q = group(HalfCauchy(1.0).per("input"))[1]
    first, second = q.call(), q.call()
    assert second.theta().shape == (15,)
    with pytest.raises(AssertionError, match="another call"):
        first.theta()


def test_an_input_that_nothing_depends_on_switches_itself_off() -> None:
    with Noise(7).scope():
        x = torch.randn(300, 4)
        y = x[:, :1] - 0.5 * x[:, 1:2] + 0.1 * torch.randn(300, 1)
    model = Model(
        nn.Linear(4, 1), {"weight": Normal(0.0, HalfLogUniform().per("input")), "*": Normal(0.0, 1.0)}, Gaussian(0.1)
    )
    with pytest.raises(AssertionError):  # one weight each is no group
        assert isinstance(Variational.around(MeanField(), model).q.parts()[0], Scaled)
    wide = Model(
        mlp(4, 8, 1), {"*.weight": Normal(0.0, HalfLogUniform().per("input")), "*": Normal(0.0, 1.0)}, Gaussian(0.1)
    )
    posterior = fit(wide, (x, y), VI(MeanField(sd=0.02), epochs=200, lr=0.03, batch_size=300), seed=0)
    assert isinstance(posterior, Variational)
    factor = posterior.q.parts()[0]
    assert isinstance(factor, Scaled) and isinstance(factor.scales, Signed)
    factor.begin()
    alpha = factor.scales.log_alpha()[:4].detach()
    assert float(alpha[2:].min() - alpha[:2].max()) > 3


def test_inputs_without_a_say_switch_off_under_a_horseshoe() -> None:
    """Two of six inputs matter; the scale of all scales must go down for the others to be silent."""
    x = Noise(0).at("x").normal(100, 6)
    y = x[:, :1] - 2 * x[:, 1:2] + 0.1 * Noise(0).at("y").normal(100, 3)
    with Noise(1).scope():
        net = nn.Linear(6, 3)
    prior = {"weight": Normal(0.0, HalfCauchy(HalfCauchy(1e-5).per("net")).per("input")), "*": Normal(0.0, 1.0)}
    posterior = fit(
        Model(net, prior, Gaussian(0.1)), (x, y), VI(MeanField(), epochs=500, lr=0.05, batch_size=100), compile=False
    )
    assert isinstance(posterior, Variational)
    ratio = GroupSignalToNoise().scores(posterior, moments(posterior))["weight"][0]
    assert float(ratio[:2].min()) > 10 * float(ratio[2:].max())


def test_scales_of_scales_are_handed_on_and_come_back_from_files(tmp_path: Path) -> None:
    model = Model(mlp(3, 4, 1), Normal(0.0, NESTED), Gaussian(1.0))
    data = Noise(0).at("x").normal(20, 3), Noise(0).at("y").normal(20, 1)
    first = fit(model, data, VI(MeanField(), epochs=30, lr=0.05))
    assert isinstance(first, Variational)
    for again in (Variational.around(MeanField(), model, first.ends()), save_and_load(first, model, tmp_path / "q")):
        kept, found = (p.q.named(1) | p.q.call(at_mean=True).scales() for p in (first, again))
        assert kept.keys() == found.keys() and len(kept) > 4
        for name in (name for name in kept if name.startswith("prior.")):
            torch.testing.assert_close(found[name], kept[name])


def save_and_load(posterior: Variational, model: Model, path: Path) -> Variational:
    posterior.save(path)
    found = load(path, model)
    assert isinstance(found, Variational)
    return found


def test_per_layer_and_per_weight_scales_stay_centred() -> None:
    for law in (HalfCauchy(1.0).per("layer"), HalfCauchy(1.0)):
        model = Model(mlp(2, 3, 1), Normal(0.0, law), Gaussian(1.0))
        assert all(isinstance(part, Independent) for part in Variational.around(MeanField(), model).q.parts())


@pytest.mark.parametrize("law", [HalfCauchy(1.0).per("input"), NESTED], ids=repr)
def test_log_alpha_of_a_group_is_that_of_its_scale(law: Law) -> None:
    """log(Var z / E[z]²) by the moments of q, the spread of what scales the scales included."""
    _, q, factor = group(law, sd=0.2)
    factor.begin()
    first, second = (moment.detach() for moment in factor.scales.moments())
    torch.testing.assert_close(log_alpha(factor.scales).detach(), (second / first.square() - 1).log())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("law", "truth"),
    [(HalfCauchy(0.7), stats.halfcauchy(0, 0.7)), (HalfNormal(0.7), stats.halfnorm(0, 0.7))],
    ids=["half-Cauchy", "half-normal"],
)
def test_quantiles_of_half_laws(law: HalfCauchy | HalfNormal, truth: Any) -> None:
    levels = torch.tensor([0.01, 0.5, 0.99], dtype=DOUBLE)
    found = law.distribution(torch.tensor(0.7, dtype=DOUBLE)).icdf(levels)
    assert found.numpy() == pytest.approx(truth.ppf(levels.numpy()), rel=1e-10)


def test_a_covariance_with_random_scales_stays_centred() -> None:
    law = Correlated(lambda site: torch.eye(site.size), 0.0, HalfCauchy(1.0).per("input"))
    model = Model(nn.Linear(3, 2, bias=False), law, Gaussian(1.0))
    posterior = fit(model, (torch.ones(5, 3), torch.zeros(5, 2)), VI(MeanField(), epochs=2))
    assert isinstance(posterior, Variational) and not any(isinstance(part, Scaled) for part in posterior.q.parts())
    assert math.isfinite(posterior.info["elbo"])
