"""Planted faults of variational inference: the ones that libraries were found with. Each is caught by a check of tests/test_vi.py
or tests/test_weights.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import test_vi as proof
import test_weights as laws
import torch
from fault import Fault
from torch import Tensor
from torch.nn import functional as F

from nescio import weights
from nescio.families import call, fused, independent
from nescio.families.call import Call
from nescio.infer import elbo
from nescio.network import Network


def divergence_times(factor: float) -> Callable[[pytest.MonkeyPatch], None]:
    def plant(m: pytest.MonkeyPatch) -> None:
        true = Call.divergence
        m.setattr(Call, "divergence", lambda self, temperature=1.0: factor * true(self, temperature))

    return plant


def kl_is_a_mean_over_weights(m: pytest.MonkeyPatch) -> None:
    true = independent.normal_kl
    m.setattr(independent, "normal_kl", lambda locs, sds, a, b: true(locs, sds, a, b) / locs[0].numel())


def kl_reversed(m: pytest.MonkeyPatch) -> None:
    def wrong(locs: list[Tensor], sds: list[Tensor], a: Tensor, b: Tensor) -> Tensor:
        each = zip(locs, sds, a, b, strict=True)
        return torch.stack(
            [(0.5 * (t**2 + (x - c) ** 2) / d**2 - 0.5 - (t / d).log()).sum() for x, d, c, t in each]
        ).sum()

    m.setattr(independent, "normal_kl", wrong)


def prior_variance_for_sd(m: pytest.MonkeyPatch) -> None:
    true = independent.normal_kl
    m.setattr(independent, "normal_kl", lambda locs, sds, a, b: true(locs, sds, a, b.square()))


def sd_for_variance(m: pytest.MonkeyPatch) -> None:
    def wrong(function: Any, x: Tensor, loc: Tensor, sd: Tensor, bias: Any, bias_sd: Any) -> Tensor:
        mean = function(x, loc, bias)
        return mean + function(x * x, sd, bias_sd).sqrt() * torch.randn_like(mean)

    m.setattr(independent, "noisy", wrong)


def noise_shared_over_the_batch(m: pytest.MonkeyPatch) -> None:
    def wrong(function: Any, x: Tensor, loc: Tensor, sd: Tensor, bias: Any, bias_sd: Any) -> Tensor:
        mean = function(x, loc, bias)
        spread = function(x * x, sd.square(), None if bias_sd is None else bias_sd.square()).sqrt()
        return mean + spread * torch.randn(1, mean.shape[1]).to(mean)

    def pairs(function: Any, x: Tensor, loc: Tensor, sd: Tensor, bias: Any, bias_sd: Any) -> Tensor:
        if len(x) % 2:
            return wrong(function, x, loc, sd, bias, bias_sd)
        mean = function(x, loc, bias)
        spread = function(x * x, sd.square(), None if bias_sd is None else bias_sd.square()).sqrt()
        return mean + spread * torch.randn(len(x) // 2, mean.shape[1]).to(mean).repeat_interleave(2, 0)

    m.setattr(independent, "noisy", pairs)


def softplus_missing(m: pytest.MonkeyPatch) -> None:
    def begin(self: independent.Gaussian) -> None:
        self.sd = self.rho.abs()

    m.setattr(independent.Gaussian, "begin", begin)


def epsilon_forgotten(m: pytest.MonkeyPatch) -> None:
    """The gradient of rho without the noise that sigma was multiplied by."""

    def draw(self: independent.Gaussian) -> Tensor:
        noise = torch.randn_like(self.loc)
        return (self.loc + (self.sd.detach() * noise + self.sd - self.sd.detach())).reshape(-1)

    m.setattr(independent.Gaussian, "draw", draw)


def a_weight_used_twice_is_drawn_twice(m: pytest.MonkeyPatch) -> None:
    m.setattr(elbo, "per_example", lambda call, given: frozenset(given))
    m.setattr(elbo, "check_uses", lambda params: None)
    m.setattr(weights.RandomWeight, "value", lambda self: self.draw())


def everything_is_an_example(m: pytest.MonkeyPatch) -> None:
    true = weights.Recorder.meet

    def meet(self: weights.Recorder, x: Tensor) -> Tensor:
        self.met = [2, 3][len(self.met) :] or self.met  # whatever it meets
        return true(self, x) if x.dim() < 2 else self.plain

    m.setattr(elbo, "per_example", lambda call, given: frozenset(given))
    m.setattr(weights.Recorder, "meet", meet)


def batch_not_scaled(m: pytest.MonkeyPatch) -> None:
    """N / B forgotten."""
    true = elbo.log_density

    def wrong(distribution: Any, value: Any, lead: int) -> Tensor:
        return true(distribution, value, lead) * len(value) / proof.ROWS

    m.setattr(elbo, "log_density", wrong)


def position_by_position(m: pytest.MonkeyPatch) -> None:
    """Convolutions by the local rule although nobody asked for it."""

    def convolve(self: Any, convolution: Any, x: Tensor, bias: Any, value: Any) -> Tensor:
        return self.local(convolution, x, bias)

    m.setattr(independent.Gaussian, "convolve", convolve)


def one_sign_for_all_examples(m: pytest.MonkeyPatch) -> None:
    def wrong(like: Tensor, axis: int) -> Tensor:
        shape = [1] * like.dim()
        shape[axis] = like.shape[axis]
        return torch.randint(0, 2, shape).to(like.dtype) * 2 - 1

    m.setattr(independent, "signs", wrong)


def jacobian_of_the_scale_forgotten(m: pytest.MonkeyPatch) -> None:
    m.setattr(Call, "log_jacobian", lambda self, block: 0.0)


def temperature_on_the_entropy(m: pytest.MonkeyPatch) -> None:
    """KL / T: the whole divergence tempered, the entropy of q included."""
    true = Call.divergence
    m.setattr(Call, "divergence", lambda self, temperature=1.0: true(self, 1.0) / temperature)


def fused_slope_of_sd(m: pytest.MonkeyPatch) -> None:
    true = fused.NormalKL.backward

    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        of_m, of_s, *slopes = true(ctx, g)
        return of_m, of_s, *slopes[: len(slopes) // 2], *(2 * slope for slope in slopes[len(slopes) // 2 :])

    m.setattr(fused.NormalKL, "backward", staticmethod(backward))


def gradients_outside_of_the_call(m: pytest.MonkeyPatch) -> None:
    """The network has its own weights again when a checkpointed part is computed again."""
    m.setattr(Network, "within", lambda self, params, x, then: then(self.call(params, x, True)))


def draws_at_the_mean(m: pytest.MonkeyPatch) -> None:
    m.setattr(call.Call, "draw", lambda self, i: self.factors[i].mean().detach())


def variance_in_draws(m: pytest.MonkeyPatch) -> None:
    def draw(self: independent.Gaussian) -> Tensor:
        return (self.loc + F.softplus(self.rho).square() * torch.randn_like(self.loc)).reshape(-1)

    m.setattr(independent.Gaussian, "draw", draw)


FAULTS: list[Fault] = [
    Fault("VI: KL divided by the number of batches", divergence_times(0.5), proof.check_bound),
    Fault("VI: KL divided by the number of layers", divergence_times(0.25), proof.check_bound),
    Fault("VI: KL of every weight twice", divergence_times(2.0), proof.check_hand_gradients),
    Fault("VI: KL a mean over weights", kl_is_a_mean_over_weights, proof.check_bound),
    Fault("VI: KL reversed", kl_reversed, proof.check_bound),
    Fault("VI: prior variance for its sd", prior_variance_for_sd, lambda: proof.check_bound(0.3)),
    Fault("VI: sd for the variance in the local rule", sd_for_variance, laws.check_local_law),
    Fault("VI: sd for the variance in draws", variance_in_draws, proof.check_coherent),
    Fault("VI: noise shared over the batch in the local rule", noise_shared_over_the_batch, laws.check_local_law),
    Fault("VI: softplus missing", softplus_missing, proof.check_hand_gradients),
    Fault("VI: epsilon missing in the gradient of rho", epsilon_forgotten, proof.check_hand_gradients),
    Fault("VI: a weight used twice is drawn twice", a_weight_used_twice_is_drawn_twice, laws.check_one_random_variable),
    Fault("VI: time and folded axes taken for examples", everything_is_an_example, laws.check_acting),
    Fault("VI: N / B missing", batch_not_scaled, proof.check_bound),
    Fault("VI: positions of a convolution with noise of their own", position_by_position, laws.check_signed_law),
    Fault("VI: one sign for all examples", one_sign_for_all_examples, laws.check_signed_law),
    Fault("VI: Jacobian of a random scale forgotten", jacobian_of_the_scale_forgotten, proof.check_hierarchy),
    Fault("VI: entropy tempered", temperature_on_the_entropy, lambda: proof.check_bound(0.3, 0.5)),
    Fault("VI: fused slope of the KL", fused_slope_of_sd, laws.check_fused),
    Fault("VI: checkpointed networks differentiated outside", gradients_outside_of_the_call, laws.check_checkpointing),
    Fault("VI: posterior draws at the mean", draws_at_the_mean, proof.check_coherent),
]
