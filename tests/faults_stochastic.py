"""Planted faults of samplers on minibatches and of temperatures. Each is caught by a check of tests/test_stochastic.py or of
tests/test_temperature.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import test_stochastic as proof
import test_temperature as warm
import torch
from fault import Fault
from faults_core import tempered_jacobian
from torch import Tensor

from nescio.batch import Batch
from nescio.infer import SGHMC, SGLD, RMSprop
from nescio.noise import Noise
from nescio.target import Bound, Target


def weighed(weight: Callable[[Batch, int], float]) -> Callable[[pytest.MonkeyPatch], None]:
    """Another weight of a batch, which has so many rows."""
    true = Target.batch

    def batch(self: Target, index: Tensor | None) -> Batch:
        made = true(self, index)
        return made._replace(weight=weight(made, self.size if index is None else index.shape[-1]))

    return lambda m: m.setattr(Target, "batch", batch)


def rows_drawn_anew(replace: bool) -> Callable[[pytest.MonkeyPatch], None]:
    """Each batch has rows of its own, whatever the others of its epoch had."""
    true = Target.batch

    def plant(m: pytest.MonkeyPatch) -> None:
        generator = torch.Generator().manual_seed(0)

        def batch(self: Target, index: Tensor | None) -> Batch:
            if index is None:
                return true(self, index)
            chains, count = index.shape
            if replace:
                return true(self, torch.randint(self.size, (chains, count), generator=generator))
            return true(self, torch.rand(chains, self.size, generator=generator).argsort(1)[:, :count])

        m.setattr(Target, "batch", batch)

    return plant


def one_shuffle_for_all_chains(m: pytest.MonkeyPatch) -> None:
    true = Noise.permutations
    m.setattr(Noise, "permutations", lambda self, rows, n: true(self, 1, n).expand(rows, n))


def without_root(kind: type[SGLD | SGHMC]) -> Callable[[pytest.MonkeyPatch], None]:
    """The noise of a preconditioned step is that of a plain one."""
    true = kind.step

    def step(self: Any, target: Target, state: Any, batch: Batch, noise: Noise) -> Any:
        new, info = true(self, target, state, batch, noise)
        friction = self.friction if kind is SGHMC else 1.0
        root = 1 / (proof.EPS + state.squares.sqrt()).sqrt()
        extra = (2 * friction * self.size(0.0)) ** 0.5 * (1 - root) * noise.normal(*state.u.shape)
        moved = {"u": new.u + extra, **({"v": new.v + extra} if kind is SGHMC else {})}
        return new._replace(**moved), info

    return lambda m: m.setattr(kind, "step", step)


def preconditioner_squared(m: pytest.MonkeyPatch) -> None:
    true = RMSprop.__call__

    def call(self: RMSprop, squares: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        squares, scale = true(self, squares, gradient)
        return squares, scale.square()

    m.setattr(RMSprop, "__call__", call)


def memory_not_frozen(m: pytest.MonkeyPatch) -> None:
    """The preconditioner forgets, though it was told not to."""
    true = RMSprop.__call__
    m.setattr(RMSprop, "__call__", lambda self, squares, gradient: true(RMSprop(0.9, self.eps), squares, gradient))


def noise_of_the_gradient_alone(m: pytest.MonkeyPatch) -> None:
    """Temperature forgotten in the gradient: the law is that of T = 1, if noise is all that T should have changed."""
    true = Bound.__call__
    m.setattr(Bound, "__call__", lambda self, u: (true(self, u)[0], self.target.temperature * true(self, u)[1]))


def accept_step_without_temperature(m: pytest.MonkeyPatch) -> None:
    """Gradients are tempered, densities are not."""
    true, density = Bound.__call__, Target.log_density
    m.setattr(Bound, "__call__", lambda self, u: (self.target.temperature * true(self, u)[0], true(self, u)[1]))
    m.setattr(Target, "log_density", lambda self, u, batch: self.temperature * density(self, u, batch))


def law(sampler: SGLD | SGHMC, temperature: float = 1.0) -> Callable[[], None]:
    return partial(proof.check_law, sampler, temperature)


unweighed = weighed(lambda batch, count: 1.0)
as_if_full = weighed(lambda batch, count: batch.weight if count == proof.ROWS else proof.ROWS / proof.BATCH)

FAULTS: list[Fault] = [
    Fault("SGLD: N/B forgotten", unweighed, law(proof.sgld())),
    Fault("SGHMC: N/B forgotten", unweighed, law(proof.sghmc())),
    Fault("SGLD: a smaller batch weighed as a full one", as_if_full, law(proof.sgld())),
    Fault("SGLD: batches are no partition", rows_drawn_anew(replace=False), law(proof.sgld())),
    Fault("SGHMC: batches are no partition", rows_drawn_anew(replace=False), law(proof.sghmc())),
    Fault(
        "SGLD: rows drawn with replacement", rows_drawn_anew(replace=True), lambda: proof.check_formula(proof.sgld())
    ),
    Fault("SGLD: one shuffle for all chains", one_shuffle_for_all_chains, law(proof.sgld())),
    Fault("SGLD: noise without √G", without_root(SGLD), law(proof.sgld(precondition=proof.FROZEN))),
    Fault("SGHMC: noise without √G", without_root(SGHMC), law(proof.sghmc(precondition=proof.FROZEN))),
    Fault("SGLD: preconditioner squared", preconditioner_squared, law(proof.sgld(precondition=proof.FROZEN))),
    Fault("SGHMC: preconditioner squared", preconditioner_squared, law(proof.sghmc(precondition=proof.FROZEN))),
    Fault("preconditioner: a memory that fades", memory_not_frozen, law(proof.sgld(precondition=proof.FROZEN))),
    Fault("SGLD: gradient without temperature", noise_of_the_gradient_alone, law(proof.sgld(0.1), 2.0)),
    Fault("SGHMC: gradient without temperature", noise_of_the_gradient_alone, law(proof.sghmc(0.1), 2.0)),
    Fault("ULA: gradient without temperature", noise_of_the_gradient_alone, partial(warm.check_langevin, 2.0)),
    *(
        Fault(
            f"{name}: accept step without temperature",
            accept_step_without_temperature,
            partial(warm.check_invariant, name, 2.0),
        )
        for name in warm.KERNELS
    ),
    Fault("MALA: Jacobian tempered", tempered_jacobian, partial(warm.check_scale, "MALA", 2.0)),
]
