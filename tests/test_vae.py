"""Latent variables: bounds, divergences and gradients against what is known exactly.

A linear VAE is probabilistic PCA, whose likelihood, posterior and optimum have closed forms; with one latent, integrals are quadratures.
Statistical assertions have the false-alarm rate of chance.py; every check is shown to fail in tests/faults_vae.py.
"""

from __future__ import annotations

import math
from functools import cache, partial
from importlib import import_module
from typing import NamedTuple

import numpy as np
import pytest
import torch
from chance import Z, assert_gaussian_variance, assert_mean, within
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, Normal, kl_divergence
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from nescio import Model, fit
from nescio.generative import impute, log_likelihood
from nescio.infer import MAP, Constant
from nescio.laws import Fitted, Flat, Learned
from nescio.laws import Normal as Gauss
from nescio.likelihoods import Bernoulli, ContinuousBernoulli, Gaussian, Latent, PartlyLabelled
from nescio.likelihoods import bound as bounds
from nescio.nets import VAE, m2, vae
from nescio.noise import Noise
from nescio.posterior import Draws

LEAST = 1e-6


def at_own_weights(model: Model) -> Draws:
    """The posterior that is certain of the network as it is."""
    theta = model.prior.at(model.network.weights(), Noise(0))[None, None]
    return Draws(model, theta, theta.new_zeros(1, 1), {}, {})


# ---- probabilistic PCA ---------------------------------------------------------------------------------------------


class Exact(NamedTuple):
    """Tipping & Bishop (1999): the optimum for data x (N, d) and q latents."""

    x: Tensor
    mean: Tensor
    weight: Tensor  # (d, q)
    noise: Tensor  # standard deviation
    spectrum: Tensor  # the q largest eigenvalues

    def covariance(self) -> Tensor:
        return self.weight @ self.weight.T + self.noise**2 * torch.eye(len(self.weight), dtype=torch.float64)

    def log_prob(self) -> Tensor:
        return MultivariateNormal(self.mean, self.covariance()).log_prob(self.x)


@cache
def ppca(rows: int = 200, d: int = 6, q: int = 2) -> Exact:
    noise = Noise(3, dtype=torch.float64)
    mix = noise.at("mix").normal(q, d) * torch.tensor([[2.0], [1.0]], dtype=torch.float64)
    x = 1.5 + noise.at("z").normal(rows, q) @ mix + 0.5 * noise.at("e").normal(rows, d)
    mean = x.mean(0)
    values, vectors = torch.linalg.eigh((x - mean).T @ (x - mean) / rows)
    values, vectors = values.flip(0), vectors.flip(1)
    variance = values[q:].mean()
    weight = vectors[:, :q] * (values[:q] - variance).sqrt()
    return Exact(x, mean, weight, variance.sqrt(), values[:q])


def linear_vae(exact: Exact, wide: float = 1.0, shift: float = 0.0) -> Model:
    """A linear VAE at the optimum; `wide` and `shift`: an encoder that is wrong by so much."""
    d, q = exact.weight.shape
    net = vae(d, 1, q, layers=0).double()
    back = exact.weight.T / exact.spectrum[:, None]
    sd = wide * exact.noise / exact.spectrum.sqrt()
    with torch.no_grad():
        net.encoder.mean.weight.copy_(back)
        net.encoder.mean.bias.copy_(shift - back @ exact.mean)
        net.encoder.scale.weight.zero_()
        net.encoder.scale.bias.copy_((sd - LEAST).expm1().log())
        net.decoder[0].weight.copy_(exact.weight)
        net.decoder[0].bias.copy_(exact.mean)
    return Model(net, Flat(), Latent(Gaussian(float(exact.noise)), importance=True))


def check_no_gap() -> None:
    """With the exact encoder every importance weight is p(x): bound and log likelihood agree for each single draw of z."""
    exact = ppca()
    model = linear_vae(exact)
    found = log_likelihood(at_own_weights(model), exact.x, samples=3)
    torch.testing.assert_close(found.value, exact.log_prob(), rtol=0, atol=1e-9)
    torch.testing.assert_close(found.ess, torch.full_like(found.ess, 3.0), rtol=1e-9, atol=0)
    assert float(found.se.max()) < 1e-6
    with Noise(1).scope():
        own = {name: x[None] for name, x in at_own_weights(model).point().items()}
        torch.testing.assert_close(model.log_prob(own, exact.x, exact.x)[0], exact.log_prob(), rtol=0, atol=1e-9)


def test_a_linear_vae_has_no_gap() -> None:
    check_no_gap()


def sigma_points(like: Tensor) -> Tensor:
    """±√Z along each latent: 2 Z draws with mean 0 and covariance I, so that the bound of a linear model is exact."""
    latents = like.shape[-1]
    corners = math.sqrt(latents) * torch.eye(latents, dtype=like.dtype)
    return torch.cat([corners, -corners]).expand(like.shape)


def test_a_linear_vae_is_trained_to_probabilistic_pca(monkeypatch: pytest.MonkeyPatch) -> None:
    """Same subspace, noise and log likelihood to 1e-6, by `fit`; the gap of the bound is zero."""
    exact = ppca()
    monkeypatch.setattr(import_module("nescio.nets.vae"), "noise", sigma_points)
    net = vae(6, 1, 2, layers=0).double()
    model = Model(net, Flat(), Latent(Gaussian(Learned(1.0)), samples=4))
    lbfgs = partial(
        torch.optim.LBFGS, max_iter=2000, tolerance_grad=1e-11, tolerance_change=0.0, line_search_fn="strong_wolfe"
    )
    method = MAP(epochs=3, lr=1.0, batch_size=len(exact.x), optimizer=lbfgs, schedule=Constant())
    posterior = fit(model, (exact.x, exact.x), method)
    found = posterior.point()
    basis = torch.linalg.qr(found["decoder.0.weight"]).Q
    truth = torch.linalg.qr(exact.weight).Q
    torch.testing.assert_close(basis @ basis.T, truth @ truth.T, rtol=0, atol=1e-6)
    assert float(found["likelihood.pixels.noise"]) == pytest.approx(float(exact.noise), abs=1e-6)
    scale = found["decoder.0.weight"]
    covariance = scale @ scale.T + found["likelihood.pixels.noise"] ** 2 * torch.eye(6, dtype=torch.float64)
    reached = MultivariateNormal(found["decoder.0.bias"], covariance).log_prob(exact.x).sum()
    best = float(exact.log_prob().sum())
    assert float(reached) == pytest.approx(best, abs=1e-6)
    assert -posterior.info["loss"][-1] * len(exact.x) == pytest.approx(best, abs=1e-3)  # the trace has six digits
    assert float(posterior.info["log_joint"]) == pytest.approx(best, abs=1e-6)


# ---- one latent: quadrature ----------------------------------------------------------------------------------------


@cache
def curved() -> tuple[VAE, Tensor]:
    """A decoder that bends and an encoder that is far from right, so that bounds differ; four rows of zeros and ones."""
    with Noise(5).scope():
        net = vae(3, 4, 1, layers=1, activation=nn.Tanh).double()
        with torch.no_grad():
            for p in net.decoder.parameters():
                p.mul_(2.5)
            net.encoder.scale.bias.fill_(1.0)
            net.encoder.mean.bias.fill_(0.5)
    return net, torch.tensor([[1.0, 0, 0], [1, 1, 0], [0, 0, 1], [1, 1, 1]], dtype=torch.float64)


def log_pixels(net: VAE, params: dict[str, Tensor], z: Tensor, x: Tensor) -> Tensor:
    """log p(x | z) of Bernoulli pixels, written out: z (points, nodes, 1), x (points, 3)."""
    own = {name.removeprefix("decoder."): p for name, p in params.items() if name.startswith("decoder.")}
    f = functional_call(net.decoder, own, (z,))
    return -F.binary_cross_entropy_with_logits(f, x[:, None].expand_as(f), reduction="none").sum(-1)


def exact_evidence(net: VAE, x: Tensor) -> Tensor:
    grid = torch.linspace(-12, 12, 8001, dtype=torch.float64)
    with torch.no_grad():
        fit_ = log_pixels(net, dict(net.named_parameters()), grid.expand(len(x), -1)[..., None], x)
    return (fit_ + Normal(0.0, 1.0).log_prob(grid)).logsumexp(1) + math.log(24 / 8000)


def exact_bound(net: VAE, params: dict[str, Tensor], x: Tensor) -> Tensor:
    """E_q log p(x | z) - KL by 80 nodes of Gauss and Hermite, the encoder written out."""
    nodes, weights = (torch.from_numpy(t) for t in np.polynomial.hermite_e.hermegauss(80))
    h = torch.tanh(F.linear(x, params["encoder.body.0.weight"], params["encoder.body.0.bias"]))
    mean, raw = (F.linear(h, params[f"encoder.{k}.weight"], params[f"encoder.{k}.bias"]) for k in ("mean", "scale"))
    sd = LEAST + torch.log1p(raw.exp())
    fit_ = log_pixels(net, params, (mean + sd * nodes)[..., None], x)
    return fit_ @ weights / math.sqrt(2 * math.pi) - kl_divergence(Normal(mean, sd), Normal(0.0, 1.0)).sum(1)


def drawn_bounds(samples: int, importance: bool, times: int = 4000) -> Tensor:
    """Estimates of the bound of each row, (times, rows)."""
    net, x = curved()
    likelihood = Latent(Bernoulli(), samples, importance=importance)
    many = x.repeat(times, 1)
    with torch.no_grad(), Noise(6).at(samples, int(importance)).scope():
        f = likelihood.prepared(net)(many)
        return likelihood.observe(f).log_prob(many).unflatten(0, (times, len(x)))


def check_bound() -> None:
    """The estimate has the bound as its mean, with either form of the divergence."""
    net, x = curved()
    with torch.no_grad():
        exact = exact_bound(net, dict(net.named_parameters()), x)
    assert_mean(drawn_bounds(1, False), exact)
    assert_mean(drawn_bounds(3, False), exact)
    assert_mean(drawn_bounds(1, True), exact)


def check_order() -> None:
    """ELBO < IWAE(5) < IWAE(50) <= log p(x), which the weights estimate without bias."""
    net, x = curved()
    exact = exact_evidence(net, x)
    each = [drawn_bounds(1, False, 4000), drawn_bounds(5, True, 4000), drawn_bounds(50, True, 1000)]
    means, errors = [d.mean(0) for d in each], [d.std(0) / math.sqrt(len(d)) for d in each]
    for i in (0, 1):
        gain = (means[i + 1] - means[i]) / torch.hypot(errors[i], errors[i + 1])
        assert float(gain.sum() / 2) > Z, gain  # four rows with one sign
    within(((means[2] - exact) / errors[2]).clamp_min(0))
    assert bool((means[0] < exact - 0.05).all())  # there is a gap to close
    assert_mean((each[2] - exact).exp(), torch.ones(len(x)))


def test_the_estimated_bound_is_unbiased() -> None:
    check_bound()


def test_bounds_rise_to_the_evidence() -> None:
    check_order()


def check_importance_sampling() -> None:
    """log p(x) by many samples is that of the quadrature, within its own standard error; few samples say how few they are."""
    net, x = curved()
    posterior = at_own_weights(Model(net, Flat(), Latent(Bernoulli())))
    found = log_likelihood(posterior, x, samples=20_000, seed=1)
    exact = exact_evidence(net, x)
    within((found.value - exact) / found.se)
    assert float(found.se.max()) < 0.02
    assert bool((found.ess < 20_000).all()) and bool((found.ess > 1000).all())
    many = x[:1].repeat(3000, 1)
    few = log_likelihood(posterior, many, samples=50)
    ratio = float((few.value - exact[0]).exp().std() / few.se.square().mean().sqrt())
    within((ratio - 1) / 0.02, "error, by what it says of itself,")  # of 3000 values a sd has an error below 2% here


def test_importance_sampling() -> None:
    check_importance_sampling()


def check_gradient() -> None:
    """The gradient of one datum's estimate has that of the bound as its mean, for every weight of encoder and decoder."""
    net, x = curved()
    params = {name: p.detach() for name, p in net.named_parameters()}
    likelihood = Latent(Bernoulli())

    def estimate(p: dict[str, Tensor], row: Tensor) -> Tensor:
        return likelihood.observe(functional_call(net, p, (row[None],))).log_prob(row[None])[0]

    with Noise(8).scope():
        rows = x[1].expand(4000, -1)
        got = vmap(grad(estimate), in_dims=(None, 0), randomness="different")(params, rows)
    exact = grad(lambda p: exact_bound(net, p, x[1:2])[0])(params)
    for name, each in got.items():
        flat, wanted = each.flatten(1), exact[name].flatten()
        moving = flat.std(0) > 1e-12
        torch.testing.assert_close(flat[:, ~moving].mean(0), wanted[~moving], rtol=0, atol=1e-10)
        if bool(moving.any()):
            assert_mean(flat[:, moving], wanted[moving])


def test_reparameterised_gradients_are_unbiased() -> None:
    check_gradient()


# ---- the parts -----------------------------------------------------------------------------------------------------


def check_divergence() -> None:
    """Closed form against torch's, and against log q - log p of the very draws that the importance-weighted bound uses."""
    noise = Noise(9, dtype=torch.float64)
    q = Normal(noise.at("m").normal(5, 3), noise.at("s").uniform(5, 3) + 0.2)
    prior = Normal(noise.at("a").normal(5, 3), noise.at("b").uniform(5, 3) + 0.5)
    standard = Normal(torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64))
    z = q.loc[:, None] + q.scale[:, None] * noise.at("z").normal(5, 20_000, 3)
    for given, p in ((None, standard), (prior, prior)):
        exact = kl_divergence(q, p).sum(1)
        torch.testing.assert_close(bounds.divergence(q, given), exact, rtol=1e-12, atol=1e-12)
        assert_mean(-bounds.log_ratio(q, given, z).T, exact)


def test_divergence() -> None:
    check_divergence()


def check_own_noise() -> None:
    """Every datum and sample has noise of its own with the law of q; members of an ensemble, too."""
    net, x = curved()
    many = x[:1].repeat(4000, 1)
    own = Latent(Bernoulli(), 2).prepared(net)
    with torch.no_grad(), Noise(10).scope():
        f = own(many)
        two = {name: torch.stack([p, p]) for name, p in net.named_parameters()}
        member = vmap(lambda p: functional_call(own, p, (many[:50],))["z"], randomness="different")(two)
    mean, sd = f["mean"][0], f["scale"][0]
    z = f["z"][..., 0]  # (rows, samples)
    assert_mean(z, mean.expand(2), sd.expand(2))
    assert_gaussian_variance(z, mean.expand(2), sd.square().expand(2))
    together = (z[:, 0] - mean) * (z[:, 1] - mean) / sd.square()
    assert_mean(together, torch.zeros(()), torch.ones(()))
    assert not bool((member[0] == member[1]).any())


def test_noise_is_each_datums_own() -> None:
    check_own_noise()


def check_encoder_has_no_prior() -> None:
    """What is fitted under a strong prior on everything is the same whatever the encoder's size; a pattern names it if it must."""
    net, _ = curved()
    model = Model(net, Gauss(0, 1), Latent(Bernoulli()))
    theta = model.prior.at(model.network.weights(), Noise(0))
    density = model.prior.trained(theta)[1]
    moved = {name: 2 * p if name.startswith("encoder") else p for name, p in model.network.weights().items()}
    after = model.prior.trained(model.prior.at(moved, Noise(0)))[1]
    torch.testing.assert_close(density, after, rtol=1e-12, atol=0)
    decoder = torch.cat([p.detach().flatten() for p in net.decoder.parameters()])
    torch.testing.assert_close(density, Normal(0.0, 1.0).log_prob(decoder).sum(), rtol=1e-10, atol=0)


def test_the_encoder_has_no_prior_unless_a_pattern_names_it() -> None:
    check_encoder_has_no_prior()
    net, _ = curved()
    named = Model(net, {"encoder.*": Gauss(0, 2), "*": Gauss(0, 1)}, Latent(Bernoulli()))
    assert not any(isinstance(v.law, Fitted) for v in named.prior.variables)
    some = Model(net, {"decoder.*": Gauss(0, 1)}, Latent(Bernoulli()))
    assert [type(v.law) for v in some.prior.variables] == [Gauss, Fitted]


def check_missing() -> None:
    """p(x_m | x_o) of a linear model is Gaussian and known; the encoder is wrong on purpose, and says no more than how far to step."""
    exact = ppca()
    posterior = at_own_weights(linear_vae(exact, wide=1.4, shift=0.1))
    x = exact.x[:1].repeat(1000, 1)
    most = exact.weight.norm(dim=1).argsort(descending=True)  # those that say most of z
    gone, there = most[:2], most[2:]
    seen = torch.ones_like(x, dtype=torch.bool)
    seen[:, gone] = False
    found = impute(posterior, torch.where(seen, x, 100.0), seen, steps=30, warmup=20, kept=1)
    covariance = exact.covariance()
    across = torch.linalg.solve(covariance[there][:, there], covariance[there][:, gone]).T
    mean = exact.mean[gone] + across @ (x[0, there] - exact.mean[there])
    variance = (covariance[gone][:, gone] - across @ covariance[there][:, gone]).diagonal()
    last = found.draws[-1]
    assert torch.equal(last[:, there], x[:, there])
    assert_mean(last[:, gone], mean, variance.sqrt())
    assert_gaussian_variance(last[:, gone], mean, variance)
    assert 0.2 < float(found.acceptance.mean()) < 0.95
    torch.testing.assert_close(found.mean[:, gone].mean(0), mean, rtol=0, atol=0.05)
    assert not bool(found.sd[:, there].any()) and bool((found.sd[:, gone] > 0).all())


def test_missing_pixels() -> None:
    check_missing()


def check_labels() -> None:
    """The bounds of M2, written out class by class."""
    net = m2(5, 4, 2, classes=3).double()
    likelihood = PartlyLabelled(Bernoulli(), weight=2.5, samples=2)
    x = Noise(11, dtype=torch.float64).uniform(4, 5).round()
    label = torch.tensor([2, -1, 0, -1])
    with torch.no_grad(), Noise(12).scope():
        f = likelihood.prepared(net)(x)
    got = likelihood.observe(f).log_density({"image": x, "label": label}, lead=1)
    for row in range(4):
        each = []
        for c in range(3):
            fit_ = -F.binary_cross_entropy_with_logits(f["pixels"][row, c], x[row].expand(2, 5), reduction="none").sum(
                1
            )
            q = Normal(f["mean"][row, c], f["scale"][row, c])
            each.append(fit_.mean() - kl_divergence(q, Normal(0.0, 1.0)).sum() - math.log(3))
        bound, log_q = torch.stack(each), f["logits"][row].log_softmax(0)
        if label[row] >= 0:
            wanted = bound[label[row]] + 2.5 * log_q[label[row]]
        else:
            wanted = (log_q.exp() * (bound - log_q)).sum()
            assert float(wanted) < float(bound.logsumexp(0))  # a bound on the mixture over classes
        torch.testing.assert_close(got[row], wanted, rtol=1e-12, atol=0)


def test_the_bounds_of_partly_labelled_data() -> None:
    check_labels()


def check_binarised() -> None:
    """Thrown anew at each call with the grey value as its probability; zeros and ones are themselves."""
    net = vae(4, 3, 1, binarise=True).double()
    x = torch.tensor([[0.0, 1.0, 0.3, 0.8]], dtype=torch.float64).repeat(4000, 1)
    with torch.no_grad(), Noise(13).scope():
        seen = net(x)["seen"]
    assert bool((seen[:, 0] == 0).all()) and bool((seen[:, 1] == 1).all())
    assert set(seen.unique().tolist()) == {0.0, 1.0}
    assert_mean(seen[:, 2:], x[0, 2:], (x[0, 2:] * (1 - x[0, 2:])).sqrt())
    fit_ = Latent(Bernoulli()).observe(net(x[:5])).log_prob(x[:5])
    assert bool(fit_.isfinite().all())


def test_binarised_pixels() -> None:
    check_binarised()


def check_pixels() -> None:
    """The log normaliser against quadrature over the whole range; its slope is y minus the mean, near ½ and where nothing is left of it."""
    nodes, weights = (torch.from_numpy(t) for t in np.polynomial.legendre.leggauss(200))
    y, weights = (nodes + 1) / 2, weights / 2
    f = torch.tensor(
        [*np.linspace(-60, 60, 121), *np.linspace(-1.01, 1.01, 41), 1e-3, -1e-5, 1e-8], dtype=torch.float64
    )
    powers = f[:, None] * y - f.clamp_min(0)[:, None]
    normaliser = (weights * powers.exp()).sum(1).log() + f.clamp_min(0)
    mean = (weights * y * powers.exp()).sum(1) / (weights * powers.exp()).sum(1)
    for value in (0.0, 0.3, 1.0):
        given = f.clone().requires_grad_()
        log_p = ContinuousBernoulli().observe(given).log_prob(torch.full_like(f, value))
        torch.testing.assert_close(log_p.detach(), value * f - normaliser, rtol=1e-9, atol=1e-9)
        (slope,) = torch.autograd.grad(log_p.sum(), given)
        torch.testing.assert_close(slope, value - mean, rtol=1e-9, atol=1e-9)
    far = torch.tensor([-1e6, -3e4, 3e4, 1e6], requires_grad=True)  # single precision
    log_p = ContinuousBernoulli().observe(far).log_prob((far > 0).float().detach())
    torch.testing.assert_close(log_p.detach(), far.detach().abs().log())
    (slope,) = torch.autograd.grad(log_p.sum(), far)
    torch.testing.assert_close(slope, 1 / far.detach(), rtol=1e-5, atol=0)


def test_grey_pixels() -> None:
    check_pixels()


@pytest.mark.parametrize("prior", [Gauss(0.3, 2.0), Flat(), {"encoder.*": Flat(), "*": Gauss(0, 1)}], ids=repr)
def test_optimisers_see_the_prior_that_others_see(prior: object) -> None:
    """`Prior.trained` takes a shorter way to the same numbers and slopes."""
    net, _ = curved()
    model = Model(net, prior, Latent(Gaussian(Learned(0.7))))  # type: ignore[arg-type]
    u = Noise(14, dtype=torch.float64).normal(model.dim).requires_grad_()
    named, density = model.prior.trained(u)
    point = model.prior.unpack(u, centred=True)
    other = model.prior.params(point.values)
    assert named.keys() == other.keys()
    torch.testing.assert_close(named, other, rtol=0, atol=0)
    wanted = torch.as_tensor(point.log_density - point.log_jacobian)
    torch.testing.assert_close(torch.as_tensor(density, dtype=torch.float64), wanted, rtol=1e-12, atol=1e-12)
    if wanted.requires_grad and torch.as_tensor(density).requires_grad:
        slopes = [torch.autograd.grad(d, u, retain_graph=True)[0] for d in (density, wanted)]
        torch.testing.assert_close(*slopes, rtol=1e-12, atol=1e-12)
