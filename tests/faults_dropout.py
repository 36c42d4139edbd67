"""Planted faults of the dropout families. Each is caught by a check of the tests/test_*dropout*.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import test_dropout_decay
import test_dropout_learned
import torch
from dropout_cases import P
from fault import Fault
from test_dropout_bound import PRIORS, check_bound, check_divergence, check_gaussian_divergence, check_narrow
from test_dropout_decay import check_decay, check_ridge
from test_dropout_learned import check_fused_log_uniform, check_learned, check_log_uniform, check_relaxed
from test_dropout_masks import check_columns, check_marginals, check_time
from test_net_dropout import check_net_dropout
from torch import Tensor, nn
from torch.distributions import Distribution, Normal

from nescio import weights
from nescio.families import (
    BernoulliDropout,
    concrete,
    decay,
    dropout,
    gaussian_dropout,
    masks,
    net_dropout,
    variational_dropout,
)
from nescio.infer import elbo
from nescio.network import Network
from nescio.posterior import variational


def bernoulli(
    probability: Callable[[float], float], divisor: Callable[[float], float]
) -> Callable[[pytest.MonkeyPatch], None]:
    """Masks that are one with this probability, over this number."""

    def plant(m: pytest.MonkeyPatch) -> None:
        def noise(self: dropout.Spikes, rows: int) -> Tensor:
            kept = torch.rand(rows, self.inputs) < probability(self.p)
            return kept.to(self.loc.dtype) / divisor(self.p)

        m.setattr(dropout.Spikes, "noise", noise)

    return plant


def mask_on_the_output(m: pytest.MonkeyPatch) -> None:
    def draw(self: masks.Multiplied) -> Tensor:
        z = (torch.rand(len(self.loc)) < 1 - P).to(self.loc.dtype) / (1 - P)
        return (self.loc * z.view(-1, *[1] * (self.loc.dim() - 1))).reshape(-1)

    m.setattr(masks.Multiplied, "draw", draw)


def every_weight_by_itself(m: pytest.MonkeyPatch) -> None:
    """DropConnect."""

    def draw(self: masks.Multiplied) -> Tensor:
        return ((torch.rand_like(self.loc) < 1 - P) * self.loc / (1 - P)).reshape(-1)

    m.setattr(masks.Multiplied, "draw", draw)


def groups_forgotten(m: pytest.MonkeyPatch) -> None:
    """The inputs of a grouped convolution counted from zero in every group."""

    def each(self: masks.Multiplied, z: Tensor) -> Tensor:
        size = self.loc.shape[self.axis]
        return z[:size].view([-1 if axis == self.axis else 1 for axis in range(self.loc.dim())])

    m.setattr(masks.Multiplied, "each", each)


def one_mask_for_the_batch(m: pytest.MonkeyPatch) -> None:
    true = dropout.Spikes.noise
    m.setattr(dropout.Spikes, "noise", lambda self, rows: true(self, 1).expand(rows, -1))


def mask_at_every_token(m: pytest.MonkeyPatch) -> None:
    def linear(self: masks.Multiplied, x: Tensor, bias: Any, value: Any) -> Tensor:
        z = self.noise(x[..., 0].numel()).view(x.shape)
        return nn.functional.linear(x * z, self.loc, bias)

    m.setattr(masks.Multiplied, "linear", linear)


def mask_at_every_step(m: pytest.MonkeyPatch) -> None:
    """A weight that is used again is drawn again."""
    m.setattr(elbo, "per_example", lambda call, given: frozenset(given))
    m.setattr(elbo, "check_uses", lambda params: None)
    m.setattr(weights.RandomWeight, "value", lambda self: self.draw())


def entropy_times(factor: float) -> Callable[[pytest.MonkeyPatch], None]:
    def plant(m: pytest.MonkeyPatch) -> None:
        for kind in (dropout.Spikes, concrete.Relaxed):
            m.setattr(kind, "entropy", lambda self, true=kind.entropy: factor * true(self))

    return plant


def entropy_once_a_layer(m: pytest.MonkeyPatch) -> None:
    true = concrete.Relaxed.entropy
    m.setattr(concrete.Relaxed, "entropy", lambda self: true(self) / self.inputs)


def decay_of_the_mean(m: pytest.MonkeyPatch) -> None:
    """‖E W‖² / 2s²: the masks forgotten."""
    true = dropout.spikes_cross_entropy
    m.setattr(dropout, "spikes_cross_entropy", lambda prior, loc, keep: true(prior, loc, 1.0))


def decay_of_unscaled_weights(m: pytest.MonkeyPatch) -> None:
    """(1 - p) ‖E W‖² / 2s²: two conventions mixed."""
    m.setattr(
        dropout, "normal_cross_entropy", lambda prior, loc, square: masks.normal_cross_entropy(prior, loc, 1 / square)
    )


def dropped_weights_have_no_prior(m: pytest.MonkeyPatch) -> None:
    def wrong(prior: Distribution, loc: Tensor, keep: Tensor | float) -> Tensor:
        kept = torch.as_tensor(keep, dtype=loc.dtype).expand(loc.shape).reshape(-1)
        return -(kept * prior.log_prob(loc.reshape(-1) / kept)).sum(dtype=torch.float64)

    m.setattr(dropout, "spikes_cross_entropy", wrong)


def kl_without_n(m: pytest.MonkeyPatch) -> None:
    """The divergence on top of a mean over observations instead of a sum."""
    true = elbo.log_density
    m.setattr(elbo, "log_density", lambda law, y, lead: true(law, y, lead) / 7)


def decay_without_n(m: pytest.MonkeyPatch) -> None:
    true = decay.weight_decay
    m.setattr(
        test_dropout_decay, "weight_decay", lambda scale, n, p=0.0, precision=1.0: n * true(scale, n, p, precision)
    )


def decay_with_survival(m: pytest.MonkeyPatch) -> None:
    true = decay.weight_decay
    m.setattr(
        test_dropout_decay,
        "weight_decay",
        lambda scale, n, p=0.0, precision=1.0: true(scale, n, 1 - p if p else 0.0, precision),
    )


def alpha_as_sd(m: pytest.MonkeyPatch) -> None:
    def noise(self: gaussian_dropout.Noisy, rows: int) -> Tensor:
        return 1 + self.alpha * torch.randn(rows, self.inputs, dtype=self.loc.dtype)

    m.setattr(gaussian_dropout.Noisy, "noise", noise)


def alpha_squared_in_the_divergence(m: pytest.MonkeyPatch) -> None:
    true = masks.normal_cross_entropy

    def wrong(prior: Normal, loc: Tensor, square: Any) -> Tensor:
        return true(prior, loc, 1 + (square - 1) ** 2)

    m.setattr(gaussian_dropout, "normal_cross_entropy", wrong)


def relaxed_with_drop(m: pytest.MonkeyPatch) -> None:
    """The sign of the seed's formula: a multiplying mask needs the probability to keep."""

    def noise(self: concrete.Relaxed, rows: int) -> Tensor:
        u = torch.rand(rows, self.inputs, dtype=self.loc.dtype)
        return torch.sigmoid((torch.logit(u) + self.logit) / self.temperature) / self.keep

    m.setattr(concrete.Relaxed, "noise", noise)


def temperature_on_the_noise_alone(m: pytest.MonkeyPatch) -> None:
    def noise(self: concrete.Relaxed, rows: int) -> Tensor:
        u = torch.rand(rows, self.inputs, dtype=self.loc.dtype)
        return torch.sigmoid(torch.logit(u) / self.temperature - self.logit) / self.keep

    m.setattr(concrete.Relaxed, "noise", noise)


def soft_masks_in_prediction(m: pytest.MonkeyPatch) -> None:
    m.setattr(concrete.torch, "is_grad_enabled", lambda: True)


def natural_logarithm_forgotten(m: pytest.MonkeyPatch) -> None:
    """log₁₀ α in the approximation of Molchanov et al."""
    true = variational_dropout.log_uniform_kl
    m.setattr(test_dropout_learned, "log_uniform_kl", lambda log_alpha: true(log_alpha / math.log(10)))


def net_dropout_per_row(m: pytest.MonkeyPatch) -> None:
    """A mask for each input: no function of its own."""

    def forward(self: net_dropout.Masked, x: Tensor) -> Tensor:
        self.used += 1
        if not self.ready:
            self.met.append(tuple(x.shape))
            return x
        return self.layer(x)

    m.setattr(net_dropout.Masked, "forward", forward)
    m.setattr(Network, "vectorises", lambda self, x, training=False: False)


def net_dropout_off(m: pytest.MonkeyPatch) -> None:
    m.setattr(net_dropout.Masked, "forward", lambda self, x: (self.met.append(tuple(x.shape)), x)[1])


def one_mask_for_both_uses(m: pytest.MonkeyPatch) -> None:
    true = net_dropout.draw_masks

    def wrong(net: nn.Module, call: Any, n: int, noise: Any) -> dict[str, Tensor]:
        named = true(net, call, n, noise)
        named["drop.slope1"] = torch.cat([named["drop.slope0"], named["drop.slope0"][..., :1]], -1)
        return named

    m.setattr(variational, "draw_masks", wrong)


def slope_in_alpha_forgotten(m: pytest.MonkeyPatch) -> None:
    """As if d log α / dσ were 1 / σ: σ² has a root."""
    true = variational_dropout.LogUniformKL.backward

    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        of_loc, of_sd = true(ctx, g)
        return of_loc, of_sd / 2

    m.setattr(variational_dropout.LogUniformKL, "backward", staticmethod(backward))


FAULTS: list[Fault] = [
    Fault("dropout: p inverted", bernoulli(lambda p: p, lambda p: p), check_columns),
    Fault("dropout: p inverted, the bound", bernoulli(lambda p: p, lambda p: p), check_bound),
    Fault("dropout: no rescaling", bernoulli(lambda p: 1 - p, lambda p: 1.0), check_columns),
    Fault("dropout: rescaled twice", bernoulli(lambda p: 1 - p, lambda p: (1 - p) ** 2), check_bound),
    Fault("dropout: mask on the output", mask_on_the_output, lambda: check_columns("linear")),
    Fault("dropout: each weight by itself", every_weight_by_itself, check_columns),
    Fault(
        "dropout: groups of a convolution forgotten",
        groups_forgotten,
        lambda: check_marginals("bernoulli", "grouped"),
    ),
    Fault("dropout: one mask for the batch", one_mask_for_the_batch, lambda: check_marginals("bernoulli")),
    Fault("dropout: a mask at every token", mask_at_every_token, lambda: check_marginals("bernoulli", "tokens")),
    Fault("dropout: a mask at every time step", mask_at_every_step, check_time),
    Fault("dropout: sign of the entropy", entropy_times(-1.0), check_narrow),
    Fault("dropout: entropy missing", entropy_times(0.0), check_bound),
    Fault("dropout: entropy once a layer", entropy_once_a_layer, check_learned),
    Fault("dropout: entropy missing in learned rates", entropy_times(0.0), check_learned),
    Fault("dropout: divergence without its masks", decay_of_the_mean, check_decay),
    Fault("dropout: two conventions mixed in the divergence", decay_of_unscaled_weights, check_narrow),
    Fault(
        "dropout: dropped weights have no prior",
        dropped_weights_have_no_prior,
        lambda: check_divergence(BernoulliDropout(P), *PRIORS[3]),
    ),
    Fault("dropout: N missing before the divergence", kl_without_n, check_bound),
    Fault("dropout: N missing in the weight decay", decay_without_n, check_decay),
    Fault("dropout: survival for drop in the weight decay", decay_with_survival, check_ridge),
    Fault("Gaussian dropout: alpha as a standard deviation", alpha_as_sd, lambda: check_marginals("gaussian")),
    Fault(
        "Gaussian dropout: alpha squared in the divergence",
        alpha_squared_in_the_divergence,
        check_gaussian_divergence,
    ),
    Fault("concrete dropout: drop for keep in the mask", relaxed_with_drop, check_relaxed),
    Fault(
        "concrete dropout: temperature on the noise alone",
        temperature_on_the_noise_alone,
        lambda: check_relaxed(3.0),
    ),
    Fault("concrete dropout: soft masks in prediction", soft_masks_in_prediction, check_relaxed),
    Fault("variational dropout: slope of the deviation halved", slope_in_alpha_forgotten, check_fused_log_uniform),
    Fault("variational dropout: another logarithm", natural_logarithm_forgotten, check_log_uniform),
    Fault("the network's own dropout: a mask for each input", net_dropout_per_row, check_net_dropout),
    Fault("the network's own dropout: off in prediction", net_dropout_off, check_net_dropout),
    Fault("the network's own dropout: one mask for both uses", one_mask_for_both_uses, check_net_dropout),
]
