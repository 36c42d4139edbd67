"""W = M diag(z): to drop an input is to drop its weights, whatever the layer; noise of its own and coherent draws."""

from __future__ import annotations

import pytest
import torch
from chance import assert_mean, assert_probability
from dropout_cases import DOUBLE, KINDS, LAYERS, P, block_of, loss_of, normal, random, seeded
from test_weights import FLAT, NETS, Blocks
from torch import Tensor, nn
from torch.func import functional_call

from nescio.families import (
    BernoulliDropout,
    ConcreteDropout,
    Family,
    GaussianDropout,
    VariationalDropout,
)
from nescio.families.dropout import Spikes
from nescio.noise import Noise


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


FAMILIES = [BernoulliDropout(0.3), GaussianDropout(0.3), ConcreteDropout(0.3), VariationalDropout()]


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_a_checkpointed_network_has_the_same_masks_again(family: Family) -> None:
    gradients = []
    for checkpointed in (False, True):
        net = seeded(lambda again=checkpointed: Blocks(again))
        loss = loss_of(net, family, FLAT.double())
        with Noise(7).scope():
            loss(FLAT.double(), torch.zeros(len(FLAT), 1).double()).backward()
        gradients.append([p.grad for p in loss.parameters()])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_autocast_and_torchs_compiler(family: Family) -> None:
    """In bfloat16 the same loss to its precision, gradients in float32; compiled code draws anew at each call."""
    make, x = NETS["conv2d"]
    with Noise(0).scope():
        net = make().eval()
    loss, y = loss_of(net, family, x), torch.zeros(len(x), 1)
    with Noise(0).scope():
        plain = loss(x, y)
    with Noise(0).scope(), torch.autocast("cpu", torch.bfloat16):
        cast = loss(x, y)
    cast.backward()
    assert cast.item() == pytest.approx(plain.item(), rel=0.05)
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in loss.parameters())

    def run(x: Tensor) -> Tensor:
        own = {n: w for n, w in loss.q.call().params(loss.acting).items() if not n.startswith("likelihood.")}
        return functional_call(net, own, (x,))

    torch._dynamo.reset()
    compiled = torch.compile(run, backend="aot_eager")
    with torch.no_grad(), Noise(1).scope():
        assert len(torch.cat([compiled(x[:1]) for _ in range(8)]).unique()) > 1
