"""Planted faults of the neural linear model, SWAG, remembered priors, subnetworks and single passes; each is caught by a check of
tests/test_neural_linear.py, test_swag.py, test_memory.py, test_subnetwork.py, test_moments.py or test_single_pass.py."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import test_memory as memory
import test_moments as moments
import test_neural_linear as linear
import test_single_pass as single
import test_subnetwork as part
import test_swag as swag
import torch
from fault import Fault
from torch import Tensor

from nescio.functions import StudentFunctions
from nescio.infer.curvature import full
from nescio.jacobian.pieces import Outer, Plain
from nescio.laws.remembered import Known
from nescio.linalg import LowRank
from nescio.moments import gaussian, propagation
from nescio.moments.gaussian import Moments
from nescio.posterior import compiled, linear_head, members, observed
from nescio.posterior import memory as remembering
from nescio.posterior.conjugate import Inverse, Regression, Sums
from nescio.posterior.head import features

swag_file, neural_file = (import_module(f"nescio.infer.{name}") for name in ("swag", "neural_linear"))


def no_one_for_the_bias(m: pytest.MonkeyPatch) -> None:
    """Features of the last layer with a zero where the bias has its one."""

    def wrong(*args: Any) -> Tensor:
        phi = features(*args).clone()
        phi[:, -1] = 0
        return phi

    m.setattr(linear_head, "features", wrong)
    m.setattr(neural_file, "features", wrong)


def prior_mean_forgotten(m: pytest.MonkeyPatch) -> None:
    true = neural_file.gaussian_prior

    def wrong(*args: Any) -> tuple[Tensor, Tensor]:
        precision, shift = true(*args)
        return precision, torch.zeros_like(shift)

    m.setattr(neural_file, "gaussian_prior", wrong)


def units_of_y_missing_in_the_evidence(m: pytest.MonkeyPatch) -> None:
    m.setattr(linear_head.LinearHead, "evidence", lambda self: self.regression.log_evidence)


def streaming_counts_squares_once(m: pytest.MonkeyPatch) -> None:
    """Σ y² of the first data only."""
    true = Sums.plus
    m.setattr(Sums, "plus", lambda self, other: true(self, other)._replace(squares=self.squares))


def one_half_too_many(m: pytest.MonkeyPatch) -> None:
    """The shape of the noise grows by N for each output, not by N/2."""
    true: Any = Regression.__dict__["inverse_gamma"].func

    def wrong(self: Regression) -> Inverse:
        found = true(self)
        assert isinstance(self.noise, Inverse)
        return Inverse(2 * found.shape - self.noise.shape, found.rate)

    m.setattr(Regression, "inverse_gamma", property(wrong))


def outputs_apart(m: pytest.MonkeyPatch) -> None:
    """One noise for all outputs, but a density that is a product over them."""
    true = StudentFunctions.log_prob

    def wrong(self: StudentFunctions, y: Tensor) -> Tensor:
        wide = y.shape[1]
        return true(
            StudentFunctions(self.centre, self.spread, self.unit, self.shape.expand(wide), self.rate.expand(wide)), y
        )

    m.setattr(StudentFunctions, "log_prob", wrong)


def root_of_the_precision(m: pytest.MonkeyPatch) -> None:
    """L⁻¹ z for L⁻ᵀ z in draws of the head."""

    def wrong(self: Regression, z: Tensor) -> Tensor:
        white = z.reshape(len(z), len(self.posterior[0]), -1, 1)
        return torch.linalg.solve_triangular(self.posterior[0], white, upper=False).reshape(z.shape)

    m.setattr(Regression, "root", wrong)


def swag_not_halved(m: pytest.MonkeyPatch) -> None:
    true = swag_file.covariance

    def wrong(state: Any, chain: int) -> LowRank:
        return true(state, chain).times(2.0)

    m.setattr(swag_file, "covariance", wrong)


def swag_from_the_final_mean(m: pytest.MonkeyPatch) -> None:
    """Deviations from the mean before the new point, not after it."""
    true = swag_file.collected

    def wrong(state: Any) -> Any:
        after = true(state)
        after.last[:, int(state.count) % after.last.shape[1]] = (state.u.double() - state.mean).to(after.last)
        return after

    m.setattr(swag_file, "collected", wrong)


def summed_loss(m: pytest.MonkeyPatch) -> None:
    """SGD on twice the gradient."""
    true = swag_file.SWAG.step

    def wrong(self: Any, target: Any, state: Any, batch: Any, noise: Any) -> Any:
        return true(self, target, state, batch._replace(weight=2 * batch.weight), noise)

    m.setattr(swag_file.SWAG, "step", wrong)


def order_of_the_vector(m: pytest.MonkeyPatch) -> None:
    """A covariance in the order of the vector where the law is in that of the network."""
    m.setattr(remembering, "turned", lambda covariance, places: covariance)


def normaliser_forgotten(m: pytest.MonkeyPatch) -> None:
    true = Known.log_prob
    m.setattr(Known, "log_prob", lambda self, x, numbers: true(self, x, numbers) + 0.5 * self.logdet)


def inputs_for_outputs(m: pytest.MonkeyPatch) -> None:
    """Rows and columns of scattered weights exchanged."""

    def wrong(self: Outer) -> Plain:
        keep = (self.index >= 0).nonzero()[:, 0]
        outputs, inputs = self.shape
        row, column = keep % outputs, (keep // outputs) % inputs
        rows = (self.g[..., row] * self.a[..., column]).sum(2)
        return Plain(self.index[keep], rows)

    m.setattr(Outer, "some", wrong)


def weight_noise_forgotten(m: pytest.MonkeyPatch) -> None:
    """Var y = M² v + S m²: the product of both variances missing."""
    true = propagation.mapped
    m.setattr(
        propagation, "mapped", lambda weight, *rest: (own := true(weight, *rest))._replace(power=own.mean.square())
    )


def scale_noise_once(m: pytest.MonkeyPatch) -> None:
    """Var γ only where it meets the variance of what is normed, not where it meets its mean."""
    true = propagation.mapped
    m.setattr(propagation, "mapped", lambda *given: true(*given)._replace(slope=None))


def norm_squared_for_the_mean(m: pytest.MonkeyPatch) -> None:
    """γ² / σ² for γ² / σ² + Var γ / σ² in what a norm does to variances."""
    true = propagation.mapped

    def wrong(weight: Any, bias: Any, norm: Any = None, factored: bool = False) -> Any:
        found = true(weight, bias, norm, factored)
        if norm is None or not isinstance(norm.gamma, Moments):
            return found
        certain = true(weight, bias, norm._replace(gamma=norm.gamma.mean), factored)
        return found._replace(power=certain.power, variance=certain.variance, spread=certain.spread)

    m.setattr(propagation, "mapped", wrong)


def relu_by_its_slope(m: pytest.MonkeyPatch) -> None:
    """First order: the variance of units that are on."""
    rules = import_module("nescio.moments.rules")
    wrong = lambda x, slope=0.0: Moments(x.mean.relu(), x.variance * (x.mean > 0))  # noqa: E731
    m.setitem(rules.RULES, torch.ops.aten.relu.default, wrong)
    m.setattr(gaussian, "relu", wrong)


def independent_product(m: pytest.MonkeyPatch) -> None:
    def wrong(x: Any, y: Any) -> Any:
        return Moments(x.mean * y.mean, x.variance * y.variance)

    m.setattr(gaussian, "product", wrong)


def bias_left_out(m: pytest.MonkeyPatch) -> None:
    """The variance of the last layer's bias missing in a compiled one."""
    true = compiled.forms

    def wrong(*args: Any) -> Any:
        found = true(*args)
        root = found.root.clone()
        root[..., -1, :] = 0
        return found._replace(root=root)

    m.setattr(compiled, "forms", wrong)


def units_once(m: pytest.MonkeyPatch) -> None:
    """scale for scale² in the variance of a compiled posterior."""
    true = observed.Real.forward

    def wrong(self: Any, mean: Tensor, variance: Tensor, apart: Tensor) -> Any:
        y, epistemic, aleatoric = true(self, mean, variance, apart)
        return y, epistemic / self.scale, aleatoric

    m.setattr(observed.Real, "forward", wrong)


def common_logit_counts(m: pytest.MonkeyPatch) -> None:
    """What all logits share taken for doubt between classes."""
    true = observed.Labels.forward
    m.setattr(observed.Labels, "forward", lambda self, mean, variance, apart: true(self, mean, 4 * variance, variance))


def noise_of_the_first(m: pytest.MonkeyPatch) -> None:
    """All members of a compiled ensemble with the noise of the first."""
    true = members.Members.__init__

    def wrong(self: Any, model: Any, nets: Any, numbers: Any) -> None:
        true(self, model, nets, {name: value[:1].expand_as(value) for name, value in numbers.items()})

    m.setattr(members.Members, "__init__", wrong)


FAULTS = [
    Fault("neural linear: no one for the bias", no_one_for_the_bias, linear.check_features),
    Fault("neural linear: prior mean forgotten", prior_mean_forgotten, linear.check_features),
    Fault("neural linear: evidence without units", units_of_y_missing_in_the_evidence, linear.check_features),
    Fault("neural linear: streaming forgets squares", streaming_counts_squares_once, linear.check_streaming),
    Fault("neural linear: shape of the noise", one_half_too_many, linear.check_student),
    Fault("neural linear: outputs apart", outputs_apart, linear.check_student),
    Fault("neural linear: root transposed", root_of_the_precision, linear.check_draws),
    Fault("SWAG: covariance not halved", swag_not_halved, swag.check_moments),
    Fault("SWAG: deviations from the old mean", swag_from_the_final_mean, swag.check_moments),
    Fault("SWAG: twice the gradient", summed_loss, swag.check_moments),
    Fault("as_prior: order of the vector", order_of_the_vector, lambda: memory.check_in_sequence((full,))),
    Fault("as_prior: no normaliser", normaliser_forgotten, memory.check_law),
    Fault("subnetwork: rows for columns", inputs_for_outputs, part.check_parts),
    Fault("moments: product of variances forgotten", weight_noise_forgotten, moments.check_one_hidden_layer),
    Fault("moments: noise of a norm's scale once", scale_noise_once, moments.check_convolution),
    Fault(
        "moments: noise of a norm's scale beside the mean alone", norm_squared_for_the_mean, moments.check_convolution
    ),
    Fault("moments: ReLU to first order", relu_by_its_slope, moments.check_one_hidden_layer),
    Fault("moments: product of independent numbers", independent_product, moments.check_pairs),
    Fault("single pass: bias without variance", bias_left_out, single.check_last_layer),
    Fault("single pass: units once", units_once, single.check_last_layer),
    Fault("single pass: what logits share", common_logit_counts, single.check_classes),
    Fault("compiled ensemble: noise of the first member", noise_of_the_first, single.check_members),
]
