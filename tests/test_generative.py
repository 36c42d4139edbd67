"""What a fitted latent-variable model is asked for: each function against the network called by hand, every method that takes one, every
misuse refused. The bounds themselves are proven in tests/test_vae.py."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chance import within
from torch import Tensor, nn
from torch.distributions import Normal as TorchNormal
from torch.distributions import kl_divergence
from torch.func import functional_call
from torch.nn import functional as F

from nescio import Model, fit, load
from nescio.errors import InputError, UnsupportedError
from nescio.generative import (
    classify,
    decode,
    encode,
    generate,
    impute,
    interpolate,
    log_likelihood,
    manifold,
    reconstruct,
    traverse,
)
from nescio.infer import HMC, MAP, SGLD, VI, Laplace, Method
from nescio.infer.families import MeanField
from nescio.laws import Flat, Learned, Normal
from nescio.likelihoods import Bernoulli, ContinuousBernoulli, Gaussian, Latent, PartlyLabelled
from nescio.nets import VAE, Encoder, autoencoder, conv_vae, cvae, m2, mlp, vae
from nescio.noise import Noise
from nescio.posterior import Draws, Posterior, Variational
from nescio.report.figures import codes_data, draw_codes, draw_kinds, draw_montage, kinds_data, montage_data

ROOT = Path(__file__).resolve().parent.parent


def pictures(n: int = 60, size: int = 12) -> Tensor:
    """Two kinds, dark on the left or on the right."""
    noise = Noise(4).at("pictures")
    dark = torch.arange(n)[:, None] % 2 == (torch.arange(size) < size // 2).long()
    return (0.15 + 0.6 * dark + 0.1 * noise.normal(n, size)).clamp(0, 1)


@pytest.fixture(scope="module")
def fitted() -> Posterior:
    with Noise(1).scope():
        model = Model(vae(12, 16, 2), Normal(0, 1), Latent(ContinuousBernoulli()))
    x = pictures()
    return fit(model, (x, x), MAP(epochs=40, batch_size=20))


def test_codes_and_pictures_are_the_networks(fitted: Posterior) -> None:
    x, net = pictures()[:5], vae(12, 16, 2)
    net.load_state_dict({k: v for k, v in fitted.point().items() if not k.startswith(("likelihood", "prior"))})
    with torch.no_grad():
        mean, sd = net.encoder(x)
        law = ContinuousBernoulli().observe(net.decoder(mean))
    q = encode(fitted, x)
    torch.testing.assert_close(q.mean, mean)
    torch.testing.assert_close(q.stddev, sd)
    torch.testing.assert_close(reconstruct(fitted, x).mean, law.mean)
    torch.testing.assert_close(decode(fitted, mean).variance, law.variance)
    assert encode(fitted, x, draws=3).mean.shape == (3, 5, 2)
    assert generate(fitted, 7).sample(2).shape == (2, 7, 12)
    assert torch.equal(generate(fitted, 7, seed=3).mean, generate(fitted, 7, seed=3).mean)
    assert not torch.equal(generate(fitted, 7, seed=3).mean, generate(fitted, 7, seed=4).mean)


def test_a_vae_learns_the_two_kinds(fitted: Posterior) -> None:
    """Its bound rose, its reconstructions are nearer than the mean picture, and its samples are of either kind."""
    x = pictures()
    assert fitted.info["loss"][-1] < fitted.info["loss"][0] - 1
    error = (reconstruct(fitted, x).mean - x).square().mean()
    assert float(error) < 0.25 * float(x.var(0).mean())
    halves = generate(fitted, 200).mean.unflatten(1, (2, 6)).mean(2)
    assert 0.1 < float((halves[:, 0] > halves[:, 1]).double().mean()) < 0.9
    mixed = fitted.predict(x[:4])
    assert mixed.mean.shape == mixed.std.shape == (4, 12) and bool((mixed.epistemic == 0).all())


def test_walks(fitted: Posterior) -> None:
    x = pictures()
    way = interpolate(fitted, x[:2], x[2:4], steps=5)
    assert way.shape == (2, 5, 12)
    torch.testing.assert_close(way[:, 0], reconstruct(fitted, x[:2]).mean)
    torch.testing.assert_close(way[:, -1], reconstruct(fitted, x[2:4]).mean)
    z = encode(fitted, x[:1]).mean
    walk = traverse(fitted, x[:1], [1], (-1.0, float(z[0, 1]), 2.0))
    torch.testing.assert_close(walk[0, 1], reconstruct(fitted, x[:1]).mean[0])
    end = torch.tensor([[float(z[0, 0]), 2.0]])
    torch.testing.assert_close(walk[0, 2], decode(fitted, end).mean[0])
    plane = manifold(fitted, 5, 2.0)
    assert plane.shape == (5, 5, 12)
    for (i, j), corner in {(0, 0): (-2.0, 2.0), (0, 4): (2.0, 2.0), (4, 0): (-2.0, -2.0), (4, 4): (2.0, -2.0)}.items():
        torch.testing.assert_close(plane[i, j], decode(fitted, torch.tensor([corner])).mean[0])  # corners as stated
    assert traverse(fitted).shape == (2, 7, 12)


def test_likelihood_has_its_error_and_pieces_agree(fitted: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    x = pictures()[:6]
    whole = log_likelihood(fitted, x, 400)
    assert bool((whole.ess > 1).all()) and bool((whole.ess <= 400).all()) and whole.each.shape == (1, 6)
    again = log_likelihood(fitted, x, 400, seed=1)
    within((whole.value - again.value) / torch.hypot(whole.se, again.se))
    monkeypatch.setattr("nescio.generative.importance.NUMBERS", 12 * 50)
    pieces = log_likelihood(fitted, x, 400)  # other noise, one row and 50 samples at a time
    within((whole.value - pieces.value) / torch.hypot(whole.se, pieces.se))
    worse = log_likelihood(fitted, x.roll(3, 1), 400)  # the same grey values where they do not belong
    assert bool((worse.value < whole.value).all())


METHODS: dict[str, Method] = {
    "MAP": MAP(epochs=2, batch_size=20),
    "ensemble": 3 * MAP(epochs=2, batch_size=20),
    "VI": VI(MeanField(), epochs=2, batch_size=20),
    "Bayesian decoder": MAP(epochs=2, batch_size=20) >> VI(MeanField(), epochs=2, batch_size=20).on("decoder.*"),
    "samples": VI(MeanField(), epochs=1, batch_size=20, samples=2),
}


@pytest.mark.parametrize("name", METHODS)
def test_every_optimiser_takes_it_and_repeats_itself(name: str) -> None:
    """The noise of z is keyed by the step: the same seed gives the same bits, another seed others."""
    x = pictures()
    with Noise(1).scope():
        model = Model(vae(12, 8, 2), Normal(0, 1), Latent(Gaussian(Learned(0.5)), samples=2))
    runs = [fit(model, (x, x), METHODS[name], seed=seed).ends().theta for seed in (0, 0, 1)]
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])
    assert bool(runs[0].isfinite().all())


def test_a_bayesian_decoder(tmp_path: Path) -> None:
    """Only the decoder is spread: the encoder stays where MAP put it; draws differ, agree on the data, and survive a file."""
    x = pictures()
    net, likelihood = vae(12, 8, 2), Latent(ContinuousBernoulli())
    before = fit(Model(net, Normal(0, 1), likelihood), (x, x), MAP(epochs=20, batch_size=20)).point()
    net.load_state_dict(before)
    model = Model(net, Normal(0, 1), likelihood)
    posterior = fit(model, (x, x), VI(MeanField(), epochs=20, batch_size=20).on("decoder.*"))
    assert isinstance(posterior, Variational)
    drawn = posterior.sample(4)
    for key, value in before.items():
        moves = float(drawn[key].std(0).max()) > 0
        assert moves == key.startswith("decoder"), key
        if key.startswith("encoder"):
            torch.testing.assert_close(drawn[key][0], value)
    found = log_likelihood(posterior, x[:5], 20, draws=4)
    assert found.each.shape == (4, 5) and bool((found.agreement() >= 1).all()) and bool((found.agreement() <= 4).all())
    torch.testing.assert_close(found.value, found.each.logsumexp(0) - math.log(4))
    assert bool((reconstruct(posterior, x[:3], draws=5).epistemic > 0).all())
    posterior.save(tmp_path / "decoder")
    back = load(tmp_path / "decoder", model)
    torch.testing.assert_close(back.sample(2)["decoder.0.weight"], drawn["decoder.0.weight"][:2], rtol=0, atol=0)


def test_one_objective_for_codes_and_weights() -> None:
    """Amortised q(z | x) and one q(w) of a bias: the estimate has Σ E_w [bound of x given w] - KL(q(w), p(w)) as its mean."""
    with Noise(2).scope():
        model = Model(vae(1, 1, 1, layers=0).double(), Normal(0, 0.7), Latent(Bernoulli()))
    x = torch.tensor([[1.0], [0.0], [1.0]], dtype=torch.float64)
    _, loss = VI(MeanField(sd=0.4)).objective(model, (x, x))
    only = [f for f in loss.q.parts() if f.blocks[0].name.startswith("decoder")]
    assert {f.blocks[0].name for f in only} == {"decoder.0.weight", "decoder.0.bias"}
    net = model.network.net
    nodes, weights = (torch.from_numpy(t) for t in np.polynomial.hermite_e.hermegauss(30))
    weights = weights / weights.sum()
    slope, shift = net.decoder[0].weight.item(), net.decoder[0].bias.item()
    with torch.no_grad():
        mean, sd = net.encoder(x)
    exact = -sum(float(kl_divergence(TorchNormal(m, 0.4), TorchNormal(0.0, 0.7))) for m in (slope, shift))
    for row in range(3):
        z = mean[row] + sd[row] * nodes
        f = (slope + 0.4 * nodes)[:, None, None] * z + (shift + 0.4 * nodes)[:, None]  # (slopes, shifts, codes)
        fit_ = -F.binary_cross_entropy_with_logits(f, x[row].expand_as(f), reduction="none")
        exact += float(torch.einsum("abc,a,b,c->", fit_, weights, weights, weights))
        exact -= float(kl_divergence(TorchNormal(mean[row], sd[row]), TorchNormal(0.0, 1.0)))
    with torch.no_grad(), Noise(3).scope():
        got = torch.stack([loss.estimate(x, x) for _ in range(600)])
    within((got.mean() - exact) / (got.std() / math.sqrt(600)))


def test_reparameterised_gradients_are_quieter_than_the_score_function() -> None:
    """001-13: the same mean; the score function's variance is larger by far."""
    noise = Noise(5, dtype=torch.float64).normal(20_000)
    mean, sd = torch.tensor(0.7, dtype=torch.float64), 0.5
    z = mean + sd * noise
    pathwise, score = 2 * z, z.square() * (z - mean) / sd**2  # slopes of E z² = mean² + sd² by mean
    for each in (pathwise, score):
        within((each.mean() - 2 * mean) / (each.std() / math.sqrt(20_000)))
    assert float(pathwise.var()) < 0.5 * float(score.var())


def test_conditions() -> None:
    x = pictures()
    given = F.one_hot(torch.arange(60) % 2, 2).float()
    for learned in (False, True):
        model = Model(cvae(12, 16, 2, 2, learned_prior=learned), Flat(), Latent(ContinuousBernoulli()))
        posterior = fit(model, ((x, given), x), MAP(epochs=40, batch_size=20))
        made = generate(posterior, 40, given=torch.eye(2).repeat_interleave(20, 0)).mean.unflatten(1, (2, 6)).mean(2)
        left = (made[:, 0] > made[:, 1]).double()
        assert float(left[20:].mean()) > 0.8 and float(left[:20].mean()) < 0.2  # the label decides the kind
        right, wrong = (log_likelihood(posterior, (x[:10], g[:10]), 100).value for g in (given, 1 - given))
        assert bool((right > wrong).all())
        assert traverse(posterior, None, [0], (0.0,), given=given[:1]).shape == (1, 1, 12)
        assert interpolate(posterior, x[:2], x[2:4], 3, given=given[:2]).shape == (2, 3, 12)
        assert impute(posterior, (x[:2], given[:2]), x[:2] > 0.3, steps=3, warmup=2, kept=2).draws.shape == (2, 2, 12)


def test_few_labels_are_enough_for_two_kinds() -> None:
    x = pictures().round()
    kind = torch.arange(60) % 2
    label = torch.where(torch.arange(60) < 4, kind, -1)
    model = Model(m2(12, 16, 2, classes=2), Flat(), PartlyLabelled(Bernoulli(), weight=10.0))
    posterior = fit(model, (x, {"image": x, "label": label}), MAP(epochs=40, batch_size=20))
    found = classify(posterior, x)
    torch.testing.assert_close(found.sum(1), torch.ones(60))
    assert float((found.argmax(1) == kind).double().mean()) > 0.9
    assert generate(posterior, 2, given=torch.eye(2)).mean.shape == posterior.predict(x[:2]).mean.shape == (2, 12)
    one_hot = torch.eye(2)[kind]
    code = encode(posterior, (x, one_hot))
    weights = {
        name.removeprefix("encoder.code."): w for name, w in posterior.point().items() if "encoder.code." in name
    }
    mean = functional_call(model.network.net.encoder.code, weights, (x, one_hot))[0]  # type: ignore[union-attr,arg-type]
    torch.testing.assert_close(code.loc, mean)
    assert reconstruct(posterior, (x, one_hot)).mean.shape == x.shape
    assert log_likelihood(posterior, (x, one_hot), 5).value.shape == (60,)
    for call in (lambda: encode(posterior, x), lambda: generate(posterior, 2)):
        with pytest.raises(InputError, match="its condition"):
            call()
    for wrong, why in ((x, "a dictionary"), ({"image": x, "label": kind + 5}, "-1 ... 1")):
        with pytest.raises(InputError, match=why):
            fit(model, (x, wrong), MAP(epochs=1))


def test_convolutions_and_a_plain_autoencoder() -> None:
    x = torch.rand(8, 1, 8, 8, generator=Noise(6).generator())
    model = Model(conv_vae(1, 8, 3, filters=4), Normal(0, 1), Latent(ContinuousBernoulli(), samples=2))
    posterior = fit(model, (x, x), 2 * MAP(epochs=1) >> VI(MeanField(), epochs=1).on("decoder.*"))
    assert generate(posterior, 3).mean.shape == (3, 1, 8, 8) and log_likelihood(posterior, x, 3).value.shape == (8,)
    flat = pictures()
    plain = fit(Model(autoencoder(12, 16, 2), Flat(), ContinuousBernoulli()), (flat, flat), MAP(epochs=30))
    assert float((reconstruct(plain, flat).mean - flat).square().mean()) < float(flat.var(0).mean())
    with pytest.raises(UnsupportedError, match="a law"):
        encode(plain, flat)
    assert traverse(plain, flat[:1], [0]).shape == (1, 7, 12)


@pytest.mark.nightly  # a compiler takes its time
def test_compiled_steps_are_the_plain_ones() -> None:
    """Noise is handed in: as machine code a run takes the same steps to rounding."""
    x = pictures(20)
    with Noise(1).scope():
        model = Model(vae(12, 4, 1, layers=1), Normal(0, 1), Latent(ContinuousBernoulli(), samples=2, importance=True))
    plain, code = (fit(model, (x, x), MAP(epochs=3, batch_size=10), compile=c) for c in (False, True))
    assert code.info["compiled"] is True
    assert isinstance(plain, Draws) and isinstance(code, Draws)
    torch.testing.assert_close(plain.theta, code.theta, rtol=0, atol=1e-5)
    net = VAE(Encoder(nn.Dropout(0.5), nn.Linear(12, 2), nn.Linear(12, 2)), nn.Linear(2, 12), 2)
    dropped = Model(net, Normal(0, 1), Latent(ContinuousBernoulli()))
    runs = [fit(dropped, (x, x), MAP(epochs=2, batch_size=10), compile=c) for c in (False, True)]
    assert "draws by itself" in runs[1].info["compiled"]  # its masks cannot be handed in: plain steps, and it says so
    assert torch.equal(runs[0].ends().theta, runs[1].ends().theta)


def test_misuse_is_refused() -> None:
    x = pictures()
    model = Model(vae(12, 4, 2), Normal(0, 1), Latent(Bernoulli()))
    with pytest.raises(InputError, match="zeros and ones"):
        fit(model, (x, x), MAP(epochs=1))
    good = Model(vae(12, 4, 2), Normal(0, 1), Latent(ContinuousBernoulli()))
    for method in (HMC(), SGLD(), Laplace()):
        with pytest.raises(UnsupportedError, match="noisy estimate of a bound"):
            fit(good, (x, x), method)
    posterior = fit(good, (x, x), MAP(epochs=1))
    cases: list[tuple[Any, str]] = [
        (lambda: Latent(Latent(Bernoulli())), "a likelihood of a datum"),
        (lambda: Latent(Bernoulli(), samples=0), "at least 1"),
        (lambda: Latent(Bernoulli(), beta=-1.0), "at least 0"),
        (lambda: Latent(Bernoulli(), 5, beta=2.0, importance=True), "no weight to set"),
        (lambda: Model(mlp(12, 12), Normal(0, 1), Latent(Bernoulli())), "latent variable for each datum"),
        (lambda: log_likelihood(posterior, x, 0), "at least one sample"),
        (lambda: log_likelihood(posterior, 2 * x, 5), "must lie in"),
        (lambda: log_likelihood(posterior, x[:0], 5), "at least one point"),
        (lambda: log_likelihood(posterior, x[:, :3], 5), "the encoder of VAE must accept"),
        (lambda: decode(posterior, torch.zeros(1, 3)), "the decoder of VAE must accept"),
        (lambda: generate(posterior, 0), "at least one picture"),
        (lambda: decode(posterior, torch.zeros(2)), "codes must be"),
        (lambda: traverse(posterior, x), "one picture"),
        (lambda: traverse(posterior, x[:1], [5]), "0 ... 1"),
        (lambda: interpolate(posterior, x[:1], x[:2]), "same shape"),
        (lambda: impute(posterior, x, x), "a mask"),
        (lambda: vae(12, 4, 2, layers=-1), "at least 0"),
        (lambda: conv_vae(1, 10, 3), "halves the side"),
        (lambda: manifold(fit(Model(vae(12, 4, 3), Flat(), good.likelihood), (x, x), MAP(epochs=1))), "two latents"),
    ]
    for call, why in cases:
        with pytest.raises(InputError, match=why):
            call()
    with pytest.raises(UnsupportedError, match="infer a label"):
        classify(posterior, x)
    with pytest.raises(UnsupportedError, match="an encoder and a decoder"):
        encode(fit(Model(mlp(12, 12), Flat(), Gaussian(1.0)), (x, x), MAP(epochs=1)), x)


def test_the_users_network_is_not_written_to() -> None:
    net = vae(12, 4, 2)
    before = [p.clone() for p in net.parameters()]
    x = pictures()
    fit(Model(net, Flat(), Latent(ContinuousBernoulli(), samples=7)), (x, x), MAP(epochs=1))
    assert net.samples == 1 and all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


# ---- figures and scripts -------------------------------------------------------------------------------------------


def test_pictures_lie_where_they_should() -> None:
    grid = torch.arange(6.0, dtype=torch.float64).view(2, 3, 1).expand(2, 3, 4) / 6
    numbers = montage_data(grid, (2, 2))
    whole = numbers["picture"]
    assert whole.shape == (5, 8) and np.isnan(whole[2]).all() and np.isnan(whole[:, 2]).all()
    assert (whole[3:, 6:] == 5 / 6).all() and (whole[:2, 3:5] == 1 / 6).all()
    assert draw_montage([numbers], ["a"], "title").axes
    with pytest.raises(InputError, match="rows, columns"):
        montage_data(grid, (3, 3))


def test_codes_keep_neighbours_and_the_tree_is_one() -> None:
    noise = Noise(7)
    label = torch.arange(60) % 3
    codes = 8 * F.one_hot(label, 5).float() + noise.normal(60, 5)
    numbers = codes_data(codes, label)
    assert (numbers["agree"] > 0.9).all() and 0 < numbers["shown"].sum() <= 1
    assert numbers["pca"].shape == numbers["tsne"].shape == (2, 60)
    assert draw_codes(numbers).axes
    edge = kinds_data()["edge"]
    assert (
        len(set(edge[1])) == edge.shape[1] == len(kinds_data()["depth"]) - 1
    )  # every node but the root has one parent
    assert draw_kinds(kinds_data()).axes


@pytest.fixture
def scripts(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NESCIO_DATA", str(data_folder))
    monkeypatch.syspath_prepend(str(ROOT / "reproduce"))
    names = {path.stem for path in (ROOT / "reproduce").glob("*.py")}
    yield
    for name in names:
        sys.modules.pop(name, None)


def test_reproductions_at_toy_size(scripts: None, tmp_path: Path) -> None:
    script: Any = importlib.import_module("vae")
    flags = ["--quick", "--out", str(tmp_path), "--only", "faces"]
    assert script.main([*flags, "--budget", "0"]) == []  # no time: nothing is begun
    rows = script.main(flags)
    assert {"faces, 2", "faces, 10"} == {row["row"] for row in rows}
    kept = json.loads((tmp_path / "vae.quick.json").read_text())
    assert kept["quick"] and kept["rows"] == json.loads(json.dumps(rows))
    lines = (tmp_path / "vae.quick.rows.jsonl").read_text().splitlines()
    script.main(flags)
    assert (tmp_path / "vae.quick.rows.jsonl").read_text().splitlines() == lines  # nothing twice
    drawn = importlib.import_module("vae_figures").main(
        ["--pictures", str(tmp_path / "vae_pictures"), "--out", str(tmp_path / "drawn")]
    )
    assert drawn == ["vae_faces", "vae_walks", "generative_kinds"]
    assert all((tmp_path / "drawn" / f"{name}.svg").exists() for name in drawn)


def test_the_table_has_the_published_numbers_beside_ours(scripts: None) -> None:
    table: Any = importlib.import_module("vae_table")
    job = {"what": "binarised", "net": "200 tanh", "k": 1, "members": 2, "epochs": 1}
    line = {"job": job, "nll_100": [86.0, 87.0], "se_100": [0.1, 0.1], "ess_100": [3.0, 5.0], "seconds": 1.0}
    log = {"job": {"what": "tutorial", "latent": 20, "seed": 0}, "elbo": [-400.0, -220.0], "train_elbo": -1.0}
    log |= {"test_elbo": -2.0, "train_fit_at_mean": -3.0, "test_fit_at_mean": -4.0}
    few = {"job": {"what": "m2", "alpha": 0.1, "seed": 0}, "error": 20.0}
    rows = {(row["row"], row["metric"]): row for row in table.table([log, line, few])}
    nll = rows["binarised, 200 tanh, VAE", "-log p(x), 100 samples"]
    assert nll["ours"] == 86.5 and nll["published"] == 87.0 and nll["met"] is True and nll["ess"] == 4.0
    first = rows["tutorial, z = 20", "ELBO, epoch 1"]
    assert first["published"] == -400.16 and first["mark"] == "seed" and first["ours"] == -400.0
    assert rows["M2, 100 labels, alpha = 0.1", "test error, %"]["met"] is False
    assert "86.500" in table.show(list(rows.values()))


@pytest.mark.nightly
def test_every_reproduction_at_toy_size(scripts: None, tmp_path: Path) -> None:
    script: Any = importlib.import_module("vae")
    rows = script.main(["--quick", "--out", str(tmp_path)])
    assert {"tutorial, z = 20", "decoder", "grey, continuous", "conditional, left half"} <= {r["row"] for r in rows}


def test_the_benchmark_at_toy_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    try:
        (row,) = importlib.import_module("vae").main(["--quick", "--threads", "1", "--out", str(tmp_path)])
    finally:
        for name in {path.stem for path in (ROOT / "benchmarks").glob("*.py")}:
            sys.modules.pop(name, None)
    assert row["ratio"] > 0 and row["limit"] == 1.1 and (tmp_path / "vae.quick.json").exists()
