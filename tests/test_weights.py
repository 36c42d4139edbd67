"""Random weights in unmodified networks: which of them act by a rule, the laws of what they give, and what must not change them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from chance import assert_gaussian_variance, assert_mean, within
from torch import Tensor, nn
from torch import distributions as td
from torch.func import functional_call
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from nescio import Model, UnsupportedError, fit
from nescio.families import Gaussian, MeanField
from nescio.families.family import Block
from nescio.families.fused import NoisyLinear, NormalKL, sum_of_logs
from nescio.infer import VI
from nescio.infer.elbo import NegativeELBO
from nescio.laws import Normal
from nescio.laws.site import Site
from nescio.likelihoods import Gaussian as Noisy
from nescio.noise import Noise
from nescio.weights import RandomWeight

DOUBLE = torch.float64


def weight(mean: Tensor, sd: float, everywhere: bool = False) -> Gaussian:
    """A Gaussian of that mean and standard deviation."""
    return Gaussian(Block("w", Site("w", tuple(mean.shape)), mean.reshape(-1)), sd, everywhere)


def random(factor: Gaussian) -> RandomWeight:
    factor.begin()
    return RandomWeight.of(factor, lambda: factor.draw().view_as(factor.loc), factor.loc)


def loss_of(net: nn.Module, x: Any, outputs: int = 1, sd: float = 0.1, **options: Any) -> NegativeELBO:
    """The loss of a regression on x; y is zero."""
    y = torch.zeros(len(x), outputs).to(next(net.parameters()))
    with Noise(1).scope():
        return VI(MeanField(sd=sd, **options)).objective(Model(net, Normal(0.0, 1.0), Noisy(1.0)), (x, y))[1]


class First(nn.Module):
    """A recurrent or attention layer, its first axis the examples, with a head."""

    def __init__(self, body: nn.Module, width: int) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        out = self.body(x, x, x) if isinstance(self.body, nn.MultiheadAttention) else self.body(x)
        return self.head((out[0] if isinstance(out, tuple) else out).mean(1))


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bilinear = nn.Bilinear(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.bilinear(x, x.flip(1))


TOKENS = torch.randint(0, 7, (6, 5), generator=torch.Generator().manual_seed(0))
FLAT, SERIES, IMAGE = (
    torch.randn(6, *shape, generator=torch.Generator().manual_seed(1)) for shape in ((3,), (5, 4), (2, 6, 6))
)
NETS: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), FLAT),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(5, 3, 2, stride=2), nn.Flatten(), nn.Linear(6, 1)), SERIES),
    "conv2d": (lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, groups=2), nn.Flatten(), nn.Linear(144, 1)), IMAGE),
    "conv3d": (lambda: nn.Sequential(nn.Unflatten(1, (1, 2)), nn.Conv3d(1, 2, 2), nn.Flatten(), nn.Linear(50, 1)), IMAGE),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(2, 3, 2, stride=2), nn.Flatten(), nn.Linear(432, 1)), IMAGE),
    "lstm": (lambda: First(nn.LSTM(4, 3, batch_first=True), 3), SERIES),
    "gru": (lambda: First(nn.GRU(4, 3, batch_first=True, num_layers=2), 3), SERIES),
    "attention": (lambda: First(nn.MultiheadAttention(4, 2, batch_first=True), 4), SERIES),
    "transformer": (lambda: First(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 4), SERIES),
    "layer norm": (lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 1)), FLAT),
    "batch norm": (lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)), FLAT),
    "group norm": (lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 1)), IMAGE),
    "embedding": (lambda: nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(15, 1)), TOKENS),
    "bilinear": (Pair, FLAT),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_any_unmodified_network_gets_gradients_for_means_and_deviations(name: str) -> None:
    make, x = NETS[name]
    loss = loss_of(make(), x)
    loss.estimate(x, torch.zeros(len(x), 1), part=0.0)  # of the likelihood alone
    for path, p in loss.named_parameters():
        assert p.grad is not None and bool(p.grad.isfinite().all()), path
        assert bool((p.grad != 0).any()) or name == "attention", path  # the bias of the keys moves nothing


@pytest.mark.parametrize("name", NETS)
def test_without_spread_it_is_the_network_itself(name: str) -> None:
    make, x = NETS[name]
    net = make().double()
    x = x.double() if x.is_floating_point() else x
    for module in net.modules():
        if hasattr(module, "dropout"):
            module.dropout = nn.Dropout(0.0) if isinstance(module.dropout, nn.Module) else 0.0
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    loss = loss_of(net, x, sd=1e-9)
    own = {n: w for n, w in loss.q.call().params(loss.acting).items() if not n.startswith("likelihood.")}
    buffers = {n: b.clone() for n, b in loss.statistics.items()}
    got = loss.target.model.network.within({**own, **buffers}, x, lambda f: f)
    torch.testing.assert_close(got, net(x), rtol=1e-5, atol=1e-6)


# ---- which weights act by a rule -----------------------------------------------------------------------------------


class Folded(nn.Module):
    """Rows and time in one axis."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 2), nn.Linear(10, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x.reshape(-1, 4)).reshape(len(x), -1))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(self.inner(x)))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.head = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)
        self.other.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.other(self.one(x)))


class TimeFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 2), nn.Linear(10, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x.transpose(0, 1)).transpose(0, 1).flatten(1))


def check_acting() -> None:
    heads = {"head.weight", "head.bias"}
    for net, x, want in [
        (Folded(), SERIES, heads),
        (TimeFirst(), SERIES, heads),
        (Twice(), FLAT, heads),
        (Tied(), FLAT, heads | {"one.bias", "other.bias"}),
        (NETS["lstm"][0](), SERIES, heads),
        (NETS["conv2d"][0](), IMAGE, {"0.weight", "0.bias", "2.weight", "2.bias"}),
        (NETS["embedding"][0](), TOKENS, {"2.weight", "2.bias"}),
    ]:
        assert loss_of(net, x).acting == want, type(net).__name__


def test_noise_of_its_own_only_where_an_example_meets_a_weight_once() -> None:
    check_acting()


def check_one_random_variable() -> None:
    """y = x w + x w has variance 4 x² s², not 2 x² s²."""

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(1, 1, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) + self.inner(x)

    net = Sum().double()
    loss = loss_of(net, torch.ones(3, 1, dtype=DOUBLE), sd=0.7)
    outputs = []
    with Noise(2).scope(), torch.no_grad():
        for _ in range(4000):
            own = {"inner.weight": loss.q.call().params(loss.acting)["inner.weight"]}
            outputs.append(loss.target.model.network.within(own, torch.ones(1, 1, dtype=DOUBLE), lambda f: f)[0, 0])
    assert_gaussian_variance(torch.stack(outputs), 2 * net.inner.weight.item(), 4 * 0.7**2)


def test_a_weight_used_twice_is_one_random_variable() -> None:
    check_one_random_variable()


def test_a_weight_that_is_used_more_often_later_is_refused() -> None:
    class Fickle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(1, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(self.inner(x)) if len(x) > 3 else self.inner(x)

    x = torch.ones(6, 1)
    with pytest.raises(UnsupportedError, match="more often"):
        loss_of(Fickle(), x)(x, torch.zeros(6, 1))


# ---- laws of the outputs -------------------------------------------------------------------------------------------


def check_local_law() -> None:
    """Mean x·μ, variance Σ x² s², independent between examples; a drawn weight would give Σ x x' s²."""
    generator = torch.Generator().manual_seed(0)
    x, mean = torch.randn(2, 3, generator=generator, dtype=DOUBLE), torch.randn(1, 3, generator=generator, dtype=DOUBLE)
    factor, bias, n = weight(mean, 0.6), weight(torch.tensor([0.4], dtype=DOUBLE), 0.3), 20_000
    with Noise(0).scope(), torch.no_grad():
        out = F.linear(x.repeat(n, 1), random(factor), random(bias)).view(n, 2)
    expected, variance = (x @ mean.T)[:, 0] + 0.4, 0.36 * x.square().sum(1) + 0.09
    assert_mean(out, expected, variance.sqrt())
    assert_gaussian_variance(out, expected, variance)
    product = ((out - expected) / variance.sqrt()).prod(1)
    within(product.mean() * n**0.5, "covariance between examples")


def test_a_linear_map_is_drawn_by_the_law_of_its_output() -> None:
    check_local_law()


def check_signed_law() -> None:
    """A convolution of one example has the covariance of a drawn weight, and none with another example."""
    x = torch.tensor([[[1.0, 2.0, -1.0]], [[0.5, 1.0, 1.5]]], dtype=DOUBLE)  # (examples, channels, positions)
    factor, n = weight(torch.tensor([[[0.3, -0.2]]], dtype=DOUBLE), 0.5), 8000
    with Noise(0).scope(), torch.no_grad():
        out = torch.stack([torch.conv1d(x, random(factor)).flatten() for _ in range(n)])  # (n, examples x positions)
    windows = x.unfold(2, 2, 1)[:, 0]  # (examples, positions, kernel)
    covariance = 0.25 * torch.block_diag(*(w @ w.T for w in windows))
    mean = torch.conv1d(x, factor.loc).flatten().detach()
    white = torch.linalg.solve_triangular(torch.linalg.cholesky(covariance), (out - mean).T, upper=False)
    products = (white[:, None] * white[None]).mean(2) - torch.eye(
        4, dtype=DOUBLE
    )  # sd at most sqrt(3 - 1) / sqrt(n) each, kurtosis 3
    within(products / (3 / n) ** 0.5)


def test_a_convolution_keeps_the_joint_law_within_an_example() -> None:
    check_signed_law()


@pytest.mark.parametrize("everywhere", [False, True])
def test_every_output_has_the_same_marginal_as_under_a_drawn_weight(everywhere: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 2, 4, generator=generator, dtype=DOUBLE)
    factor, n = weight(torch.randn(2, 2, 3, generator=generator, dtype=DOUBLE), 0.5, everywhere), 8000
    with Noise(1).scope(), torch.no_grad():
        out = torch.stack([torch.conv1d(x, random(factor)).flatten() for _ in range(n)])
        drawn = torch.stack([torch.conv1d(x, random(factor).value()).flatten() for _ in range(n)])
    mean = torch.conv1d(x, factor.loc).flatten().detach()
    variance = torch.conv1d(x.square(), torch.full_like(factor.loc, 0.25)).flatten().detach()
    for each in (out, drawn):
        assert_mean(each, mean, variance.sqrt())
        assert_gaussian_variance(each, mean, variance)


def test_local_noise_gives_the_same_gradient_with_less_noise() -> None:
    """Of E Σ_b y_b² over a batch of 16: the same mean, and a variance lower by an order."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16, 5, generator=generator, dtype=DOUBLE)
    factor, n = weight(torch.zeros(1, 5, dtype=DOUBLE), 0.5), 3000
    exact = 2 * (x.square() * 0.5).sum(0)  # d/ds of Σ_b Σ_i x² s²
    slopes: dict[str, list[Tensor]] = {"local": [], "drawn": []}
    with Noise(0).scope():
        for _ in range(n):
            for name, values in slopes.items():
                given = random(factor) if name == "local" else random(factor).value()
                (slope,) = torch.autograd.grad(F.linear(x, given).square().sum(), factor.rho)
                values.append(slope[0] / (1 - torch.tensor(-0.5).exp()))  # rho to sd
    local, drawn = torch.stack(slopes["local"]), torch.stack(slopes["drawn"])
    assert_mean(local, exact)
    assert_mean(drawn, exact)
    ratio = float(local.var(0).sum() / drawn.var(0).sum())
    assert ratio < 0.3, f"variance ratio {ratio:.2f}"


# ---- gradients by hand ---------------------------------------------------------------------------------------------


def check_fused() -> None:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=DOUBLE).requires_grad_()

    def positive(*shape: int) -> Tensor:
        return normal(*shape).detach().exp().requires_grad_()

    loc, sd, m, s = normal(3, 4), positive(3, 4), normal(2), positive(2)
    whole = (m, s, loc, normal(5), sd, positive(5))
    each = zip(whole[2:4], whole[4:], m, s, strict=True)
    want = torch.stack([td.kl_divergence(td.Normal(a, b), td.Normal(c, d)).sum() for a, b, c, d in each]).sum()
    torch.testing.assert_close(NormalKL.apply(*whole), want)
    assert torch.autograd.gradcheck(NormalKL.apply, whole, raise_exception=False), "the slope of the divergence"
    many = torch.rand(4003, generator=generator, dtype=DOUBLE)
    for scale in (1.0, 1e-100):  # products of four of these vanish
        torch.testing.assert_close(sum_of_logs(scale * many), (scale * many).log().sum())
    x, noise, bias, bias_sd = normal(5, 4), normal(5, 3).detach(), normal(3), normal(3).detach().exp().requires_grad_()
    want = F.linear(x, loc, bias) + noise * F.linear(x**2, sd**2, bias_sd**2).sqrt()
    torch.testing.assert_close(NoisyLinear.apply(x, loc, sd, bias, bias_sd, noise), want)
    whole = (x, loc, sd, bias, bias_sd, noise)
    assert torch.autograd.gradcheck(NoisyLinear.apply, whole, raise_exception=False), "the slope of a noisy map"
    assert torch.autograd.gradcheck(NoisyLinear.apply, (x, loc, sd, None, None, noise), raise_exception=False)


def test_the_fused_functions_are_torchs_own() -> None:
    check_fused()


def test_an_input_of_zeros_has_finite_gradients() -> None:
    factor = weight(torch.ones(2, 3), 0.1)
    F.linear(torch.zeros(4, 3), random(factor)).sum().backward()
    assert factor.rho.grad is not None and bool(factor.rho.grad.isfinite().all())


# ---- machinery -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["linear", "conv2d", "transformer"])
def test_compiled(name: str) -> None:
    make, x = NETS[name]
    net = make().eval()
    loss = loss_of(net, x)

    def run(x: Tensor) -> Tensor:
        own = {n: w for n, w in loss.q.call().params(loss.acting).items() if not n.startswith("likelihood.")}
        return functional_call(net, own, (x,))

    torch._dynamo.reset()
    compiled = torch.compile(run, backend="aot_eager")
    out = compiled(x)
    out.square().sum().backward()
    gradients = [p.grad for path, p in loss.named_parameters() if "rho" in path]
    assert out.shape == (6, 1) and all(g is not None and bool(g.isfinite().all()) for g in gradients)
    with torch.no_grad():
        draws = torch.cat([compiled(x[:1]) for _ in range(8)])
    assert len(draws.unique()) == 8, "compiled code draws the same again"


def test_a_compiled_module_is_trained_as_the_plain_one() -> None:
    """`torch.compile(net)` in the place of a network: the same noise, the same steps, and its names stay."""
    torch._dynamo.reset()
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    data, method = (FLAT, FLAT[:, :1]), VI(epochs=2, batch_size=3)
    plain, coded = (
        fit(Model(module, Normal(0.0, 1.0), Noisy(0.5)), data, method)
        for module in (net, torch.compile(net, backend="aot_eager"))
    )
    for name, _ in net.named_parameters():
        torch.testing.assert_close(coded.point()[f"_orig_mod.{name}"], plain.point()[name])


HALVES = """
import torch
net, x = torch.nn.LSTM(3, 4), torch.randn(5, 6, 3)
with torch.autocast("cpu", torch.bfloat16):
    net(x)[0].sum().backward()
"""


def recurrent_halves() -> bool:
    """Whether torch by itself runs a recurrent layer in bfloat16 on this processor. Of some it asks for an instruction that they do not
    have, which ends the process: so another one tries."""
    return not subprocess.run([sys.executable, "-c", HALVES], capture_output=True, check=False).returncode


@pytest.mark.parametrize("name", ["linear", "conv2d", "lstm", "transformer"])
def test_autocast(name: str) -> None:
    if name == "lstm" and not recurrent_halves():
        pytest.skip("torch has no bfloat16 for recurrent layers on this processor")
    make, x = NETS[name]
    loss = loss_of(make(), x, sd=0.02)
    y = torch.zeros(len(x), 1)
    with Noise(0).scope():
        plain = loss(x, y)
    with Noise(0).scope(), torch.autocast("cpu", torch.bfloat16):
        cast = loss(x, y)
    cast.backward()
    assert cast.item() == pytest.approx(plain.item(), rel=0.05)
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in loss.parameters())


class Blocks(nn.Module):
    def __init__(self, checkpointed: bool) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 4), nn.LSTM(4, 4, batch_first=True), nn.Linear(4, 1)
        self.checkpointed = checkpointed

    def inside(self, x: Tensor) -> Tensor:
        return self.b(F.dropout(torch.tanh(self.a(x)), 0.5)[:, None])[0][:, 0]

    def forward(self, x: Tensor) -> Tensor:
        if not self.checkpointed:
            return self.c(self.inside(x))
        return self.c(checkpoint(self.inside, x, use_reentrant=False))


def check_checkpointing() -> None:
    gradients = []
    for checkpointed in (False, True):
        with Noise(5).scope():
            net = Blocks(checkpointed)
        loss = loss_of(net, FLAT)
        try:
            with Noise(7).scope():
                loss(FLAT, torch.zeros(6, 1)).backward()
        except RuntimeError as error:  # torch sees that what it computes again is another thing
            raise AssertionError("a checkpointed network has other weights on the way back") from error
        gradients.append([p.grad for p in loss.parameters()])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


def test_a_checkpointed_network_has_the_same_noise_again() -> None:
    check_checkpointing()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("name", NETS)
def test_on_a_gpu(name: str) -> None:
    make, x = NETS[name]
    loss = loss_of(make().cuda(), x.cuda())
    loss(x.cuda(), torch.zeros(len(x), 1).cuda()).backward()
    assert all(p.grad is not None and p.grad.is_cuda and bool(p.grad.isfinite().all()) for p in loss.parameters())


def test_asked_for_its_shape_it_is_not_drawn() -> None:
    factor = weight(torch.ones(2, 3), 0.1)
    given = random(factor)
    assert (given.shape, given.dtype, given.dim(), given.numel(), len(given)) == ((2, 3), torch.float32, 2, 6, 2)
    assert given.drawn is None
    assert torch.equal(given + 0, given.value())
