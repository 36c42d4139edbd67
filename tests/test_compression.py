"""Compression: shrinking is exact, codes come back, files are as small as claimed, promises hold."""

from __future__ import annotations

import copy
import math
import random
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from chance import within
from random_nets import random_net
from scipy import stats
from torch import Tensor, nn

from nescio import FileError, InputError, Model, UnsupportedError, compress, fit
from nescio.compression import (
    ByEvidence,
    Codebook,
    Compressed,
    GroupLogAlpha,
    GroupScale,
    GroupSignalToNoise,
    LogAlpha,
    Promised,
    SignalToNoise,
    Steps,
    exported,
    flops,
    load_compressed,
    moments,
    nats,
    predicted_loss,
    seconds,
    shrink,
    to_onnx,
)
from nescio.compression.coder import Decoder, Encoder
from nescio.compression.precision import k_means
from nescio.diagnose.binomial import clopper_pearson
from nescio.families import FullRank, MeanField, VariationalDropout
from nescio.infer import MAP, VI, Laplace
from nescio.laws import HalfCauchy, HalfLogUniform, LogUniform, Normal
from nescio.likelihoods import Categorical, Gaussian
from nescio.nets import mlp, resnet20
from nescio.noise import Noise
from nescio.posterior import GaussianPosterior, Variational

DOUBLE = torch.float64


# ---- shrinking -------------------------------------------------------------------------------------------------------


def check_shrink(seeds: range) -> None:
    """The small network is the large one to 1e-6, on other inputs than it was made with, and mostly smaller."""
    smaller = 0
    for seed in seeds:
        net, x = random_net(seed)
        try:
            small = shrink(net, x).net
        except UnsupportedError as error:
            raise AssertionError(f"net {seed}: {error}") from error
        with torch.no_grad(), Noise(seed).at("other").scope():
            other = 2 * torch.randn(5, *x.shape[1:], dtype=DOUBLE)
            worst = float((net(other) - small(other)).abs().max())
        assert worst <= 1e-6, f"net {seed} is off by {worst}"
        assert not any(isinstance(m, nn.Module) and m.training for m in small.modules())
        smaller += count(small) < count(net)
    assert smaller > 0.9 * len(seeds)


def count(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def test_shrunken_is_masked_on_random_networks() -> None:
    check_shrink(range(60))


@pytest.mark.parametrize("norm", [None, nn.BatchNorm2d], ids=["filter response", "batch norm"])
def test_resnet20_shrinks_through_its_sums(norm: type[nn.Module] | None) -> None:
    with Noise(0).scope():
        net = (resnet20() if norm is None else resnet20(norm=norm, activation=nn.ReLU)).double().eval()
        x = torch.randn(2, 3, 32, 32, dtype=DOUBLE)
        for m in net.modules():
            if isinstance(m, nn.Conv2d):
                with torch.no_grad():
                    m.weight[torch.rand(len(m.weight)) < 0.5] = 0
                    m.weight[:, torch.rand(m.weight.shape[1]) < 0.5] = 0
    small = shrink(net, x).net
    with torch.no_grad():
        torch.testing.assert_close(small(x), net(x), rtol=0, atol=1e-9)
    assert count(small) < 0.5 * count(net) and type(small) is nn.Sequential


def test_units_that_no_one_reads_and_units_that_are_constant_go() -> None:
    net = mlp(3, 4, 5, 2).double()
    with torch.no_grad():
        net[2].weight[:, 0] = 0  # nobody reads unit 0
        net[0].weight[1] = 0  # unit 1 is relu of its bias
        net[0].bias[1] = 0.7
        net[4].weight[:, 2] = 0
    found = shrink(net, torch.randn(2, 3, dtype=DOUBLE))
    assert [p.shape for p in found.net.parameters() if p.dim() > 1] == [(2, 3), (4, 2), (2, 4)]
    right = net[2].bias + 0.7 * net[2].weight[:, 1]
    torch.testing.assert_close(found.net[2].bias, right[[0, 1, 3, 4]])
    assert found.places["2.weight"][1].tolist() == [2, 3]


class Odd(nn.Module):
    """Channels pass a function that mixes them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.softmax(self.first(x), -1))


def test_a_node_that_cannot_be_shrunk_is_named() -> None:
    net, x = Odd(), torch.randn(2, 3)
    same = shrink(net, x).net  # nothing could be removed
    assert count(same) == count(net)
    with torch.no_grad():
        net.last.weight[:, 1] = 0
    with pytest.raises(UnsupportedError, match="softmax"):
        shrink(net, x)
    kept = shrink(net, x, strict=False).net
    with torch.no_grad():
        torch.testing.assert_close(kept(x), net(x))


class Numbers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(1, 4, 3), nn.Linear(36, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.conv(x).view(-1, 36))


def test_a_size_that_is_written_as_a_number_and_branches_on_data_are_refused() -> None:
    net, x = Numbers(), torch.randn(2, 1, 5, 5)
    with torch.no_grad():
        net.last.weight[:, :9] = 0
    with pytest.raises(UnsupportedError, match="follow the sizes"):
        shrink(net, x)

    class Branch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(UnsupportedError, match="does not depend on the data"):
        shrink(nn.Sequential(nn.Linear(3, 3), Branch()), torch.randn(2, 3))
    with pytest.raises(InputError, match="rows of the input"):
        shrink(net, torch.tensor(1.0))


def test_a_layer_that_is_used_twice_stays() -> None:
    inner = nn.Linear(4, 4).double()
    net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), inner, nn.ReLU(), inner, nn.Linear(4, 1)).double()
    with torch.no_grad():
        inner.weight[:, 1] = 0
        inner.weight[2] = 0
    x = torch.randn(2, 2, dtype=DOUBLE)
    with pytest.raises(UnsupportedError, match="used twice"):
        shrink(net, x)
    with torch.no_grad():
        torch.testing.assert_close(shrink(net, x, strict=False).net(x), net(x))


# ---- codes -------------------------------------------------------------------------------------------------------------


def check_coder(arrays: int) -> None:
    chance = random.Random(0)
    for _ in range(arrays):
        n, wide = chance.randrange(0, 12), 2 ** chance.randrange(0, 35)
        given = [chance.choice([0, 0, 1, -1, chance.randrange(-wide, wide + 1)]) for _ in range(n)]
        out = Encoder()
        out.signed(given, "a")
        out.count(abs(sum(given)), "b")
        out.bits(wide & 0xFFFF, 16)
        read = Decoder(out.finish())
        assert read.signed(n, "a") == given
        assert read.count("b") == abs(sum(given)) and read.bits(16) == wide & 0xFFFF


def test_ten_thousand_arrays_come_back() -> None:
    check_coder(10_000)


@pytest.mark.parametrize("bits", [[1] * 3000, [0] * 3000, [1, 0] * 1500, [int(i % 97 == 0) for i in range(3000)]])
def test_hostile_runs_of_decisions_come_back(bits: list[int]) -> None:
    """Carries through long runs of 0xFF, contexts at their ends."""
    for known in (False, True):
        out = Encoder()
        for bit in bits:
            out.bit(bit, out.at("x") if known else None)
        read = Decoder(out.finish())
        assert [read.bit(read.at("x") if known else None) for _ in bits] == bits


def test_codes_are_near_the_entropy() -> None:
    chance = random.Random(1)
    given = [0 if chance.random() < 0.9 else round(chance.gauss(0, 3)) for _ in range(20_000)]
    p = torch.tensor([given.count(v) for v in set(given)], dtype=DOUBLE) / len(given)
    entropy = float(-(p * p.log2()).sum()) * len(given) / 8
    out = Encoder()
    out.signed(given)
    assert entropy < len(out.finish()) < 1.08 * entropy


# ---- rounding ----------------------------------------------------------------------------------------------------------


def test_rounding_is_to_the_nearest_step_and_keeps_zeros() -> None:
    with Noise(0).scope():
        w, sd = torch.randn(50, 20), torch.rand(50, 20) + 0.1
        w[torch.rand(50, 20) < 0.5] = 0
    for precision in (Steps(), Steps(1.0), Codebook(8)):
        levels = precision.levels(w, sd)
        assert torch.equal(levels.value()[w == 0], torch.zeros(int((w == 0).sum())))
        if levels.book is None:
            assert float((levels.value() - w).abs().max()) <= levels.step / 2 * (1 + 1e-6)
        else:
            gaps = (w[w != 0][:, None] - levels.book[1:]).abs().min(1).values
            torch.testing.assert_close((levels.value() - w)[w != 0].abs(), gaps)
    assert Steps().step(torch.zeros(3), torch.zeros(3)) > 0


def check_widths() -> None:
    """Linear regression, where the precision of mean field is the curvature: predicted against measured loss of 400 roundings."""
    with Noise(0, dtype=DOUBLE).scope():
        x = torch.randn(300, 6, dtype=DOUBLE) * torch.tensor([0.3, 1, 1, 2, 3, 0.5])
        curvature = x.T @ x / 0.25 + torch.eye(6)
        sd = curvature.diagonal().rsqrt()
        ratios = []
        for _ in range(400):
            mean = torch.randn(6, dtype=DOUBLE)
            for fineness in (1.0, 0.25):
                precision = Steps(fineness)
                moved = precision.levels(mean, sd).value().double() - mean
                loss = 0.5 * moved @ curvature @ moved
                ratios.append(float(loss) / predicted_loss(mean, sd, precision.step(mean, sd)))
    r = torch.tensor(ratios)
    within((r.mean() - 1) / (r.std() / math.sqrt(len(r))), f"measured, {float(r.mean()):.3f} of predicted,")


def test_bit_widths_predicted_against_measured_loss() -> None:
    check_widths()


def test_k_means_finds_clusters() -> None:
    with Noise(0, dtype=DOUBLE).scope():
        x = torch.cat([c + 0.01 * torch.randn(50, dtype=DOUBLE) for c in (-1.0, 0.3, 2.0)])
    torch.testing.assert_close(
        k_means(x, torch.ones_like(x), 3, 0), torch.tensor([-1.0, 0.3, 2.0], dtype=DOUBLE), atol=0.02, rtol=0
    )


# ---- from a posterior to a file ----------------------------------------------------------------------------------------


@cache
def classes() -> tuple[Tensor, Tensor]:
    with Noise(0).scope():
        x = torch.randn(300, 8)
        return x, (x[:, 0] + x[:, 1] > 0).long()


@cache
def fitted(kind: str) -> Variational:
    x, y = classes()
    scale = {"jeffreys": HalfLogUniform(), "horseshoe": HalfCauchy(1.0)}.get(kind)
    with Noise(1).scope():
        net = mlp(8, 12, 2)
    law = LogUniform() if scale is None else Normal(0.0, scale.per("input"))
    model = Model(net, {"*.weight": law, "*": Normal(0.0, 1.0)}, Categorical())
    family = VariationalDropout() if scale is None else MeanField(sd=0.02)
    posterior = fit(model, (x, y), VI(family, epochs=200, lr=0.03, batch_size=300), seed=0)
    assert isinstance(posterior, Variational)
    return posterior


def accuracy(net: nn.Module) -> float:
    x, y = classes()
    with torch.no_grad():
        return float((net(x).argmax(-1) == y).double().mean())


RULES = {
    "dropout": LogAlpha(3.0),
    "jeffreys": GroupLogAlpha(-2.0),
    "horseshoe": GroupSignalToNoise(1.0),
}


@pytest.mark.parametrize("kind", list(RULES))
@pytest.mark.parametrize("spread", [False, True])
def test_a_file_is_as_large_as_claimed_and_predicts_the_same(kind: str, spread: bool, tmp_path: Path) -> None:
    posterior, x = fitted(kind), classes()[0]
    small = compress(posterior, rule=RULES[kind], spread=spread)
    path = tmp_path / "net.nscz"
    small.save(path)
    assert path.stat().st_size == small.bytes
    assert small.rate == pytest.approx(4 * count(posterior.model.network.net) / path.stat().st_size)
    again = load_compressed(path, posterior.model)
    with torch.no_grad():
        assert torch.equal(again.net(x), small.net(x))
    assert torch.equal(again.predict(x, 10).mean, small.predict(x, 10).mean)
    assert accuracy(small.net) > 0.93 and small.count() < 0.9 * count(posterior.model.network.net)
    if spread:
        sampled = again.posterior().sample(400)["0.weight"]
        sd = again.sd("0.weight", sampled[0])
        some = sd > 0
        ratio = sampled.std(0)[some] / sd[some]
        assert float(ratio.min()) > 0.75 and float(ratio.max()) < 1.3
        kept = shrink_sd(posterior, small)
        assert float((sd[some].log2() - kept[some].log2()).abs().max()) <= 1 / 8 + 1e-4
    else:
        with pytest.raises(UnsupportedError, match="spread"):
            small.posterior()


def shrink_sd(posterior: Variational, small: Compressed) -> Tensor:
    """The standard deviations of the weights that are left, found by the rows and columns that were kept."""
    given = moments(posterior)
    mean, sd = given.mean["0.weight"], given.sd["0.weight"]
    rows = (mean.norm(dim=1)[:, None] > 0).expand_as(mean)
    assert rows.all()
    w = small.net[0].weight.detach()
    step = small.held.tensors["0.weight"].step  # type: ignore[union-attr]
    found = torch.zeros_like(w)
    for i in range(len(w)):
        for j in range(w.shape[1]):
            if w[i, j] != 0:
                near = ((mean - w[i, j]).abs() <= step).nonzero()
                ratio = [
                    (float(sd[a, b]), abs(float(small.sd("0.weight", w)[i, j] / sd[a, b]) - 1))
                    for a, b in near.tolist()
                ]
                found[i, j] = min(ratio, key=lambda pair: pair[1])[0]
    return torch.where(found > 0, found, 1.0)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    posterior = fitted("jeffreys")
    small = compress(posterior, rule=RULES["jeffreys"], spread=True)
    content, path = small.content, tmp_path / "net.nscz"
    small.save(path)
    bad = [content[:n] for n in (0, 3, 8, 20, len(content) - 1)] + [content + b"\0", b"PK" + content]
    for place in range(0, len(content), 7):
        hurt = bytearray(content)
        hurt[place] ^= 1 << place % 8
        bad.append(bytes(hurt))
    for broken in bad:
        path.write_bytes(broken)
        with pytest.raises(FileError):
            load_compressed(path, posterior.model)
    path.write_bytes(content)
    other = Model(mlp(8, 13, 2), Normal(0.0, 1.0), Categorical())
    with pytest.raises(FileError, match="another network"):
        load_compressed(path, other)
    with pytest.raises(FileError):
        load_compressed(tmp_path / "none", posterior.model)


def test_hostile_content_with_a_right_seal_is_refused_or_read_but_never_breaks() -> None:
    """Any stream of bits decodes to numbers that are checked: 300 random ones either fit the network or say why not."""
    import hashlib

    posterior, chance = fitted("jeffreys"), random.Random(0)
    head = compress(posterior, rule=RULES["jeffreys"]).content[:9]
    refused = 0
    for _ in range(300):
        body = head + chance.randbytes(chance.randrange(1, 60))
        content = body + hashlib.sha256(body).digest()[:8]
        try:
            net = Compressed(posterior.model, content, {}).net
            assert all(bool(p.isfinite().all()) for p in net.parameters())
        except FileError:
            refused += 1
    assert refused > 100


def test_a_promise_about_accuracy_is_kept_and_confidence_costs() -> None:
    posterior, (x, y) = fitted("dropout"), classes()
    before = accuracy(compress(posterior, rule=SignalToNoise(0.0)).net)
    sizes = []
    for promise in (Promised(x, y, 0.0), Promised(x, y, 0.05), Promised(x, y, 0.05, confidence=0.95)):
        small = compress(posterior, rule=SignalToNoise(promise))
        sizes.append(small.count())
        assert accuracy(small.net) >= before - promise.loss - 0.01  # the last rounding may move a row or two
        assert "tensor" not in small.info["rule"] and "Promised" in small.info["rule"]
    assert sizes[1] <= sizes[0] and sizes[1] <= sizes[2]
    with pytest.raises(InputError, match="negative"):
        Promised(x, y, -0.1)
    with pytest.raises(InputError, match="at least 1197 rows"):  # log 0.05 / log(1 - 0.005 / 2), if none is lost
        compress(posterior, rule=SignalToNoise(Promised(x, y, 0.005, confidence=0.95)))


def test_a_promise_that_rounding_breaks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    posterior, (x, y) = fitted("dropout"), classes()
    monkeypatch.setattr(Promised, "holds", lambda self, whole, after: False)
    with pytest.raises(InputError, match="must hold for the network as it is stored"):
        compress(posterior, rule=SignalToNoise(Promised(x, y, 0.05)))


def test_spreads_of_a_laplace_posterior_are_its_own() -> None:
    x, y = classes()
    posterior = fit(Model(mlp(8, 3, 2), Normal(0.0, 1.0), Categorical()), (x, y), MAP(epochs=2) >> Laplace().on("2.*"))
    assert isinstance(posterior, GaussianPosterior)
    found = moments(posterior).sd
    assert not found["0.weight"].any() and not found["0.bias"].any()
    own = torch.cat([found["2.weight"].reshape(-1), found["2.bias"]]).double().square().sort().values
    torch.testing.assert_close(own, posterior.covariance.diagonal().sort().values, rtol=1e-5, atol=0)


def test_spreads_by_draws_do_not_depend_on_how_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = classes()
    posterior = fit(Model(mlp(8, 3, 2), Normal(0.0, 1.0), Categorical()), (x, y), VI(FullRank(sd=0.3), epochs=1))
    for weights in (2**26, 50 * posterior.model.dim):
        monkeypatch.setattr(sys.modules["nescio.compression.moments"], "WEIGHTS", weights)
        ratio = torch.cat([sd.reshape(-1) for sd in moments(posterior).sd.values()]) / 0.3
        assert float(ratio.min()) > 0.7 and float(ratio.max()) < 1.3  # of 200 draws: five standard errors are 0.25


def check_bound() -> None:
    """The upper bound on a rate is Clopper and Pearson's, and covers as often as it says."""
    for n, k in ((50, 0), (50, 3), (400, 17)):
        promise = Promised(torch.zeros(n), torch.zeros(n), 0.1, confidence=0.95)
        bound = promise.lost(torch.ones(n), (torch.arange(n) >= k).double())
        assert bound == pytest.approx(stats.beta.ppf(0.95, k + 1, n - k), abs=1e-9)
    assert clopper_pearson(4, 4, 0.1) == 1.0


def test_the_bound_of_a_promise() -> None:
    check_bound()


def test_the_evidence_picks_the_shortest_description() -> None:
    posterior, (x, y) = fitted("dropout"), classes()
    tall = ByEvidence(x, y)
    small = compress(posterior, rule=LogAlpha(tall))
    assert accuracy(small.net) > 0.9 and small.count() < 0.5 * count(posterior.model.network.net)
    each = nats(posterior)["0.weight"]
    q = posterior.q.parts()[0]
    alpha = 2 * (moments(posterior).sd["0.weight"].log() - moments(posterior).mean["0.weight"].abs().log())
    assert each.shape == (12, 8) and float(each.min()) > -0.01 and q.blocks[0].name == "0.weight"
    assert float(each[alpha > 6].max()) < 0.1 < float(each[alpha < -2].min())  # noise is free, precision is not


@pytest.mark.parametrize("kind", ["horseshoe", "gaussian"])
def test_nats_of_single_weights_add_up_to_the_divergence(kind: str) -> None:
    if kind == "gaussian":
        model = Model(mlp(3, 4, 1), Normal(0.0, 0.7), Gaussian(1.0))
        posterior = Variational.around(MeanField(), model)
    else:
        posterior = fitted(kind)
    with torch.no_grad(), Noise(0).scope():
        whole = float(posterior.q.call().divergence())
    assert float(sum(n.sum() for n in nats(posterior).values())) == pytest.approx(whole, rel=1e-4)


def test_a_laplace_posterior_and_filters_and_the_shape_of_the_input() -> None:
    x, y = classes()
    model = Model(mlp(8, 6, 2), Normal(0.0, 1.0), Categorical())
    posterior = fit(model, (x, y), MAP(epochs=40, lr=0.05, batch_size=300) >> Laplace())
    assert 0 < compress(posterior).count() < count(model.network.net)
    draws = fit(model, (x, y), MAP(epochs=2, batch_size=300))
    with pytest.raises(UnsupportedError, match="one mode"):
        compress(draws)
    with Noise(0).scope():
        net = nn.Sequential(nn.Conv2d(1, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(80, 2))
    conv = Model(net, {"0.*": Normal(0.0, HalfCauchy(1.0).per("unit")), "*": Normal(0.0, 1.0)}, Categorical())
    q, images = Variational.around(MeanField(sd=1e-2), conv), torch.zeros(2, 1, 6, 6)
    with pytest.raises(InputError, match="example"):
        compress(q)
    small = compress(q, images, rule=SignalToNoise(Promised(images, torch.zeros(2).long(), 1.0), per="output"))
    assert flops(small.net, images) < flops(net, images)
    with pytest.raises(UnsupportedError, match="random scales"):
        compress(posterior, rule=GroupScale())


class Tied(nn.Module):
    """One matrix in two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))


def test_tied_weights_are_rounded_in_all_their_places() -> None:
    x, y = classes()
    with Noise(0).scope():
        model = Model(Tied(), Normal(0.0, 1.0), Categorical())
    posterior = fit(model, (x, y), VI(MeanField(), epochs=2, batch_size=300))
    assert isinstance(posterior, Variational)
    small = compress(posterior, rule=SignalToNoise(0.0), precision=Steps(1e-3))
    with torch.no_grad():
        want = posterior.at_mean().model.network.call(
            {name: w for name, w in posterior.point().items() if name in model.network.weights()}, x
        )
        torch.testing.assert_close(small.net(x), want, rtol=0, atol=1e-3)
    assert {"a.weight", "b.weight"} <= set(small.bits())  # neither as it was, in 32 bits
    with pytest.raises(UnsupportedError, match=r"b.weight tied"):  # as two they would be drawn twice
        compress(posterior, spread=True)


# ---- export, costs --------------------------------------------------------------------------------------


def test_the_small_network_goes_through_torch_export() -> None:
    x = classes()[0]
    net = compress(fitted("jeffreys"), rule=RULES["jeffreys"]).net
    program = exported(net, x[:2])
    with torch.no_grad():
        torch.testing.assert_close(program.module()(x), net(x))


def test_onnx_runs_or_says_what_to_install(tmp_path: Path) -> None:
    x, net = classes()[0], compress(fitted("jeffreys"), rule=RULES["jeffreys"]).net
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        with pytest.raises(UnsupportedError, match="onnx"):
            to_onnx(net, x[:2], tmp_path / "net.onnx")
        return
    to_onnx(net, x[:2], tmp_path / "net.onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    (got,) = onnxruntime.InferenceSession(str(tmp_path / "net.onnx")).run(["f"], {"x": x[:7].numpy()})
    torch.testing.assert_close(torch.from_numpy(got), net(x[:7]).detach(), rtol=0, atol=1e-5)


def test_costs() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 5))
    assert flops(net, torch.zeros(7, 1, 6, 6)) == 2 * (2 * 9 * 16 + 32 * 5)
    assert 0 < seconds(net, torch.zeros(1, 1, 6, 6), 0.01) < 1


def test_the_network_is_not_written_to() -> None:
    net, x = random_net(3)
    before = copy.deepcopy(net.state_dict())
    shrink(net, x)
    assert all(torch.equal(before[name], t) for name, t in net.state_dict().items())


def test_compression_is_not_imported_with_nescio() -> None:
    code = "import sys, nescio; print('nescio.compression' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        == "False"
    )


def test_the_code_of_the_docs_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).resolve().parent.parent / "docs" / "compression.md").read_text()
    names: dict[str, object] = {}
    exec(text.partition("```python\n")[2].partition("```")[0], names)
    small = names["small"]
    assert isinstance(small, Compressed) and small.rate > 5 and "bits" in capsys.readouterr().out
    assert (tmp_path / "small.nscz").stat().st_size == small.bytes
