"""One meaning for each word: the lines that fix what names, latents, methods and predictives mean, as tests."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from nescio import InputError, Model, UnsupportedError, fit
from nescio.data.source import source
from nescio.infer import MAP
from nescio.infer.begin import from_network
from nescio.infer.method import Start
from nescio.laws import Discrete, HalfCauchy, HalfNormal, Learned, Normal
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.target import Target


def small(prior: object = None, likelihood: object = None, net: nn.Module | None = None) -> tuple[Model, tuple]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 3, generator=generator)
    y = x[:, :1] + 0.1 * torch.randn(50, 1, generator=generator)
    model = Model(net or mlp(3, 4, 1), prior or Normal(0.0, 1.0), likelihood or Gaussian(0.1))  # type: ignore[arg-type]
    return model, (x, y)


# ---- names, latents, parameters --------------------------------------------------------------------------------


def test_params_carry_all_names_draw_axis_first() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    prior = {"2.*": Normal(0.0, HalfCauchy(1.0).per("layer")), "*": Normal(0.0, 1.0)}
    model, data = small(prior, Gaussian(HalfCauchy(1.0)), net)
    drawn = fit(model, data, 2 * MAP(epochs=1)).sample(2)
    expected = {name for name, _ in net.named_parameters()} | {name for name, _ in net.named_buffers()}
    assert set(drawn) == expected | {"likelihood.noise", "prior.2.*.scale"}
    assert all(len(value) == 2 for value in drawn.values())
    assert drawn["prior.2.*.scale"].shape == (2, 2)  # a weight and a bias, one each


def test_a_site_knows_its_modules_fan_in() -> None:
    seen = {}

    def scale(site):
        seen[site.name] = (site.shape, site.fan_in, type(site.module).__name__)
        return 1.0

    small(Normal(0.0, scale))
    assert seen["0.weight"] == ((4, 3), 3, "Linear") and seen["0.bias"] == ((4,), 3, "Linear")


def test_a_method_refuses_what_it_cannot_move() -> None:
    model, data = small(Discrete())
    with pytest.raises(UnsupportedError, match="discrete"):
        fit(model, data, MAP(epochs=1))


def test_views_agree_up_to_the_jacobian() -> None:
    model, data = small(Normal(0.0, HalfCauchy(1.0).per("input")), Gaussian(HalfNormal(1.0)))
    model = model.double()
    x, y = data[0].double(), data[1].double()
    free = Target(model, source((x, y)))
    centred = replace(free, centred=True)
    theta = torch.stack([model.prior.draw(model.noise(s)) for s in range(3)])
    batch = free.batch(None)
    weight_space, _ = centred.log_posterior(centred.u(theta), batch, {})
    for target in (free, centred):
        for row, want in zip(theta, weight_space, strict=True):
            u = target.u(row[None])[0].detach()
            jacobian = torch.autograd.functional.jacobian(lambda v, t=target: t.theta(v[None])[0], u)
            logdet = torch.linalg.slogdet(jacobian).logabsdet
            assert math.isclose(target.log_density(u[None], batch)[0], want + logdet, rel_tol=1e-9)


def test_learned_in_a_likelihood_is_trained_and_in_a_prior_not() -> None:
    model, data = small(Normal(0.0, Learned(0.7)), Gaussian(Learned(2.0)))
    drawn = fit(model, data, MAP(epochs=20)).sample(1)
    assert float(drawn["likelihood.noise"]) != 2.0
    assert math.isclose(float(drawn["prior.*.scale"]), 0.7, rel_tol=1e-6)


def test_temperature_divides_prior_and_likelihood_in_weight_space_and_not_the_jacobian() -> None:
    model, data = small(Normal(0.0, HalfCauchy(1.0).per("layer")), Gaussian(HalfCauchy(1.0)))
    model = model.double()
    warm = Target(model, source((data[0].double(), data[1].double())), temperature=4.0)
    u = torch.randn(2, model.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    batch = warm.batch(None)
    joint = replace(warm, temperature=1.0).log_posterior(u, batch, {})[0]
    jacobian = replace(warm, temperature=1.0).log_density(u, batch) - joint
    torch.testing.assert_close(warm.log_density(u, batch), joint / 4 + jacobian)


def test_a_batch_of_b_weighs_n_over_b() -> None:
    model, data = small()
    target = Target(model, source(data))
    assert target.batch(None).weight == 1.0
    assert target.batch(torch.arange(7)).weight == 50 / 7


# ---- methods ---------------------------------------------------------------------------------------------------


def test_a_single_optimiser_starts_at_the_networks_own_weights() -> None:
    model, _ = small()
    start = from_network(model, Start(), model.noise(0))
    torch.testing.assert_close(model.named(start.theta)["0.weight"][0], model.network.weights()["0.weight"])


def test_replicas_restart_by_the_modules_own_initialisation() -> None:
    model, _ = small()
    start = from_network(model, Start().times(3), model.noise(0))
    weights = model.named(start.theta)["0.weight"]
    bound = 3**-0.5  # nn.Linear's own: uniform within 1 / sqrt(fan-in)
    assert weights.abs().max() <= bound
    assert not torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], model.network.weights()["0.weight"])


def test_then_passes_latents_and_statistics_and_nothing_else() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    model, data = small(net=net)
    first = fit(model, data, MAP(epochs=3), seed=0).ends()
    still = MAP(epochs=1, lr=1e-30)
    after = fit(model, data, MAP(epochs=3) >> still, seed=0)
    assert int(after.statistics["1.num_batches_tracked"][0]) > int(first.statistics["1.num_batches_tracked"][0])  # type: ignore[attr-defined]
    assert after.ends().theta.shape == first.theta.shape


def test_members_start_chains_one_to_one() -> None:
    model, data = small()
    members = fit(model, data, 3 * MAP(epochs=2), seed=0).ends().theta
    again = fit(model, data, 3 * (MAP(epochs=2) >> MAP(epochs=1, lr=1e-30)), seed=0)
    still = again.theta[:, 0]  # type: ignore[attr-defined]
    assert again.info["before"]["epochs"] == 2
    assert len(still) == len(members) == 3


def test_on_frees_the_scales_of_its_own_prior_and_leaves_the_noise() -> None:
    prior = {"2.*": Normal(0.0, HalfCauchy(1.0).per("layer")), "*": Normal(0.0, HalfCauchy(1.0).per("layer"))}
    model, data = small(prior, Gaussian(HalfCauchy(1.0)))
    start = model.named(from_network(model, Start(), model.noise(0, "fit")).theta)
    drawn = fit(model, data, MAP(epochs=5).on("2.*")).sample(1)
    moved = {name for name in drawn if not torch.allclose(drawn[name], start[name], atol=1e-6)}
    assert moved == {"2.weight", "2.bias", "prior.2.*.scale"}
    noise = fit(model, data, MAP(epochs=5).on("likelihood.*")).sample(1)
    assert {name for name in noise if not torch.allclose(noise[name], start[name], atol=1e-6)} == {"likelihood.noise"}


def test_the_shuffling_is_ours_and_keyed_by_seed_and_epoch() -> None:
    model, _ = small()
    noise = model.noise(0)
    first, second = noise.at("epoch", 0).permutations(2, 50), noise.at("epoch", 1).permutations(2, 50)
    assert torch.equal(first, noise.at("epoch", 0).permutations(2, 50))
    assert not torch.equal(first, second) and not torch.equal(first[0], first[1])
    assert torch.equal(first.sort(1).values[0], torch.arange(50))


# ---- posteriors and predictives --------------------------------------------------------------------------------


def test_the_point_of_draws_is_the_best_member() -> None:
    model, data = small()
    posterior = fit(model, data, 4 * MAP(epochs=2))
    best = int(posterior.log_joint.argmax())  # type: ignore[attr-defined]
    assert torch.equal(posterior.point()["0.weight"], posterior.sample(4)["0.weight"][best])


def test_predict_takes_at_most_the_stored_draws() -> None:
    model, data = small()
    posterior = fit(model, data, 5 * MAP(epochs=1))
    assert posterior.predict(data[0]).draws.batch_shape[0] == 5  # type: ignore[attr-defined]
    assert posterior.predict(data[0], draws=2).draws.batch_shape[0] == 2  # type: ignore[attr-defined]
    assert posterior.predict(data[0], draws=None).draws.batch_shape[0] == 5  # type: ignore[attr-defined]


def test_patterns_are_names_and_an_unknown_axis_is_refused() -> None:
    with pytest.raises(InputError, match=r"per.*'column'"):
        small(Normal(0.0, HalfCauchy(1.0).per("column")))  # type: ignore[arg-type]


def test_what_on_fixes_stays_even_if_its_scale_moves() -> None:
    """Non-centred, a fixed weight would be scale times a fixed number and follow the scale."""
    from nescio.infer import HMC

    model, data = small(Normal(0.0, HalfCauchy(1.0).per("net")))
    drawn = fit(model, data, HMC(draws=50, warmup=100, leapfrog=3).on("2.*")).sample(20)
    assert torch.equal(drawn["0.weight"], model.network.weights()["0.weight"].expand(20, -1, -1))
    assert drawn["prior.*.scale"].std() > 0 and drawn["2.weight"].std(0).min() > 0
