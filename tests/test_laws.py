"""Each law against an independent one: density, normalisation, draws, score; scale mixtures; influence.

Densities are deterministic and compared to 1e-10. Draws are compared by DKW at N draws: a distribution that is off by
more than 0.6 % anywhere is seen. Scores are means of N terms; their skewness is at most 2.83 (that of chi-square), for which N is large
enough that the normal tail at Z is right within 12 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from chance import assert_law, assert_mean, assert_probability
from reference_laws import Folded, Mixed, Shoe
from scipy import stats
from torch import Tensor
from torch.func import vmap

from nescio import laws
from nescio.densities import StudentT as Students
from nescio.errors import InputError
from nescio.laws import (
    Bernoulli,
    Cauchy,
    Discrete,
    Exponential,
    Gamma,
    HalfCauchy,
    HalfNormal,
    HalfStudentT,
    Horseshoe,
    InverseGamma,
    Laplace,
    Law,
    Normal,
    ScaleMixture,
    SpikeSlab,
    StudentT,
)
from nescio.laws.law import POSITIVE, unvalidated
from nescio.laws.prior import Prior
from nescio.laws.site import Site
from nescio.noise import Noise

N = 1_200_000


LAWS = {
    "normal": (Normal(0.7, 1.3), stats.norm(0.7, 1.3)),
    "laplace": (Laplace(-0.4, 0.6), stats.laplace(-0.4, 0.6)),
    "student": (StudentT(3.5, 0.2, 0.8), stats.t(3.5, 0.2, 0.8)),
    "cauchy": (Cauchy(0.3, 0.5), stats.cauchy(0.3, 0.5)),
    "half cauchy": (HalfCauchy(0.7), stats.halfcauchy(0, 0.7)),
    "half normal": (HalfNormal(0.7), stats.halfnorm(0, 0.7)),
    "half student": (HalfStudentT(2.5, 0.7), Folded(stats.t(2.5, 0, 0.7))),
    "gamma": (Gamma(2.5, 0.8), stats.gamma(2.5, scale=1 / 0.8)),  # E 1/x ≠ 1: a lost Jacobian shows
    "inverse gamma": (InverseGamma(2.5, 1.5), stats.invgamma(2.5, scale=1.5)),
    "exponential": (Exponential(1.5), stats.expon(scale=1 / 1.5)),
    "spike and slab": (SpikeSlab(0.3, 2.0, 0.1), Mixed(0.3, stats.norm(0, 2), stats.norm(0, 0.1))),
}
MIXTURES = {
    "student": (Normal(0, InverseGamma(1.5, 0.8).sqrt()), stats.t(2 * 1.5, 0, math.sqrt(0.8 / 1.5))),
    "laplace": (Normal(0, Exponential(2.0).sqrt()), stats.laplace(0, 1 / math.sqrt(2 * 2.0))),
    "horseshoe": (Normal(0, HalfCauchy(1.0)), Shoe()),
}


def prior_of(law: Law, count: int = 1) -> Prior:
    return Prior(law, [Site("w", (count,))], {})


def weights(law: Law, count: int = N, seed: int = 0) -> Tensor:
    """Independent weights under a law whose sharing is per weight: one draw of a tensor of so many."""
    prior = prior_of(law, count)
    return prior.params(prior.split(prior.draw(Noise(seed))))["w"]


def log_density(law: Law, rows: Tensor) -> Tensor:
    """Log densities of the values themselves, (points, latents) -> (points,); through the unconstrained space and back."""
    prior = prior_of(law)

    def at(theta: Tensor) -> Tensor:
        point = prior.unpack(prior.pack(theta, centred=True), centred=True)
        return torch.as_tensor(point.log_density - point.log_jacobian)

    with unvalidated():
        return vmap(at)(rows)


def integral(log_f: Callable[[Tensor], Tensor], centre: float, reach: float) -> float:
    """∫ exp(log_f) over the line within `reach` of the centre, by the exp-sinh rule on both sides: tails and kinks are no matter."""
    t = torch.arange(-4.5, 4.5, 0.01, dtype=torch.float64)
    x = (math.pi / 2 * t.sinh()).exp()
    step = 0.01 * x * math.pi / 2 * t.cosh()
    x, step = x[x < reach], step[x < reach]
    return sum(float((log_f(centre + sign * x).exp() * step).sum()) for sign in (-1, 1))


# ---- one law at a time ---------------------------------------------------------------------------------------------


def check_density(name: str) -> None:
    law, truth = LAWS[name]
    positive = law.support is POSITIVE
    x = torch.logspace(-3, 2, 241).double() if positive else torch.linspace(-8, 8, 241).double()
    np.testing.assert_allclose(log_density(law, x[:, None]), truth.logpdf(x.numpy()), rtol=1e-10, atol=1e-10)


def check_normalised(name: str) -> None:
    law, _ = LAWS[name]
    prior = prior_of(law)
    reach = 300 if law.support is POSITIVE else math.inf  # exp overflows beyond
    with unvalidated():
        density = vmap(lambda u: torch.as_tensor(prior.unpack(u[None]).log_density))
        total = integral(density, float(getattr(law, "loc", 0.0)), reach)
    assert abs(total - 1) < 1e-10, total


def check_draws(name: str) -> None:
    law, truth = LAWS[name]
    assert_law(weights(law), truth.cdf)


def check_score(name: str) -> None:
    """E ∇ log p(u) = 0 in unconstrained space: false as soon as a Jacobian is lost."""
    law, _ = LAWS[name]
    prior = prior_of(law, N)
    u = prior.pack(weights(law)).requires_grad_()
    (score,) = torch.autograd.grad(torch.as_tensor(prior.unpack(u).log_density), u)
    assert_mean(score, 0.0)


@pytest.mark.parametrize("check", [check_density, check_normalised, check_draws, check_score])
@pytest.mark.parametrize("name", LAWS)
def test_law(name: str, check: Callable[[str], None]) -> None:
    check(name)


def test_no_law_is_left_out() -> None:
    catalogue = {name for name in laws.__all__ if isinstance(law := getattr(laws, name), type) and issubclass(law, Law)}
    here = {type(law).__name__ for law, _ in LAWS.values()} | {"Bernoulli", "Discrete"}
    elsewhere = {
        "Correlated",
        "MatrixNormal",
        "Fitted",
        "Flat",
        "HalfFlat",
        "LogUniform",
        "HalfLogUniform",
        "HalfScaleMixture",
    }
    assert here | elsewhere | {"Law", "Elementwise"} == catalogue


def test_discrete_laws_have_their_masses() -> None:
    three = (0.1, 0.7, 2.0)
    for law, masses in [
        (Bernoulli(0.3), {0.0: 0.7, 1.0: 0.3}),
        (Discrete(), {-1.0: 0.5, 1.0: 0.5}),
        (Discrete(three), dict.fromkeys(three, 1 / 3)),
        (Discrete((-1.0, 0.0, 1.0), (0.25, 0.6, 0.15)), {-1.0: 0.25, 0.0: 0.6, 1.0: 0.15}),
    ]:
        w = weights(law, 100_000)
        assert set(w.tolist()) == set(masses)
        found = log_density(law, torch.tensor(list(masses), dtype=torch.float64)[:, None])
        np.testing.assert_allclose(found, np.log(list(masses.values())), rtol=1e-12)
        for value, mass in masses.items():
            assert_probability(int((w == value).sum()), len(w), mass)
    assert log_density(Discrete(), torch.tensor([[0.5]]).double()).item() == -math.inf
    with pytest.raises(InputError, match="one probability for each value"):
        Discrete((-1.0, 1.0), (0.5, 0.4))


# ---- scale mixtures ------------------------------------------------------------------------------------------------


def check_mixture_density(name: str) -> None:
    """∫ p(w | z) p(z) dz through the joint density of the library, against the closed form."""
    law, truth = MIXTURES[name]
    prior = prior_of(law)
    u = torch.arange(
        -60.0, 60.0, 0.05, dtype=torch.float64
    )  # log z (or log z²): the trapezoid rule is exact to rounding
    for w in (0.01, 0.3, 1.0, 4.0, 20.0):
        rows = torch.stack([u, torch.full_like(u, w)], 1)
        with unvalidated():
            joint = vmap(lambda row: torch.as_tensor(prior.unpack(row, centred=True).log_density))(rows)
        marginal = float(joint.logsumexp(0) + math.log(0.05))
        np.testing.assert_allclose(marginal, truth.logpdf(np.array(w)), rtol=1e-9, atol=1e-9)


def check_mixture_draws(name: str) -> None:
    law, truth = MIXTURES[name]
    assert_law(weights(law), truth.cdf)


@pytest.mark.parametrize("check", [check_mixture_density, check_mixture_draws])
@pytest.mark.parametrize("name", MIXTURES)
def test_scale_mixture(name: str, check: Callable[[str], None]) -> None:
    check(name)


def test_horseshoe_has_a_pole_and_heavy_tails() -> None:
    """Bounds of Carvalho, Polson & Scott (2010): between logarithms of 1 + 4/w² and 1 + 2/w²."""
    w = np.logspace(-6, 1.4, 50)
    k, p = (2 * math.pi**3) ** -0.5, np.exp(Shoe().logpdf(w))
    assert (k / 2 * np.log1p(4 / w**2) < p).all()
    assert (p < k * np.log1p(2 / w**2)).all()


def check_horseshoe() -> None:
    """Local scales are half-Cauchy about one global scale, which is half-Cauchy itself."""
    n = 200_000
    prior = prior_of(Horseshoe(0.5), n)
    assert prior.sizes == [1, n, n]
    shared, local, w = prior.split(prior.draw(Noise(0)))
    assert_law(local / shared, stats.halfcauchy.cdf)
    assert_law(w / local, stats.norm.cdf)
    single = prior_of(Horseshoe(0.5))
    assert_law([float(single.draw(Noise(seed))[0]) for seed in range(2000)], stats.halfcauchy(0, 0.5).cdf)


def test_horseshoe() -> None:
    check_horseshoe()


def test_delta_spike_and_slab_marginal() -> None:
    w = weights(SpikeSlab(0.3, 2.0))
    assert_probability(int((w != 0).sum()), N, 0.3)
    assert_law(w[w != 0], stats.norm(0, 2).cdf)
    assert isinstance(SpikeSlab(0.3, 2.0, 0.1), ScaleMixture)


# ---- influence -----------------------------------------------------------------------------------------------------


def test_influence_of_large_weights() -> None:
    """d/dw log p: without bound for the normal, constant for Laplace (it shrinks large weights too), to zero for heavy tails."""
    w = torch.tensor([1e1, 1e2, 1e3, 1e4]).double()

    def score(law: Law) -> Tensor:
        x = w[:, None].requires_grad_()
        return torch.autograd.grad(log_density(law, x).sum(), x)[0][:, 0]

    torch.testing.assert_close(score(Normal(0, 2.0)), -w / 4, rtol=1e-10, atol=0)
    torch.testing.assert_close(score(Laplace(0, 2.0)), torch.full_like(w, -0.5), rtol=1e-10, atol=0)
    torch.testing.assert_close(score(StudentT(3.0, 0, 2.0)), -4 * w / (12 + w**2), rtol=1e-10, atol=0)
    torch.testing.assert_close(score(Cauchy(0, 2.0)), -2 * w / (4 + w**2), rtol=1e-10, atol=0)
    for law in (StudentT(3.0), Cauchy()):
        assert (score(law).abs() <= 4 / w).all()


def test_students_t_is_torchs_own_but_for_a_constant_that_no_graph_can_record() -> None:
    df, loc, scale = torch.tensor([3.0, 5.0]), torch.tensor(0.5), torch.tensor([[1.0], [2.0]])
    ours, known = Students(df, loc, scale), torch.distributions.StudentT(df, loc, scale)
    y = torch.randn(4, 2, 2)
    for a, b in ((ours, known), (ours.expand((3, 2, 2)), known.expand((3, 2, 2)))):
        assert a.batch_shape == b.batch_shape and torch.equal(a.mean, b.mean) and torch.equal(a.variance, b.variance)
        torch.manual_seed(0)
        first = a.rsample((5,))
        torch.manual_seed(0)
        torch.testing.assert_close(first, b.rsample((5,)))
    torch.testing.assert_close(ours.log_prob(y), known.log_prob(y))
