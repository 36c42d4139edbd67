"""Dense outputs: the segmenter, missing labels, and total = aleatoric + epistemic per pixel, step and output, for every posterior."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from chance import between, within
from scipy import stats
from targets import DOUBLE
from torch import Tensor, nn
from torch import distributions as td

from nescio import InputError, Model, UnsupportedError, fit
from nescio.data import padded
from nescio.infer import HMC, MAP, VI, Laplace, Method
from nescio.infer.curvature import diag, full, kfac
from nescio.infer.families import BernoulliDropout, MeanField, NetDropout
from nescio.laws import Learned, Normal
from nescio.likelihoods import Bernoulli, Categorical, Gaussian, Heteroscedastic, Likelihood, Masked, MultiTask
from nescio.likelihoods.masked import PartlyNormal
from nescio.nets import lstm_classifier, mlp, segmenter
from nescio.noise import Noise
from nescio.predictive import Drawn

GAP = -1.0  # what stands for a missing number
VOID = 9  # ... for a missing class


# ---- missing labels --------------------------------------------------------------------------------------------------


def rows(n: int = 12) -> tuple[Tensor, Tensor]:
    x = Noise(0).to(torch.device("cpu"), DOUBLE).normal(n, 2)
    return x, torch.stack([x[:, 0], -x[:, 1]], 1)


@pytest.mark.parametrize("likelihood", [Gaussian(0.3), Heteroscedastic(), Bernoulli()], ids=lambda v: type(v).__name__)
def test_missing_numbers_have_no_density(likelihood: Likelihood) -> None:
    f = Noise(1).to(torch.device("cpu"), DOUBLE).normal(3, 4, 4 if isinstance(likelihood, Heteroscedastic) else 2)
    numbers = {name: torch.tensor(0.3, dtype=DOUBLE) for name in likelihood.numbers()}
    y = torch.tensor([[1.0, 0.0], [GAP, 1.0], [GAP, GAP], [0.0, GAP]], dtype=DOUBLE)
    plain, partly = likelihood.observe(f, **numbers), Masked(likelihood, GAP).observe(f, **numbers)
    known = y != GAP
    want = torch.where(known, plain.log_prob(torch.where(known, y, 0.0)), 0.0)
    torch.testing.assert_close(partly.log_prob(y), want)
    torch.testing.assert_close(partly.mean, plain.mean)


def test_a_fit_to_missing_labels_is_a_fit_to_the_others() -> None:
    """Exact: the posterior of two independent outputs, the second labelled in half of the rows, is that of each by itself."""
    x, y = rows()
    y[::2, 1] = GAP
    both = Model(nn.Linear(2, 2, bias=False, dtype=DOUBLE), Normal(0, 1), Masked(Gaussian(0.5), GAP))
    posterior = fit(both, (x, y), MAP(epochs=1) >> Laplace(full))
    for output, own in ((0, slice(None)), (1, slice(1, None, 2))):
        precision = np.eye(2) + x[own].T.numpy() @ x[own].numpy() / 0.25
        spread = posterior.linearize().predict(x).epistemic[:, output]  # type: ignore[attr-defined]
        exact = np.einsum("ni,ij,nj->n", x, np.linalg.inv(precision), x)
        if isinstance(posterior.linearize().predict(x), Drawn):  # type: ignore[attr-defined]
            draws = 100
            between(spread.numpy() / exact * draws, stats.chi2(draws - 1))
        else:
            np.testing.assert_allclose(spread, exact, rtol=1e-6)


@pytest.mark.parametrize("samples", [None, 4])
@pytest.mark.parametrize("structure", [full, kfac, diag], ids=repr)
def test_missing_labels_have_no_curvature(structure: object, samples: int | None) -> None:
    """Rows whose second output is missing, against a network without it: the same precision of the first output's weights; the second's
    is the prior's."""
    x, y = rows()
    y[:, 1] = GAP
    model = Model(nn.Linear(2, 2, bias=False, dtype=DOUBLE), Normal(0, 2), Masked(Gaussian(0.5), GAP))
    posterior = fit(model, (x, y), Laplace(structure, samples=samples))  # type: ignore[arg-type]
    drawn = posterior.sample(2000)["weight"]
    if (
        structure is not kfac
    ):  # Kronecker factors share one curvature of outputs: they cannot say it of some rows only, but of all
        sd = drawn[:, 1].std(0)
        within((sd / 2.0 - 1) * math.sqrt(2 * 2000), "sd")
    assert bool((drawn[:, 0].std(0) < 0.5).all())


def test_an_image_without_labels_is_refused() -> None:
    model = Model(nn.Conv2d(1, 3, 1), Normal(0, 1), Masked(Categorical(axis=-3), VOID))
    x, y = torch.zeros(3, 1, 2, 2), torch.zeros(3, 2, 2, dtype=torch.long)
    y[1] = VOID
    with pytest.raises(
        InputError, match="every row must have at least one label; got none in 1 rows, the first of them 1"
    ):
        fit(model, (x, y), MAP(epochs=1))
    y[1, 0, 0] = 1
    fit(model, (x, y), MAP(epochs=1))
    y[0, 0, 0] = 5
    with pytest.raises(InputError, match=r"labels must lie in 0 \.\.\. 2"):
        fit(model, (x, y), MAP(epochs=1))
    with pytest.raises(InputError, match="a finite number for what is missing"):
        Masked(Gaussian(1.0), math.nan)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(2, 1, dtype=DOUBLE), nn.Linear(2, 3, dtype=DOUBLE)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"a": self.a(x), "b": self.b(x)}


def test_tasks_may_label_different_rows_but_not_none() -> None:
    x = rows()[0]
    y = {"a": x[:, :1].clone(), "b": (x[:, 0] > 0).long()}
    y["a"][:6], y["b"][6:] = GAP, VOID
    likelihood = MultiTask(a=Masked(Gaussian(Learned(1.0)), GAP), b=Masked(Categorical(Learned(1.0)), VOID))
    model = Model(Two(), Normal(0, 1), likelihood)
    predictive = fit(model, (x, y), 2 * MAP(epochs=2)).predict(x)
    assert isinstance(predictive, Drawn) and predictive["b"].mean.shape == (12, 3)
    y["b"][0] = VOID
    with pytest.raises(InputError, match="at least one label of some task; got none in 1 rows, the first of them 0"):
        fit(model, (x, y), MAP(epochs=1))


def test_an_unknown_distribution_cannot_be_masked() -> None:
    class Odd(Likelihood):
        def observe(self, f: Tensor) -> td.Distribution:
            return td.Laplace(f, 1.0)

    with pytest.raises(UnsupportedError, match="labels may be missing of classes"):
        Masked(Odd(), GAP).observe(torch.zeros(2, 1))


# ---- the segmenter ---------------------------------------------------------------------------------------------------


def test_the_segmenter_keeps_the_size_of_images() -> None:
    net = segmenter(3, 5, width=4, levels=2)
    assert net(torch.zeros(2, 3, 15, 9)).shape == (2, 5, 15, 9)
    tasks = segmenter(1, {"seg": 4, "depth": 1}, width=4, levels=1)(torch.zeros(1, 1, 6, 8))
    assert {name: tuple(t.shape) for name, t in tasks.items()} == {"seg": (1, 4, 6, 8), "depth": (1, 1, 6, 8)}
    assert Model(net, Normal(0, 1), Categorical(axis=-3)).network.vectorises(torch.zeros(2, 3, 8, 8))
    with pytest.raises(InputError, match="at least 4 pixels a side"):
        net(torch.zeros(1, 3, 3, 9))
    for bad in ({"width": 0}, {"drop": 1.0}, {"outputs": {}}, {"outputs": {"seg": 0}}):
        with pytest.raises(InputError):
            segmenter(**bad)  # type: ignore[arg-type]


def test_a_pixel_sees_no_other_image() -> None:
    torch.manual_seed(0)
    net = segmenter(1, 2, width=4, levels=1).eval()
    x = torch.randn(3, 1, 8, 8)
    torch.testing.assert_close(net(x)[1:2], net(x[1:2]))


# ---- decomposition everywhere ----------------------------------------------------------------------------------------


class Steps(nn.Module):
    """A label for each step of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(2, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:  # (sequences, steps, 2) to (sequences, steps, 3)
        state = torch.zeros_like(self.inner(x[:, 0]))
        found = []
        for here in x.unbind(1):
            state = torch.tanh(self.inner(here) + 0.5 * state)
            found.append(self.head(state))
        return torch.stack(found, 1)


def pixels() -> tuple[Model, tuple[Tensor, Tensor]]:
    x = Noise(0).normal(6, 1, 4, 4)
    y = (x[:, 0] > 0).long()
    y[0, 0] = VOID
    torch.manual_seed(0)
    net = segmenter(1, 3, width=2, levels=1, drop=0.2)
    return Model(net, Normal(0, 1), Masked(Categorical(axis=-3), VOID)), (x, y)


def steps() -> tuple[Model, tuple[Tensor, Tensor]]:
    x = Noise(0).normal(6, 5, 2)
    torch.manual_seed(0)
    return Model(Steps(), Normal(0, 1), Categorical()), (x, (x[..., 0] > 0).long())


def outputs() -> tuple[Model, tuple[Tensor, Tensor]]:
    x = Noise(0).normal(20, 2)
    torch.manual_seed(0)
    return Model(mlp(2, 5, 6), Normal(0, 1), Heteroscedastic()), (x, torch.cat([x, x[:, :1]], 1))


METHODS: dict[str, Method] = {
    "dropout": VI(NetDropout(), epochs=1),
    "weights dropped": VI(BernoulliDropout(0.1), epochs=1),
    "mean field": VI(MeanField(), epochs=1),
    "ensemble": 2 * MAP(epochs=1),
    "Laplace": MAP(epochs=1) >> Laplace(diag, samples=1),
    "HMC": 2 * HMC(draws=3, warmup=2, leapfrog=2),
    "several Laplace": 2 * (MAP(epochs=1) >> Laplace(diag, samples=1)),
}
CASES = [
    (make, name) for make in (pixels, steps, outputs) for name in METHODS if make is pixels or "dropout" not in name
]


@pytest.mark.parametrize(("make", "name"), CASES, ids=lambda v: v if isinstance(v, str) else v.__name__)
def test_total_is_aleatoric_plus_epistemic_everywhere(make: object, name: str) -> None:
    """Against the mixture's own moments or entropies, by hand, at every pixel, step and output."""
    model, data = make()  # type: ignore[operator]
    predictive = fit(model, data, METHODS[name]).predict(data[0], draws=4)
    assert isinstance(predictive, Drawn)
    draws, y = predictive.draws, data[1]
    if isinstance(draws, td.Categorical):
        p = draws.probs.double()
        h = lambda q: -torch.xlogy(q, q).sum(-1)  # noqa: E731
        total, aleatoric = h(p.mean(0)), h(p).mean(0)
    else:
        mean, variance = draws.mean.double(), draws.variance.double()
        total, aleatoric = (variance + mean**2).mean(0) - mean.mean(0) ** 2, variance.mean(0)
    assert predictive.total.shape == y.shape
    torch.testing.assert_close(predictive.total.double(), total.double(), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(predictive.aleatoric.double(), aleatoric.double(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(predictive.epistemic.double(), (total - aleatoric).double(), rtol=1e-2, atol=1e-5)
    assert predictive.epistemic.max() > 0 and bool(predictive.log_prob(y).isfinite().all())


def test_the_linearised_posterior_decomposes_too() -> None:
    model, (x, y) = steps()
    predictive = fit(model, (x, y), MAP(epochs=1) >> Laplace(kfac)).linearize().predict(x, draws=5)  # type: ignore[attr-defined]
    assert predictive.epistemic.shape == y.shape and predictive.epistemic.max() > 0
    torch.testing.assert_close(predictive.total, predictive.aleatoric + predictive.epistemic)


# ---- sequences of length zero ----------------------------------------------------------------------------------------


def test_sequences_are_padded_and_empty_ones_refused() -> None:
    assert padded([[3, 4], torch.tensor([5]), [1, 2, 3, 4]], steps=3).tolist() == [[3, 4, 0], [5, 0, 0], [1, 2, 3]]
    with pytest.raises(InputError, match="at least one token; got 1 of length zero, the first at row 1"):
        padded([[1], []], steps=2)
    with pytest.raises(InputError, match="got no sequences"):
        padded([], steps=2)
    with pytest.raises(InputError, match="at least one step"):
        padded([[1]], steps=0)
    with pytest.raises(InputError, match="at least one token; got length zero"):
        lstm_classifier(5, 2, 3, 2)(torch.zeros(2, 0, dtype=torch.long))


def test_a_partly_normal_is_a_normal() -> None:
    partly = PartlyNormal(torch.zeros(2), torch.ones(2), GAP)
    assert partly.log_prob(torch.tensor([GAP, 0.0])).tolist()[0] == 0.0
    assert partly.icdf(torch.tensor(0.5)).tolist() == [0.0, 0.0]
