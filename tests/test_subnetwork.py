"""Laplace on a part of the network: the last layer, chosen layers, the weights of the largest variance."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from nescio import InputError, Model, evidence, fit
from nescio.infer import MAP, Laplace, Subnetwork
from nescio.infer.curvature import diag, full, kfac
from nescio.infer.curvature.full import Full
from nescio.laws import Correlated, Normal
from nescio.likelihoods import Categorical, Gaussian
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior import GaussianPosterior, Mixture

DOUBLE = torch.float64


def problem(scale: float = 1.3) -> tuple[Model, tuple[torch.Tensor, torch.Tensor]]:
    torch.default_generator.manual_seed(0)
    x, y = Noise(3, (), dtype=DOUBLE).normal(15, 3), Noise(4, (), dtype=DOUBLE).normal(15, 2)
    return Model(mlp(3, 4, 2).double(), Normal(0, scale), Gaussian(0.5)), (x, y)


def gaussian(model: Model, data: Any, method: Any) -> GaussianPosterior:
    posterior = fit(model, data, method)
    assert isinstance(posterior, GaussianPosterior)
    return posterior


def check_parts() -> None:
    """The precision of a part is that part of the precision: on layers, on scattered weights, for Gauss-Newton and Hessian."""
    model, data = problem(0.1)  # narrow enough for a Hessian away from the mode to be positive
    for structure in (full, Full(hessian=True)):
        whole = gaussian(model, data, Laplace(structure))
        precision = torch.linalg.inv(whole.covariance.dense())
        for pattern in (("2.*",), ("0.weight", "2.bias"), (Subnetwork(7),), (Subnetwork(4, "0.*"),)):
            part = gaussian(model, data, Laplace(structure).on(*pattern))  # type: ignore[arg-type]
            own = torch.linalg.inv(part.covariance.dense())
            torch.testing.assert_close(own, precision[part.slots][:, part.slots], rtol=1e-7, atol=1e-8)


def test_a_part_is_a_part() -> None:
    check_parts()


def check_largest() -> None:
    """Those and no others; and functions through the scattered weights are J Σ Jᵀ of these columns."""
    model, data = problem()
    every = gaussian(model, data, Laplace(diag))
    part = gaussian(model, data, Laplace(full).on(Subnetwork(9)))
    wanted = every.slots[every.covariance.diagonal().topk(9).indices].sort().values
    assert torch.equal(part.slots, wanted)
    whole = gaussian(model, data, Laplace(full))
    x = data[0][:5]
    eye = torch.eye(26, dtype=DOUBLE)
    columns = []  # the derivative by each weight, through the joint covariance under a unit step
    for slot in part.slots.tolist():
        step = GaussianPosterior(model, whole.theta, torch.tensor([slot]), type(every.covariance)(eye[0, :1]), {}, {})
        columns.append(step.linearize().outputs(x).covariance)  # ∂f ∂fᵀ of each point
    alone = sum(v * c for v, c in zip(part.covariance.diagonal(), columns, strict=True))
    cross = part.linearize().outputs(x).covariance - alone
    flat = GaussianPosterior(model, whole.theta, part.slots, type(every.covariance)(part.covariance.diagonal()), {}, {})
    torch.testing.assert_close(flat.linearize().outputs(x).covariance, alone, rtol=1e-9, atol=1e-11)
    assert float(cross.abs().max()) > 1e-6, "correlations count"
    assert torch.isfinite(evidence(part))


def test_largest_variances() -> None:
    check_largest()


def test_convolutions_and_members() -> None:
    """Weights that many positions share; each member of an ensemble has a subnetwork of its own; kfac keeps scattered ones as a block."""
    x = Noise(1).normal(12, 1, 6, 6)
    y = (x.mean((1, 2, 3)) > 0).long()
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2))
    model = Model(net, Normal(0, 1), Categorical())
    whole = gaussian(model, (x, y), Laplace(full))
    precision = torch.linalg.inv(whole.covariance.dense())
    for structure in (full, kfac):
        part = gaussian(model, (x, y), Laplace(structure).on(Subnetwork(5, "0.*")))
        own = torch.linalg.inv(part.covariance.dense())
        torch.testing.assert_close(own, precision[part.slots][:, part.slots], rtol=1e-3, atol=1e-3)
        assert {"0.weight (in part)", "3.weight", "3.bias"} <= set(part.info["fixed"])
    members = fit(model, (x, y), 2 * (MAP(epochs=2) >> Laplace(full).on(Subnetwork(40))))
    assert isinstance(members, Mixture)
    one, two = (part.slots for part in members.parts)  # type: ignore[attr-defined]
    assert len(one) == len(two) == 40 and not torch.equal(one, two)


def test_refusals() -> None:
    model, data = problem()
    with pytest.raises(InputError, match="at least one"):
        Subnetwork(0)
    with pytest.raises(InputError, match="part of the weights"):
        fit(model, data, Laplace(full).on(Subnetwork(27)))
    tied = Model(
        mlp(3, 4, 2).double(), {"0.weight": Correlated(torch.eye(12).double()), "*": Normal(0, 1)}, Gaussian(0.5)
    )
    assert len(gaussian(tied, data, Laplace(full).on(Subnetwork(5))).slots) == 5
