"""Bounds and divergences of the dropout families, against the enumeration of all masks, quadrature and brute force."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from chance import assert_mean, within
from dropout_cases import DOUBLE, SD, Enumerated, P, block_of, loss_of, normal, seeded
from scipy import integrate, stats
from torch import Tensor, nn
from torch import distributions as td

from nescio import Model
from nescio.families import (
    BernoulliDropout,
    ConcreteDropout,
    Family,
    GaussianDropout,
)
from nescio.families.dropout import Spikes
from nescio.infer import VI
from nescio.infer.elbo import bounds
from nescio.laws import HalfCauchy, Laplace, MatrixNormal, Normal, StudentT, fan_in
from nescio.laws.law import Law
from nescio.likelihoods import Gaussian as Noise_
from nescio.noise import Noise


def check_bound(p: float = P) -> None:
    """From ragged batches, the mean of our estimates is the ELBO over all 32 masks."""
    exact = Enumerated(p)
    scale = torch.tensor(0.8, dtype=DOUBLE)
    want = exact.fit() - exact.divergence(lambda _, w: td.Normal(0.0, scale).log_prob(w).sum())
    loss = loss_of(exact.net, BernoulliDropout(p), exact.x, exact.y)
    assert loss.alone
    ours = []
    with Noise(0).scope(), torch.no_grad():
        for _ in range(400):
            order = torch.randperm(7)
            parts = [order[:5], order[5:]]
            ours.append(sum(loss.estimate(exact.x[i], exact.y[i]) * len(i) / 7 for i in parts))
        coherent = bounds(loss, 600)
    assert_mean(torch.stack(ours), want.detach())
    assert_mean(coherent, want.detach())


@pytest.mark.parametrize("p", [0.1, P, 0.7])
def test_the_bound_is_that_over_all_masks(p: float) -> None:
    check_bound(p)


def double(*numbers: float) -> list[Tensor]:
    return [torch.tensor(number, dtype=DOUBLE) for number in numbers]


def fans(name: str) -> int:
    return 2 if name.startswith("0") else 3


PRIORS: list[tuple[Law, Callable[[str], td.Distribution]]] = [
    (Normal(0.0, 0.8), lambda _: td.Normal(*double(0.0, 0.8))),
    (Normal(0.3, 0.8), lambda _: td.Normal(*double(0.3, 0.8))),
    (Normal(0.1, fan_in), lambda name: td.Normal(*double(0.1, fans(name) ** -0.5))),
    (Laplace(0.0, 0.7), lambda _: td.Laplace(*double(0.0, 0.7))),
    (StudentT(3.0, 0.1, 0.7), lambda _: td.StudentT(*double(3.0, 0.1, 0.7))),
]


def check_divergence(family: Family, prior: Law, law: Callable[[str], td.Distribution]) -> None:
    """Exact, without a draw."""
    exact = Enumerated()
    want = exact.divergence(lambda name, w: law(name).log_prob(w).sum())
    loss = loss_of(exact.net, family, exact.x, exact.y, prior)
    with Noise(0).scope(), torch.no_grad():
        before = torch.get_rng_state()
        got = loss.q.call().divergence()
        assert torch.equal(before, torch.get_rng_state())
    assert float(got) == pytest.approx(float(want.detach()), rel=1e-10)


@pytest.mark.parametrize(
    "family", [BernoulliDropout(P), ConcreteDropout(P), ConcreteDropout(P, per_unit=True)], ids=repr
)
@pytest.mark.parametrize(
    ("prior", "law"), PRIORS, ids=lambda value: re.sub(r" at 0x\w+", "", repr(value)) if isinstance(value, Law) else ""
)
def test_the_divergence_in_closed_form(family: Family, prior: Law, law: Any) -> None:
    check_divergence(family, prior, law)


def check_narrow(p: float = P, m: float = 0.9, s: float = 0.8) -> None:
    """One weight: the divergence of a mixture of two narrow Gaussians, by quadrature, less their own entropy."""
    layer = seeded(lambda: nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        layer.weight.fill_(m * (1 - p))
    width = 1e-3
    q = lambda w: p * stats.norm.pdf(w, 0, width) + (1 - p) * stats.norm.pdf(w, m, width)  # noqa: E731
    inside = lambda w: q(w) * (math.log(q(w)) - stats.norm.logpdf(w, 0, s))  # noqa: E731
    exact = sum(integrate.quad(inside, c - 8 * width, c + 8 * width, epsabs=1e-10)[0] for c in (0, m))
    exact += 0.5 * math.log(2 * math.pi * math.e * width**2)  # what is left out
    factor = Spikes(block_of(layer), p)
    got = factor.kl([td.Normal(torch.zeros((), dtype=DOUBLE), torch.tensor(s, dtype=DOUBLE))])
    assert float(got.detach()) == pytest.approx(exact, abs=1e-5)


def test_the_divergence_is_that_of_narrow_gaussians() -> None:
    check_narrow()


def check_gaussian_divergence() -> None:
    """Under Normal(0.2, 0.8) against quadrature, under Laplace by draws against quadrature."""
    layer = seeded(lambda: nn.Linear(2, 2, bias=False))
    alpha = 0.4
    for prior, law in ((Normal(0.2, 0.8), stats.norm(0.2, 0.8)), (Laplace(0.2, 0.8), stats.laplace(0.2, 0.8))):
        cross = 0.0
        for w in layer.weight.detach().flatten().tolist():
            inside = lambda z, w=w, law=law: -stats.norm.pdf(z, 1, math.sqrt(alpha)) * law.logpdf(w * z)  # noqa: E731
            cross += integrate.quad(inside, -5, 7, points=[0.2 / w] if -5 < 0.2 / w < 7 else None)[0]
        want = cross - 2 * 0.5 * math.log(2 * math.pi * math.e * alpha)
        loss = loss_of(layer, GaussianDropout(alpha), normal(3, 2), prior=prior, outputs=2)
        with Noise(0).scope(), torch.no_grad():
            got = torch.stack([loss.q.call().divergence() for _ in range(4000 if isinstance(prior, Laplace) else 1)])
        if isinstance(prior, Normal):
            assert float(got) == pytest.approx(want, rel=1e-6)
        else:
            assert_mean(got, want)


def test_the_divergence_of_gaussian_dropout() -> None:
    check_gaussian_divergence()


@pytest.mark.parametrize(
    "prior", [Normal(0.0, HalfCauchy(1.0).per("layer")), {"*.weight": MatrixNormal(), "*": Normal(0.0, 1.0)}]
)
@pytest.mark.parametrize("family", [BernoulliDropout(P), GaussianDropout(0.5), ConcreteDropout(P)])
def test_random_scales_and_joint_priors(prior: Any, family: Family) -> None:
    """By draws: E [log p] of the target's own density over coherent draws is what the divergence says, the entropy known."""
    exact = Enumerated()
    loss = loss_of(exact.net, family, exact.x, exact.y, prior)
    model = loss.target.model
    with Noise(3).scope(), torch.no_grad():
        divergence = torch.stack([loss.q.call().divergence() for _ in range(300)])
        brute = []
        for _ in range(300):
            call = loss.q.call()
            log_q = sum(float(factor.log_prob(call.draw(i))) for i, factor in enumerate(call.factors))
            u = model.prior.pack(call.theta(), centred=True)
            brute.append(log_q - float(model.prior.unpack(u, centred=True).log_density))
    ours = torch.tensor(brute, dtype=DOUBLE)
    se = (ours.var() / len(ours) + divergence.var() / len(divergence)).sqrt()
    within((ours.mean() - divergence.mean()) / se)


def test_half_a_temperature_tempers_the_likelihood_and_the_prior_but_not_the_entropy() -> None:
    exact = Enumerated()
    model = Model(exact.net, Normal(0.0, 0.8), Noise_(SD))
    _, loss = VI(BernoulliDropout(P)).objective(model, (exact.x, exact.y), temperature=0.5)
    entropy = -5 * (P * math.log(P) + (1 - P) * math.log1p(-P))
    scale = torch.tensor(0.8, dtype=DOUBLE)
    cross = exact.divergence(lambda _, w: td.Normal(0.0, scale).log_prob(w).sum()) + entropy
    with torch.no_grad(), Noise(0).scope():
        assert float(loss.q.call().divergence(0.5)) == pytest.approx(2 * float(cross) - entropy, rel=1e-10)
