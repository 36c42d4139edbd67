"""Who has a number in common: `.per(...)` against indices written out by hand, fans, constants, `Learned`, patterns, refusals."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from nescio.errors import InputError, UnsupportedError
from nescio.laws import (
    Bernoulli,
    Flat,
    Gamma,
    HalfCauchy,
    HalfFlat,
    HalfLogUniform,
    Laplace,
    Law,
    Learned,
    LogUniform,
    Normal,
    SpikeSlab,
    StudentT,
    fan_in,
)
from nescio.laws.law import POSITIVE
from nescio.laws.prior import Prior
from nescio.laws.site import Site, sites
from nescio.noise import Noise

# For every weight, tensor by tensor in the order of the module, which scale it has under Normal(0, HalfCauchy().per(...)).
NETS = {
    "linear": lambda: nn.Linear(3, 2),  # weight (2, 3), bias (2,)
    "conv": lambda: nn.Conv2d(2, 3, (1, 2)),  # weight (out 3, in 2, 1, 2), bias (3,)
    "transposed": lambda: nn.ConvTranspose2d(2, 3, (1, 2)),  # weight (in 2, out 3, 1, 2), bias (3,)
    "embedding": lambda: nn.Embedding(4, 2),  # weight (4 tokens, 2)
    "lstm": lambda: nn.LSTM(2, 1),  # weight_ih (4 gate rows, 2), weight_hh (4, 1), bias_ih (4,), bias_hh (4,)
    "attention": lambda: nn.MultiheadAttention(2, 1),  # in_proj (6, 2), (6,), out_proj (2, 2), (2,)
    "grouped": lambda: nn.Conv1d(4, 2, 1, groups=2),  # weight (out 2, in of the group 2, 1), bias (2,)
    "grouped transposed": lambda: nn.ConvTranspose1d(
        2, 4, 1, groups=2
    ),  # weight (in 2, out of the group 2, 1), bias (4,)
    "norm": lambda: nn.LayerNorm(3),  # weight (3,), bias (3,)
    "two layers": lambda: nn.Sequential(nn.Linear(2, 1), nn.Tanh(), nn.Linear(1, 2)),
}
INDEX = {
    ("linear", "weight"): [0, 1, 2, 3, 4, 5, 6, 7],
    ("linear", "input"): [0, 1, 2, 0, 1, 2, 3, 3],
    ("linear", "output"): [0, 0, 0, 1, 1, 1, 2, 3],
    ("linear", "unit"): [0, 0, 0, 1, 1, 1, 0, 1],
    ("linear", "layer"): [0, 0, 0, 0, 0, 0, 1, 1],
    ("linear", "net"): [0, 0, 0, 0, 0, 0, 0, 0],
    ("conv", "input"): [0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 2],
    ("conv", "output"): [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 4, 5],
    ("conv", "unit"): [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 0, 1, 2],
    ("transposed", "input"): [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2],
    ("transposed", "output"): [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2, 3, 4, 5],
    ("transposed", "unit"): [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2, 0, 1, 2],
    ("embedding", "input"): [0, 0, 1, 1, 2, 2, 3, 3],
    ("embedding", "output"): [0, 1, 0, 1, 0, 1, 0, 1],
    ("lstm", "input"): [0, 1, 0, 1, 0, 1, 0, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4],
    ("lstm", "output"): [0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    ("lstm", "unit"): [0, 0, 1, 1, 2, 2, 3, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3],
    ("lstm", "layer"): [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3],
    ("attention", "input"): [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 2, 2, 2, 2, 2, 2, 3, 4, 3, 4, 5, 5],
    ("attention", "output"): [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 10, 11, 12, 12, 13, 13, 14, 15],
    ("attention", "unit"): [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 0, 1, 2, 3, 4, 5, 6, 6, 7, 7, 6, 7],
    ("grouped", "input"): [0, 1, 2, 3, 4, 4],
    ("grouped", "unit"): [0, 0, 1, 1, 0, 1],
    ("grouped transposed", "input"): [0, 0, 1, 1, 2, 2, 2, 2],
    ("grouped transposed", "output"): [0, 1, 2, 3, 4, 5, 6, 7],
    ("grouped transposed", "unit"): [0, 1, 2, 3, 0, 1, 2, 3],
    ("norm", "input"): [0, 0, 0, 1, 1, 1],
    ("norm", "output"): [0, 1, 2, 3, 4, 5],
    ("norm", "unit"): [0, 1, 2, 0, 1, 2],
    ("two layers", "input"): [0, 1, 2, 3, 3, 4, 4],
    ("two layers", "unit"): [0, 0, 0, 1, 2, 1, 2],
    ("two layers", "layer"): [0, 0, 1, 2, 2, 3, 3],
    ("two layers", "net"): [0, 0, 0, 0, 0, 0, 0],
}


def scales(prior: Prior, values: list[Tensor]) -> Tensor:
    """The scale that each weight of the only group is drawn with."""
    return prior.variables[-1].numbers(values)["scale"].expand(prior.groups[0].size)


def check_sharing() -> None:
    for (net, what), index in INDEX.items():
        prior = Prior(Normal(0, HalfCauchy(1.0).per(what)), sites(NETS[net]()), {})
        count = max(index) + 1
        assert prior.sizes == [count, len(index)], (net, what, prior.sizes)
        labelled = [torch.arange(count).double() + 1, torch.zeros(len(index)).double()]
        assert (scales(prior, labelled) - 1).tolist() == index, (net, what)


def test_sharing() -> None:
    check_sharing()


def test_weights_themselves_can_be_shared() -> None:
    prior = Prior(Normal(0, 1).per("output"), sites(nn.Linear(3, 2)), {})
    assert prior.sizes == [4]
    params = prior.params([torch.tensor([1.0, 2.0, 3.0, 4.0])])
    assert params["weight"].tolist() == [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]
    assert params["bias"].tolist() == [3.0, 4.0]
    expected = stats.norm.logpdf([1.0, 2.0, 3.0, 4.0]).sum()  # each shared value is counted once
    assert float(prior.unpack(torch.tensor([1.0, 2.0, 3.0, 4.0]).double()).log_density) == pytest.approx(expected)


def check_ard_density() -> None:
    """Automatic relevance determination by hand: three scales for the columns, one for the bias, each counted once."""
    prior = Prior(Normal(0, HalfCauchy(0.5).per("input")), sites(nn.Linear(3, 2)), {})
    theta = prior.draw(Noise(0))
    tau, w = theta[:4].numpy(), theta[4:].numpy()
    by_hand = stats.halfcauchy.logpdf(tau, 0, 0.5).sum()
    by_hand += stats.norm.logpdf(w, 0, tau[[0, 1, 2, 0, 1, 2, 3, 3]]).sum()
    point = prior.unpack(prior.pack(theta, centred=True), centred=True)
    assert abs(float(point.log_density - point.log_jacobian) - by_hand) < 1e-10


def test_ard_density() -> None:
    check_ard_density()


def test_nested_sharing_must_be_coarser() -> None:
    found = sites(nn.Linear(3, 2))
    assert Prior(Normal(0, HalfCauchy(HalfCauchy(1.0).per("layer")).per("input")), found, {}).sizes == [2, 4, 8]
    for inner, outer in [("input", "output"), ("weight", "layer"), ("unit", "input"), ("unit", "layer")]:
        with pytest.raises(InputError, match="coarser"):
            Prior(Normal(0, HalfCauchy(HalfCauchy(1.0).per(inner)).per(outer)), found, {})
    with pytest.raises(InputError, match=r"\.per\(\.\.\.\) takes one of"):
        Prior(Normal(0, HalfCauchy(1.0).per("row")), found, {})


# ---- constants by the site -----------------------------------------------------------------------------------------


def check_fans() -> None:
    expected = {
        nn.Linear(3, 2): {"weight": (3, 2), "bias": (3, 2)},
        nn.Conv2d(4, 6, (3, 5)): {"weight": (4 * 15, 6 * 15), "bias": (4 * 15, 6 * 15)},
        nn.Conv2d(4, 6, 3, groups=2): {"weight": (2 * 9, 3 * 9), "bias": (2 * 9, 3 * 9)},
        nn.ConvTranspose2d(4, 6, 3, groups=2): {"weight": (2 * 9, 3 * 9), "bias": (2 * 9, 3 * 9)},
        nn.ConvTranspose2d(4, 6, 3): {"weight": (4 * 9, 6 * 9), "bias": (4 * 9, 6 * 9)},
        nn.Embedding(7, 2): {"weight": (1, 1)},
        nn.LayerNorm(5): {"weight": (1, 1), "bias": (1, 1)},
        nn.LSTM(2, 3): {"weight_ih_l0": (2, 12), "weight_hh_l0": (3, 12), "bias_ih_l0": (2, 12), "bias_hh_l0": (3, 12)},
    }
    for module, fans in expected.items():
        assert {site.name: (site.fan_in, site.fan_out) for site in sites(module)} == fans, module
        prior = Prior(Normal(0, fan_in), sites(module), {})
        for site, scale in prior.groups[0].split(scales(prior, [torch.zeros(prior.dim)])):
            assert scale.unique().tolist() == [fans[site.name][0] ** -0.5], (module, site.name)


def test_fan_in() -> None:
    check_fans()


def test_constants_broadcast_like_the_weights() -> None:
    found = sites(nn.Linear(3, 2, bias=False))
    columns = torch.tensor([1.0, 2.0, 3.0])
    for scale in (columns, lambda site: columns, columns.expand(2, 3), columns.numpy()):
        assert scales(Prior(Normal(0, scale), found, {}), []).tolist() == [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]
    assert scales(Prior(Normal(0, columns[:2, None]), found, {}), []).tolist() == [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]
    by_rows = Prior(Normal(0, HalfCauchy(lambda site: torch.ones(site.shape) * 0.5).per("output")), found, {})
    assert by_rows.sizes == [2, 6]
    with pytest.raises(InputError, match="must broadcast"):
        Prior(Normal(0, torch.ones(2)), found, {})
    with pytest.raises(InputError, match="coarser"):  # one scale per row cannot have three widths
        Prior(Normal(0, HalfCauchy(columns).per("output")), found, {})


def test_learned_numbers() -> None:
    found = sites(nn.Linear(3, 2))
    for learned, count in [
        (Learned(0.5), 1),
        (Learned(0.5).per("layer"), 2),
        (Learned(0.5).per("input"), 4),
        (Learned(0.5).per("unit"), 2),
    ]:
        prior = Prior(Normal(0, learned), found, {})
        assert prior.sizes == [count, 8]
        theta = prior.draw(Noise(0))
        assert theta[:count].tolist() == [0.5] * count  # where it starts; it has no law
        flat = Prior(Normal(0, 0.5), found, {})
        assert float(prior.unpack(prior.pack(theta)).log_density) == pytest.approx(
            float(flat.unpack(theta[count:]).log_density) + 8 * math.log(0.5), abs=1e-10
        )  # non-centred: the density of w / 0.5
    table = torch.arange(1.0, 7.0).view(2, 3)
    prior = Prior(Normal(0, Learned(table)), sites(nn.Linear(3, 2, bias=False)), {})
    assert prior.draw(Noise(0))[:6].tolist() == table.flatten().tolist()


# ---- patterns ------------------------------------------------------------------------------------------------------


def check_patterns() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
    prior = Prior({"0.*": Normal(0, 1), "*.bias": Normal(0, 2), "*": Normal(0, 3)}, sites(net), {})
    names = [[site.name for site in group.sites] for group in prior.groups]
    assert names == [["0.weight", "0.bias"], ["2.bias"], ["2.weight"]]  # the first match wins
    assert [float(v.numbers([])["scale"]) for v in prior.variables] == [1.0, 2.0, 3.0]


def test_patterns() -> None:
    check_patterns()
    found = sites(nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1)))
    for laws in ({"0.*": Normal()}, {"*": Normal(), "0.*": Normal()}, {"*": Normal(), "head.*": Normal()}):
        with pytest.raises(InputError) as error:
            Prior(laws, found, {})
        assert str([site.name for site in found]) in error.value.remedy
    with pytest.raises(InputError, match="must be a law"):
        Prior({"*": 1.0}, found, {})


def test_frozen_and_tied_parameters() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2, bias=False))
    net[0].weight.requires_grad_(False)
    net[2].weight = net[1].weight
    assert [site.name for site in sites(net)] == ["0.bias", "1.weight", "1.bias"]


# ---- improper laws and wrong arguments -----------------------------------------------------------------------------


def prior_of(law: Law, count: int = 1) -> Prior:
    return Prior(law, [Site("w", (count,))], {})


@pytest.mark.parametrize("law", [Flat(), HalfFlat(), LogUniform(), HalfLogUniform()], ids=repr)
def test_improper_laws_have_a_density_and_refuse_to_draw(law: Law) -> None:
    x = torch.tensor([0.3, 2.0]).double()
    power = -1.0 if isinstance(law, (LogUniform, HalfLogUniform)) else 0.0
    prior = prior_of(law, 2)
    point = prior.unpack(prior.pack(x, centred=True), centred=True)
    assert float(point.log_density - point.log_jacobian) == pytest.approx(float((power * x.log()).sum()), abs=1e-12)
    for outer in (law, Normal(0, law)) if law.support is POSITIVE else (law,):
        with pytest.raises(UnsupportedError) as error:
            prior_of(outer, 3).draw(Noise(0))
        assert error.value.must == "only a proper law can be drawn from"
        assert type(law).__name__ in error.value.got
        assert "Normal" in error.value.remedy


@pytest.mark.parametrize(
    "law", [Normal(0, -1.0), Normal(0, 0.0), Normal(0, math.nan), Gamma(-1.0), SpikeSlab(1.5, 1.0, 0.1), Normal(0, Normal(0, 1)),
            StudentT(Laplace()), HalfCauchy(Bernoulli()), SpikeSlab(HalfCauchy(), 1.0, 0.1), Bernoulli(Normal())], ids=repr,
)  # fmt: skip
def test_numbers_out_of_range_are_refused(law: Law) -> None:
    with pytest.raises(InputError, match="must"):
        prior_of(law)


def test_sqrt_is_for_positive_laws() -> None:
    with pytest.raises(InputError, match="positive law"):
        Normal(0, 1).sqrt()
