"""Faults in predictives, posteriors, files, scores, sources and calls of the network, each with the check that sees it.

A check is exact arithmetic in double precision, unless it says otherwise; it takes well under two seconds.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chance import assert_law, between, within
from fault import Fault
from scipy import stats
from scipy.special import logsumexp
from targets import DOUBLE, linear
from torch import Tensor, nn
from torch import distributions as td
from torch.utils.data import DataLoader, TensorDataset

from nescio import FileError, load
from nescio import evaluation as scores
from nescio import model as model_module
from nescio import network as network_module
from nescio.data import source as source_module
from nescio.densities import Joint
from nescio.laws import HalfNormal, Laplace, Normal
from nescio.laws.prior import Prior
from nescio.likelihoods import Gaussian
from nescio.model import Model
from nescio.nets import mlp
from nescio.network import Network, Params
from nescio.noise import Noise
from nescio.posterior import Draws, Mixture
from nescio.posterior import draws as draws_module
from nescio.predictive import Drawn, Predictive


def close(got: Any, want: Any, rtol: float = 1e-9) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=rtol, atol=1e-12)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.as_tensor(np.random.default_rng(seed).normal(size=shape))


def numbered(chains: int, draws: int, first: int = 0) -> Draws:
    """Draw d of chain c is the number 10 c + d + 100 `first`; its chain's statistics are c, its log density falls."""
    theta = (100 * first + 10 * torch.arange(chains)[:, None] + torch.arange(draws)).to(DOUBLE)
    return Draws(linear(1, Normal(0, 1), Gaussian(0.1)), theta[..., None], -theta, {"buffer": torch.arange(chains)}, {})


def gaussians() -> tuple[Drawn, np.ndarray, np.ndarray]:
    """Three draws with their own means and sds at two points."""
    means, sds = np.array([[0.0, 5.0], [2.0, -1.0], [-3.0, 0.0]]), np.array([[0.2, 1.0], [2.0, 0.1], [0.5, 3.0]])
    return Drawn(td.Normal(torch.tensor(means)[..., None], torch.tensor(sds)[..., None])), means, sds


def labels() -> tuple[Drawn, Tensor]:
    """Means (0.6, 0.3, 0.1) and (0.1, 0.8, 0.1) of three classes, the first right and the second wrong."""
    p = [[[0.8, 0.1, 0.1], [0.1, 0.9, 0.0]], [[0.4, 0.5, 0.1], [0.1, 0.7, 0.2]]]
    return Drawn(td.Categorical(probs=torch.tensor(p, dtype=DOUBLE))), torch.tensor([0, 0])


# ---- checks of predictives -------------------------------------------------------------------------------------------


def check_interval() -> None:
    """Both tails of the central 90 % hold 5 %."""
    predictive, means, sds = gaussians()
    low, high = (stats.norm.cdf(bound[:, 0].numpy(), means, sds).mean(0) for bound in predictive.interval(0.9))
    close(low, [0.05, 0.05], rtol=1e-6)
    close(high, [0.95, 0.95], rtol=1e-6)


def check_separated() -> None:
    """Components a thousand sds apart: the level at the quantile to 1e-6."""
    means, sds = np.array([[-10.0], [10.0], [0.0]]), 0.01
    predictive = Drawn(td.Normal(torch.tensor(means)[..., None], torch.tensor(sds, dtype=DOUBLE)))
    for q in (0.01, 0.2, 0.6, 0.99):
        level = stats.norm.cdf(predictive.quantile(q)[:, 0].numpy(), means, sds).mean(0)
        assert abs(level[0] - q) < 1e-6, f"{level[0]} for {q}"


def check_law_of_samples() -> None:
    """20 000 samples by DKW, every draw with its own sd."""
    predictive, means, sds = gaussians()
    drawn = predictive.sample(20_000)[..., 0]
    for point in range(2):
        law = lambda y, p=point: stats.norm.cdf(y[:, None], means[:, p], sds[:, p]).mean(1)  # noqa: E731
        assert_law(drawn[:, point], law)


def check_coherence() -> None:
    """A sample is one draw at all points; every draw serves as often as any other."""
    level = torch.arange(5, dtype=DOUBLE).view(5, 1, 1).expand(5, 4, 1)
    drawn = Drawn(td.Normal(level, torch.tensor(1e-9, dtype=DOUBLE))).sample(15).round()
    assert bool((drawn == drawn[:, :1]).all()), "points from different draws"
    assert torch.bincount(drawn[:, 0, 0].long(), minlength=5).tolist() == [3] * 5, "uneven"


def check_tasks() -> None:
    """log (1/S) Σ_s Π_tasks p: the tasks share their draws."""
    means = {"a": np.array([[0.0], [3.0]]), "b": np.array([[1.0], [-2.0]])}
    one = torch.ones(2, 1, 1, dtype=DOUBLE)
    joint = Joint({name: td.Normal(torch.tensor(m)[..., None], one) for name, m in means.items()})
    got = Drawn(joint).log_prob({"a": one[0] * 0.5, "b": one[0] * 0.2})
    each = stats.norm.logpdf(0.5, means["a"]) + stats.norm.logpdf(0.2, means["b"])
    close(got, logsumexp(each, axis=0) - math.log(2))


def check_noise_of_tasks() -> None:
    """Given the weights, tasks are independent: r of 1000 pairs has the sd 1 / sqrt(1000)."""
    one = td.Normal(torch.zeros(2, 1, 1, dtype=DOUBLE), torch.ones(2, 1, 1, dtype=DOUBLE))
    drawn = Drawn(Joint({"a": one, "b": one})).sample(1000)
    r = torch.corrcoef(torch.stack([drawn["a"].flatten(), drawn["b"].flatten()]))[0, 1].item()
    within(r * math.sqrt(1000), "correlation")


def check_yes_and_no() -> None:
    """Two draws at 0.9 and 0.1, in nats."""
    predictive = Drawn(td.Bernoulli(probs=torch.tensor([[[0.9]], [[0.1]]], dtype=DOUBLE)))
    close(predictive.total, [[math.log(2)]])
    close(predictive.aleatoric, [[-(0.9 * math.log(0.9) + 0.1 * math.log(0.1))]])


def check_noise_of_each_draw() -> None:
    """A random noise scale: the predictive of every draw has its own."""
    model = linear(1, Normal(0, 1), Gaussian(HalfNormal(1.0)))
    theta = torch.tensor([[1.0, 0.1], [2.0, 0.7]], dtype=DOUBLE)
    x = torch.tensor([[1.0], [3.0], [5.0]], dtype=DOUBLE)
    close(model.observed(model.named(theta), x).stddev[..., 0], [[0.1] * 3, [0.7] * 3])


def check_prior_predictive() -> None:
    """w·x with w ~ N(0, 2²) at |x| = 1: variance 4 by chi-square, 1000 draws."""
    model = linear(1, Normal(0, 2.0), Gaussian(0.1))
    predictive = model.prior_predictive(torch.ones(1, 1, dtype=DOUBLE), draws=1000)
    between(predictive.epistemic.item() / 4 * 1000, stats.chi2(999), "variance")
    within(predictive.mean.item() / 2 * math.sqrt(1000), "mean")


# ---- checks of posteriors and files ----------------------------------------------------------------------------------


def check_thinning() -> None:
    drawn = [int(w) for w in numbered(3, 4).sample(6)["weight"].flatten()]
    assert drawn == [1, 3, 11, 13, 21, 23], drawn


def check_chain_statistics() -> None:
    got = numbered(3, 4).sample(6)
    assert got["buffer"].tolist() == (got["weight"].flatten() // 10).long().tolist(), got["buffer"]


def check_all_draws() -> None:
    """None asks for all of them, beyond the usual hundred."""
    predictive = numbered(30, 5).predict(torch.ones(1, 1, dtype=DOUBLE), draws=None)
    assert len(predictive.draws.mean) == 150, "some were left out"  # type: ignore[attr-defined]


def check_point() -> None:
    posterior = numbered(3, 4)
    posterior.log_joint[1, 2] = 99.0
    point = posterior.point()
    assert point["weight"].item() == 12, point["weight"]
    assert point["buffer"].item() == 1, point["buffer"]


def check_ends() -> None:
    assert numbered(3, 4).ends().theta.flatten().tolist() == [3, 13, 23], "not the last draws"


def check_shares() -> None:
    mixture = Mixture([numbered(1, 4), numbered(1, 4, first=1), numbered(1, 4, first=2)], {})
    drawn = [int(w) // 100 for w in mixture.sample(7)["weight"].flatten()]
    assert drawn == [0, 0, 0, 1, 1, 2, 2], drawn


def check_round_trip() -> None:
    """Bit for bit, values and statistics."""
    theta, statistics = normal(2, 3, 4), {"1.running_mean": normal(2, 5, seed=1)}
    model = linear(4, Normal(0, 1), Gaussian(HalfNormal(1.0)))
    posterior = Draws(model, torch.cat([theta, theta[..., :1].abs()], -1), normal(2, 3), statistics, {"seed": 3})
    with tempfile.TemporaryDirectory() as folder:
        posterior.save(Path(folder) / "p")
        again = load(Path(folder) / "p", model)
    assert isinstance(again, Draws)
    assert torch.equal(again.theta, posterior.theta), "other values"
    assert torch.equal(again.log_joint, posterior.log_joint), "other densities"
    assert set(again.statistics) == set(statistics), "statistics lost"
    assert torch.equal(again.statistics["1.running_mean"], statistics["1.running_mean"]), "other statistics"
    assert again.info == {"seed": 3}, "another record"


def check_refusal() -> None:
    """The same shapes under another law, or another activation: not the same posterior."""

    def model(law: Any, activation: Callable[[], nn.Module]) -> Model:
        return Model(mlp(1, 2, 1, activation=activation).to(DOUBLE), law, Gaussian(0.1))

    own = model(Normal(0, 1), nn.Tanh)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p"
        Draws(own, normal(1, 1, 7), normal(1, 1), {}, {}).save(path)
        load(path, own)
        for law, activation in ((Laplace(0, 1), nn.Tanh), (Normal(0, 2), nn.Tanh), (Normal(0, 1), nn.ReLU)):
            try:
                load(path, model(law, activation))
            except FileError:
                continue
            raise AssertionError("a foreign posterior was accepted")


# ---- checks of scores, sources and calls -----------------------------------------------------------------------------


def check_brier() -> None:
    predictive, y = labels()
    close(scores.brier(predictive, y), (0.4**2 + 0.3**2 + 0.1**2 + 0.9**2 + 0.8**2 + 0.1**2) / 2)


def check_nll() -> None:
    """Of the mixture, not of a Gaussian with its moments."""
    predictive, means, sds = gaussians()
    y = np.array([1.0, 0.3])
    want = -np.log(stats.norm.pdf(y, means, sds).mean(0)).mean()
    close(scores.nll(predictive, torch.tensor(y)[:, None]), want)


def check_rmse() -> None:
    predictive, means, _ = gaussians()
    close(scores.rmse(predictive, torch.zeros(2, 1, dtype=DOUBLE)), math.sqrt((means.mean(0) ** 2).mean()))


def check_coverage() -> None:
    """Standard Gaussian: ±1.64 lie in the central 90 %, ±1.65 and beyond do not."""
    predictive = Drawn(td.Normal(torch.zeros(1, 5, 1, dtype=DOUBLE), torch.ones(1, 5, 1, dtype=DOUBLE)))
    y = torch.tensor([-9.0, -1.64, 0.0, 1.65, 9.0], dtype=DOUBLE)[:, None]
    close(scores.coverage(predictive, y), 2 / 5)


def check_loader() -> None:
    x = torch.arange(6.0)[:, None]
    given = source_module.source(DataLoader(TensorDataset(x, x), batch_size=4, shuffle=True, drop_last=True))
    assert given.batch_size == 4, "the loader's batch size is lost"
    assert torch.equal(given.rows(None)[0], x), "rows are lost or out of order"


def check_finite() -> None:
    try:
        source_module.source((torch.ones(2, 1), torch.tensor([[1.0], [math.nan]])))
    except ValueError as error:
        assert "(1, 0)" in str(error), error
    else:
        raise AssertionError("NaN was let in")


def check_chunks() -> None:
    """Small chunks of draws and points give what one call for each draw gives."""
    net = Network(mlp(2, 3, 1).to(DOUBLE))
    params = {name: normal(5, *p.shape, seed=i) for i, (name, p) in enumerate(net.weights().items())}
    x, before = normal(7, 2, seed=9), network_module.BUDGET
    want = torch.stack([net.call({name: p[i] for name, p in params.items()}, x) for i in range(5)]).detach()
    try:
        for budget in (1, 1000, before):
            network_module.BUDGET = budget
            got = net.outputs(params, x).detach()
            assert got.shape == want.shape, f"shape {tuple(got.shape)}"
            close(got, want)
    finally:
        network_module.BUDGET = before


def check_restarts() -> None:
    net = Network(mlp(2, 20, 1))
    first, again, other = (net.restarted(Noise(0, (i,)))[0]["0.weight"] for i in (0, 0, 1))
    assert torch.equal(first, again), "not keyed"
    assert not torch.equal(first, other), "all members alike"


# ---- faults ----------------------------------------------------------------------------------------------------------


def one_sided(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Predictive, "interval", lambda self, level=0.9: (self.quantile(1 - level), self.quantile(level)))


def gaussian_quantile(patch: pytest.MonkeyPatch) -> None:
    """Of the Gaussian that has the mixture's mean and variance."""
    wrong = lambda self, q: td.Normal(self.mean, self.std).icdf(torch.tensor(q, dtype=self.mean.dtype))  # noqa: E731
    patch.setattr(Drawn, "quantile", wrong)


def median_draws_sd(patch: pytest.MonkeyPatch) -> None:
    sample = Drawn.sample

    def wrong(self: Drawn, n: int, seed: int = 0) -> Any:
        middle = self.draws.stddev.median(0, keepdim=True).values.expand_as(self.draws.mean)
        return sample(Drawn(td.Normal(self.draws.mean, middle)), n, seed)

    patch.setattr(Drawn, "sample", wrong)


def a_draw_for_every_point(patch: pytest.MonkeyPatch) -> None:
    sample = Drawn.sample

    def wrong(self: Drawn, n: int, seed: int = 0) -> Any:
        drawn = sample(self, n, seed)
        return torch.stack([drawn[:, i].roll(i, 0) for i in range(drawn.shape[1])], 1)

    patch.setattr(Drawn, "sample", wrong)


def draws_by_lot(patch: pytest.MonkeyPatch) -> None:
    """With replacement: right on average, and noisier than it has to be."""

    def wrong(self: Drawn, n: int, seed: int = 0) -> Any:
        chosen = Noise(seed).integers(0, self.draws.batch_shape[0], n)
        return self.draws.sample()[chosen]

    patch.setattr(Drawn, "sample", wrong)


def tasks_mixed_apart(patch: pytest.MonkeyPatch) -> None:
    log_prob = Drawn.log_prob

    def wrong(self: Drawn, y: Any) -> Tensor:
        if isinstance(self.draws, Joint):
            return torch.stack([self[name].log_prob(y[name]) for name in self.draws.parts]).sum(0)
        return log_prob(self, y)

    patch.setattr(Drawn, "log_prob", wrong)


def one_noise_for_all_tasks(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Drawn, n: int, seed: int = 0) -> Any:
        parts = self.draws.parts if isinstance(self.draws, Joint) else {}
        return {task: Drawn(part).sample(n, seed) for task, part in parts.items()}

    check = Drawn.sample
    patch.setattr(
        Drawn, "sample", lambda self, n, seed=0: (wrong if isinstance(self.draws, Joint) else check)(self, n, seed)
    )


def entropy_in_bits(patch: pytest.MonkeyPatch) -> None:
    entropy = td.Bernoulli.entropy
    patch.setattr(td.Bernoulli, "entropy", lambda self: entropy(self) / math.log(2))


def noise_of_the_first_draw(patch: pytest.MonkeyPatch) -> None:
    between = model_module.between
    wrong = lambda number, f, name: between(number[:1].expand_as(number), f, name)  # noqa: E731
    patch.setattr(model_module, "between", wrong)


def one_prior_draw(patch: pytest.MonkeyPatch) -> None:
    draw = Prior.draw
    patch.setattr(Prior, "draw", lambda self, noise: draw(self, replace(noise, key=())))


def thinned_by(function: Callable[[int, int], Tensor]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(draws_module, "evenly", function)


def first_chain_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(draws_module, "spread_evenly", lambda n, bins: [n] + [0] * (bins - 1))


def statistics_of_another_chain(patch: pytest.MonkeyPatch) -> None:
    sample = Draws.sample

    def wrong(self: Draws, n: int, seed: int = 0) -> Params:
        moved = {name: b.roll(1, 0) for name, b in self.statistics.items()}
        return sample(Draws(self.model, self.theta, self.log_joint, moved, self.info), n, seed)

    patch.setattr(Draws, "sample", wrong)


def a_hundred_at_most(patch: pytest.MonkeyPatch) -> None:
    predict = Draws.predict
    patch.setattr(Draws, "predict", lambda self, x, draws=100, seed=0: predict(self, x, 100, seed))


def last_draw_as_point(patch: pytest.MonkeyPatch) -> None:
    wrong = lambda self: {name: value[-1] for name, value in self.sample(self.count()).items()}  # noqa: E731
    patch.setattr(Draws, "point", wrong)


def first_draws_as_ends(patch: pytest.MonkeyPatch) -> None:
    ends = Draws.ends
    patch.setattr(Draws, "ends", lambda self: ends(self)._replace(theta=self.theta[:, 0]))


def first_part_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Mixture, "sample", lambda self, n, seed=0: self.parts[0].sample(n, seed))


def stored_as(change: Callable[[str, Tensor], Tensor | None]) -> Callable[[pytest.MonkeyPatch], None]:
    tensors = Draws.tensors

    def wrong(self: Draws) -> dict[str, Tensor]:
        changed = {name: change(name, t) for name, t in tensors(self).items()}
        return {name: t for name, t in changed.items() if t is not None}

    return lambda patch: patch.setattr(Draws, "tensors", wrong)


def described_without(*keys: str) -> Callable[[pytest.MonkeyPatch], None]:
    describe = Model.describe
    wrong = lambda self: {key: value for key, value in describe(self).items() if key not in keys}  # noqa: E731
    return lambda patch: patch.setattr(Model, "describe", wrong)


def brier_averaged(patch: pytest.MonkeyPatch) -> None:
    def wrong(predictive: Predictive, y: Tensor) -> float:
        truth = nn.functional.one_hot(y, predictive.mean.shape[-1])
        return float((predictive.mean - truth).square().mean())

    patch.setattr(scores, "brier", wrong)


def brier_of_the_true_class(patch: pytest.MonkeyPatch) -> None:
    wrong = lambda p, y: float((1 - p.mean.gather(-1, y[..., None])).square().mean())  # noqa: E731
    patch.setattr(scores, "brier", wrong)


def nll_of_the_moments(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scores, "nll", lambda p, y: -float(td.Normal(p.mean, p.std).log_prob(y).mean()))


def mean_absolute_error(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scores, "rmse", lambda p, y: float((p.mean - y).abs().mean()))


def upper_bound_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scores, "coverage", lambda p, y, level=0.9: float((y <= p.interval(level)[1]).double().mean()))


def loader_read_as_it_comes(patch: pytest.MonkeyPatch) -> None:
    source = source_module.source
    wrong = lambda data: source(source_module.gathered(data) if isinstance(data, DataLoader) else data)  # noqa: E731
    patch.setattr(source_module, "source", wrong)


def holes_let_in(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(source_module, "check_finite", lambda tree, what: None)


def first_draw_of_every_chunk(patch: pytest.MonkeyPatch) -> None:
    stacked = Network.stacked

    def wrong(self: Network, params: Params, x: Any, vector: bool) -> Any:
        return stacked(self, {name: p[:1].expand_as(p) for name, p in params.items()}, x, vector)

    patch.setattr(Network, "stacked", wrong)


def ragged_chunk_lost(patch: pytest.MonkeyPatch) -> None:
    """A last chunk of one point is taken for nothing."""
    stacked = Network.stacked

    def wrong(self: Network, params: Params, x: Any, vector: bool) -> Any:
        f = stacked(self, params, x, vector)
        return f if len(x) > 1 else f[:, :0]

    patch.setattr(Network, "stacked", wrong)


def unkeyed_restart(patch: pytest.MonkeyPatch) -> None:
    restarted = Network.restarted
    patch.setattr(Network, "restarted", lambda self, noise: restarted(self, replace(noise, key=())))


FAULTS = [
    Fault("interval with its level in each tail", one_sided, check_interval),
    Fault("quantile of a Gaussian with the mixture's moments", gaussian_quantile, check_separated),
    Fault("samples with one sd for all draws", median_draws_sd, check_law_of_samples),
    Fault("a sample's points from different draws", a_draw_for_every_point, check_coherence),
    Fault("samples choose their draws with replacement", draws_by_lot, check_coherence),
    Fault("tasks mixed each by itself", tasks_mixed_apart, check_tasks),
    Fault("one sampling noise for all tasks", one_noise_for_all_tasks, check_noise_of_tasks),
    Fault("Bernoulli entropy in bits", entropy_in_bits, check_yes_and_no),
    Fault("noise scale of the first draw for all", noise_of_the_first_draw, check_noise_of_each_draw),
    Fault("all prior draws alike", one_prior_draw, check_prior_predictive),
    Fault("thinning takes the first chain only", first_chain_only, check_thinning),
    Fault("thinning takes the first draws", thinned_by(lambda count, wanted: torch.arange(wanted)), check_thinning),
    Fault("statistics of another chain", statistics_of_another_chain, check_chain_statistics),
    Fault("a hundred draws when all are asked for", a_hundred_at_most, check_all_draws),
    Fault("point is the last draw", last_draw_as_point, check_point),
    Fault("the next method starts at the first draws", first_draws_as_ends, check_ends),
    Fault("mixture samples its first part only", first_part_only, check_shares),
    Fault("stored in single precision", stored_as(lambda name, t: t.float().to(t.dtype)), check_round_trip),
    Fault("statistics not stored", stored_as(lambda name, t: None if "stat" in name else t), check_round_trip),
    Fault("load checks no model", described_without("net", "shapes", "prior", "likelihood"), check_refusal),
    Fault("load checks shapes only", described_without("net", "prior", "likelihood"), check_refusal),
    Fault("load checks no prior", described_without("prior"), check_refusal),
    Fault("Brier score averaged over classes", brier_averaged, check_brier),
    Fault("Brier score of the true class alone", brier_of_the_true_class, check_brier),
    Fault("nll of the mixture's moments", nll_of_the_moments, check_nll),
    Fault("mean absolute error for the root mean square", mean_absolute_error, check_rmse),
    Fault("coverage of one bound", upper_bound_only, check_coverage),
    Fault("a loader's own order and dropped rows", loader_read_as_it_comes, check_loader),
    Fault("NaN let into the data", holes_let_in, check_finite),
    Fault("first draw of a chunk for all", first_draw_of_every_chunk, check_chunks),
    Fault("last chunk of points lost", ragged_chunk_lost, check_chunks),
    Fault("restarts without a key", unkeyed_restart, check_restarts),
]
