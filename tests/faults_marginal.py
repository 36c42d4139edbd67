"""Planted faults of the evidence, of what maximises it, and of its referee. Each is caught by a check of tests/test_marginal.py."""

from __future__ import annotations

from typing import Any

import pytest
import test_marginal as proof
import torch
from fault import Fault
from targets import conjugate, grid
from torch import Tensor

from nescio.infer.curvature import full, kfac, sweep
from nescio.infer.curvature import prior as prior_part
from nescio.linalg import Dense
from nescio.marginal import annealing, mode, tuning
from nescio.marginal.mode import AtMode


def held_curvature(m: pytest.MonkeyPatch) -> None:
    """Another noise with the curvature of the old one."""
    true = AtMode.at

    def wrong(self: AtMode, theta: Tensor, numbers: Any) -> Any:
        return self.curvature, true(self, theta, numbers)[1]

    m.setattr(AtMode, "at", wrong)


def noise_not_squared(m: pytest.MonkeyPatch) -> None:
    """A precision 1 / noise in place of 1 / noise²."""
    true = Dense.times
    m.setattr(Dense, "times", lambda self, factor: true(self, factor**0.5))


def held_likelihood(m: pytest.MonkeyPatch) -> None:
    """The normaliser of the noise forgotten: the log likelihood stays what it was."""
    m.setattr(AtMode, "log_likelihood", lambda self, own: torch.tensor(self.of.info["log_likelihood"]))


def no_slope_of_the_curvature(m: pytest.MonkeyPatch) -> None:
    true = sweep.columns
    m.setattr(sweep, "columns", lambda *args: [column.detach() for column in true(*args)])


def equal_by_chance(m: pytest.MonkeyPatch) -> None:
    """Scales that happen to be equal taken for one: their slope is that of the first."""
    true = prior_part.structured

    def wrong(law: Any, bound: Any, values: Any, own: Tensor) -> Any:
        first = next(reading.variable for name, reading in law.readings.items() if name == "scale")
        values = [v.detach() + (v - v.detach())[:1] if i == first else v for i, v in enumerate(values)]
        return true(law, bound, values, own)

    m.setattr(prior_part, "structured", wrong)


def no_volume(m: pytest.MonkeyPatch) -> None:
    """Numbers by the joint density alone: without the log determinant."""
    true = AtMode.evidence

    def wrong(self: AtMode, numbers: Any) -> Tensor:
        theta = mode.moved(self.of.model.prior, self.of.theta, numbers)
        joint = self.at(theta, numbers)[1] + mode.log_prior(self.of.model.prior, theta, self.of.slots)
        return joint + (true(self, numbers) - joint).detach()

    m.setattr(AtMode, "evidence", wrong)


def noise_is_trained(m: pytest.MonkeyPatch) -> None:
    """MAP takes the noise along, to that of the residuals."""
    m.setattr(tuning, "replace", lambda target, only: target)


def numbers_do_not_reach_training(m: pytest.MonkeyPatch) -> None:
    """Every round is trained under the first numbers."""
    true = AtMode.posterior

    def wrong(self: AtMode, numbers: Any) -> Any:
        found = true(self, numbers)
        found.theta = self.of.theta
        return found

    m.setattr(AtMode, "posterior", wrong)


def one_round_only(m: pytest.MonkeyPatch) -> None:
    """Numbers at the first mode taken for the optimum."""
    true = tuning.maximise
    m.setattr(tuning, "maximise", lambda *args: (0.0, 0.0, true(*args)[2]))


def narrow_range(m: pytest.MonkeyPatch) -> None:
    m.setattr(tuning, "RANGE", 3.0)


def weights_move(m: pytest.MonkeyPatch) -> None:
    """Post hoc, and yet the weights are shrunk with the prior."""
    true = AtMode.posterior

    def wrong(self: AtMode, numbers: Any) -> Any:
        found = true(self, numbers)
        found.theta = found.theta * 0.99
        return found

    m.setattr(AtMode, "posterior", wrong)


def always_accepted(m: pytest.MonkeyPatch) -> None:
    true = annealing.decide

    def wrong(bound: Any, *given: Tensor) -> Any:
        return given[4], *true(bound, *given)[1:]

    m.setattr(annealing, "decide", wrong)
    m.setattr(annealing, "GOAL", 0.4)


def mean_of_logarithms(m: pytest.MonkeyPatch) -> None:
    true = annealing.summed
    m.setattr(annealing, "summed", lambda path: (found := true(path))._replace(log_evidence=found.bound))


def not_to_the_end(m: pytest.MonkeyPatch) -> None:
    """The last temperature is not one."""
    true = annealing.respaced

    def wrong(pilot: Any, temperatures: int) -> Any:
        plan = true(pilot, temperatures)
        return plan._replace(betas=0.9 * plan.betas)

    m.setattr(annealing, "respaced", wrong)


def linear() -> None:
    proof.check_anneal(conjugate(20, 2), chains=400, temperatures=40)


def skewed() -> None:
    proof.check_anneal(grid(), chains=1000, temperatures=20)


def one_noise() -> None:
    proof.check_likelihood_numbers("one noise", (full,))


FAULTS: list[Fault] = [
    Fault("evidence: the curvature of another noise", held_curvature, one_noise),
    Fault("evidence: 1 / noise for 1 / noise²", noise_not_squared, one_noise),
    Fault("evidence: the likelihood of another noise", held_likelihood, one_noise),
    Fault(
        "evidence: no slope of the curvature",
        no_slope_of_the_curvature,
        lambda: proof.check_likelihood_numbers("a noise for each output", (kfac,)),
    ),
    Fault("evidence: scales equal by chance", equal_by_chance, proof.check_structured_slope),
    Fault("tune: without the log determinant", no_volume, lambda: proof.check_tune((full,))),
    Fault("tune: noise trained along", noise_is_trained, proof.check_held),
    Fault("tune: numbers do not reach training", numbers_do_not_reach_training, lambda: proof.check_tune((full,))),
    Fault("tune: one round taken for the optimum", one_round_only, lambda: proof.check_tune((full,))),
    Fault("tune: a narrow range", narrow_range, proof.check_relevance),
    Fault("tune: post hoc moves weights", weights_move, proof.check_post_hoc),
    Fault("anneal: every step accepted", always_accepted, skewed),
    Fault("anneal: mean of log weights", mean_of_logarithms, linear),
    Fault("anneal: not to the end", not_to_the_end, linear),
]
