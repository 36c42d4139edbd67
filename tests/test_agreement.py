"""Nearness to a reference, exactly as published, and never above the reference's own ceiling."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import distributions as td

from nescio import InputError, Model, fit
from nescio.evaluation import agreement, ceiling, closeness, total_variation
from nescio.infer import HMC, Laplace
from nescio.laws import Normal
from nescio.likelihoods import Categorical
from nescio.nets import mlp
from nescio.predictive import Drawn


def of(probabilities: object) -> Drawn:
    return Drawn(td.Categorical(probs=torch.as_tensor(np.asarray(probabilities))[None]))


def test_by_hand() -> None:
    p, q = of([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]]), of([[0.2, 0.7, 0.1], [0.2, 0.6, 0.2]])
    assert agreement(p, q) == 0.5
    assert abs(total_variation(p, q) - 0.5 * (0.5 + 0.2)) < 1e-12
    assert closeness(p, p) == (1.0, 0.0)


def test_yes_and_no_are_two_classes() -> None:
    p, q = (Drawn(td.Bernoulli(torch.tensor([[[a]]], dtype=torch.float64))) for a in (0.9, 0.3))
    assert agreement(p, q) == 0.0 and abs(total_variation(p, q) - 0.6) < 1e-12


def test_what_is_not_comparable_is_refused() -> None:
    with pytest.raises(InputError, match="same points"):
        agreement(of([[0.5, 0.5]]), of([[0.5, 0.5], [0.5, 0.5]]))


def test_two_halves_of_a_reference_are_the_ceiling() -> None:
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    model = Model(mlp(2, 5, 3), Normal(), Categorical())
    reference = fit(model, (x, (x[:, 0] > 0).long()), 4 * HMC(draws=50, warmup=100, leapfrog=8))
    top = ceiling(reference, x)
    assert 0.8 < top.agreement <= 1.0 and 0.0 < top.total_variation < 0.2
    three = reference.chains(slice(0, 3))  # type: ignore[attr-defined]
    assert 0.0 < ceiling(three, x).total_variation < 0.3


def test_one_chain_has_no_ceiling() -> None:
    """Nor has what is no set of chains: the error says what a ceiling needs, what there was, and what to do."""
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
    model, y = Model(mlp(2, 3, 3), Normal(), Categorical()), (x[:, 0] > 0).long()
    must = "a ceiling needs two independent halves of a reference, so at least two chains; got"
    for method, got in ((HMC(draws=4, warmup=4, leapfrog=2), "1 chain"), (Laplace(), "none in a GaussianPosterior")):
        with pytest.raises(InputError, match=rf"{must} {got}; run the reference as 4 \* HMC\(\)"):
            ceiling(fit(model, (x, y), method), x)


def test_the_public_reference_has_its_published_yardsticks(data_folder) -> None:
    """True labels, hardened and sharpened, against the stored HMC predictions of CIFAR-10."""
    stored = np.load(data_folder / "cifar10_reference.npz", allow_pickle=False)
    probs, labels = stored["hmc_probs"].astype(np.float64), stored["y_test"]
    probs /= probs.sum(1, keepdims=True)
    hard, truth = np.eye(10)[probs.argmax(1)], np.eye(10)[labels]
    sharp = probs ** (1 / 0.7)
    sharp /= sharp.sum(1, keepdims=True)
    assert abs(agreement(of(truth), of(probs)) - 0.9144) < 1e-4
    assert abs(total_variation(of(truth), of(probs)) - 0.1666) < 1e-4
    assert abs(total_variation(of(hard), of(probs)) - 0.1376) < 1e-4
    assert abs(total_variation(of(sharp), of(probs)) - 0.0486) < 1e-4
    assert abs(total_variation(of(np.full((10_000, 10), 0.1)), of(probs)) - 0.8098) < 1e-4
