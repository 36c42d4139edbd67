"""Metropolis on what has no gradient: discrete weights against enumeration, a delta spike against its exact mixture."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from chance import assert_mean, likely
from scipy import stats
from torch import Tensor, nn

from nescio import Model, fit
from nescio.infer import Metropolis
from nescio.laws import Discrete, Normal, SpikeSlab
from nescio.likelihoods import Gaussian
from nescio.posterior import Draws

CHAINS = 20_000


def data(columns: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(6, columns, generator=generator, dtype=torch.float64)
    return x, x[:, :1] * 0.5 + 0.3 * torch.randn(6, 1, generator=generator, dtype=torch.float64)


def last(model: Model, xy: tuple[Tensor, Tensor], steps: int) -> Tensor:
    """One state of each of many independent chains, from prior draws."""
    posterior = fit(model, xy, CHAINS * Metropolis(draws=1, warmup=steps), seed=0)
    assert isinstance(posterior, Draws)
    return posterior.sample(CHAINS)["weight"][:, 0]


def check_discrete(wrong: float = 0.0) -> None:
    """The frequencies of all 3³ networks are their posterior probabilities: chi-square."""
    x, y = data(3)
    values, prior = (-1.0, 0.0, 1.0), (0.25, 0.5, 0.25)
    net = nn.Linear(3, 1, bias=False).double()
    drawn = last(Model(net, Discrete(values, prior), Gaussian(0.8)), (x, y), 200).numpy()
    states = np.array(list(itertools.product(values, repeat=3)))
    log = np.log([prior[values.index(v)] for v in states.ravel()]).reshape(states.shape).sum(1)
    log += stats.norm.logpdf(y.numpy().T, states @ x.numpy().T, 0.8 + wrong).sum(1)
    exact = np.exp(log - log.max()) / np.exp(log - log.max()).sum()
    counts = np.array([(drawn == state).all(1).sum() for state in states])
    assert counts.sum() == CHAINS, "a weight left its values"
    likely(stats.chisquare(counts, CHAINS * exact).pvalue)


def test_discrete_weights_against_enumeration() -> None:
    check_discrete()


def test_enumeration_sees_a_wrong_noise() -> None:
    try:
        check_discrete(wrong=0.1)
    except AssertionError:
        return
    raise AssertionError("a noise of 0.9 instead of 0.8 was not seen")


def test_a_delta_spike_against_its_two_models() -> None:
    """One weight, in or out: the probability of being in is the ratio of the two evidences, the mean that of the mixture."""
    x, y = data(1)
    net = nn.Linear(1, 1, bias=False).double()
    weights = last(Model(net, SpikeSlab(0.5, 1.0), Gaussian(0.8)), (x, y), 400).numpy()[:, 0]
    out = stats.norm.logpdf(y.numpy(), 0, 0.8).sum()
    inside = stats.multivariate_normal.logpdf(y.numpy()[:, 0], np.zeros(6), 0.64 * np.eye(6) + x.numpy() @ x.numpy().T)
    p = 1 / (1 + np.exp(out - inside))
    precision = 1 + float((x**2).sum()) / 0.64
    mean = float((x * y).sum()) / 0.64 / precision
    assert_mean((weights != 0).astype(float)[:, None], p, np.sqrt(p * (1 - p)))
    second = p * (1 / precision + mean**2)
    assert_mean(weights[:, None], p * mean, np.sqrt(second - (p * mean) ** 2))


def test_mixed_latents_move_together() -> None:
    x, y = data(2)
    prior = {"0.*": Normal(0.0, 1.0), "*": Discrete((-1.0, 1.0))}
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1, bias=False)).double()
    drawn = fit(Model(net, prior, Gaussian(0.8)), (x, y), 200 * Metropolis(draws=1, warmup=100)).sample(200)
    assert set(drawn["2.weight"].unique().tolist()) == {-1.0, 1.0}
    assert float(drawn["0.weight"].std()) > 0
