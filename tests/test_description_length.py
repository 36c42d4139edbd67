"""Minimum description length is variational inference: L = L^E + L^C = -ELBO, in nats and bits, and by bits-back."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from test_compression import fitted
from torch import nn

from nescio import Model, fit
from nescio.compression import moments
from nescio.families import MeanField
from nescio.infer import VI
from nescio.laws import Normal
from nescio.likelihoods import Gaussian
from nescio.noise import Noise

DOUBLE = torch.float64


def test_the_description_length_is_the_bound_and_is_printed() -> None:
    posterior = fitted("horseshoe")
    told = posterior.info["description"]
    assert told["nats"] == pytest.approx(-posterior.info["elbo"], rel=1e-9)
    assert told["nats"] == pytest.approx(told["error_nats"] + told["complexity_nats"])
    assert told["bits"] == pytest.approx(told["nats"] / math.log(2))
    assert f"{told['bits']:.0f} bits" in repr(posterior)


def check_bits_back() -> None:
    """Send w in steps of d by the prior, give back the bits that chose it: the mean length is -ELBO within 1 %, whatever d is."""
    with Noise(3, dtype=DOUBLE).scope():
        x = torch.randn(40, 2, dtype=DOUBLE)
        y = x @ torch.tensor([[1.0], [-0.5]], dtype=DOUBLE) + 0.5 * torch.randn(40, 1, dtype=DOUBLE)
    with Noise(0).scope():
        model = Model(nn.Linear(2, 1, bias=False).double(), Normal(0.0, 1.0), Gaussian(0.5))
    posterior = fit(model, (x, y), VI(MeanField(), epochs=200, lr=0.05, batch_size=40))
    given = moments(posterior)
    mean, sd = (t["weight"].reshape(-1).numpy() for t in (given.mean, given.sd))
    rng, n = torch.Generator().manual_seed(0), 20_000
    for d in (0.01, 0.002):
        w = (torch.randn(n, 2, generator=rng, dtype=DOUBLE).numpy() * sd + mean) / d
        w = w.round() * d
        sent = -stats.norm.logpdf(w) - math.log(d)
        back = -stats.norm.logpdf(w, mean, sd) - math.log(d)
        f = x.numpy() @ w.T
        errors = -stats.norm.logpdf(y.numpy(), f, 0.5).sum(0)
        told, weights = posterior.info["description"], (sent - back).sum(1)
        assert float(weights.mean()) == pytest.approx(told["complexity_nats"], rel=0.01)
        total, se = float((weights + errors).mean()), posterior.info["elbo_se"]  # the fit's own bound is by ten draws
        assert abs(total - told["nats"]) <= 0.01 * told["nats"] + 6 * se


def test_bits_back() -> None:
    check_bits_back()


def test_the_description_gets_shorter_in_training() -> None:
    """The ELBO's trace is minus the code length of the data, epoch by epoch."""
    trace = fitted("horseshoe").info["elbo_trace"]
    assert -trace[-1] < 0.7 * -trace[0]
