"""Faults in target, model, MAP, likelihoods and predictive, each with the check that sees it.

A check is a few lines of exact arithmetic in double precision, unless it says otherwise; it takes well under two seconds.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from chance import assert_law, between, within
from fault import Fault
from scipy import stats
from targets import DOUBLE, Known, conjugate, linear, to_the_mode
from torch import Tensor, nn
from torch import distributions as td
from torch.nn.functional import softplus

from nescio.batch import Batch
from nescio.data.source import source
from nescio.infer import MAP, fit
from nescio.infer import map as map_module
from nescio.infer.method import Start
from nescio.laws import HalfCauchy, Learned, Normal
from nescio.laws.law import Independent
from nescio.laws.prior import Prior, Unpacked
from nescio.laws.variable import Part, Variable
from nescio.likelihoods import Categorical, Gaussian, Heteroscedastic, MultiTask
from nescio.model import Model
from nescio.nets import mlp
from nescio.network import Network, Params
from nescio.noise import Noise
from nescio.posterior import Draws
from nescio.posterior.posterior import Ends
from nescio.predictive import Drawn
from nescio.target import Target

# ---- small models ----------------------------------------------------------------------------------------------------


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.as_tensor(np.random.default_rng(seed).normal(size=shape))


def noisy(rows: int = 10) -> Known:
    """One weight and a random noise scale; `mean` holds a point (w, σ), not a mean."""
    model = linear(1, Normal(0, 2.0), Gaussian(HalfCauchy(1.0)))
    x = normal(rows, 1)
    return Known(model, (x, 1.5 * x + 0.3 * normal(rows, 1, seed=1)), np.array([1.2, 0.4]), np.eye(2))


def noisy_joint(known: Known, w: float, sigma: float) -> float:
    """log p(w) + log p(σ) + Σ log p(y | x, w, σ), by scipy."""
    x, y = (t.numpy()[:, 0] for t in known.data)
    prior = stats.norm.logpdf(w, 0, 2.0) + stats.halfcauchy.logpdf(sigma)
    return float(prior + stats.norm.logpdf(y, w * x, sigma).sum())


def mixture() -> tuple[Drawn, np.ndarray]:
    """A predictive of four Gaussians of sd 0.5 at two points, and their means (draws, points)."""
    means = np.array([[0.0, 1.0], [1.0, 1.5], [3.0, -1.0], [0.5, 0.0]])
    return Drawn(td.Normal(torch.as_tensor(means)[..., None], 0.5 * torch.ones(4, 2, 1, dtype=DOUBLE))), means


def close(got: Any, want: Any, rtol: float = 1e-9) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=rtol, atol=1e-12)


# ---- checks of the target --------------------------------------------------------------------------------------------


def check_density() -> None:
    """The unconstrained density is log joint + log σ."""
    known = noisy()
    target, (w, sigma) = known.target(), known.mean
    u = torch.tensor([[w, math.log(sigma)]], dtype=DOUBLE)
    close(target.log_density(u, target.batch(None)), [noisy_joint(known, w, sigma) + math.log(sigma)])


def check_temperature() -> None:
    """log joint / T + log σ."""
    known = noisy()
    target, (w, sigma) = known.target(3.0), known.mean
    u = torch.tensor([[w, math.log(sigma)]], dtype=DOUBLE)
    close(target.log_density(u, target.batch(None)), [noisy_joint(known, w, sigma) / 3 + math.log(sigma)])


def check_minibatches() -> None:
    """Batches of 4, 4 and 2 rows, weighted by their size, average to the whole."""
    known = noisy()
    target = known.target()
    u = torch.tensor([[0.3, -0.5]], dtype=DOUBLE)
    full = target.log_density(u, target.batch(None))
    rows = [torch.arange(i, min(i + 4, 10)) for i in (0, 4, 8)]
    close(sum(target.log_density(u, target.batch(index)) * len(index) / 10 for index in rows), full)


def check_conjugate() -> None:
    """log joint - log posterior is the evidence, at any weight."""
    known = conjugate()
    target = known.target()
    theta = normal(3, 3)
    posterior = stats.multivariate_normal(known.mean, known.covariance).logpdf(theta.numpy())
    close(target.log_density(theta, target.batch(None)) - torch.as_tensor(posterior), [known.log_evidence] * 3)


def check_free() -> None:
    """Entries that are not free stay where they were, and count in the density."""
    known = noisy()
    target = known.target()
    theta = torch.tensor([[0.7, 0.4]], dtype=DOUBLE)
    part = target.free(torch.tensor([True, False]), theta)
    u = torch.tensor([[1.2]], dtype=DOUBLE)
    close(part.theta(u), [[1.2, 0.4]])
    close(part.log_density(u, part.batch(None)), [noisy_joint(known, 1.2, 0.4) + math.log(0.4)])


# ---- checks of MAP ---------------------------------------------------------------------------------------------------


def check_mode() -> None:
    """With a random σ the mode in weight space: dσ of the joint vanishes there, without the 1/σ of the Jacobian."""
    known = noisy(8)
    posterior = fit(known.model, known.data, to_the_mode(8))
    w, sigma = posterior.point()["weight"].item(), posterior.point()["likelihood.noise"].item()
    for dw, ds in ((1e-4, 0.0), (0.0, 1e-4)):
        slope = noisy_joint(known, w + dw, sigma + ds) - noisy_joint(known, w - dw, sigma - ds)
        assert abs(slope / 2e-4) < 1e-3, f"slope {slope / 2e-4} at the mode"


def check_ridge() -> None:
    known = conjugate()
    close(fit(known.model, known.data, to_the_mode(40)).point()["weight"][0], known.mean, rtol=1e-6)


def check_members() -> None:
    """Members start apart, and draw their batches apart."""
    x = normal(8, 1).float()
    posterior = fit(Model(mlp(1, 3, 1), Normal(0, 1), Gaussian(0.5)), (x, x), 3 * MAP(epochs=1, batch_size=8))
    assert isinstance(posterior, Draws)
    theta = posterior.theta[:, 0]
    assert torch.cdist(theta, theta).fill_diagonal_(1.0).min() > 0.1, "members are alike"


def check_shuffles() -> None:
    """Two epochs of batches of two: SGD at rate one on (w - y)² / 2 keeps the mean of its last batch, so the order shows."""
    y = torch.arange(8, dtype=DOUBLE)[:, None]
    model = linear(1, Normal(0, 1e6), Gaussian(1.0))
    ends: set[float] = set()
    for epochs in range(1, 6):
        method = MAP(epochs=epochs, lr=1.0, batch_size=2, optimizer=torch.optim.SGD, schedule=lambda t: 1.0)
        ends.add(float(fit(model, (torch.ones_like(y), y), method).point()["weight"]))
    assert len(ends) > 1, "every epoch ends with the same batch"


def check_learned() -> None:
    """MAP fits the likelihood's learned number and leaves the prior's alone."""
    x = normal(20, 1)
    model = linear(1, Normal(0, Learned(0.7)), Gaussian(Learned(1.0)))
    got = fit(model, (x, x + 0.1 * normal(20, 1, seed=1)), to_the_mode(20)).sample(1)
    assert got["prior.*.scale"].item() == 0.7, "the prior's scale moved"
    assert got["likelihood.noise"].item() < 0.5, "the noise did not move"


def check_early_stopping() -> None:
    """The weights that come back score as the best epoch did."""
    x, y = normal(30, 6), normal(30, 1, seed=1)
    torch.manual_seed(0)
    model = Model(mlp(6, 30, 1).to(DOUBLE), Normal(0, 1), Gaussian(0.5))
    method = MAP(epochs=60, lr=3e-2, batch_size=24, hold_out=0.2, patience=10)
    posterior = fit(model, (x, y), method)
    view = method.view(Target(model, source((x, y))), model.noise(0, "fit"))
    assert isinstance(posterior, Draws)
    assert view.held is not None
    score = view.log_likelihood(posterior.theta[:, 0], {}, view.held).item() / view.held.size
    close(score, max(posterior.info["held_out"]), rtol=1e-5)


def check_statistics() -> None:
    """Batch norm: the running mean is the posterior's, and the user's module is as it was."""
    net = nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    before = {name: t.clone() for name, t in net.state_dict().items()}
    x = normal(16, 1).float() + 3
    got = fit(Model(net, Normal(0, 1), Gaussian(0.5)), (x, x), MAP(epochs=2, batch_size=16)).sample(1)
    assert all(torch.equal(before[name], t) for name, t in net.state_dict().items()), "the module was written to"
    assert bool((got["1.running_mean"] != 0).all()), "no statistics"


def check_dropout() -> None:
    """Off at prediction: what the layers without it give."""
    net = nn.Sequential(nn.Linear(1, 20), nn.Dropout(0.5), nn.Linear(20, 1))
    model = Model(net, Normal(0, 1), Gaussian(0.5))
    x = normal(4, 1).float()
    params = {name: p.detach()[None] for name, p in net.named_parameters()}
    plain = net[2](net[0](x)).detach()
    assert torch.allclose(model.network.outputs(params, x)[0], plain, atol=1e-6), "dropout is on"


# ---- checks of likelihoods and predictives ---------------------------------------------------------------------------


def check_gaussian() -> None:
    f, y = normal(5, 2), normal(5, 2, seed=1)
    observed = Gaussian(loc=1.0, scale=2.0).observe(f, noise=torch.tensor(0.3, dtype=DOUBLE))
    close(observed.log_prob(y), stats.norm.logpdf(y, 1 + 2 * f.numpy(), 0.6))


def check_heteroscedastic() -> None:
    f, y = normal(5, 2), normal(5, 1, seed=1)
    mean, sd = f.numpy()[:, :1], 1e-6 + np.log1p(np.exp(f.numpy()[:, 1:]))
    close(Heteroscedastic().observe(f).log_prob(y), stats.norm.logpdf(y, mean, sd))


def check_rounded() -> None:
    f, y = normal(5, 2), normal(5, 1, seed=1)
    mean, sd = f.numpy()[:, :1], 2 * (1e-6 + np.log1p(np.exp(f.numpy()[:, 1:])))
    close(
        Heteroscedastic(scale=2.0, rounded=3.0).observe(f).log_prob(y),
        stats.norm.logpdf(y, 2 * mean, np.hypot(sd, 0.75**0.5)),
    )


def check_categorical() -> None:
    f = normal(4, 3)
    want = f.numpy() / 0.25 - np.log(np.exp(f.numpy() / 0.25).sum(1, keepdims=True))
    observed = Categorical().observe(f, noise=torch.tensor(0.5, dtype=DOUBLE))
    close(observed.log_prob(torch.tensor([0, 1, 2, 1])), want[range(4), [0, 1, 2, 1]])


def check_tasks() -> None:
    """Two tasks: the sum of both."""
    f = {"a": normal(5, 1), "b": normal(5, 1, seed=1)}
    y = {"a": normal(5, 1, seed=2), "b": normal(5, 1, seed=3)}
    model = Model(nn.Linear(1, 1, dtype=DOUBLE), Normal(0, 1), MultiTask(a=Gaussian(0.3), b=Gaussian(2.0)))
    observed = model.likelihood.observe(f, **{"a.noise": torch.tensor(0.3), "b.noise": torch.tensor(2.0)})
    got = Drawn(observed).draws.parts  # type: ignore[attr-defined]
    close(sum(got[name].log_prob(y[name]).sum() for name in got), sum_of_tasks(f, y))


def sum_of_tasks(f: dict[str, Tensor], y: dict[str, Tensor]) -> float:
    sd = {"a": float(torch.tensor(0.3)), "b": 2.0}
    return float(sum(stats.norm.logpdf(y[name], f[name], sd[name]).sum() for name in f))


def check_variance() -> None:
    """Var[y] of the mixture = E Var + Var E, with the divisor of a mixture."""
    predictive, means = mixture()
    close(predictive.variance[:, 0], 0.25 + means.var(0))
    close(predictive.epistemic[:, 0], means.var(0))
    close(predictive.aleatoric[:, 0], [0.25, 0.25])


def check_log_prob() -> None:
    predictive, means = mixture()
    y = np.array([0.7, 2.0])
    close(predictive.log_prob(torch.as_tensor(y)[:, None]), np.log(stats.norm.pdf(y, means, 0.5).mean(0)))


def check_quantile() -> None:
    predictive, means = mixture()
    close(stats.norm.cdf(predictive.quantile(0.9)[:, 0].numpy(), means, 0.5).mean(0), [0.9, 0.9])


def check_exact_draws() -> None:
    """4000 exact conjugate draws: predictive mean by z, epistemic variance by chi-square."""
    known, x = conjugate(n=20), normal(5, 3, seed=7)
    predictive = known.posterior(4000, np.random.default_rng(1)).predict(x, draws=None)
    variance = np.einsum("ni,ij,nj->n", x, known.covariance, x)
    within((predictive.mean[:, 0].numpy() - x.numpy() @ known.mean) / np.sqrt(variance / 4000), "mean")
    between(predictive.epistemic[:, 0].numpy() / variance * 4000, stats.chi2(3999), "epistemic")


def check_samples() -> None:
    """4000 samples of the mixture by DKW; they are spread evenly over its parts, so the rate is an upper bound."""
    predictive, means = mixture()
    drawn = predictive.sample(4000)[:, 0, 0]
    assert_law(drawn, lambda y: stats.norm.cdf(y[:, None], means[:, 0], 0.5).mean(1))


def check_entropy() -> None:
    """Mutual information of two labels."""
    p = torch.tensor([[[0.9, 0.1]], [[0.2, 0.8]]], dtype=DOUBLE)  # (draws, points, classes)
    predictive = Drawn(td.Categorical(probs=p))

    def entropy(q: np.ndarray) -> np.ndarray:
        return -(q * np.log(q)).sum(-1)

    close(predictive.total, entropy(p.numpy().mean(0)))
    close(predictive.aleatoric, entropy(p.numpy()).mean(0))


# ---- faults ----------------------------------------------------------------------------------------------------------


def weight_of_one(patch: pytest.MonkeyPatch) -> None:
    batch = Target.batch
    patch.setattr(Target, "batch", lambda self, index: batch(self, index)._replace(weight=1.0))


def weight_of_the_nominal_batch(patch: pytest.MonkeyPatch) -> None:
    """N / 4 for every batch, the last one of two rows included."""
    batch = Target.batch

    def wrong(self: Target, index: Tensor | None) -> Batch:
        right = batch(self, index)
        return right if index is None else right._replace(weight=self.size / 4)

    patch.setattr(Target, "batch", wrong)


def prior_times(factor: float) -> Any:
    log_prob, trained = Independent.log_prob, Prior.trained

    def wrong(self: Prior, u: Tensor) -> Any:
        named, log_density = trained(self, u)
        return named, factor * log_density

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(Independent, "log_prob", lambda self, x, numbers: factor * log_prob(self, x, numbers))
        patch.setattr(Prior, "trained", wrong)

    return plant


def no_jacobian(patch: pytest.MonkeyPatch) -> None:
    constrain = Variable.constrain

    def wrong(self: Variable, *args: Any) -> Part:
        part = constrain(self, *args)
        return Part(part.value, part.log_density - part.log_jacobian, 0.0)

    patch.setattr(Variable, "constrain", wrong)


def tempered_jacobian(patch: pytest.MonkeyPatch) -> None:
    unpack = Prior.unpack

    def wrong(self: Prior, u: Tensor, centred: bool = False) -> Unpacked:
        return unpack(self, u, centred)._replace(log_jacobian=0.0)  # so that nothing puts it back

    patch.setattr(Prior, "unpack", wrong)


def no_temperature(patch: pytest.MonkeyPatch) -> None:
    evaluate = Target.tempered
    patch.setattr(Target, "tempered", lambda self, *args, **kw: evaluate(replace(self, temperature=1.0), *args, **kw))


def jacobian_in_map(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Target, u: Tensor, batch: Batch, statistics: Params) -> tuple[Tensor, Params]:
        return self.tempered(u, batch, statistics, jacobian=True, training=True)

    patch.setattr(Target, "log_posterior", wrong)


def mean_reduction(patch: pytest.MonkeyPatch) -> None:
    likelihood = Model.log_likelihood
    patch.setattr(
        Model, "log_likelihood", lambda self, p, x, y, training=False: likelihood(self, p, x, y, training) / len(y)
    )


def fixed_entries_at_zero(patch: pytest.MonkeyPatch) -> None:
    free = Target.free

    def wrong(self: Target, mask: Tensor, theta: Tensor) -> Target:
        right = free(self, mask, theta)
        return right if right.rest is None else replace(right, rest=torch.zeros_like(right.rest))

    patch.setattr(Target, "free", wrong)


def precision_for_scale(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Normal, "distribution", lambda self, loc, scale: td.Normal(loc, scale**-2))


def one_start(patch: pytest.MonkeyPatch) -> None:
    start = map_module.from_network

    def wrong(model: Model, chains: Start, noise: Noise) -> Ends:
        ends = start(model, chains, noise)
        return Ends(ends.theta[:1].expand_as(ends.theta).clone(), ends.statistics)

    patch.setattr(map_module, "from_network", wrong)


def one_shuffle(patch: pytest.MonkeyPatch) -> None:
    at = Noise.at
    patch.setattr(Noise, "at", lambda self, *key: at(self, *(("epoch", 0) if key[0] == "epoch" else key)))


def everything_moves(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MAP, "moves", lambda self, prior, only=None: prior.mask(lambda variable: True))


def nothing_learned_moves(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MAP, "moves", lambda self, prior, only=None: prior.mask(lambda variable: variable.random))


def last_epoch(patch: pytest.MonkeyPatch) -> None:
    watch = MAP.watch

    def wrong(self: MAP, target: Target, state: Any, loss: Tensor) -> Any:
        after, info = watch(self, target, state, loss)
        kept = (after.u.detach().clone(), after.best.kept[1])
        return after._replace(best=after.best._replace(kept=kept)), info

    patch.setattr(MAP, "watch", wrong)


def statistics_lost(patch: pytest.MonkeyPatch) -> None:
    step = MAP.step

    def wrong(self: MAP, target: Target, state: Any, batch: Batch, noise: Noise) -> Any:
        after, info = step(self, target, state, batch, noise)
        return after._replace(statistics=state.statistics), info

    patch.setattr(MAP, "step", wrong)


def always_training(patch: pytest.MonkeyPatch) -> None:
    call = Network.call
    patch.setattr(Network, "call", lambda self, params, x, training=False: call(self, params, x, True))


def variance_for_sd(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Gaussian, f: Tensor, noise: Tensor) -> td.Distribution:
        return td.Normal(self.loc + self.scale * f, (self.scale * noise.square()).expand_as(f))

    patch.setattr(Gaussian, "observe", wrong)


def noise_in_standard_units(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Gaussian, f: Tensor, noise: Tensor) -> td.Distribution:
        return td.Normal(self.loc + self.scale * f, noise.expand_as(f))

    patch.setattr(Gaussian, "observe", wrong)


class WithoutLogSigma(td.Normal):
    def log_prob(self, value: Tensor) -> Tensor:
        return super().log_prob(value) + self.scale.log()


def log_sigma_dropped(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Heteroscedastic, f: Tensor) -> td.Distribution:
        mean, raw = f.chunk(2, dim=-1)
        return WithoutLogSigma(mean, 1e-6 + softplus(raw))

    patch.setattr(Heteroscedastic, "observe", wrong)


def scale_for_variance(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Heteroscedastic, f: Tensor) -> td.Distribution:
        mean, raw = f.chunk(2, dim=-1)
        return td.Normal(mean, (1e-6 + softplus(raw)).sqrt())

    patch.setattr(Heteroscedastic, "observe", wrong)


def rounding_in_the_wrong_units(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Heteroscedastic, f: Tensor) -> td.Distribution:
        mean, raw = f.chunk(2, dim=-1)
        return td.Normal(
            self.scale * mean, self.scale * ((1e-6 + softplus(raw)).square() + self.rounded**2 / 12).sqrt()
        )

    patch.setattr(Heteroscedastic, "observe", wrong)


def noise_for_its_square(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Categorical, "observe", lambda self, f, noise: td.Categorical(logits=f / noise))


def one_noise_for_all_tasks(patch: pytest.MonkeyPatch) -> None:
    observe = MultiTask.observe
    patch.setattr(
        MultiTask, "observe", lambda self, f, **n: observe(self, f, **dict.fromkeys(n, next(iter(n.values()))))
    )


def bessel(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Drawn, "epistemic", property(lambda self: self._means().var(0)))


def variance_of_the_mean(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Drawn, "variance", property(lambda self: self.epistemic))


def mean_of_logs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Drawn, "log_prob", lambda self, y: self.draws.log_prob(y).mean(0)[:, 0])


def quantile_of_the_mean(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Drawn, q: float) -> Tensor:
        return td.Normal(self.mean, self.aleatoric.sqrt()).icdf(torch.tensor(q, dtype=self.mean.dtype))

    patch.setattr(Drawn, "quantile", wrong)


def mean_of_quantiles(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Drawn, "quantile", lambda self, q: self.draws.icdf(torch.tensor(q, dtype=self.mean.dtype)).mean(0))


def half_of_the_draws(patch: pytest.MonkeyPatch) -> None:
    """Every draw moved half way to the first: too narrow, and off."""
    sample = Draws.sample

    def wrong(self: Draws, n: int, seed: int = 0) -> Params:
        return {name: 0.5 * (x + x[:1]) for name, x in sample(self, n, seed).items()}

    patch.setattr(Draws, "sample", wrong)


def samples_without_noise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Drawn, "sample", lambda self, n, seed=0: self.draws.mean.repeat(n // 4, 1, 1))


def samples_of_one_draw(patch: pytest.MonkeyPatch) -> None:
    sample = Drawn.sample
    patch.setattr(
        Drawn,
        "sample",
        lambda self, n, seed=0: sample(Drawn(td.Normal(self.draws.mean[:1], self.draws.stddev[:1])), n, seed),
    )


def entropy_of_the_mean(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Drawn, "aleatoric", property(lambda self: td.Categorical(probs=self.mean).entropy()))


FAULTS = [
    Fault("N/B dropped", weight_of_one, check_minibatches),
    Fault("ragged last batch mis-weighted", weight_of_the_nominal_batch, check_minibatches),
    Fault("prior counted twice", prior_times(2.0), check_conjugate),
    Fault("prior dropped", prior_times(0.0), check_conjugate),
    Fault("prior dropped, seen by MAP", prior_times(0.0), check_ridge),
    Fault("log-sigma Jacobian forgotten", no_jacobian, check_density),
    Fault("Jacobian tempered", tempered_jacobian, check_temperature),
    Fault("temperature ignored", no_temperature, check_temperature),
    Fault("Jacobian included in MAP", jacobian_in_map, check_mode),
    Fault("mean instead of sum reduction", mean_reduction, check_conjugate),
    Fault("fixed entries at zero", fixed_entries_at_zero, check_free),
    Fault("precision and variance swapped", precision_for_scale, check_conjugate),
    Fault("one start for all members", one_start, check_members),
    Fault("shuffle replayed every epoch", one_shuffle, check_shuffles),
    Fault("MAP trains the prior's learned scale", everything_moves, check_learned),
    Fault("MAP does not train the noise", nothing_learned_moves, check_learned),
    Fault("early stopping returns the last epoch", last_epoch, check_early_stopping),
    Fault("batch statistics lost", statistics_lost, check_statistics),
    Fault("dropout on at prediction", always_training, check_dropout),
    Fault("noise variance used as sd", variance_for_sd, check_gaussian),
    Fault("noise left in standard units", noise_in_standard_units, check_gaussian),
    Fault("log sigma dropped", log_sigma_dropped, check_heteroscedastic),
    Fault("softplus read as a variance", scale_for_variance, check_heteroscedastic),
    Fault("rounding in the network's units", rounding_in_the_wrong_units, check_rounded),
    Fault("task noise not squared", noise_for_its_square, check_categorical),
    Fault("one noise for all tasks", one_noise_for_all_tasks, check_tasks),
    Fault("epistemic variance with Bessel's correction", bessel, check_variance),
    Fault("variance of the mean reported as predictive", variance_of_the_mean, check_variance),
    Fault("log density averaged in log space", mean_of_logs, check_log_prob),
    Fault("quantile of the mean, not of the mixture", quantile_of_the_mean, check_quantile),
    Fault("mean of the quantiles", mean_of_quantiles, check_quantile),
    Fault("draws shrunk", half_of_the_draws, check_exact_draws),
    Fault("samples without observation noise", samples_without_noise, check_samples),
    Fault("samples of one draw only", samples_of_one_draw, check_samples),
    Fault("entropy of the mean as aleatoric", entropy_of_the_mean, check_entropy),
]
