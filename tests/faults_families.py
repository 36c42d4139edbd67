"""Planted faults of the families beyond mean field and full rank. Each is caught by a check of tests/test_families.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import test_families as proof
import torch
from fault import Fault
from torch import Tensor
from torch.nn import functional as F

from nescio.families import flows, inverse_cdf, matrix_normal, multiplicative_flow
from nescio.families.covariance import LowRankPlusDiagonal
from nescio.infer import elbo, elbo_code, ivon

Plant = Callable[[pytest.MonkeyPatch], None]


def log_det_of_the_diagonal(m: pytest.MonkeyPatch) -> None:
    m.setattr(LowRankPlusDiagonal, "half_log_det", lambda self: self.sd.log().sum(dtype=torch.float64))


def directions_added_to_the_inverse(m: pytest.MonkeyPatch) -> None:
    def solve(self: LowRankPlusDiagonal, x: Tensor) -> Tensor:
        white = x / self.sd[:, None]
        return (white + self.scaled @ torch.cholesky_solve(self.scaled.mT @ white, self.root)) / self.sd[:, None]

    m.setattr(LowRankPlusDiagonal, "solve", solve)


def directions_without_noise(m: pytest.MonkeyPatch) -> None:
    m.setattr(LowRankPlusDiagonal, "root_times", lambda self, white: self.sd[:, None] * white[: len(self.sd)])


def sizes_swapped_in_the_log_det(m: pytest.MonkeyPatch) -> None:
    def wrong(self: matrix_normal.Matrix) -> Tensor:
        return len(self.loc) * self.rows.half_log_det() + len(self.loc.mT) * self.columns.half_log_det()

    m.setattr(matrix_normal.Matrix, "half_log_det", wrong)


def outputs_uncorrelated(m: pytest.MonkeyPatch) -> None:
    def linear(self: matrix_normal.Matrix, x: Tensor, bias: Any, value: Any) -> Tensor:
        length = (x * self.columns.times(x.mT).mT).sum(1, keepdim=True).sqrt()
        noisy = F.linear(x, self.loc) + length * self.rows.variances().sqrt() * torch.randn(len(x), len(self.loc)).to(x)
        return noisy + matrix_normal.own_bias(bias, noisy)

    m.setattr(matrix_normal.Matrix, "linear", linear)


def variance_for_length(m: pytest.MonkeyPatch) -> None:
    def linear(self: matrix_normal.Matrix, x: Tensor, bias: Any, value: Any) -> Tensor:
        length = (x * self.columns.times(x.mT).mT).sum(1, keepdim=True)
        noisy = F.linear(x, self.loc) + length * self.rows.correlate(len(x)).mT
        return noisy + matrix_normal.own_bias(bias, noisy)

    m.setattr(matrix_normal.Matrix, "linear", linear)


def rows_for_columns(m: pytest.MonkeyPatch) -> None:
    """The density with the roots of outputs and inputs on the wrong sides, where shapes allow it."""

    def log_prob(self: matrix_normal.Matrix, u: Tensor) -> Tensor:
        away = u.view_as(self.loc) - self.loc
        wrong = self.rows.solve(away) * self.columns.times(away.mT).mT
        return -0.5 * wrong.sum(dtype=torch.float64) - self.half_log_det() - 0.9189385332046727 * len(u)

    m.setattr(matrix_normal.Matrix, "log_prob", log_prob)


def determinant_of(change: Callable[[Tensor], Tensor]) -> Plant:
    def plant(m: pytest.MonkeyPatch) -> None:
        for kind in (flows.Coupling, flows.Autoregressive):
            true = kind.forward

            def forward(self: Any, z: Tensor, true: Any = true) -> tuple[Tensor, Tensor]:
                out, log_det = true(self, z)
                return out, change(log_det)

            m.setattr(kind, "forward", forward)

    return plant


def a_number_sees_itself(m: pytest.MonkeyPatch) -> None:
    true = flows.Autoregressive.__init__

    def wrong(self: flows.Autoregressive, size: int, hidden: int, turn: int, noise: Any) -> None:
        true(self, size, hidden, turn, noise)
        self.second = torch.ones_like(self.second)

    m.setattr(flows.Autoregressive, "__init__", wrong)


def r_of_z(change: Callable[[Tensor], Tensor]) -> Plant:
    def plant(m: pytest.MonkeyPatch) -> None:
        true = multiplicative_flow.Multiplicative.log_r
        m.setattr(multiplicative_flow.Multiplicative, "log_r", lambda self, z, w: change(true(self, z, w)))

    return plant


def r_of_other_weights(m: pytest.MonkeyPatch) -> None:
    """r reads the mean of the weights, which gives z away."""
    true = multiplicative_flow.Multiplicative.log_r
    m.setattr(multiplicative_flow.Multiplicative, "log_r", lambda self, z, w: true(self, z, z[:, None] * self.loc))


def z_of_all_examples(m: pytest.MonkeyPatch) -> None:
    true = multiplicative_flow.Multiplicative.latents

    def latents(self: Any, n: int) -> tuple[Tensor, Tensor]:
        z, log_q = true(self, 1)
        return z.expand(n, -1), log_q.expand(n)

    m.setattr(multiplicative_flow.Multiplicative, "latents", latents)


def z_forgotten_in_the_rule(m: pytest.MonkeyPatch) -> None:
    true = multiplicative_flow.Multiplicative.linear

    def linear(self: Any, x: Tensor, bias: Any, value: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            mean = self.latents(1000)[0].mean(0)
            inner.setattr(type(self), "latents", lambda self, n: (mean.expand(n, -1), None))
            return true(self, x, bias, value)

    m.setattr(multiplicative_flow.Multiplicative, "linear", linear)


def scale_squared(m: pytest.MonkeyPatch) -> None:
    def draw(self: inverse_cdf.Shaped) -> Tensor:
        v = torch.rand_like(self.loc)
        return (self.loc + self.sd.square() * inverse_cdf.standard(self.q, v).icdf(v)).reshape(-1)

    m.setattr(inverse_cdf.Shaped, "draw", draw)


def gaussian_draws(m: pytest.MonkeyPatch) -> None:
    def draw(self: inverse_cdf.Shaped) -> Tensor:
        return (self.loc + 2**0.5 * self.sd * torch.randn_like(self.loc)).reshape(-1)  # a Laplace's variance

    m.setattr(inverse_cdf.Shaped, "draw", draw)


def laplace_scale_for_sd(m: pytest.MonkeyPatch) -> None:
    """The divergence of another spread than that of the draws."""

    def law(self: inverse_cdf.Shaped) -> Any:
        return self.q(self.loc.reshape(-1), self.sd.reshape(-1) / 2**0.5)  # type: ignore[call-arg]

    m.setattr(inverse_cdf.Shaped, "law", law)


def natural(change: Callable[[Any, Tensor, Tensor, dict[str, Any]], None]) -> Plant:
    return lambda m: m.setattr(ivon.IVON, "natural", change)


def ivon_with(n: float = 1.0, half: float = 0.5, slope: bool = True) -> Plant:
    """`n`: a factor on the observations; `half`: on the square of the step; `slope`: that of softplus."""

    def wrong(self: Any, loc: Tensor, rho: Tensor, group: dict[str, Any]) -> None:
        count, (beta1, beta2) = n * group["observations"], group["betas"]
        step, average = self.averaged(loc, beta1)
        sd = F.softplus(rho)
        assert rho.grad is not None
        a = -count * sd * rho.grad / (torch.sigmoid(rho) if slope else 1.0)
        r = (1 - beta2) * group["lr"] / self.defaults["lr"]
        sd = sd * (1 - r * a + half * (r * a).square()).rsqrt()
        loc.addcmul_(sd.square(), average, value=-group["lr"] * count / (1 - beta1**step))
        rho.copy_(sd + torch.log(-torch.expm1(-sd)))

    return natural(wrong)


def copies_for_samples(m: pytest.MonkeyPatch) -> None:
    true = elbo.NegativeELBO.__init__

    def init(self: elbo.NegativeELBO, *arguments: Any) -> None:
        true(self, *arguments)
        self.alone = True

    m.setattr(elbo.NegativeELBO, "__init__", init)


def the_same_noise_at_every_step(m: pytest.MonkeyPatch) -> None:
    true = elbo_code.CompiledELBO.make

    def make(self: Any, leaves: Any, form: Any) -> Any:
        made = true(self, leaves, form)
        if made is None:
            return None
        kept = [draw() for draw in made[1]]
        return made[0], [lambda x=x: x for x in kept]

    m.setattr(elbo_code.CompiledELBO, "make", make)


def warm_up_forgotten_in_the_code(m: pytest.MonkeyPatch) -> None:
    true = elbo_code.CompiledELBO.inputs
    m.setattr(elbo_code.CompiledELBO, "inputs", lambda self, leaves, part: true(self, leaves, 1.0))


FAULTS: list[Fault] = [
    Fault("families: log det without the directions", log_det_of_the_diagonal, lambda: proof.check_densities("low rank")),
    Fault("families: directions added to the inverse", directions_added_to_the_inverse,
          lambda: proof.check_densities("low rank")),
    Fault("families: draws without the directions", directions_without_noise, lambda: proof.check_draws("low rank")),
    Fault("families: sizes swapped in the log det", sizes_swapped_in_the_log_det, lambda: proof.check_densities("matrix")),
    Fault("families: a covariance for its inverse", rows_for_columns, proof.check_matrix_prior),
    Fault("families: outputs of a matrix normal uncorrelated", outputs_uncorrelated, lambda: proof.check_rule("matrix")),
    Fault("families: variance for a length", variance_for_length, lambda: proof.check_rule("matrix of directions")),
    Fault("families: log determinant reversed", determinant_of(torch.neg), lambda: proof.check_flow(flows.Coupling)),
    Fault("families: log determinant forgotten", determinant_of(lambda x: 0 * x), proof.check_normalised),
    Fault("families: a number of a flow sees itself", a_number_sees_itself, lambda: proof.check_flow(flows.Autoregressive)),
    Fault("families: log r forgotten", r_of_z(lambda x: 0 * x), proof.check_normalised),
    Fault("families: log r twice", r_of_z(lambda x: 2 * x), proof.check_normalised),
    Fault("families: r is told z", r_of_other_weights, proof.check_normalised),
    Fault("families: one z for all examples", z_of_all_examples, lambda: proof.check_rule("flow")),
    Fault("families: the rule without z", z_forgotten_in_the_rule, lambda: proof.check_rule("flow")),
    Fault("families: scale squared", scale_squared, lambda: proof.check_shape("Laplace")),
    Fault("families: Gaussian for Laplace of the same variance", gaussian_draws, lambda: proof.check_shape("Laplace")),
    Fault("families: divergence of another scale", laplace_scale_for_sd, proof.check_laplace_bound),
    Fault("IVON: N forgotten", ivon_with(n=1 / 3), proof.check_ivon_step),
    Fault("IVON: half of the square forgotten", ivon_with(half=1.0), proof.check_ivon_step),
    Fault("IVON: slope of softplus forgotten", ivon_with(slope=False), proof.check_ivon_step),
    Fault("VI: samples are copies of one draw", copies_for_samples, proof.check_samples_are_draws),
    Fault("VI: compiled with the noise of one step", the_same_noise_at_every_step, proof.check_coded),
    Fault("VI: compiled without the warm-up", warm_up_forgotten_in_the_code, proof.check_coded),
]  # fmt: skip
