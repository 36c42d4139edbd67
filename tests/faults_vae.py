"""Planted faults of latent-variable models. Each is caught by a check of tests/test_vae.py."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import pytest
import test_flow as flow
import test_vae as proof
import torch
from fault import Fault
from torch import Tensor
from torch.distributions import Normal
from torch.nn import functional as F

from nescio.generative import importance, missing
from nescio.likelihoods import bound, latent, partly
from nescio.likelihoods.tilted import TiltedUniform
from nescio.nets import VAE
from nescio.nets.flow import Coupling

nets: Any = import_module("nescio.nets.vae")  # the name of the file is that of the function in it, too


def divergence_summed_over_the_batch(m: pytest.MonkeyPatch) -> None:
    true = bound.divergence
    m.setattr(bound, "divergence", lambda q, prior: true(q, prior).sum().expand(q.loc.shape[:-1]))


def divergence_a_mean_over_latents(m: pytest.MonkeyPatch) -> None:
    true = bound.divergence
    m.setattr(bound, "divergence", lambda q, prior: true(q, prior) / 3)


def divergence_reversed(m: pytest.MonkeyPatch) -> None:
    def wrong(q: Normal, prior: Normal | None) -> Tensor:
        scale = 1 / q.scale
        return 0.5 * ((q.loc / q.scale).square() + scale.square() - 2 * scale.log() - 1).sum(-1)

    m.setattr(bound, "divergence", wrong)


def variance_for_sd_in_the_divergence(m: pytest.MonkeyPatch) -> None:
    true = bound.divergence
    m.setattr(bound, "divergence", lambda q, prior: true(Normal(q.loc, q.scale.square()), prior))


def variance_for_sd_in_the_draw(m: pytest.MonkeyPatch) -> None:
    true = VAE.forward

    def wrong(self: VAE, x: Tensor, given: Tensor | None = None) -> dict[str, Tensor]:
        f = true(self, x, given)
        z = f["mean"][:, None] + f["scale"][:, None] * (f["z"] - f["mean"][:, None])
        return {**f, "z": z, "pixels": self.decoder(z.flatten(0, 1)).unflatten(0, z.shape[:2])}

    m.setattr(VAE, "forward", wrong)


def slope_of_softplus_missing(m: pytest.MonkeyPatch) -> None:
    m.setattr(nets, "softplus", lambda x: x + (F.softplus(x) - x).detach())


def z_shared_across_the_batch(m: pytest.MonkeyPatch) -> None:
    m.setattr(nets, "noise", lambda like: torch.randn_like(like[:1]).expand(like.shape))


def z_shared_across_samples(m: pytest.MonkeyPatch) -> None:
    m.setattr(nets, "noise", lambda like: torch.randn_like(like[:, :1]).expand(like.shape))


def gradient_stops_at_z(m: pytest.MonkeyPatch) -> None:
    """`sample` for `rsample`."""
    true = VAE.forward

    def wrong(self: VAE, x: Tensor, given: Tensor | None = None) -> dict[str, Tensor]:
        f = true(self, x, given)
        z = f["z"].detach()
        return {**f, "z": z, "pixels": self.decoder(z.flatten(0, 1)).unflatten(0, z.shape[:2])}

    m.setattr(VAE, "forward", wrong)


def mean_of_logs(m: pytest.MonkeyPatch) -> None:
    def log_prob(self: bound.Bound, value: Tensor) -> Tensor:
        weights = self.fit(value) + bound.log_ratio(self.q, self.prior, self.z)
        return weights.mean(-1)

    m.setattr(bound.Bound, "log_prob", log_prob)


def number_of_samples_forgotten(m: pytest.MonkeyPatch) -> None:
    true = bound.Bound.log_prob

    def log_prob(self: bound.Bound, value: Tensor) -> Tensor:
        return true(self, value) + (math.log(self.z.shape[-2]) if self.importance else 0.0)

    m.setattr(bound.Bound, "log_prob", log_prob)


def prior_of_z_forgotten(m: pytest.MonkeyPatch) -> None:
    def wrong(q: Normal, prior: Normal | None, z: Tensor) -> Tensor:
        return -Normal(q.loc[..., None, :], q.scale[..., None, :]).log_prob(z).sum(-1)

    m.setattr(bound, "log_ratio", wrong)
    m.setattr(importance, "log_ratio", wrong)


def error_not_divided_by_the_samples(m: pytest.MonkeyPatch) -> None:
    true = importance.log_likelihood

    def wrong(posterior: Any, x: Any, samples: int = 100, **more: Any) -> importance.Evidence:
        found = true(posterior, x, samples, **more)
        return found._replace(se=found.se * math.sqrt(samples))

    m.setattr(proof, "log_likelihood", wrong)


def everything_is_accepted(m: pytest.MonkeyPatch) -> None:
    """Langevin steps without a decision: wider than the law."""
    m.setattr(missing, "gained", lambda before, after, forth, back: torch.zeros_like(before))


def proposal_density_forgotten(m: pytest.MonkeyPatch) -> None:
    m.setattr(missing, "gained", lambda before, after, forth, back: after - before)


def missing_pixels_taken_for_zeros(m: pytest.MonkeyPatch) -> None:
    m.setattr(missing, "of_seen", lambda law, image, seen: law.log_prob(image).sum(1))


def encoder_under_the_prior(m: pytest.MonkeyPatch) -> None:
    m.setattr(latent, "without_encoder", lambda prior, names: prior)


def prior_of_labels_forgotten(m: pytest.MonkeyPatch) -> None:
    true = partly.LabelBound.log_density
    classes = 3
    m.setattr(partly.LabelBound, "log_density", lambda self, y, lead: true(self, y, lead) + math.log(classes))


def entropy_of_labels_forgotten(m: pytest.MonkeyPatch) -> None:
    true = partly.LabelBound.log_density

    def wrong(self: partly.LabelBound, y: dict[str, Tensor], lead: int) -> Tensor:
        q = self.logits.softmax(-1)
        open_ = (q * q.log()).sum(-1)
        return true(self, y, lead) + torch.where(y["label"] < 0, open_, 0.0)

    m.setattr(partly.LabelBound, "log_density", wrong)


def pixels_rounded_not_thrown(m: pytest.MonkeyPatch) -> None:
    m.setattr(nets.torch, "rand_like", lambda x: torch.full_like(x, 0.5))


def jacobian_with_the_wrong_sign(m: pytest.MonkeyPatch) -> None:
    true = Coupling.forward
    m.setattr(Coupling, "forward", lambda self, x: (true(self, x)[0], -true(self, x)[1]))


def series_where_it_is_not_used(m: pytest.MonkeyPatch) -> None:
    """Its value is thrown away, its slope is 0 times infinity."""

    def log_prob(self: TiltedUniform, value: Tensor) -> Tensor:
        h = self.logits / 2
        far = torch.where(h.abs() < 0.5, 1.0, h.abs())
        near = h.square() / 6 - h.square() ** 2 / 180 + 0 * h.square() ** 7
        log_sinhc = torch.where(h.abs() < 1e-4, near, far + torch.log1p(-(-2 * far).exp()) - (2 * far).log())
        return (2 * value - 1) * h - log_sinhc

    m.setattr(TiltedUniform, "log_prob", log_prob)


def no_normaliser(m: pytest.MonkeyPatch) -> None:
    """Bernoulli's own on grey values."""
    m.setattr(TiltedUniform, "log_prob", lambda self, y: y * self.logits - F.softplus(self.logits))


FAULTS: list[Fault] = [
    Fault("pixels: slope of a branch that is not taken", series_where_it_is_not_used, proof.check_pixels),
    Fault("pixels: Bernoulli's normaliser on grey values", no_normaliser, proof.check_pixels),
    Fault("flow: Jacobian with the wrong sign", jacobian_with_the_wrong_sign, flow.check_change_of_variables),
    Fault("VAE: KL summed over the batch", divergence_summed_over_the_batch, proof.check_bound),
    Fault("VAE: KL a mean over latents", divergence_a_mean_over_latents, proof.check_divergence),
    Fault("VAE: KL reversed", divergence_reversed, proof.check_bound),
    Fault("VAE: variance for the sd in the KL", variance_for_sd_in_the_divergence, proof.check_divergence),
    Fault("VAE: variance for the sd in the draw", variance_for_sd_in_the_draw, proof.check_own_noise),
    Fault("VAE: slope of softplus missing", slope_of_softplus_missing, proof.check_gradient),
    Fault("VAE: z shared across the batch", z_shared_across_the_batch, proof.check_own_noise),
    Fault("VAE: z shared across samples", z_shared_across_samples, proof.check_order),
    Fault("VAE: the gradient stops at z", gradient_stops_at_z, proof.check_gradient),
    Fault("VAE: mean of logs for the log of a mean", mean_of_logs, proof.check_order),
    Fault("VAE: number of samples forgotten", number_of_samples_forgotten, proof.check_order),
    Fault("VAE: prior of z forgotten", prior_of_z_forgotten, proof.check_no_gap),
    Fault("VAE: standard error of one sample", error_not_divided_by_the_samples, proof.check_importance_sampling),
    Fault("VAE: missing pixels without a decision", everything_is_accepted, proof.check_missing),
    Fault("VAE: missing pixels, proposal forgotten", proposal_density_forgotten, proof.check_missing),
    Fault("VAE: missing pixels taken for zeros", missing_pixels_taken_for_zeros, proof.check_missing),
    Fault("VAE: a prior on the encoder", encoder_under_the_prior, proof.check_encoder_has_no_prior),
    Fault("VAE: prior of labels forgotten", prior_of_labels_forgotten, proof.check_labels),
    Fault("VAE: entropy of labels forgotten", entropy_of_labels_forgotten, proof.check_labels),
    Fault("VAE: pixels rounded, not thrown", pixels_rounded_not_thrown, proof.check_binarised),
]
