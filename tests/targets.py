"""Posteriors that are known exactly, as nescio models: what every method is held against.

`conjugate` has a closed form, `grid` is integrated on a dense grid, the plain densities are priors without data, and the reference
folder holds posteriors from outside. Vectors are values θ in nescio's own order, weights first, then the noise scale.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import stats
from scipy.special import logsumexp
from torch import Tensor, nn
from torch import distributions as td

from nescio.data.source import source
from nescio.densities import Improper
from nescio.infer import MAP, Constant
from nescio.laws import Correlated, Elementwise, Flat, HalfCauchy, HalfFlat, HalfNormal, HalfStudentT, Law, Normal
from nescio.laws import StudentT as StudentTLaw
from nescio.laws.law import POSITIVE, Constraint, Number, positive, real
from nescio.likelihoods import Bernoulli, Gaussian, Likelihood
from nescio.model import Model
from nescio.posterior import Draws
from nescio.target import Target

Array = NDArray[np.floating]
DOUBLE = torch.float64


@final
@dataclass(frozen=True)
class Predicted:
    """The exact predictive at some points: moments, and the log density of outcomes y (points,)."""

    mean: Array
    variance: Array
    log_prob: Callable[[Array], Array]


@final
@dataclass(frozen=True, eq=False)
class Known:
    """A model, its data, and what is known of its posterior; None where there is no exact value."""

    model: Model
    data: tuple[Tensor, Tensor]
    mean: Array  # (dim,)
    covariance: Array  # (dim, dim)
    log_evidence: float | None = None
    draw: Callable[[int, Generator], Array] | None = None
    predict: Callable[[Array], Predicted] | None = None  # x: (points, features)
    reference: dict[str, Any] = field(default_factory=dict)  # what the reference folder says

    def target(self, temperature: float = 1.0) -> Target:
        return Target(self.model, source(self.data), temperature)

    def exact_draws(self, n: int, rng: Generator) -> Tensor:
        """n independent draws of the posterior, (n, dim)."""
        assert self.draw is not None, "no exact draws of this target"
        return torch.as_tensor(self.draw(n, rng), dtype=DOUBLE)

    def posterior(self, n: int, rng: Generator) -> Draws:
        """The exact draws as nescio's own posterior, one chain each."""
        theta = self.exact_draws(n, rng)
        return Draws(self.model, theta[:, None], self.target().log_joint(theta, {})[:, None], {}, {})


def linear(columns: int, law: Law | dict[str, Law], likelihood: Likelihood) -> Model:
    """One linear layer without bias, its weights at zero to begin with."""
    net = nn.Linear(columns, 1, bias=False, dtype=DOUBLE)
    nn.init.zeros_(net.weight)
    return Model(net, law, likelihood)


def to_the_mode(rows: int, epochs: int = 20) -> MAP:
    """MAP to the mode and no further: all rows at a time, quasi-Newton with a line search."""
    newton = partial(torch.optim.LBFGS, line_search_fn="strong_wolfe", tolerance_grad=1e-12, tolerance_change=1e-15)
    return MAP(epochs=epochs, lr=1.0, batch_size=rows, optimizer=newton, schedule=Constant())


# ---- a conjugate model: every question has a closed answer ----------------------------------------------------------


def conjugate(n: int = 40, features: int = 3, noise: float = 0.5, scale: float = 1.5, seed: int = 0) -> Known:
    """y = X w + N(0, noise²), w ~ N(0, scale²): Σ⁻¹ = XᵀX / noise² + I / scale², μ = ΣXᵀy / noise²."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, features))
    y = x @ (scale * rng.normal(size=features)) + noise * rng.normal(size=n)
    covariance = np.linalg.inv(x.T @ x / noise**2 + np.eye(features) / scale**2)
    mean = covariance @ x.T @ y / noise**2
    evidence = stats.multivariate_normal(np.zeros(n), scale**2 * x @ x.T + noise**2 * np.eye(n)).logpdf(y)

    def predict(new: Array) -> Predicted:
        centre, variance = new @ mean, np.einsum("ni,ij,nj->n", new, covariance, new) + noise**2
        return Predicted(centre, variance, lambda y: stats.norm.logpdf(y, centre, np.sqrt(variance)))

    return Known(
        linear(features, Normal(0, scale), Gaussian(noise)),
        (torch.as_tensor(x), torch.as_tensor(y)[:, None]),
        mean,
        covariance,
        float(evidence),
        lambda k, rng: rng.multivariate_normal(mean, covariance, k, method="cholesky"),
        predict,
    )


# ---- a small net: two weights, skewed, integrated on a grid ----------------------------------------------------------

GRID_NOISE, GRID_LOC, GRID_SCALE = 0.4, 1.0, 1.0


def grid_log_joint(a: Array, b: Array, x: Array, y: Array) -> Array:
    """log p(y, a, b | x) of y = a tanh(b x) + N(0, 0.4²), a and b ~ N(1, 1); written out, no library of ours."""
    residual = y - a[..., None] * np.tanh(b[..., None] * x)
    likelihood = -0.5 * (residual / GRID_NOISE) ** 2 - np.log(GRID_NOISE) - 0.5 * np.log(2 * np.pi)
    prior = -0.5 * ((a - GRID_LOC) ** 2 + (b - GRID_LOC) ** 2) / GRID_SCALE**2 - np.log(2 * np.pi * GRID_SCALE**2)
    return likelihood.sum(-1) + prior


def grid(nodes: int = 601) -> Known:
    """Five points and a net of two weights. The trapezoid rule is exact to rounding here: smooth, and zero at the border."""
    x = np.array([-1.5, -0.6, 0.3, 0.9, 1.8])
    y = np.array([-1.1, -0.2, 0.5, 0.6, 1.3])
    axis = np.linspace(GRID_LOC - 8 * GRID_SCALE, GRID_LOC + 8 * GRID_SCALE, nodes)
    b, a = (v.ravel() for v in np.meshgrid(axis, axis))  # nescio's order: the first layer's weight b, then a
    log_joint = grid_log_joint(a, b, x, y)
    log_evidence = float(logsumexp(log_joint) + 2 * np.log(axis[1] - axis[0]))
    weight = np.exp(log_joint - logsumexp(log_joint))
    theta = np.stack([b, a])  # (2, nodes²)
    mean = theta @ weight
    covariance = (theta - mean[:, None]) * weight @ (theta - mean[:, None]).T

    def predict(new: Array) -> Predicted:
        f = a * np.tanh(b * new.reshape(-1, 1))  # (points, nodes²)
        centre = f @ weight
        variance = (f**2) @ weight - centre**2 + GRID_NOISE**2
        return Predicted(
            centre, variance, lambda y: np.log(np.exp(stats.norm.logpdf(y[:, None], f, GRID_NOISE)) @ weight)
        )

    def draw(n: int, rng: Generator) -> Array:
        """By rejection from the prior: the likelihood is at most (2π noise²)^(-points / 2), so the draws are exact."""
        kept, top = np.empty((0, 2)), -len(x) * (np.log(GRID_NOISE) + 0.5 * np.log(2 * np.pi))
        while len(kept) < n:
            w = rng.normal(GRID_LOC, GRID_SCALE, (100_000, 2))
            prior = stats.norm.logpdf(w, GRID_LOC, GRID_SCALE).sum(1)
            ratio = grid_log_joint(w[:, 1], w[:, 0], x, y) - prior - top
            kept = np.concatenate([kept, w[np.log(rng.random(len(w))) < ratio]])
        return kept[:n]

    net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Tanh(), nn.Linear(1, 1, bias=False)).to(DOUBLE)
    model = Model(net, Normal(GRID_LOC, GRID_SCALE), Gaussian(GRID_NOISE))
    data = torch.as_tensor(x)[:, None], torch.as_tensor(y)[:, None]
    return Known(model, data, mean, covariance, log_evidence, draw, predict)


# ---- plain densities: a prior and no data ----------------------------------------------------------------------------


@final
@dataclass(frozen=True, eq=False)
class Nothing(Likelihood):
    """Every observation has density one: the posterior is the prior."""

    def observe(self, f: Tensor) -> td.Distribution:
        return Improper(0.0)


@final
@dataclass(frozen=True, eq=False)
class MinusGumbel(Elementwise):
    """log X for X ~ Exponential(1): density exp(w - e^w), mean -0.5772, variance π²/6, skewness -1.14."""

    def distribution(self) -> td.Distribution:
        return td.TransformedDistribution(td.Exponential(torch.ones((), dtype=DOUBLE)), [td.ExpTransform().inv])


@final
@dataclass(frozen=True, eq=False)
class LogNormal(Elementwise):
    """e^v for v ~ N(loc, scale²)."""

    loc: Number = real(0.0)
    scale: Number = positive(1.0)
    support: ClassVar[Constraint] = POSITIVE

    def distribution(self, loc: Tensor, scale: Tensor) -> td.Distribution:
        return td.LogNormal(loc, scale)


def plain(dim: int, law: Law) -> tuple[Model, tuple[Tensor, Tensor]]:
    return linear(dim, law, Nothing()), (torch.zeros(1, dim, dtype=DOUBLE), torch.zeros(1, 1, dtype=DOUBLE))


def correlated_gaussian(dim: int = 4, correlation: float = 0.8) -> Known:
    """Standard deviations 1, 2, ... and covariances that fall off as correlation^|i - j|."""
    i = np.arange(dim)
    covariance = correlation ** abs(i[:, None] - i) * np.outer(i + 1, i + 1)
    model, data = plain(dim, Correlated(torch.as_tensor(covariance)))
    return Known(
        model,
        data,
        np.zeros(dim),
        covariance,
        0.0,
        lambda n, rng: rng.multivariate_normal(np.zeros(dim), covariance, n, method="cholesky"),
    )


def skewed(dim: int = 1) -> Known:
    model, data = plain(dim, MinusGumbel())
    mean, covariance = np.full(dim, -np.euler_gamma), np.eye(dim) * np.pi**2 / 6
    return Known(model, data, mean, covariance, 0.0, lambda n, rng: np.log(rng.exponential(size=(n, dim))))


def funnel(dim: int = 4) -> Known:
    """Neal's funnel: v ~ N(0, 9), w ~ N(0, e^v). Its scale e^(v/2) is a law, so nescio sees it centred or not; θ = (e^(v/2), w)."""
    model, data = plain(dim, Normal(0, LogNormal(0.0, 1.5).per("net")))

    def draw(n: int, rng: Generator) -> Array:
        scale = np.exp(1.5 * rng.normal(size=(n, 1)))
        return np.concatenate([scale, scale * rng.normal(size=(n, dim))], 1)

    variance = np.array([np.exp(4.5) - np.exp(2.25), *[np.exp(4.5)] * dim])
    return Known(model, data, np.array([np.exp(1.125), *[0.0] * dim]), np.diag(variance), 0.0, draw)


# ---- the reference folder --------------------------------------------------------------------------------------------


@final
class Runs(nn.Module):
    """A linear layer whose columns lie in several parameters, one for each run of columns with priors of one family."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.sizes = sizes
        self.runs = nn.ModuleList([nn.Linear(size, 1, bias=False, dtype=DOUBLE) for size in sizes])

    def forward(self, x: Tensor) -> Tensor:
        parts = zip(self.runs, x.split(self.sizes, -1), strict=True)
        return torch.stack([run(part) for run, part in parts]).sum(0)


def weight_law(priors: list[dict[str, Any]]) -> Law:
    """One law for a run of columns of one family: numbers that differ go in as a tensor."""
    family = priors[0]["family"]
    numbers = {
        key: torch.tensor([[prior[key] for prior in priors]], dtype=DOUBLE) for key in priors[0] if key != "family"
    }
    laws: dict[str, Callable[..., Law]] = {"flat": Flat, "normal": Normal, "student_t": StudentTLaw}
    return laws[family](**numbers)


def noise_law(prior: dict[str, Any]) -> Law:
    numbers = {key: value for key, value in prior.items() if key != "family"}
    laws: dict[str, Callable[..., Law]] = {
        "flat": HalfFlat,
        "half_cauchy": HalfCauchy,
        "half_normal": HalfNormal,
        "half_student_t": HalfStudentT,
    }
    return laws[prior["family"]](**numbers)


def column_priors(d: dict[str, Any], columns: int) -> list[dict[str, Any]]:
    prior = d["model"]["weight_prior"]
    return [prior] * columns if isinstance(prior, dict) else prior


def truth_linear(stem: Path, known_noise: bool = False) -> Known:
    """`stem`: the path without ending, `.../linear/arK-arK`. With `known_noise` the conjugate problem at a fixed sigma."""
    d = json.loads(stem.with_name(stem.name + ".json").read_text())
    z = np.load(stem.with_name(stem.name + ".npz"), allow_pickle=False)
    x, y = z["X"], z["y"]
    priors = column_priors(d, x.shape[1])
    runs = [list(run) for _, run in groupby(priors, key=lambda prior: prior["family"])]
    laws = {f"runs.{i}.*": weight_law(run) for i, run in enumerate(runs)}
    sigma = d["fixed_sigma"]["sigma"] if known_noise else noise_law(d["model"]["noise_prior"])
    model = Model(Runs([len(run) for run in runs]), laws, Gaussian(sigma))
    truth = d["fixed_sigma"] if known_noise else d["truth"]
    normal = {prior["family"] for prior in priors} in ({"flat"}, {"normal"})
    return Known(
        model,
        (torch.as_tensor(x), torch.as_tensor(y)[:, None]),
        np.array(truth["mean"]),
        np.array(truth["cov"]),
        truth["log_normaliser"],
        (lambda n, rng: linear_draws(d, x, y, n, rng)) if normal and not known_noise else None,
        None,
        {**d, "X_new": z["X_new"], "y_new": z["y_new"]},
    )


def linear_draws(d: dict[str, Any], x: Array, y: Array, n: int, rng: Generator) -> Array:
    """Rows (w, sigma) of the posterior: log sigma by its tabulated distribution function, then w | sigma, which is Gaussian."""
    priors, k = column_priors(d, x.shape[1]), x.shape[1]
    flat = priors[0]["family"] == "flat"
    loc = np.array([0.0 if flat else prior["loc"] for prior in priors])
    scale = np.array([1.0 if flat else prior["scale"] for prior in priors])
    residual = y - x @ loc
    q, s, vt = np.linalg.svd(x * scale, full_matrices=False)
    keep = s > 1e-10 * s[0]  # a column may occur twice
    q, s, vt = q[:, keep], s[keep], vt[keep]
    a, lam = q.T @ residual, s**2
    rest = np.sum((residual - q @ a) ** 2) if len(y) > len(s) else 0.0
    centre, spread = d["truth"]["log_sigma_mean"], d["truth"]["log_sigma_sd"]
    t = np.linspace(centre - 30 * spread, centre + 14 * spread, 40_001)
    e = np.exp(2 * t)[:, None]
    if flat:
        log_p = -(len(y) - k) * t - rest / (2 * e[:, 0])
    else:
        log_p = -len(y) * t - 0.5 * np.log1p(lam / e).sum(1) - 0.5 * (a**2 / (e + lam)).sum(1) - rest / (2 * e[:, 0])
    log_p = log_p + log_noise_prior(d["model"]["noise_prior"], np.exp(t)) + t  # + t: the density of log sigma
    p = np.exp(log_p - log_p.max())
    u = np.interp(rng.random(n), (np.cumsum(p) - 0.5 * p) / p.sum(), t)
    e, z = np.exp(2 * u)[:, None], rng.standard_normal((n, k))
    if flat:
        w = (a / s + np.exp(u)[:, None] * (z @ vt.T) / s) @ vt
    else:
        w = loc + scale * (z + (a * s / (e + lam) + (np.sqrt(e / (e + lam)) - 1) * (z @ vt.T)) @ vt)
    return np.column_stack([w, np.exp(u)])


def log_noise_prior(prior: dict[str, Any], sigma: Array) -> Array:
    """Up to a constant where it is flat; written with scipy, no law of ours."""
    laws: dict[str, Any] = {"half_cauchy": stats.halfcauchy, "half_normal": stats.halfnorm}
    if prior["family"] == "flat":
        return np.zeros_like(sigma)
    return laws[prior["family"]](scale=prior["scale"]).logpdf(sigma)


def truth_logistic(folder: Path) -> Known:
    """German credit: 25 weights ~ N(0, 1), 1000 rows. Mean and covariance are Monte-Carlo estimates with a stated error."""
    d = json.loads((folder / "logistic" / "german_credit.json").read_text())
    z = np.load(folder / "logistic" / "german_credit.npz", allow_pickle=False)
    raw = z["X_raw"].astype(np.float64)
    x = np.column_stack([(raw - raw.mean(0)) / raw.std(0), np.ones(len(raw))])
    model = linear(x.shape[1], Normal(0, 1), Bernoulli())
    data = torch.as_tensor(x), torch.as_tensor(z["y"].astype(np.float64))[:, None]
    truth = d["truth"]
    return Known(model, data, np.array(truth["mean"]), z["posterior_cov"], truth["log_evidence"], None, None, d)
