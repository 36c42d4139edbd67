"""Every method passes the contract, and the contract catches methods that break it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import pytest
import torch
from check_method import (
    check_bad_input,
    check_leaves_no_trace,
    check_method,
    check_on,
    check_replicas,
    check_reproducible,
)
from torch import nn

from nescio import Model
from nescio.infer import (
    HMC,
    MALA,
    MAP,
    MCLMC,
    NUTS,
    SGHMC,
    SGLD,
    ULA,
    AdjustedMCLMC,
    Cycles,
    Metropolis,
    RMSprop,
    default,
)
from nescio.infer.method import Method, Run, Start
from nescio.laws import Discrete, Normal
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.posterior import Draws, Posterior
from nescio.target import Target

METHODS: Sequence[Method] = [
    MAP(epochs=2),
    MAP(epochs=2, hold_out=0.2, patience=1),
    MAP(epochs=2, optimizer=torch.optim.SGD, lr=1e-3, batch_size=60),
    HMC(draws=3, warmup=4, leapfrog=3),
    HMC(draws=3, warmup=4, leapfrog=3, dense=True, thin=2),
    NUTS(draws=3, warmup=5, max_depth=3),
    MCLMC(draws=3, warmup=20),
    AdjustedMCLMC(draws=3, warmup=20, most_steps=8),
    MALA(draws=3, warmup=4),
    ULA(draws=3, warmup=2, step_size=1e-5),
    Metropolis(draws=3, warmup=4),
    SGLD(draws=3, warmup=2, step_size=1e-6, precondition=RMSprop()),
    SGHMC(draws=3, warmup=2, step_size=Cycles(1e-7, 2)),
    MAP(epochs=1, optimizer=partial(torch.optim.LBFGS, max_iter=3), lr=1e-2, batch_size=60),
]


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_contract(method: Method) -> None:
    check_method(method)


@final
@dataclass(frozen=True)
class Broken(Method):
    """MAP with a fault."""

    fault: str

    def run(self, target: Target, start: Start, run: Run) -> Posterior:
        if self.fault == "global noise":
            torch.manual_seed(0)
        if self.fault == "unseeded":
            run = run._replace(noise=replace(run.noise, seed=torch.seed()))
        if self.fault == "one noise for all chains":
            return MAP(epochs=2).run(target, Start(), run)
        if self.fault == "writes into the network":
            with torch.no_grad():
                next(target.model.network.parameters()).add_(1.0)
        if self.fault == "ignores on":
            target = replace(target, only=None)
        return MAP(epochs=2).run(target, start, run)


CATCHES: dict[str, Any] = {
    "global noise": check_leaves_no_trace,
    "unseeded": check_reproducible,
    "one noise for all chains": check_replicas,
    "writes into the network": check_leaves_no_trace,
    "ignores on": check_on,
}


@pytest.mark.parametrize("fault", CATCHES)
def test_the_contract_catches(fault: str) -> None:
    with pytest.raises((AssertionError, IndexError)):
        CATCHES[fault](Broken(fault))


def test_bad_input_is_checked_before_the_method_runs() -> None:
    @final
    @dataclass(frozen=True)
    class Never(Method):
        n: int = 0

        def run(self, target: Target, start: Start, run: Run) -> Posterior:
            raise AssertionError("reached")

    check_bad_input(Never())


def test_draws_join_into_chains() -> None:
    from check_method import regression

    from nescio import fit

    model, data, _ = regression()
    posterior = fit(model, data, 3 * MAP(epochs=1))
    assert isinstance(posterior, Draws) and posterior.theta.shape == (3, 1, model.dim)


def test_the_default_fits_the_problem() -> None:
    x, y = torch.randn(30, 2), torch.randn(30, 1)
    small = Model(mlp(2, 5, 1), Normal(0, 1), Gaussian(0.3))
    large = Model(mlp(2, 200, 200, 1), Normal(0, 1), Gaussian(0.3))
    tied = Model(nn.Sequential(nn.Linear(2, 5), nn.BatchNorm1d(5), nn.Linear(5, 1)), Normal(0, 1), Gaussian(0.3))
    discrete = Model(mlp(2, 5, 1), Discrete((-1.0, 1.0)), Gaussian(0.3))
    assert "MCLMC" in repr(default(small, (x, y))) and "MCLMC" not in repr(default(large, (x, y)))
    assert "MCLMC" not in repr(default(tied, (x, y))) and "Metropolis" in repr(default(discrete, (x, y)))
    assert "MCLMC" not in repr(default(small, (torch.randn(30_000, 2), torch.randn(30_000, 1))))
