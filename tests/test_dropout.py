"""The dropout families: laws of the weights, bounds over all masks, weight decay, learned rates, the network's own layers."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chance import Z, assert_mean, assert_probability
from check_method import check_method
from scipy import integrate, optimize, special, stats
from test_weights import NETS
from torch import Tensor, nn
from torch import distributions as td
from torch.func import functional_call

from nescio import InputError, Model, UnsupportedError, fit, load
from nescio.families import (
    BernoulliDropout,
    ConcreteDropout,
    Family,
    GaussianDropout,
    MeanField,
    NetDropout,
    Point,
    VariationalDropout,
    drop_rates,
    log_alphas,
    model_precision,
    papers_penalty,
    prior_scale,
    weight_decay,
)
from nescio.families.concrete import Relaxed
from nescio.families.dropout import Spikes
from nescio.families.family import Block
from nescio.families.gaussian_dropout import Noisy as NoisyColumns
from nescio.families.masks import Multiplied
from nescio.families.variational_dropout import log_uniform_kl
from nescio.infer import MAP, VI, Constant
from nescio.infer.elbo import NegativeELBO, bounds
from nescio.laws import HalfCauchy, Laplace, LogUniform, MatrixNormal, Normal, StudentT, fan_in
from nescio.laws.law import Law
from nescio.laws.site import sites
from nescio.likelihoods import Categorical
from nescio.likelihoods import Gaussian as Noise_
from nescio.nets import mlp
from nescio.network import Network
from nescio.noise import Noise
from nescio.posterior import Mixture, Variational, variational
from nescio.weights import RandomWeight

DOUBLE = torch.float64
SD = 0.5
P = 0.3


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def block_of(module: nn.Module, name: str = "weight") -> Block:
    site = next(site for site in sites(module) if site.name == name)
    return Block(name, site, dict(module.named_parameters())[name].detach().reshape(-1))


def random(factor: Multiplied) -> RandomWeight:
    factor.begin()
    return RandomWeight.of(factor, lambda: factor.draw().view_as(factor.loc), factor.loc)


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> Any:
    with Noise(seed).scope():
        return make().double()


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(3, 2), (3,)),
    "tokens": (lambda: nn.Linear(3, 2), (4, 3)),
    "conv1d": (lambda: nn.Conv1d(3, 2, 2), (3, 4)),
    "conv2d": (lambda: nn.Conv2d(3, 4, 2, padding=1), (3, 3, 3)),
    "grouped": (lambda: nn.Conv2d(4, 6, 2, groups=2), (4, 3, 3)),
    "transposed": (lambda: nn.ConvTranspose1d(3, 2, 2), (3, 4)),
    "transposed, grouped": (lambda: nn.ConvTranspose1d(4, 2, 2, groups=2), (4, 4)),
}
KINDS: dict[str, Callable[[Block], Multiplied]] = {
    "bernoulli": lambda block: Spikes(block, P),
    "gaussian": lambda block: NoisyColumns(block, P / (1 - P)),
    "concrete": lambda block: Relaxed(block, P, False, 0.1),
}  # all with the variance p / (1 - p) of their multipliers


# ---- W = M diag(z) ---------------------------------------------------------------------------------------------------


def check_columns(name: str = "grouped") -> None:
    """The layer under a drawn W is the layer at M with inputs dropped; as many are dropped as p says, and M is loc / (1 - p)."""
    make, shape = LAYERS[name]
    layer, n, dropped, columns = seeded(make), 400, 0, 0
    factor = Spikes(block_of(layer), P)
    axis = 0 if "transposed" in name else 1
    groups = getattr(layer, "groups", 1) if axis else 1
    x = normal(2, *shape, seed=1)
    channels = -1 if "linear" in name or name == "tokens" else 1
    with Noise(0).scope(), torch.no_grad():
        for _ in range(n):
            weight = factor.draw().view_as(layer.weight)
            kept = weight != 0
            torch.testing.assert_close(weight, layer.weight * kept / (1 - P))
            kept = kept.unflatten(0, (groups, -1)).movedim(2, 1).flatten(0, 1) if axis else kept
            each = kept.flatten(1)  # (inputs, weights of each)
            assert torch.equal(each, each[:, :1].expand_as(each)), "weights of one input are dropped together"
            z = each[:, 0].to(DOUBLE) / (1 - P)
            dropped, columns = dropped + int((z == 0).sum()), columns + len(z)
            spread = z if channels == -1 else z.view(-1, *[1] * (x.dim() - 2))
            want = layer(x * spread)
            got = functional_call(layer, {"weight": weight, "bias": layer.bias}, (x,))
            torch.testing.assert_close(got, want)
    assert_probability(dropped, columns, P)


@pytest.mark.parametrize("name", LAYERS)
def test_to_drop_an_input_is_to_drop_its_weights(name: str) -> None:
    check_columns(name)


def check_marginals(kind: str, name: str = "linear") -> None:
    """Each example with its own noise, and one draw for all: mean W x, the covariance of outputs of one example, none between two."""
    make, shape = LAYERS[name]
    layer, n = seeded(make), 6000
    factor = KINDS[kind](block_of(layer))
    x = normal(2, *shape, seed=1)
    with Noise(0).scope(), torch.no_grad():
        repeated = x.repeat(n, *[1] * len(shape))
        own = functional_call(layer, {"weight": random(factor), "bias": layer.bias}, (repeated,)).view(n, 2, -1)
        calls = ({"weight": random(factor).value(), "bias": layer.bias} for _ in range(n))
        drawn = torch.stack([functional_call(layer, call, (x,)).flatten(1) for call in calls])
        mean = layer(x).flatten(1)
        ones = torch.eye(factor.inputs, dtype=DOUBLE)  # the part of each input in the output
        along = ones if name in ("linear", "tokens") else ones.view(*ones.shape, *[1] * (x.dim() - 2))
        parts = torch.stack(
            [(layer(x * one) - layer(0 * x)).flatten(1) for one in along]
        )  # (inputs, examples, outputs)
    covariance = P / (1 - P) * torch.einsum("jeo,jep->eop", parts, parts)
    for out in (own, drawn):
        away = out - mean
        assert_mean(out[:, :, 0], mean[:, 0])
        assert_mean(away[:, :, :1] * away, covariance[:, :1].expand(2, 1, -1)[:, 0])
    assert_mean(own[:, 0, 0] * own[:, 1, 0], mean[0, 0] * mean[1, 0])


@pytest.mark.parametrize("name", ["linear", "tokens", "conv1d", "grouped", "transposed"])
@pytest.mark.parametrize("kind", KINDS)
def test_noise_of_its_own_has_the_marginals_of_coherent_draws(kind: str, name: str) -> None:
    check_marginals(kind, name)


class Unrolled(nn.Module):
    """A recurrence in Linear layers; gives the outputs of all steps."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.inner(step) for step in x.unbind(1)], 1)


class Recurrent(nn.Module):
    """h = relu(W x): the weights of the state are zero."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.RNN(4, 3, batch_first=True, nonlinearity="relu", bias=False)
        nn.init.zeros_(self.body.weight_hh_l0)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)[0].flatten(1)


def check_time() -> None:
    """The same input at every step meets the same mask; another call another one."""
    for net in (seeded(Unrolled), seeded(Recurrent)):
        x = normal(1, 4, seed=3).expand(5, 4)[None].repeat(2, 1, 1)  # (rows, steps, inputs)
        loss = loss_of(net, BernoulliDropout(0.5), x, outputs=15)
        seen = []
        with Noise(1).scope(), torch.no_grad():
            for _ in range(20):
                own = {n: w for n, w in loss.q.call().params(loss.acting).items() if not n.startswith("likelihood.")}
                out = functional_call(net, own, (x,)).view(2, 5, 3)
                assert torch.equal(out, out[:, :1].expand_as(out)), "a mask of its own for each step"
                seen.append(out[0, 0])
        assert len(torch.stack(seen).unique(dim=0)) > 3


def test_one_mask_for_all_time_steps() -> None:
    check_time()


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize(
    "family", [BernoulliDropout(0.2), GaussianDropout(0.1), ConcreteDropout(), VariationalDropout()]
)
def test_any_unmodified_network(name: str, family: Family) -> None:
    make, x = NETS[name]
    loss = loss_of(make(), family, x)
    loss.estimate(x, torch.zeros(len(x), 1))
    for path, p in loss.named_parameters():
        assert p.grad is not None and bool(p.grad.isfinite().all()) and bool((p.grad != 0).any()), path


def loss_of(
    net: nn.Module, family: Family, x: Tensor, y: Tensor | None = None, prior: Any = None, outputs: int = 1
) -> NegativeELBO:
    y = torch.zeros(len(x), outputs).to(next(net.parameters())) if y is None else y
    model = Model(net, Normal(0.0, 0.8) if prior is None else prior, Noise_(SD))
    return VI(family).objective(model, (x, y))[1]


# ---- the bound, by enumeration of all masks ----------------------------------------------------------------------------


class Enumerated:
    """A net 2-3-1 under dropout of its inputs and units, every mask with its probability."""

    def __init__(self, p: float = P) -> None:
        self.net = seeded(lambda: mlp(2, 3, 1), 1)
        self.x, self.y = normal(7, 2), normal(7, 1, seed=1)
        masks = torch.tensor(list(itertools.product([0.0, 1.0], repeat=5)), dtype=DOUBLE)
        self.probability = (masks * (1 - p) + (1 - masks) * p).prod(1)
        self.first, self.second = (masks / (1 - p)).split([2, 3], 1)

    def outputs(self, x: Tensor) -> Tensor:
        """(masks, points)"""
        a, b = self.net[0], self.net[2]
        hidden = [self.net[1](a(x * z)) for z in self.first]
        return torch.stack([b(h * z)[:, 0] for h, z in zip(hidden, self.second, strict=True)])

    def fit(self) -> Tensor:
        """E log p(D | W)"""
        law = td.Normal(self.outputs(self.x), torch.tensor(SD, dtype=DOUBLE))
        return self.probability @ law.log_prob(self.y[:, 0]).sum(1)

    def divergence(self, prior: Callable[[str, Tensor], Tensor]) -> Tensor:
        """E [log q(z) - log p(W)], and -log p of the biases."""
        a, b = self.net[0], self.net[2]
        log_p = [
            prior("0.weight", a.weight * u) + prior("2.weight", b.weight * v)
            for u, v in zip(self.first, self.second, strict=True)
        ]
        points = prior("0.bias", a.bias) + prior("2.bias", b.bias)
        return self.probability @ (self.probability.log() - torch.stack(log_p)) - points


def check_bound(p: float = P) -> None:
    """From ragged batches, the mean of our estimates is the ELBO over all 32 masks."""
    exact = Enumerated(p)
    scale = torch.tensor(0.8, dtype=DOUBLE)
    want = exact.fit() - exact.divergence(lambda _, w: td.Normal(0.0, scale).log_prob(w).sum())
    loss = loss_of(exact.net, BernoulliDropout(p), exact.x, exact.y)
    assert loss.alone
    ours = []
    with Noise(0).scope(), torch.no_grad():
        for _ in range(400):
            order = torch.randperm(7)
            parts = [order[:5], order[5:]]
            ours.append(sum(loss.estimate(exact.x[i], exact.y[i]) * len(i) / 7 for i in parts))
        coherent = bounds(loss, 600)
    assert_mean(torch.stack(ours), want.detach())
    assert_mean(coherent, want.detach())


@pytest.mark.parametrize("p", [0.1, P, 0.7])
def test_the_bound_is_that_over_all_masks(p: float) -> None:
    check_bound(p)


def double(*numbers: float) -> list[Tensor]:
    return [torch.tensor(number, dtype=DOUBLE) for number in numbers]


def fans(name: str) -> int:
    return 2 if name.startswith("0") else 3


PRIORS: list[tuple[Law, Callable[[str], td.Distribution]]] = [
    (Normal(0.0, 0.8), lambda _: td.Normal(*double(0.0, 0.8))),
    (Normal(0.3, 0.8), lambda _: td.Normal(*double(0.3, 0.8))),
    (Normal(0.1, fan_in), lambda name: td.Normal(*double(0.1, fans(name) ** -0.5))),
    (Laplace(0.0, 0.7), lambda _: td.Laplace(*double(0.0, 0.7))),
    (StudentT(3.0, 0.1, 0.7), lambda _: td.StudentT(*double(3.0, 0.1, 0.7))),
]


def check_divergence(family: Family, prior: Law, law: Callable[[str], td.Distribution]) -> None:
    """Exact, without a draw."""
    exact = Enumerated()
    want = exact.divergence(lambda name, w: law(name).log_prob(w).sum())
    loss = loss_of(exact.net, family, exact.x, exact.y, prior)
    with Noise(0).scope(), torch.no_grad():
        before = torch.get_rng_state()
        got = loss.q.call().divergence()
        assert torch.equal(before, torch.get_rng_state())
    assert float(got) == pytest.approx(float(want.detach()), rel=1e-10)


@pytest.mark.parametrize(
    "family", [BernoulliDropout(P), ConcreteDropout(P), ConcreteDropout(P, per_unit=True)], ids=repr
)
@pytest.mark.parametrize(
    ("prior", "law"), PRIORS, ids=lambda value: re.sub(r" at 0x\w+", "", repr(value)) if isinstance(value, Law) else ""
)
def test_the_divergence_in_closed_form(family: Family, prior: Law, law: Any) -> None:
    check_divergence(family, prior, law)


def check_narrow(p: float = P, m: float = 0.9, s: float = 0.8) -> None:
    """One weight: the divergence of a mixture of two narrow Gaussians, by quadrature, less their own entropy."""
    layer = seeded(lambda: nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        layer.weight.fill_(m * (1 - p))
    width = 1e-3
    q = lambda w: p * stats.norm.pdf(w, 0, width) + (1 - p) * stats.norm.pdf(w, m, width)  # noqa: E731
    inside = lambda w: q(w) * (math.log(q(w)) - stats.norm.logpdf(w, 0, s))  # noqa: E731
    exact = sum(integrate.quad(inside, c - 8 * width, c + 8 * width, epsabs=1e-10)[0] for c in (0, m))
    exact += 0.5 * math.log(2 * math.pi * math.e * width**2)  # what is left out
    factor = Spikes(block_of(layer), p)
    got = factor.kl([td.Normal(torch.zeros((), dtype=DOUBLE), torch.tensor(s, dtype=DOUBLE))])
    assert float(got.detach()) == pytest.approx(exact, abs=1e-5)


def test_the_divergence_is_that_of_narrow_gaussians() -> None:
    check_narrow()


def check_gaussian_divergence() -> None:
    """Under Normal(0.2, 0.8) against quadrature, under Laplace by draws against quadrature."""
    layer = seeded(lambda: nn.Linear(2, 2, bias=False))
    alpha = 0.4
    for prior, law in ((Normal(0.2, 0.8), stats.norm(0.2, 0.8)), (Laplace(0.2, 0.8), stats.laplace(0.2, 0.8))):
        cross = 0.0
        for w in layer.weight.detach().flatten().tolist():
            inside = lambda z, w=w, law=law: -stats.norm.pdf(z, 1, math.sqrt(alpha)) * law.logpdf(w * z)  # noqa: E731
            cross += integrate.quad(inside, -5, 7, points=[0.2 / w] if -5 < 0.2 / w < 7 else None)[0]
        want = cross - 2 * 0.5 * math.log(2 * math.pi * math.e * alpha)
        loss = loss_of(layer, GaussianDropout(alpha), normal(3, 2), prior=prior, outputs=2)
        with Noise(0).scope(), torch.no_grad():
            got = torch.stack([loss.q.call().divergence() for _ in range(4000 if isinstance(prior, Laplace) else 1)])
        if isinstance(prior, Normal):
            assert float(got) == pytest.approx(want, rel=1e-6)
        else:
            assert_mean(got, want)


def test_the_divergence_of_gaussian_dropout() -> None:
    check_gaussian_divergence()


@pytest.mark.parametrize(
    "prior", [Normal(0.0, HalfCauchy(1.0).per("layer")), {"*.weight": MatrixNormal(), "*": Normal(0.0, 1.0)}]
)
@pytest.mark.parametrize("family", [BernoulliDropout(P), GaussianDropout(0.5), ConcreteDropout(P)])
def test_random_scales_and_joint_priors(prior: Any, family: Family) -> None:
    """By draws: E [log p] of the target's own density over coherent draws is what the divergence says, the entropy known."""
    exact = Enumerated()
    loss = loss_of(exact.net, family, exact.x, exact.y, prior)
    model = loss.target.model
    with Noise(3).scope(), torch.no_grad():
        divergence = torch.stack([loss.q.call().divergence() for _ in range(300)])
        brute = []
        for _ in range(300):
            call = loss.q.call()
            log_q = sum(float(factor.log_prob(call.draw(i))) for i, factor in enumerate(call.factors))
            u = model.prior.pack(call.theta(), centred=True)
            brute.append(log_q - float(model.prior.unpack(u, centred=True).log_density))
    ours = torch.tensor(brute, dtype=DOUBLE)
    se = (ours.var() / len(ours) + divergence.var() / len(divergence)).sqrt()
    assert abs(float(ours.mean() - divergence.mean())) <= Z * float(se)


# ---- weight decay ------------------------------------------------------------------------------------------------------


def check_decay() -> None:
    """The slope of our divergence per observation is torch's weight decay on the same weights, and back."""
    n, scale = 7, 0.8
    exact = Enumerated()
    loss = loss_of(exact.net, BernoulliDropout(P), exact.x, exact.y)
    (loss.q.call().divergence() / n).backward()
    for factor in loss.q.parts():
        p = P if isinstance(factor, Spikes) else 0.0
        decay = weight_decay(scale, n, p)
        torch.testing.assert_close(factor.loc.grad, decay * factor.loc)  # type: ignore[attr-defined]
        assert prior_scale(decay, n, p) == pytest.approx(scale, rel=1e-12)


def test_the_divergence_is_weight_decay() -> None:
    check_decay()


def test_weight_decay_and_prior_give_the_same_network() -> None:
    """torch's SGD with weight decay on a mean loss ends where MAP under the prior does; both are ridge regression."""
    n, decay = 50, 0.03
    x, y = normal(n, 3), normal(n, 1, seed=1)
    net = seeded(lambda: nn.Linear(3, 1, bias=False))
    scale = prior_scale(decay, n, precision=1 / SD**2)
    map_ = fit(Model(net, Normal(0.0, scale), Noise_(SD)), (x, y), MAP(epochs=400, lr=0.05, batch_size=n))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3, weight_decay=decay)
    for _ in range(400):
        optimizer.zero_grad()
        (0.5 * (net(x) - y).square()).mean().backward()
        optimizer.step()
    ridge = torch.linalg.solve(x.T @ x / n + decay * torch.eye(3, dtype=DOUBLE), x.T @ y / n).T
    torch.testing.assert_close(net.weight.detach(), ridge, rtol=0, atol=1e-6)
    torch.testing.assert_close(map_.point()["weight"], ridge, rtol=0, atol=1e-4)


def check_ridge() -> None:
    """A linear network under dropout is ridge regression: there our gradients vanish in the mean, and torch's, with its own dropout."""
    n, p, scale = 40, 0.4, 0.15
    x = normal(n, 3)
    y = 2 * x.sum(1, keepdim=True) + normal(n, 1, seed=1)
    decay = weight_decay(scale, n, p, precision=1 / SD**2)
    moment = x.T @ x / n
    ridge = torch.linalg.solve(
        moment + p / (1 - p) * moment.diagonal().diag() + decay * torch.eye(3, dtype=DOUBLE), x.T @ y / n
    ).T
    net = nn.Sequential(nn.Dropout(p), seeded(lambda: nn.Linear(3, 1, bias=False))).train()
    with torch.no_grad():
        net[1].weight.copy_(ridge)
    loss = loss_of(net[1], BernoulliDropout(p), x, y, Normal(0.0, scale))
    slopes: dict[str, list[Tensor]] = {"ours": [], "torch": []}
    with Noise(0).scope():
        for _ in range(500):
            slopes["ours"].append(torch.autograd.grad(loss(x, y), list(loss.parameters()))[0][0])
            total = (0.5 * (net(x) - y).square()).mean() + 0.5 * decay * net[1].weight.square().sum()
            slopes["torch"].append(torch.autograd.grad(total, net[1].weight)[0][0])
    for values in slopes.values():
        assert_mean(torch.stack(values), torch.zeros(3))


def test_dropout_of_a_linear_network_is_ridge_regression() -> None:
    check_ridge()


def test_the_papers_relations() -> None:
    tau, length, p, n = 0.15, 1e-2, 0.1, 455
    penalty = papers_penalty(tau, length, p, n)
    assert penalty == pytest.approx(1e-4 * 0.9 / (2 * 455 * 0.15))
    assert model_precision(penalty, length, p, n) == pytest.approx(tau)
    assert weight_decay(1 / length, n, p, tau) == pytest.approx(2 * penalty / (1 - p) ** 2)  # of ‖E W‖² / 2, not ‖M‖²
    for build in (
        lambda: weight_decay(1.0, 10, p=1.0),
        lambda: prior_scale(-1.0, 10),
        lambda: model_precision(1.0, 1.0, 0.1, 0),
    ):
        with pytest.raises(InputError) as error:
            build()
        assert error.value.must and error.value.got and error.value.remedy


# ---- learned rates -----------------------------------------------------------------------------------------------------


def check_relaxed(temperature: float = 0.1) -> None:
    """P(z > 1/2) = 1 - p at every temperature; hard where no gradients are wanted."""
    factor, n = Relaxed(block_of(seeded(lambda: nn.Linear(4, 1))), P, False, temperature), 5000
    factor.begin()
    with Noise(0).scope():
        soft = factor.noise(n).detach() * (1 - P)
        with torch.no_grad():
            hard = factor.noise(n) * (1 - P)
    assert_probability(int((soft > 0.5).sum()), 4 * n, 1 - P)
    assert_probability(int((hard > 0.5).sum()), 4 * n, 1 - P)
    torch.testing.assert_close(hard, hard.round())
    assert not torch.equal(soft, soft.round())


@pytest.mark.parametrize("temperature", [0.01, 0.1, 1.0, 3.0])
def test_a_relaxed_mask_is_above_a_half_as_often_as_it_is_kept(temperature: float) -> None:
    check_relaxed(temperature)


def test_a_relaxed_mask_hardens_in_proportion_to_the_temperature() -> None:
    gaps = []
    for temperature in (0.04, 0.02, 0.01):
        factor = Relaxed(block_of(seeded(lambda: nn.Linear(4, 1))), P, False, temperature)
        factor.begin()
        with Noise(0).scope():
            z = factor.noise(20_000).detach() * (1 - P)
        gaps.append(float((z - (z > 0.5).to(z)).abs().mean()))
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.1) and gaps[1] / gaps[2] == pytest.approx(2, rel=0.1)


def test_the_slope_of_the_divergence_in_the_rates() -> None:
    prior = td.Normal(torch.zeros((), dtype=DOUBLE), torch.tensor(0.8, dtype=DOUBLE))
    for per_unit in (False, True):
        factor = Relaxed(block_of(seeded(lambda: nn.Linear(3, 2))), P, per_unit, 0.1)

        def kl(logit: Tensor, loc: Tensor, factor: Relaxed = factor) -> Tensor:
            def at(module: Relaxed) -> Tensor:
                module.begin()
                return module.kl([prior])

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(factor, "_parameters", {"logit": logit, "loc": loc})
                return at(factor)

        start = (factor.logit.detach().clone().requires_grad_(), factor.loc.detach().clone().requires_grad_())
        assert torch.autograd.gradcheck(kl, start)


def exact_elbo(x: Tensor, y: Tensor, scale: float, loc: np.ndarray, p: float) -> float:
    """Of a linear network whose inputs are dropped: a sum over masks in closed form."""
    w = torch.as_tensor(loc, dtype=DOUBLE)
    squares = (y[:, 0] - x @ w).square().sum() + p / (1 - p) * (x.square() @ w.square()).sum()
    fit_ = -0.5 * squares / SD**2 - len(x) * math.log(SD * math.sqrt(2 * math.pi))
    entropy = -len(w) * (p * math.log(p) + (1 - p) * math.log1p(-p))
    cross = 0.5 * w.square().sum() / (1 - p) / scale**2 + len(w) * math.log(scale * math.sqrt(2 * math.pi))
    return float(fit_ - cross + entropy)


def check_learned(family: Family | None = None) -> None:
    """Learned rate and weights are within 0.02 nats of the best bound there is; with a rate 1.5 times higher or lower they are not."""
    n, scale = 10, 0.5
    x = normal(n, 8) * 0.5
    y = x @ (0.5 * torch.ones(8, 1, dtype=DOUBLE)) + SD * normal(n, 1, seed=2)
    best = optimize.minimize(lambda v: -exact_elbo(x, y, scale, v[:-1], 1 / (1 + math.exp(-v[-1]))), np.full(9, 0.1))
    model = Model(seeded(lambda: nn.Linear(8, 1, bias=False)), Normal(0.0, scale), Noise_(SD))
    method = VI(family or ConcreteDropout(0.1, temperature=0.05), epochs=200, lr=0.05, samples=50, batch_size=n)
    posterior = fit(model, (x, y), method)
    assert isinstance(posterior, Variational)
    rate, loc = float(drop_rates(posterior.q)["weight"]), posterior.point()["weight"][0].numpy()
    assert exact_elbo(x, y, scale, loc, rate) > -best.fun - 0.02
    for other in (rate / 1.5, rate * 1.5):
        assert exact_elbo(x, y, scale, loc, other) < -best.fun - 0.02


def test_the_learned_rate_is_the_best_one() -> None:
    check_learned()


def test_a_rate_for_each_input_tells_what_is_useless() -> None:
    """Two inputs matter, six do not; data are many."""
    x = normal(300, 8)
    y = 2 * x[:, :1] - 2 * x[:, 1:2] + SD * normal(300, 1, seed=3)
    model = Model(seeded(lambda: nn.Linear(8, 1)), Normal(0.0, 1.0), Noise_(SD))
    posterior = fit(model, (x, y), VI(ConcreteDropout(0.2, per_unit=True), epochs=40, lr=0.05, batch_size=100))
    assert isinstance(posterior, Variational)
    rates = drop_rates(posterior.q)["weight"]
    assert rates.shape == (8,) and 2 * float(rates[:2].max()) < float(rates[2:].min())


# ---- variational dropout -----------------------------------------------------------------------------------------------


def exact_log_uniform(log_alpha: float) -> float:
    """KL(N(1, α), 1 / |w|), with E log |m + ε| = E log |ε| + ∫ √2 D(t / √2) dt, D Dawson's integral, from 0 to m = 1 / √α."""
    m = math.exp(-log_alpha / 2)
    slope = lambda t: math.sqrt(2) * special.dawsn(t / math.sqrt(2))  # noqa: E731
    inside = integrate.quad(slope, 0, min(m, 20), epsabs=1e-12)[0]
    if m > 20:  # D(x) = 1/2x + 1/4x³ + 3/8x⁵ + ..., integrated
        tail = [math.log(t) - 1 / (2 * t**2) - 3 / (4 * t**4) - 15 / (6 * t**6) for t in (m, 20.0)]
        inside += tail[0] - tail[1]
    log_abs = -0.5 * (np.euler_gamma + math.log(2)) + inside
    return log_alpha / 2 + log_abs - 0.5 * math.log(2 * math.pi * math.e) - log_alpha / 2


def check_log_uniform() -> None:
    """The documented error, 0.0094 nats at most, and no less than 0.009: the page says what it is."""
    grid = np.linspace(-14, 14, 561)
    exact = np.array([exact_log_uniform(a) for a in grid])
    error = np.abs(log_uniform_kl(torch.as_tensor(grid)).numpy() - exact).max()
    assert 0.009 < error <= 0.0094


def test_the_approximate_divergence_from_log_uniform() -> None:
    check_log_uniform()


def test_it_is_the_divergence_from_the_density_itself() -> None:
    """MeanField estimates the same by draws, under the same prior."""
    net = seeded(lambda: nn.Linear(5, 4))
    loss = loss_of(net, VariationalDropout(0.5), normal(3, 5), prior=LogUniform(), outputs=4)
    other = loss_of(net, MeanField(), normal(3, 5), prior=LogUniform(), outputs=4)
    with torch.no_grad(), Noise(0).scope():
        for ours, theirs in zip(loss.q.parts(), other.q.parts(), strict=True):
            theirs.load_state_dict({name.removeprefix("law."): x for name, x in ours.state_dict().items()})
        draws = torch.stack([other.q.call().divergence() for _ in range(1000)])
        got = float(loss.q.call().divergence())
    assert abs(got - float(draws.mean())) < 24 * 0.0094 + Z * float(draws.std()) / math.sqrt(len(draws))


def test_variational_dropout_finds_useless_weights() -> None:
    x = normal(400, 6)
    y = 2 * x[:, :1] + SD * normal(400, 1, seed=3)
    model = Model(seeded(lambda: nn.Linear(6, 1)), {"weight": LogUniform(), "*": Normal(0.0, 1.0)}, Noise_(SD))
    posterior = fit(model, (x, y), VI(VariationalDropout(), epochs=150, lr=0.03, batch_size=200))
    assert isinstance(posterior, Variational)
    found = log_alphas(posterior.q)["weight"][0]
    assert float(found[0]) < -3 and float(found[1:].mean()) > 0, found


# ---- the network's own layers ------------------------------------------------------------------------------------------


class Own(nn.Module):
    """One dropout layer, used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.drop = nn.Linear(2, 3), nn.Linear(3, 1), nn.Dropout(P)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.drop(torch.tanh(self.a(self.drop(x)))))


def check_net_dropout() -> None:
    """Mean and second moment of each output over all masks, of our draws and of torch in training mode; coherent over inputs."""
    exact = Enumerated()
    net = seeded(Own)
    net.a, net.b = exact.net[0], exact.net[2]
    exact.net[1] = nn.Tanh()
    x = torch.cat([exact.x[:3], exact.x[:1]])
    with torch.no_grad():
        outputs = exact.outputs(x)
    moments = torch.stack([exact.probability @ outputs, exact.probability @ outputs.square()], -1)
    posterior = Variational.around(NetDropout(), Model(net.eval(), Normal(0.0, 1.0), Noise_(SD)))
    ours = posterior.functions(x, 6000, seed=1)[0][:, :, 0]
    assert torch.equal(ours[:, 0], ours[:, 3]), "one function for all inputs"
    net.train()
    with Noise(2).scope(), torch.no_grad():
        theirs = net(x.repeat(6000, 1)).view(6000, 4)
    for out in (ours, theirs):
        assert_mean(torch.stack([out, out.square()], -1), moments)


def test_the_networks_own_dropout_has_the_law_of_training_mode() -> None:
    check_net_dropout()


@pytest.mark.parametrize(
    "layer",
    [nn.Dropout(P), nn.Dropout1d(P), nn.AlphaDropout(P), nn.FeatureAlphaDropout(P), nn.Dropout(P, inplace=True)],
    ids=repr,
)
def test_every_kind_of_dropout_layer(layer: nn.Module) -> None:
    """Mean and all products of outputs with the first one, against torch in training mode."""
    net = nn.Sequential(seeded(lambda: nn.Conv1d(2, 3, 1)), layer, nn.Flatten())
    x, n = normal(1, 2, 2), 6000
    posterior = Variational.around(NetDropout(), Model(net, Normal(0.0, 1.0), Noise_(SD)))
    ours = posterior.functions(x, n, seed=1)[0][:, 0]
    with Noise(2).scope(), torch.no_grad():
        theirs = net.train()(x.repeat(n, 1, 1))
    for function in (lambda out: out, lambda out: out * out[:, :1], lambda out: out.square()):
        a, b = function(ours), function(theirs)
        se = ((a.var(0) + b.var(0)) / n).sqrt()
        assert float(((a.mean(0) - b.mean(0)).abs() / se).max()) <= Z


def test_a_trained_network_after_the_fact(tmp_path: Path) -> None:
    x, y = normal(40, 2).float(), normal(40, 1, seed=1).float()
    net = nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, 1))
    model = Model(net, Normal(0.0, 1.0), Noise_(SD))
    trained = fit(model, (x, y), MAP(epochs=5))
    posterior = Variational.around(NetDropout(), model, trained.ends())
    torch.testing.assert_close(posterior.at_mean().predict(x).mean, trained.predict(x).mean)
    assert torch.equal(posterior.predict(x, seed=3).mean, posterior.predict(x, seed=3).mean)
    whole = posterior.predict(x, draws=20).draws.mean
    assert torch.equal(posterior.predict(x[5:9], draws=20).draws.mean, whole[:, 5:9]), (
        "the same functions at other inputs"
    )
    with pytest.raises(UnsupportedError, match="masks of the network's units") as refused:
        posterior.sample(3)
    assert "predict" in refused.value.remedy
    posterior.save(tmp_path / "q.safetensors")
    again = load(tmp_path / "q.safetensors", model)
    assert torch.equal(again.predict(x).mean, posterior.predict(x).mean)


def test_training_with_the_networks_own_dropout() -> None:
    """The final bound is over masks: below the log likelihood at the averaged weights; an ensemble of such predicts."""
    x, y = normal(60, 2).float(), normal(60, 1, seed=1).float()
    net = nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, 1))
    model = Model(net, Normal(0.0, 1.0), Noise_(SD))
    posterior = fit(model, (x, y), 2 * VI(NetDropout(), epochs=30))
    assert isinstance(posterior, Mixture)
    part = posterior.parts[0]
    assert isinstance(part, Variational)
    naive = model.log_prob(part.at_mean().sample(1), x, y).sum() - part.q.call().divergence().detach()
    assert part.info["elbo"] < float(naive) - 1 and part.info["elbo_se"] > 0
    assert posterior.predict(x, draws=10).draws.mean.shape == (10, 60, 1)
    with pytest.raises(UnsupportedError, match="masks"):
        fit(model, (x, y), VI(NetDropout(), epochs=1, hold_out=0.2))


class Folds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.drop = nn.Linear(2, 1), nn.Dropout(P)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.a(x).reshape(1, -1)).reshape(-1, 1)


def test_dropout_out_of_reach_is_refused() -> None:
    for net, x, message in [
        (mlp(2, 3, 1), torch.ones(3, 2), "with dropout layers"),
        (Folds(), torch.ones(3, 2), "first axis"),
        (nn.Sequential(nn.Dropout(P), nn.LSTM(2, 2, num_layers=2, dropout=P)), torch.ones(3, 1, 2), "dropout inside"),
    ]:
        posterior = Variational.around(NetDropout(), Model(net, Normal(0.0, 1.0), Noise_(SD)))
        with pytest.raises(UnsupportedError, match=message):
            posterior.functions(x, 2, 0)


# ---- predictions -------------------------------------------------------------------------------------------------------


def check_monte_carlo() -> None:
    """The error of the mean of S draws has variance Var / S for S = 1, 4, 16: it falls as 1 / √S."""
    exact = Enumerated()
    with torch.no_grad():
        outputs = exact.outputs(exact.x[:1])[:, 0]
    mean = exact.probability @ outputs
    variance = exact.probability @ (outputs - mean).square()
    posterior = Variational.around(BernoulliDropout(P), Model(exact.net, Normal(0.0, 1.0), Noise_(SD)))
    for draws in (1, 4, 16):
        f = posterior.functions(exact.x[:1], 200 * draws, seed=draws)[0].view(200, draws)
        scaled = (f.mean(1) - mean).square() * draws
        assert_mean(scaled, variance)


def test_the_error_falls_with_the_root_of_the_number_of_draws() -> None:
    check_monte_carlo()


def test_naive_and_monte_carlo_predictions() -> None:
    """At the mean of q it is the network in evaluation mode; by draws the mean over all masks, which differs."""
    exact = Enumerated()
    model = Model(exact.net, Normal(0.0, 1.0), Noise_(SD))
    posterior = Variational.around(BernoulliDropout(P), model)
    with torch.no_grad():
        torch.testing.assert_close(posterior.at_mean().predict(exact.x).mean, exact.net(exact.x))
        outputs = exact.outputs(exact.x)
        drawn = posterior.functions(exact.x, 4000, seed=0)[0][:, :, 0]
        assert_mean(drawn, exact.probability @ outputs)
        assert float((exact.probability @ outputs - exact.net(exact.x)[:, 0]).abs().max()) > 0.01


def check_predict_is_sample() -> None:
    """Chunks of draws, and what is computed once for all of them, change nothing."""
    net = seeded(lambda: mlp(3, 5, 4, 2))
    model = Model(net, Normal(0.0, 1.0), Noise_(SD))
    posterior = Variational.around(BernoulliDropout({"0.*": 0.0, "*": P}), model)
    x, drawn = normal(6, 3), posterior.sample(7, seed=2)
    assert drawn["0.weight"].stride(0) == 0 and drawn["2.weight"].stride(0) != 0
    with torch.no_grad():
        want = torch.stack(
            [
                functional_call(net, {name: w[i] for name, w in drawn.items() if name[0].isdigit()}, (x,))
                for i in range(7)
            ]
        )
    torch.testing.assert_close(posterior.predict(x, draws=7, seed=2).draws.mean, want)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(variational, "WEIGHTS", 70)
        seen: list[int] = []
        true = Network.outputs

        def spy(self: Network, params: Any, x: Any) -> Any:
            seen.append(len(params["2.weight"]))
            return true(self, params, x)

        patch.setattr(Network, "outputs", spy)
        torch.testing.assert_close(posterior.predict(x, draws=7, seed=2).draws.mean, want)
    assert seen == [2, 2, 2, 1]


def test_predictions_are_those_of_the_sampled_weights() -> None:
    check_predict_is_sample()


def test_the_first_layer_is_computed_once_for_all_draws() -> None:
    """Of a network whose inputs are not dropped: a function of the inputs alone is not repeated."""
    rows: list[int] = []

    class Counted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            rows.append(torch._C._functorch.is_batchedtensor(x))
            return x

    net = nn.Sequential(nn.Linear(3, 4), Counted(), nn.ReLU(), nn.Linear(4, 4), Counted(), nn.Linear(4, 1))
    posterior = Variational.around(BernoulliDropout({"0.*": 0.0, "*": P}), Model(net, Normal(0.0, 1.0), Noise_(SD)))
    posterior.predict(torch.ones(5, 3))
    rows.clear()
    posterior.predict(torch.ones(5, 3))
    assert rows == [False, True]


def test_a_network_that_writes_in_place_is_not_shared() -> None:
    class Adds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.a(x)
            x += self.b(x)
            return self.c(x)

    net = seeded(Adds)
    posterior = Variational.around(BernoulliDropout({"a.*": 0.0, "*": P}), Model(net, Normal(0.0, 1.0), Noise_(SD)))
    x, drawn = normal(4, 3), posterior.sample(5)
    with torch.no_grad():
        want = torch.stack(
            [functional_call(net, {n: w[i] for n, w in drawn.items() if n[0] in "abc"}, (x,)) for i in range(5)]
        )
    torch.testing.assert_close(posterior.predict(x, draws=5).draws.mean, want)


# ---- the method --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "family",
    [BernoulliDropout(0.2), GaussianDropout(0.3), ConcreteDropout(per_unit=True), VariationalDropout()],
    ids=repr,
)
def test_contract(family: Family) -> None:
    check_method(VI(family, epochs=1, batch_size=30))


def test_rates_by_name() -> None:
    net = mlp(2, 3, 1)
    loss = loss_of(net, BernoulliDropout({"0.*": 0.0, "*": P}), torch.ones(3, 2))
    kinds = {factor.blocks[0].name: type(factor) for factor in loss.q.parts()}
    assert kinds == {"0.weight": Point, "0.bias": Point, "2.weight": Spikes, "2.bias": Point}
    for rates, message in [({"0.*": P}, "every layer needs a rate"), ({"first.*": 0.0, "*": P}, "every pattern")]:
        with pytest.raises(InputError, match=message):
            loss_of(net, BernoulliDropout(rates), torch.ones(3, 2))


def test_rates_by_name_are_stored(tmp_path: Path) -> None:
    model = Model(mlp(2, 3, 1), Normal(0.0, 1.0), Noise_(SD))
    posterior = Variational.around(ConcreteDropout({"0.*": 0.0, "*": P}), model)
    posterior.save(tmp_path / "q.safetensors")
    again = load(tmp_path / "q.safetensors", model)
    assert isinstance(again, Variational) and again.q.family == posterior.q.family
    assert torch.equal(again.sample(3)["2.weight"], posterior.sample(3)["2.weight"])


def test_wrong_use_is_refused_in_three_parts() -> None:
    for build in (
        lambda: BernoulliDropout(1.0),
        lambda: BernoulliDropout({"*": -0.1}),
        lambda: GaussianDropout(-1.0),
        lambda: ConcreteDropout(temperature=0.0),
        lambda: VariationalDropout(0.0),
    ):
        with pytest.raises(InputError) as error:
            build()
        assert error.value.must and error.value.got and error.value.remedy
    for family in (BernoulliDropout(), GaussianDropout(), ConcreteDropout()):
        loss = loss_of(nn.Linear(2, 1, bias=False), family, torch.ones(3, 2), prior=LogUniform())
        with pytest.raises(UnsupportedError, match="finite at zero"):
            loss(torch.ones(3, 2), torch.ones(3, 1))


@pytest.mark.parametrize("family", [BernoulliDropout(0.2), GaussianDropout(0.2), ConcreteDropout()], ids=repr)
def test_it_learns(family: Family) -> None:
    x = normal(300, 1, 6, 6).float()
    labels = (x.mean((1, 2, 3)) > 0).long()
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
    posterior = fit(
        Model(net, Normal(0.0, 1.0), Categorical()),
        (x, labels),
        VI(family, epochs=20, batch_size=50, lr=0.02, schedule=Constant()),
    )
    assert float((posterior.predict(x).mean.argmax(-1) == labels).float().mean()) > 0.9


def test_half_a_temperature_tempers_the_likelihood_and_the_prior_but_not_the_entropy() -> None:
    exact = Enumerated()
    model = Model(exact.net, Normal(0.0, 0.8), Noise_(SD))
    _, loss = VI(BernoulliDropout(P)).objective(model, (exact.x, exact.y), temperature=0.5)
    entropy = -5 * (P * math.log(P) + (1 - P) * math.log1p(-P))
    scale = torch.tensor(0.8, dtype=DOUBLE)
    cross = exact.divergence(lambda _, w: td.Normal(0.0, scale).log_prob(w).sum()) + entropy
    with torch.no_grad(), Noise(0).scope():
        assert float(loss.q.call().divergence(0.5)) == pytest.approx(2 * float(cross) - entropy, rel=1e-10)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize(
    "family", [BernoulliDropout(0.2), GaussianDropout(0.2), ConcreteDropout(), VariationalDropout(), NetDropout()]
)
def test_on_a_gpu(family: Family) -> None:
    x, y = torch.randn(60, 2), torch.randn(60, 1)
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 1))
    posterior = fit(Model(net, Normal(0.0, 1.0), Noise_(SD)), (x, y), VI(family, epochs=3), device="cuda")
    assert posterior.predict(x.cuda()).mean.is_cuda
