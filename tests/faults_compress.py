"""Faults in group scales and compression, each with the check that sees it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import test_compression as compression
import test_group_scales as scales
import torch
from fault import Fault
from torch import Tensor

from nescio.compression import choice, content, flow, precision, shrinking, spaces
from nescio.compression.coder import Decoder, Encoder
from nescio.families import group, layout, mean_field, scaled
from nescio.families import scales as scale_laws
from nescio.laws import HalfCauchy

M = pytest.MonkeyPatch


def constants_are_forgotten(m: M) -> None:
    m.setattr(shrinking, "folded", lambda layer: layer.bias)


def padding_is_forgotten(m: M) -> None:
    m.setattr(spaces.Layer, "foldable", lambda self: self.reads.fixed)


def unread_by_one_is_unread(m: M) -> None:
    m.setattr(spaces.Layer, "unread", lambda self: (self.weight == 0).flatten(2).all(2).any(0))


def sums_are_not_united(m: M) -> None:
    m.setattr(spaces.Space, "unite", lambda self, other: None)


def constants_miss_the_norm(m: M) -> None:
    m.setattr(flow, "spread", lambda wire, module, dims: wire.fill)


def carries_are_lost(m: M) -> None:
    def shift(self: Encoder) -> None:
        self.out.append(self.cache & 0xFF)
        self.cache = (self.low >> 24) & 0xFF
        self.low = (self.low & 0x00FFFFFF) << 8

    m.setattr(Encoder, "_shift", shift)


def signs_are_lost(m: M) -> None:
    right = Decoder.signed
    m.setattr(Decoder, "signed", lambda self, n, *key: [abs(x) for x in right(self, n, *key)])


def rounded_down(m: M) -> None:
    def levels(self: precision.Steps, mean: Tensor, sd: Tensor) -> precision.Levels:
        step = self.step(mean, sd)
        return precision.Levels((mean.double() / step).floor().long(), step, None)

    m.setattr(precision.Steps, "levels", levels)


def loss_without_the_twelfth(m: M) -> None:
    m.setattr(
        compression,
        "predicted_loss",
        lambda mean, sd, step: 0.5 * step**2 * float(sd.double().square().reciprocal().sum()),
    )


def a_bound_too_low(m: M) -> None:
    right = choice.clopper_pearson
    m.setattr(choice, "clopper_pearson", lambda hits, n, tail: right(max(hits - 1, 0), n, tail))


def scales_without_jacobian(m: M) -> None:
    right = scale_laws.LogNormal.kl
    m.setattr(scale_laws.LogNormal, "kl", lambda self, prior: right(self, prior) + self.loc.sum())


def weights_at_their_scale(m: M) -> None:
    m.setattr(layout.Layout, "standard", lambda self, block, values: self.law(*self.place[block.name], values))


def mean_of_the_logarithm(m: M) -> None:
    right = scale_laws.LogNormal.moments
    m.setattr(scale_laws.LogNormal, "moments", lambda self: ((self.power * self.loc).exp(), right(self)[1]))


def half_the_line(m: M) -> None:
    right = scale_laws.Signed.kl
    m.setattr(scale_laws.Signed, "kl", lambda self, prior: right(self, prior) - 3 * math.log(2))


def scales_above_are_free(m: M) -> None:
    right = scaled.Scaled.kl

    def kl(self: scaled.Scaled, priors: Any) -> Tensor:
        above = self.above()
        return right(self, priors) - (0.0 if above is None else above.kl(priors[-1]))

    m.setattr(scaled.Scaled, "kl", kl)


def scales_above_do_not_act(m: M) -> None:
    right = scale_laws.LogNormal.level
    m.setattr(scale_laws.LogNormal, "level", lambda self, index=None: right(self) if index is None else 0.0)


def scales_beside_their_scale(m: M) -> None:
    m.setattr(mean_field, "above", lambda scale, blocks: None)


def scales_act_twice(m: M) -> None:
    right = scale_laws.LogNormal.z

    def z(self: scale_laws.LogNormal, index: Any = None, rows: int | None = None) -> Tensor:
        return right(self) if index is None else right(self, index, rows).square()

    m.setattr(scale_laws.LogNormal, "z", z)


def the_bias_is_not_scaled(m: M) -> None:
    def mate(self: group.Group, bias: Tensor | None) -> Tensor | None:
        return None

    def own_bias(bias: Any, like: Tensor) -> Tensor:
        return bias.action.tilde()

    m.setattr(group.Group, "mate", mate)
    m.setattr(group, "own_bias", own_bias)


def any_seal_will_do(m: M) -> None:
    m.setattr(content, "hashlib", Constant)


class Constant:
    """A checksum that is always the same."""

    @staticmethod
    def sha256(body: bytes) -> type[Constant]:
        return Constant

    @staticmethod
    def digest() -> bytes:
        return bytes(32)


def check_seal() -> None:
    """A file with one bit wrong is refused, whatever the bit is."""
    posterior = compression.fitted("jeffreys")
    good = compression.compress(posterior, rule=compression.RULES["jeffreys"]).content
    refused = 0
    for place in range(9, len(good), 3):
        bad = bytearray(good)
        bad[place] ^= 1
        try:
            compression.Compressed(posterior.model, bytes(bad), {})
        except compression.FileError:
            refused += 1
    assert refused == len(range(9, len(good), 3))


def some_nets() -> None:
    compression.check_shrink(range(16))


def codes() -> None:
    compression.check_coder(400)


def divergence() -> None:
    scales.check_divergence(HalfCauchy(1.0).per("input"), 150)


def switches_off() -> None:
    scales.test_inputs_without_a_say_switch_off_under_a_horseshoe()


def nested_action() -> None:
    scales.check_acting("linear", "input", 30, HalfCauchy(0.5).per("net"))


def moments() -> None:
    with torch.no_grad():
        scales.check_moments(HalfCauchy(1.0).per("input"))


FAULTS = [
    Fault("shrink: constants of removed units are forgotten", constants_are_forgotten, some_nets),
    Fault("shrink: constants are folded through padding", padding_is_forgotten, some_nets),
    Fault("shrink: a unit that one row does not read is removed", unread_by_one_is_unread, some_nets),
    Fault("shrink: branches of a sum lose different channels", sums_are_not_united, some_nets),
    Fault("shrink: constants pass a norm unchanged", constants_miss_the_norm, some_nets),
    Fault("coder: carries are lost", carries_are_lost, codes),
    Fault("coder: signs are lost", signs_are_lost, codes),
    Fault("precision: rounded down", rounded_down, compression.check_widths),
    Fault("precision: the loss of rounding without the twelfth", loss_without_the_twelfth, compression.check_widths),
    Fault("choice: a promise with a bound too low", a_bound_too_low, compression.check_bound),
    Fault("content: a damaged file is read", any_seal_will_do, check_seal),
    Fault("scales: the divergence without its Jacobian", scales_without_jacobian, lambda: scales.check_quadrature(scales.CASES[0], 0.4)),
    Fault("scales: the law of scaled weights for weights before", weights_at_their_scale, divergence),
    Fault("scales: E[z] without half the variance", mean_of_the_logarithm, moments),
    Fault("scales: the log-uniform law on half of the line only", half_the_line, scales.check_signed),
    Fault("scales: independent of what scales them", scales_beside_their_scale, switches_off),
    Fault("scales: what scales the scales costs nothing", scales_above_are_free, lambda: scales.check_divergence(scales.NESTED, 150)),
    Fault("scales: what scales the scales does not act in training", scales_above_do_not_act, nested_action),
    Fault("scales: act twice in training", scales_act_twice, lambda: scales.check_acting("linear", "input", 30)),
    Fault("scales: a unit's bias is not scaled", the_bias_is_not_scaled, lambda: scales.check_acting("linear", "unit", 100)),
]  # fmt: skip
