"""The curvature of every kind of layer and likelihood against brute force: Jacobians row by row, by autograd, one example at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from chance import within
from torch import Tensor, nn
from torch import distributions as td
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from nescio import InputError, Model, UnsupportedError, fit
from nescio.data.source import source
from nescio.infer import Laplace
from nescio.infer.curvature import Full, Structure, Sweep, diag, full, kfac, low_rank, sweep
from nescio.infer.curvature.columns import chances, columns, sampled
from nescio.infer.curvature.kfac import KFAC
from nescio.jacobian import quadratic
from nescio.laws import Normal
from nescio.likelihoods import (
    Bernoulli,
    Categorical,
    ContinuousBernoulli,
    Gaussian,
    Heteroscedastic,
    Likelihood,
    MultiTask,
)
from nescio.linalg import Blocks, Dense, Diag, Kron, Operator
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior import GaussianPosterior
from nescio.posterior.places import places

DOUBLE = torch.float64
N, IN = 5, 3
NOISE = 0.7


class Through(nn.Module):
    """A network written down as a function of itself."""

    def __init__(self, forward: Callable[[Any, Tensor], Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.run = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def conv(*layers: nn.Module, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (1, 2, 3)), *layers, nn.Flatten(), nn.Linear(outputs, 2))


def normalised(layer: nn.Module) -> nn.Module:
    """With statistics as if it had been trained."""
    for name, buffer in layer.named_buffers():
        if buffer.is_floating_point():
            buffer.copy_(Noise(1, (name,), dtype=buffer.dtype).uniform(*buffer.shape) + 0.5)
    return layer


def number(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape))


def tokens(m: Any, x: Tensor) -> Tensor:
    """(N, 4) numbers as words, (N, 4, 2)."""
    return m.words((x * 3).long().clamp(0, 4))


def lstm(**options: Any) -> nn.Module:
    width = 4 if options.get("bidirectional") else 2
    return Through(
        lambda m, x: m.head(m.cell(x[..., None])[0][:, -1]),
        cell=nn.LSTM(1, 2, batch_first=True, **options),
        head=nn.Linear(width, 2),
    )


def encoder(batch_first: bool) -> nn.Module:
    def forward(m: Any, x: Tensor) -> Tensor:
        x = m.up(x[..., None])  # (N, time, 4)
        return m.head(m.layer(x).mean(1) if batch_first else m.layer(x.transpose(0, 1)).mean(0))

    layer = nn.TransformerEncoderLayer(4, 2, 5, dropout=0.1, batch_first=batch_first)
    return Through(forward, up=nn.Linear(1, 4), layer=layer, head=nn.Linear(4, 2))


NETS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(6, 2),
    "mlp": lambda: mlp(6, 4, 3, 2),
    "no bias": lambda: nn.Sequential(nn.Linear(6, 3, bias=False), nn.Tanh(), nn.Linear(3, 2, bias=False)),
    "in place": lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)),
    "residual": lambda: Through(lambda m, x: m.b(x + m.a(x).tanh()), a=nn.Linear(6, 6), b=nn.Linear(6, 2)),
    "on tokens": lambda: Through(
        lambda m, x: m.b(m.a(x.view(-1, 3, 2)).tanh()).mean(1), a=nn.Linear(2, 3), b=nn.Linear(3, 2)
    ),
    "conv2d": lambda: conv(nn.Conv2d(1, 2, 2, padding=1), nn.Tanh(), nn.Conv2d(2, 2, (2, 3), stride=(1, 2)), outputs=4),
    "conv2d, same and dilated": lambda: conv(
        nn.Conv2d(1, 2, (1, 3), padding="same"),
        nn.Tanh(),
        nn.Conv2d(2, 1, (1, 2), dilation=2, padding_mode="circular"),
        outputs=2,
    ),
    "conv1d": lambda: Through(
        lambda m, x: m.b(m.a(x[:, None]).tanh().flatten(1)), a=nn.Conv1d(1, 2, 3, stride=2), b=nn.Linear(4, 2)
    ),
    "conv3d": lambda: Through(
        lambda m, x: m.b(m.a(x.view(-1, 1, 1, 2, 3)).tanh().flatten(1)), a=nn.Conv3d(1, 2, (1, 2, 2)), b=nn.Linear(4, 2)
    ),
    "groups and transposed": lambda: conv(
        nn.Conv2d(1, 2, 1), nn.Conv2d(2, 2, 2, groups=2), nn.Tanh(), nn.ConvTranspose2d(2, 1, 2), outputs=6
    ),
    "layer norm": lambda: nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 2)),
    "group norm": lambda: conv(nn.Conv2d(1, 4, 1), nn.GroupNorm(2, 4), nn.Tanh(), outputs=24),
    "batch norm": lambda: nn.Sequential(nn.Linear(6, 4), normalised(nn.BatchNorm1d(4)), nn.Tanh(), nn.Linear(4, 2)),
    "prelu": lambda: nn.Sequential(nn.Linear(6, 4), nn.PReLU(), nn.Linear(4, 2)),
    "embedding": lambda: Through(
        lambda m, x: m.head(tokens(m, x).mean(1)), words=nn.Embedding(5, 2), head=nn.Linear(2, 2)
    ),
    "embedding, twice, with padding": lambda: Through(
        lambda m, x: m.head((tokens(m, x).mean(1) * m.words((x[:, :2] * 2).long().clamp(0, 4)).sum(1)).tanh()),
        words=nn.Embedding(5, 2, padding_idx=1),
        head=nn.Linear(2, 2),
    ),
    "embedding, also the way out": lambda: Through(
        lambda m, x: F.linear(m.head(tokens(m, x).mean(1)).tanh(), m.words.weight),
        words=nn.Embedding(5, 2),
        head=nn.Linear(2, 2),
    ),
    "positions": lambda: Through(
        lambda m, x: m.head((tokens(m, x) + m.place).tanh().flatten(1)),
        words=nn.Embedding(5, 2),
        place=number(6, 2),
        head=nn.Linear(12, 2),
    ),
    "attention": lambda: encoder(batch_first=True),
    "attention, time first": lambda: encoder(batch_first=False),
    "lstm": lambda: lstm(),
    "lstm, both ways and deep": lambda: lstm(num_layers=2, bidirectional=True),
    "lstm without biases": lambda: lstm(bias=False),
    "gru": lambda: Through(
        lambda m, x: m.head(m.cell(x[..., None])[0][:, -1]), cell=nn.GRU(1, 2, batch_first=True), head=nn.Linear(2, 2)
    ),
    "functional": lambda: Through(
        lambda m, x: F.linear(F.linear(x, m.w).tanh(), m.v, m.b), w=number(3, 6), v=number(2, 3), b=number(2)
    ),
    "tied": lambda: Through(lambda m, x: m.b(m.a(m.a(x).tanh()).tanh()), a=nn.Linear(6, 6), b=nn.Linear(6, 2)),
    "tied, transposed": lambda: Through(lambda m, x: m.a(F.linear(m.a(x).tanh(), m.a.weight.t())), a=nn.Linear(6, 2)),
    "tied, another bias": lambda: Through(
        lambda m, x: m.head(F.linear(m.a(x).tanh(), m.a.weight, m.c).tanh()),
        a=nn.Linear(6, 6),
        c=number(6),
        head=nn.Linear(6, 2),
    ),
    "weight norm": lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 3)), nn.Tanh(), nn.Linear(3, 2)),
    "class token": lambda: Through(
        lambda m, x: m.head(torch.cat([m.token.expand(len(x), 1), x], 1).tanh()),
        token=number(1, 1),
        head=nn.Linear(7, 2),
    ),
    "examples folded": lambda: Through(
        lambda m, x: m.b(m.a(x.reshape(-1, 2)).tanh().view(len(x), 9)), a=nn.Linear(2, 3), b=nn.Linear(9, 2)
    ),
    "a weight without use": lambda: Through(lambda m, x: m.a(x), a=nn.Linear(6, 2), never=number(3)),
    "a scale": lambda: Through(
        lambda m, x: m.a(x) * m.scale.exp() + m.shift, a=nn.Linear(6, 2), scale=number(2), shift=number(1)
    ),
}


def inputs(rows: int = N) -> Tensor:
    return Noise(2, ("x",), dtype=DOUBLE).normal(rows, 6)


def curvature(model: Model, data: Any, structure: Structure, samples: int | None = None, seed: int = 0) -> Operator:
    params = {**model.point(model.noise(0, "point")), **model.network.statistics()}
    index = places(model.prior, None, "the test")
    return structure.measure(Sweep(model, params, index, source(data), samples, model.noise(seed, "test")))


def jacobians(net: nn.Module, x: Any) -> Tensor:
    """(N, D, P) by autograd, one output of one example at a time."""
    parameters = [p for p in net.parameters() if p.requires_grad]
    net.eval()
    rows = []
    for n in range(len(x)):
        f = net(x[n : n + 1])
        f = torch.cat([f[k].reshape(-1) for k in f]) if isinstance(f, dict) else f.reshape(-1)
        for output in f:
            grads = torch.autograd.grad(output, parameters, retain_graph=True, allow_unused=True)
            pairs = zip(grads, parameters, strict=True)
            rows.append(torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1) for g, p in pairs]))
    return torch.stack(rows).view(len(x), -1, rows[0].numel())


def regression(name: str) -> tuple[Model, tuple[Tensor, Tensor], Tensor]:
    """A model with that network, data, and the Gauss-Newton matrix by brute force."""
    torch.default_generator.manual_seed(1)
    net, x = NETS[name]().double(), inputs()
    model = Model(net, Normal(0, 1), Gaussian(NOISE))
    with torch.no_grad():
        y = torch.zeros_like(net.eval()(x))
    rows = jacobians(net, x)
    return model, (x, y), torch.einsum("ndi,ndj->ij", rows, rows) / NOISE**2


def close(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-10)


# ---- every layer ---------------------------------------------------------------------------------------------------


def check_layers(names: tuple[str, ...]) -> None:
    for name in names:
        model, data, wanted = regression(name)
        close(curvature(model, data, full).dense(), wanted)
        close(curvature(model, data, diag).diagonal(), wanted.diagonal())
        close(curvature(model, data, low_rank(model.dim)).dense(), wanted)


@pytest.mark.parametrize("name", NETS)
def test_every_layer(name: str) -> None:
    check_layers((name,))


@pytest.mark.parametrize("name", NETS)
def test_blocks_without_a_rule_are_exact(name: str) -> None:
    """In KFAC no weight is left out: each block is a Kronecker product of the right size, or exactly that of brute force."""
    model, data, wanted = regression(name)
    found = curvature(model, data, kfac)
    assert isinstance(found, Blocks)
    assert found.size == model.dim
    for operator, place in found.pairs():
        if not isinstance(operator, Kron):
            close(operator.dense(), wanted[place][:, place])
        else:
            assert float(operator.diagonal().sum()) > 0
    smaller = curvature(model, data, KFAC(exact=0))
    assert isinstance(smaller, Blocks)
    for operator, place in smaller.pairs():
        assert isinstance(operator, (Kron, Diag))
        if isinstance(operator, Diag):
            close(operator.values, wanted.diagonal()[place])


def kinds(name: str) -> dict[str, str]:
    model, data, _ = regression(name)
    found = curvature(model, data, kfac)
    assert isinstance(found, Blocks)
    where = places(model.prior, None, "the test")
    owner = {int(entry): operator.kind for operator, place in found.pairs() for entry in place}
    return {weight: owner[int(place[0])] for weight, place in where.items()}


def test_which_weights_have_kronecker_factors() -> None:
    assert set(kinds("mlp").values()) == {"Kron"}
    assert set(kinds("conv2d").values()) == {"Kron"}
    assert set(kinds("lstm, both ways and deep").values()) == {"Kron"}
    found = kinds("attention")
    assert {kind for weight, kind in found.items() if "norm" not in weight} == {"Kron"}
    assert {kind for weight, kind in found.items() if "norm" in weight} == {"Dense"}
    assert kinds("tied") == {"a.weight": "Kron", "a.bias": "Kron", "b.weight": "Kron", "b.bias": "Kron"}
    assert kinds("tied, transposed") == {"a.weight": "Dense", "a.bias": "Kron"}  # the bias is used in two linear maps
    assert kinds("tied, another bias")["a.weight"] == "Dense"
    assert kinds("a weight without use")["never"] == "Diag"
    assert kinds("embedding")["words.weight"] == kinds("embedding, twice, with padding")["words.weight"] == "Kron"
    assert kinds("embedding, also the way out")["words.weight"] == "Dense"


# ---- KFAC where it is exact ----------------------------------------------------------------------------------------


def blocks_of(wanted: Tensor, places: tuple[Tensor, ...]) -> list[Tensor]:
    return [wanted[place][:, place] for place in places]


def check_kfac_exact() -> None:
    """One example met once; deep linear networks under squared error; a convolution with one position; weights and biases together."""
    deep = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3), nn.Linear(3, 2)).double()
    nonlinear = mlp(6, 4, 3, 2).double()
    single = nn.Sequential(nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, (2, 3)), nn.Flatten(), nn.Linear(4, 2)).double()
    for net, rows in ((deep, N), (nonlinear, 1), (single, N)):
        x = inputs(rows)
        found = curvature(Model(net, Normal(0, 1), Gaussian(NOISE)), (x, torch.zeros(rows, 2, dtype=DOUBLE)), kfac)
        jacobian = jacobians(net, x)
        wanted = torch.einsum("ndi,ndj->ij", jacobian, jacobian) / NOISE**2
        assert isinstance(found, Blocks)
        assert all(isinstance(operator, Kron) for operator in found.operators)
        for (operator, _), block in zip(found.pairs(), blocks_of(wanted, found.places), strict=True):
            close(operator.dense(), block)


def test_kfac_where_it_is_exact() -> None:
    check_kfac_exact()


@pytest.mark.parametrize("pattern", ["*.bias", "*.weight", "0.*"])
def test_kfac_of_some_weights(pattern: str) -> None:
    """Of one example exact within a layer, whichever of its weights are random: a bias has an input of its own."""
    model, data = Model(mlp(6, 4, 2).double(), Normal(0, 1), Gaussian(NOISE)), (inputs(1), inputs(1)[:, :2])
    one, two = (fit(model, data, Laplace(structure).on(pattern)) for structure in (kfac, full))
    assert isinstance(one, GaussianPosterior) and isinstance(two, GaussianPosterior)
    close(*(torch.linalg.inv(p.covariance.dense()).diagonal() for p in (one, two)))


def check_table() -> None:
    """An embedding of one word an example in a deep linear network: how often each word is met ⊗ what comes back, exactly."""
    torch.default_generator.manual_seed(2)
    net = Through(
        lambda m, x: m.b(m.a(m.words(x[:, 0].long()))), words=nn.Embedding(4, 3), a=nn.Linear(3, 3), b=nn.Linear(3, 2)
    )
    net, x = net.double(), torch.tensor([[0], [2], [2], [1], [2]])
    y = torch.zeros(N, 2, dtype=DOUBLE)
    posterior = fit(Model(net, Normal(0, 1), Gaussian(NOISE)), (x, y), Laplace(kfac))
    jacobian = jacobians(net, x)
    wanted = torch.einsum("ndi,ndj->ij", jacobian, jacobian) / NOISE**2
    assert isinstance(posterior, GaussianPosterior) and isinstance(posterior.curvature, Blocks)
    for (operator, _), block in zip(
        posterior.curvature.pairs(), blocks_of(wanted, posterior.curvature.places), strict=True
    ):
        close(operator.dense(), block)
    outputs = posterior.linearize().outputs(x).covariance
    close(outputs, jacobian @ posterior.covariance.dense() @ jacobian.mT)


def test_table() -> None:
    check_table()


def test_a_long_table_is_not_multiplied_out() -> None:
    """A million words of width 8 for two outputs: 256 MB of rows an example, if they were made."""
    net = Through(lambda m, x: m.head(m.words(x).mean(1)), words=nn.Embedding(1_000_000, 8), head=nn.Linear(8, 2))
    model = Model(net, Normal(0, 1), Gaussian(NOISE))
    params = {**model.point(model.noise(0, "point")), **model.network.statistics()}
    data = source((torch.tensor([[3, 900_000, 3], [7, 7, 1]]), torch.zeros(2, 2)))
    swept = Sweep(model, params, places(model.prior, None, "the test"), data, None, model.noise(0, "test"))
    assert swept.cost[0] < 2**20
    found = diag.measure(swept).values
    assert int((found > 0).sum()) == 8 * 4 + 18  # four words, and the head


def test_kfac_counts_positions_once() -> None:
    """A linear layer on R equal tokens whose mean is taken: as one token. By "expand" the factors give 1/R of it: Σgg is 1/R², R times."""
    torch.default_generator.manual_seed(3)
    layer = nn.Linear(2, 2).double()
    net = Through(lambda m, x: m.a(x[:, None, :2].expand(-1, 3, 2)).mean(1), a=layer)
    x, y = inputs(), torch.zeros(N, 2, dtype=DOUBLE)
    token = curvature(Model(Through(lambda m, x: m.a(x[:, :2]), a=layer), Normal(0, 1), Gaussian(NOISE)), (x, y), kfac)
    spread = curvature(Model(net, Normal(0, 1), Gaussian(NOISE)), (x, y), kfac)
    close(spread.dense() * 3, token.dense())


# ---- the whole data, in parts --------------------------------------------------------------------------------------


def check_sums(monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    """Twice the data, twice the curvature: a sum and not a mean; and however the rows are cut into parts."""
    torch.default_generator.manual_seed(4)
    net = mlp(6, 4, 2).double()
    model = Model(net, Normal(0, 1), Categorical())
    x, y = inputs(7), torch.tensor([0, 1, 1, 0, 1, 0, 0])
    for structure in (diag, full, kfac):
        once = curvature(model, (x, y), structure).dense()
        close(curvature(model, (torch.cat([x, x]), torch.cat([y, y])), structure).dense(), 2 * once)
        if monkeypatch is not None:
            with monkeypatch.context() as m:
                m.setattr(sweep, "MOST_ROWS", 3)
                m.setattr(sweep, "MOST_COLUMNS", 1)
                close(curvature(model, (x, y), structure).dense(), once)


def test_sums_over_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    check_sums(monkeypatch)


# ---- every likelihood ----------------------------------------------------------------------------------------------


class Heavy(Likelihood):
    """An own likelihood with a distribution that the library knows nothing about."""

    def observe(self, f: Tensor) -> td.Distribution:
        return td.Gumbel(f, torch.ones_like(f))


def softmax_root(f: Tensor) -> Tensor:
    p = f.softmax(-1)
    return torch.diag_embed(p) - p[..., :, None] * p[..., None, :]


def heteroscedastic(f: Tensor) -> Tensor:
    """1/σ² for the mean, 2 σ'²/σ² for the raw scale."""
    raw = f[:, f.shape[1] // 2 :]
    sd = F.softplus(raw) + 1e-6
    return torch.diag_embed(torch.cat([1 / sd.square(), 2 * raw.sigmoid().square() / sd.square()], 1))


def gumbel(f: Tensor, y: Tensor) -> Tensor:
    """-log p = z + e^-z with z = y - f: its second derivative e^-z is positive."""
    return torch.diag_embed((-(y - f)).exp())


def images(f: Tensor) -> Tensor:
    """Classes on the second axis: at each position by itself."""
    at = softmax_root(f.view(len(f), 2, 3).mT)  # (N, 3, 2, 2)
    return torch.stack([torch.block_diag(*row) for row in at])[:, ORDER][:, :, ORDER]


ORDER = torch.tensor([0, 2, 4, 1, 3, 5])  # (position, class) to (class, position)

LIKELIHOODS: dict[str, tuple[Likelihood, int, Callable[[], Any], Callable[[Tensor, Any], Tensor]]] = {
    "Gaussian": (
        Gaussian(torch.tensor([0.5, 2.0], dtype=DOUBLE), loc=1.0, scale=3.0),
        2,
        lambda: torch.zeros(N, 2, dtype=DOUBLE),
        lambda f, _: torch.diag(torch.tensor([4.0, 0.25], dtype=DOUBLE)).expand(N, 2, 2),
    ),
    "Heteroscedastic": (Heteroscedastic(), 4, lambda: torch.zeros(N, 2, dtype=DOUBLE), lambda f, _: heteroscedastic(f)),
    "Categorical": (Categorical(), 3, lambda: torch.arange(N) % 3, lambda f, _: softmax_root(f)),
    "Categorical, cool": (Categorical(2.0), 3, lambda: torch.arange(N) % 3, lambda f, _: softmax_root(f / 4) / 16),
    "Bernoulli": (
        Bernoulli(),
        2,
        lambda: torch.ones(N, 2, dtype=DOUBLE),
        lambda f, _: torch.diag_embed(f.sigmoid() * (1 - f.sigmoid())),
    ),
    "ContinuousBernoulli": (
        ContinuousBernoulli(),
        2,
        lambda: torch.full((N, 2), 0.3, dtype=DOUBLE),
        lambda f, _: torch.diag_embed(1 / f.square() - 1 / (2 * torch.sinh(f / 2)).square()),
    ),
    "unknown": (Heavy(), 2, lambda: torch.ones(N, 2, dtype=DOUBLE), gumbel),
}


def brute(net: nn.Module, x: Tensor, weight: Callable[[Tensor], Tensor]) -> Tensor:
    rows = jacobians(net, x)
    with torch.no_grad():
        f = net(x)
        flat = torch.cat([f[k].flatten(1) for k in f], 1) if isinstance(f, dict) else f.flatten(1)
    return torch.einsum("ndi,nde,nej->ij", rows, weight(flat), rows)


def check_likelihood(name: str) -> None:
    likelihood, outputs, y, weight = LIKELIHOODS[name]
    torch.default_generator.manual_seed(5)
    net, x, data = mlp(6, 3, outputs).double(), inputs(), y()
    wanted = brute(net, x, lambda f: weight(f, data))
    model = Model(net, Normal(0, 1), likelihood)
    close(curvature(model, (x, data), full).dense(), wanted)
    close(curvature(model, (x, data), diag).diagonal(), wanted.diagonal())


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_every_likelihood(name: str) -> None:
    check_likelihood(name)


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_one_column_less_than_classes(classes: int) -> None:
    p = Noise(0, ("p",), dtype=DOUBLE).normal(6, classes).softmax(-1)
    p[0] = torch.eye(classes, dtype=torch.float64)[0]  # no doubt at all
    p[1] = torch.eye(classes, dtype=torch.float64)[-1]
    found = chances(p)
    assert len(found) == max(1, classes - 1)
    exact = p.diag_embed() - p[:, :, None] * p[:, None]
    torch.testing.assert_close(torch.einsum("kni,knj->nij", found, found), exact, atol=1e-14, rtol=0)
    torch.testing.assert_close(found.sum(-1), torch.zeros_like(found[..., 0]), atol=1e-14, rtol=0)


def test_classes_of_pixels() -> None:
    torch.default_generator.manual_seed(6)
    net, x = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Unflatten(1, (2, 1, 3))).double(), inputs()
    model = Model(net, Normal(0, 1), Categorical(axis=-3))
    y = torch.arange(3 * N).view(N, 1, 3) % 2
    close(curvature(model, (x, y), full).dense(), brute(net, x, images))


def test_several_tasks() -> None:
    torch.default_generator.manual_seed(7)
    net = Through(lambda m, x: {"a": m.a(x), "b": m.b(x).tanh()}, a=nn.Linear(6, 2), b=nn.Linear(6, 3)).double()
    model = Model(net, Normal(0, 1), MultiTask(a=Gaussian(0.5), b=Categorical()))
    x, y = inputs(), {"a": torch.zeros(N, 2, dtype=DOUBLE), "b": torch.arange(N) % 3}

    def weight(f: Tensor) -> Tensor:
        first = torch.eye(2, dtype=DOUBLE).expand(N, 2, 2) * 4
        return torch.stack([torch.block_diag(a, b) for a, b in zip(first, softmax_root(f[:, 2:]), strict=True)])

    close(curvature(model, (x, y), full).dense(), brute(net, x, weight))


class Two(nn.Module):
    """Two inputs, by name or in order."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 3), nn.Linear(6, 3)
        self.head = nn.Linear(3, 2)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.head((self.a(left) * self.b(right)).tanh())


def test_several_inputs() -> None:
    net = Two().double()
    x, y = inputs(), torch.zeros(N, 2, dtype=DOUBLE)
    rows = jacobians(Through(lambda m, x: m.net(x, x.flip(1)), net=net), x)
    wanted = torch.einsum("ndi,ndj->ij", rows, rows) / NOISE**2
    model = Model(net, Normal(0, 1), Gaussian(NOISE))
    close(curvature(model, ((x, x.flip(1)), y), full).dense(), wanted)
    close(curvature(model, ({"left": x, "right": x.flip(1)}, y), full).dense(), wanted)


@pytest.mark.parametrize("name", [name for name in LIKELIHOODS if name != "unknown"])
def test_sampled_curvature_is_right_on_average(name: str) -> None:
    """The mean of s sᵀ over 20,000 independent outcomes within Z standard errors of the exact information, in every entry."""
    likelihood, outputs, y, weight = LIKELIHOODS[name]
    f = Noise(4, (), dtype=DOUBLE).normal(N, outputs)
    numbers = {n: torch.as_tensor(number, dtype=DOUBLE) for n, (number, _) in likelihood.numbers().items()}
    count = 20_000
    (s,) = sampled(lambda f: likelihood.observe(f, **numbers), f.repeat(count, 1), 1, Noise(1))
    s = s.view(count, N, outputs)
    each = s[..., :, None] * s[..., None, :]  # (draws, N, D, D)
    within((each.mean(0) - weight(f, y())) / (each.std(0) / count**0.5 + 1e-9))
    (exact,) = columns(lambda f: likelihood.observe(f, **numbers), f, y())
    close(torch.einsum("knd,kne->nde", exact, exact), weight(f, y()))


def test_sampled_curvature_of_a_network() -> None:
    """One draw an example: as many rows as examples, another for another seed, on average the exact matrix."""
    model, data, wanted = regression("linear")
    one, other = (curvature(model, data, full, samples=1, seed=seed).dense() for seed in (0, 1))
    assert int(torch.linalg.matrix_rank(one)) == N
    assert not torch.equal(one, other)
    many = curvature(model, data, full, samples=2000).dense()
    # tr(M²) of the error over tr(M²): 2 / samples for a Gaussian in each direction, so a tenth is far beyond it
    assert float((many - wanted).norm() / wanted.norm()) < 0.1


# ---- Hessian and Gauss-Newton --------------------------------------------------------------------------------------


def hessian(net: nn.Module, x: Tensor, loss: Callable[[Tensor], Tensor]) -> Tensor:
    parameters = list(net.parameters())
    grads = torch.autograd.grad(loss(net(x)), parameters, create_graph=True)
    flat = torch.cat([g.reshape(-1) for g in grads])
    rows = [
        torch.autograd.grad(one, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
        for one in flat
    ]
    return torch.stack([torch.cat([r.reshape(-1) for r in row]) for row in rows])


def check_hessian() -> None:
    """Equal to Gauss-Newton for a model linear in its weights, for squared error at residual zero, and layer by layer for ReLU."""
    torch.default_generator.manual_seed(8)
    x, y = inputs(), torch.arange(N) % 3
    linear = nn.Linear(6, 3).double()
    model = Model(linear, Normal(0, 1), Categorical())
    by_hand = hessian(linear, x, lambda f: F.cross_entropy(f, y, reduction="sum"))
    close(curvature(model, (x, y), full).dense(), by_hand)
    close(curvature(model, (x, y), Full(hessian=True)).dense(), by_hand)
    net = mlp(6, 4, 2, activation=nn.Tanh).double()
    with torch.no_grad():
        perfect = net(x)
    model = Model(net, Normal(0, 1), Gaussian(NOISE))
    close(curvature(model, (x, perfect), full).dense(), curvature(model, (x, perfect), Full(hessian=True)).dense())
    far = perfect + 1
    assert (
        curvature(model, (x, far), Full(hessian=True)).dense() - curvature(model, (x, far), full).dense()
    ).abs().max() > 0.1
    relu = mlp(6, 4, 3, 3, activation=nn.ReLU).double()
    model = Model(relu, Normal(0, 1), Categorical())
    ggn, second = (curvature(model, (x, y), s).dense() for s in (full, Full(hessian=True)))
    for place in places(model.prior, None, "the test").values():
        close(ggn[place][:, place], second[place][:, place])
    assert (ggn - second).abs().max() > 1e-3  # across layers they differ


def test_hessian_and_gauss_newton() -> None:
    check_hessian()


# ---- low rank, refusals --------------------------------------------------------------------------------------------


def test_low_rank_keeps_the_leading_directions() -> None:
    model, data, wanted = regression("mlp")
    values = torch.linalg.eigvalsh(wanted)
    errors = []
    for rank in (1, 4, 10):
        found = curvature(model, data, low_rank(rank, sweeps=8)).dense()
        errors.append(float(torch.linalg.matrix_norm(found - wanted, 2)))
    left = [float(values[-2]), float(values[-5]), 0.0]  # N D = 10 rows: rank 10 is everything
    assert errors == pytest.approx(left, rel=1e-3, abs=1e-9)


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data, _ = regression("mlp")
    limit = "nescio.infer.curvature.structure.LARGEST"
    monkeypatch.setattr(limit, 24 * 51**2 - 1)
    must = r"the full matrix must fit into 0.1 MB; got 51 weights, for which it takes 0.1 MB; "
    with pytest.raises(InputError, match=must + r"use kfac \(0.0 MB\) or low_rank\(20\) \(0.0 MB\) or diag \(0.0 MB\)"):
        curvature(model, data, full)
    monkeypatch.setattr(limit, 24 * 119 - 1)  # (4, 7), (3, 5) and (2, 4): 119 numbers in the factors
    with pytest.raises(InputError, match=r"the Kronecker factors must fit .* use diag \(0.0 MB\), or .on"):
        curvature(model, data, kfac)
    with pytest.raises(InputError, match=r"11 directions must fit"):
        curvature(model, data, low_rank(1))
    monkeypatch.setattr("nescio.infer.curvature.sweep.LARGEST", 100)
    norm, rows, _ = regression("layer norm")
    with pytest.raises(InputError, match=r"the derivatives of two examples must fit .* samples=1"):
        curvature(norm, rows, diag)
    with pytest.raises(InputError, match="a rank is at least 1"):
        low_rank(0)
    wide = Model(nn.Linear(6, 300).double(), Normal(0, 1), Heavy())
    with pytest.raises(UnsupportedError, match="at most 256 outputs"):
        curvature(wide, (inputs(), torch.zeros(N, 300, dtype=DOUBLE)), diag)


def test_single_precision() -> None:
    """To the rounding of the network's own precision; sums are kept in double."""
    model, (x, y), wanted = regression("mlp")
    single = Model(NETS["mlp"]().double(), Normal(0, 1), Gaussian(NOISE))
    single.network.load_state_dict(model.network.state_dict())
    found = curvature(single.float(), (x.float(), y.float()), full)
    assert isinstance(found, Dense)
    assert found.matrix.dtype == DOUBLE
    torch.testing.assert_close(found.matrix, wanted, rtol=1e-4, atol=1e-4)


def check_single_precision_is_positive() -> None:
    """More weights than rows and a small noise: rounding must not make eigenvalues negative, which a wide prior would not lift."""
    torch.default_generator.manual_seed(1)
    x = inputs(20).float()
    for net in (mlp(6, 30, 1), nn.Sequential(nn.Linear(6, 30), nn.LayerNorm(30), nn.Tanh(), nn.Linear(30, 1))):
        for structure in (full, kfac):
            found = curvature(Model(net, Normal(0, 1), Gaussian(0.01)), (x, x[:, :1]), structure)
            for operator in found.operators if isinstance(found, Blocks) else (found,):
                values = torch.linalg.eigvalsh(operator.dense())
                if not isinstance(operator, Kron):  # whose eigenvalues are cut off at zero
                    assert float(values.min()) > -1e-12 * float(values.max())


def test_single_precision_is_positive() -> None:
    check_single_precision_is_positive()


@pytest.mark.parametrize(
    ("a", "b", "shared"),
    [
        ([0, 1, 2], [0, 1, 2], True),
        ([0, 1, 2], [3, 4], False),
        ([5, 3], [0, 4, 2], False),  # between each other's ends, and apart
        ([5, 3], [0, 3, 2], True),
        ([0, 1, 2], [2, 7], True),
    ],
)
def test_whether_weights_are_shared_is_told(a: list[int], b: list[int], shared: bool) -> None:
    assert quadratic.meet(torch.tensor(a), torch.tensor(b)) is shared
    assert quadratic.meet(torch.tensor(b), torch.tensor(a)) is shared
