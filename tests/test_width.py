"""Wide networks: the Gaussian-process limit and how fast it comes, the deep case, and weights that never get there.

A bank holds many networks side by side: one layer of each kind, with groups that keep the networks apart, so that one `Prior.draw`
draws them all and every weight has the fan-in of its own network. One hidden ReLU layer of width W has an exact law at any W:

    E exp(i t f) = (½ + ½ E ψ(t h))^W,     h ~ N(0, k),  ψ the characteristic function of an output weight

so draws are compared by DKW. Moments of f are exact too; those of f⁴ are skewed, and with 4e5 networks the false-alarm rate of the
comparison may be some 10 times the nominal one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from chance import assert_law, assert_mean, assert_probability, between
from scipy import special, stats
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import skip_init

from nescio.laws import Cauchy, Law, Normal, StudentT, fan_in
from nescio.laws.prior import Prior
from nescio.laws.site import Site, sites
from nescio.noise import Noise

S_W, S_B = 1.4, 0.5
X = torch.tensor([[1.0, 0.5], [-0.3, 1.2]], dtype=torch.float64)  # (points, inputs)
K0 = (S_W**2 * X @ X.mT / 2 + S_B**2).numpy()  # kernel of the first layer
NETS = 400_000


class Bank(nn.Module):
    def __init__(self, nets: int, width: int, depth: int = 1, bias: bool = False) -> None:
        super().__init__()
        self.nets, self.width = nets, width
        units = nets * width
        self.first = skip_init(nn.Linear, 2, units, dtype=torch.float64)
        self.middle = nn.ModuleList(
            skip_init(nn.Conv1d, units, units, 1, groups=nets, bias=False, dtype=torch.float64)
            for _ in range(depth - 1)
        )
        self.last = skip_init(nn.Conv1d, units, nets, 1, groups=nets, bias=bias, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:  # (points, inputs) -> (points, nets)
        h = self.first(x).relu().view(len(x), self.nets, self.width)
        for layer in self.middle:
            own = layer.weight.view(self.nets, self.width, self.width)
            h = torch.einsum("pni,noi->pno", h, own).relu()
        f = (h * self.last.weight.view(self.nets, self.width)).sum(-1)
        return f if self.last.bias is None else f + self.last.bias


def scaled(site: Site) -> float:
    """Standard deviation S_W / sqrt(fan-in)."""
    return S_W * fan_in(site)


def squared(site: Site) -> float:
    """A planted fault: the variance falls as 1 / H²."""
    return S_W / site.fan_in


def functions(
    width: int, nets: int = NETS, depth: int = 1, bias: bool = False, scale: Callable[[Site], float] = scaled,
    last: Law | None = None,
) -> Tensor:  # fmt: skip
    """f at the points under so many draws of the prior, (points, nets)."""
    laws = {"last.weight": last or Normal(0, scale), "*bias": Normal(0, S_B), "*": Normal(0, scaled)}
    chunk = min(nets, 2_000_000 // width**depth)
    bank = Bank(chunk, width, depth, bias)
    prior = Prior(laws, sites(bank), {})
    found = []
    for i in range(nets // chunk):
        params = prior.params(prior.split(prior.draw(Noise(0, ("width", width, i)))))
        found.append(functional_call(bank, params, X))
    return torch.cat(found, 1)


# ---- exact laws at finite width ------------------------------------------------------------------------------------


def moments(*widths: int) -> list[float]:
    """E f^(2n) at the first point for n = 0..4: f is Gaussian given the layer before, whose mean square is so in turn."""
    odd = [1.0, 1.0, 3.0, 15.0, 105.0]  # (2n - 1)!!
    one = np.array([(0.5 if n else 1.0) * odd[n] / math.factorial(n) for n in range(5)])  # E relu(z)^(2n) / n!
    found = [odd[n] * K0[0, 0] ** n for n in range(5)]
    for width in widths:
        power = np.array([1.0, 0, 0, 0, 0])
        for _ in range(width):
            power = np.convolve(power, one)[:5]
        found = [m * (S_W**2 / width) ** n * math.factorial(n) * power[n] for n, m in enumerate(found)]
    return found


def gaussian_term(z: np.ndarray) -> np.ndarray:
    """E exp(i t v h) for v standard normal and z = t sqrt(k / 2)."""
    return (1 + 2 * z**2) ** -0.5


def cauchy_term(z: np.ndarray) -> np.ndarray:
    return special.erfcx(z)


def student_term(z: np.ndarray) -> np.ndarray:
    """Three degrees of freedom and variance 1: ψ(t) = (1 + |t|) exp(-|t|)."""
    return special.erfcx(z) + z * (2 / math.sqrt(math.pi) - 2 * z * special.erfcx(z))


def exact_cdf(term: Callable[[np.ndarray], np.ndarray], scale: float, width: int) -> Callable[[np.ndarray], np.ndarray]:
    """The law of f at the first point given f ≠ 0, by inversion: F(x) = ½ - ∫ Si(t x) dφ(t) / π."""
    t = np.geomspace(1e-6, 1e5, 4000)
    off = 0.5**width  # all units are off
    phi = ((0.5 + 0.5 * term(t * scale * math.sqrt(K0[0, 0] / 2))) ** width - off) / (1 - off)
    phi = np.concatenate([[1.0], phi, [0.0]])
    middle = np.concatenate([[0.0], np.sqrt(t[1:] * t[:-1]), [t[-1]]])
    knots = np.sinh(np.linspace(0, 9, 400))
    upper = 0.5 - special.sici(knots[:, None] * middle)[0] @ np.diff(phi) / math.pi
    return lambda x: 0.5 + np.sign(x) * (np.interp(np.arcsinh(np.abs(x)), np.arcsinh(knots), upper) - 0.5)


LIMITS = {
    "normal": (Normal(0, scaled), gaussian_term, 0.5),
    "student": (StudentT(3.0, 0, lambda site: scaled(site) / math.sqrt(3)), student_term, 0.5),
    "cauchy": (Cauchy(0, squared), cauchy_term, 1.0),  # scale H^(-1/a) with a = 1
}


def check_law(name: str, width: int, nets: int = NETS, last: Law | None = None) -> None:
    law, term, rate = LIMITS[name]
    f = functions(width, nets, last=last or law)[0]
    assert_probability(int((f == 0).sum()), nets, 0.5**width)
    assert_law(f[f != 0], exact_cdf(term, S_W * width**-rate, width))


@pytest.mark.parametrize("width", [10, 50])
@pytest.mark.parametrize("name", LIMITS)
def test_law_at_finite_width(name: str, width: int) -> None:
    check_law(name, width, NETS if name == "normal" else 100_000)


@pytest.mark.parametrize("name", LIMITS)
def test_law_check_sees_a_wrong_scale(name: str) -> None:
    wrong = Normal(0, squared) if name == "normal" else Normal(0, scaled)
    with pytest.raises(AssertionError):
        check_law(name, 50, 20_000, last=wrong)


# ---- the Gaussian process ------------------------------------------------------------------------------------------


def check_kurtosis(*widths: int, nets: int = NETS, scale: Callable[[Site], float] = scaled) -> None:
    """Variance S_W² k / 2 per layer at every width; fourth moment 3 (1 + 5 / W) per layer, which for one layer is 3 + 15 / W."""
    m = moments(*widths)
    excess = m[2] / m[1] ** 2 - 3
    assert excess == pytest.approx(3 * math.prod(1 + 5 / w for w in widths) - 3, rel=1e-12)
    f = functions(widths[0], nets, depth=len(widths), scale=scale)[0]
    assert_mean(f, 0.0, math.sqrt(m[1]))
    assert_mean(f**2, m[1], math.sqrt(m[2] - m[1] ** 2))
    assert_mean(f**4, m[2], math.sqrt(m[4] - m[2] ** 2))


@pytest.mark.parametrize("width", [10, 50])
def test_excess_kurtosis_is_15_over_width(width: int) -> None:
    assert moments(width)[2] / moments(width)[1] ** 2 - 3 == pytest.approx(15 / width, rel=1e-12)
    check_kurtosis(width)


@pytest.mark.parametrize("width", [5, 20])
def test_deep_network_with_root_k_scaling(width: int) -> None:
    """Two hidden layers with 1 / √K in front of each: the same convergence, layer by layer."""
    check_kurtosis(width, width, nets=100_000)


def test_kurtosis_check_sees_a_wrong_scale_and_a_wrong_width() -> None:
    with pytest.raises(AssertionError):
        check_kurtosis(10, nets=20_000, scale=squared)
    f = functions(10)[0]
    gaussian = moments(10)[1]
    with pytest.raises(AssertionError):  # a network of ten units is not yet a Gaussian process
        assert_mean(f**4, 3 * gaussian**2, math.sqrt(96) * gaussian**2)


def arc_cosine(t: float) -> float:
    return math.sin(t) + (math.pi - t) * math.cos(t)


def check_kernel(width: int, kernel: Callable[[float], float] = arc_cosine, nets: int = NETS) -> None:
    """E f f' = S_W² sqrt(k11 k22) (sin t + (π - t) cos t) / 2π + S_B² at every width of one hidden layer."""
    f = functions(width, nets, bias=True)
    for i, j in [(0, 0), (0, 1), (1, 1)]:
        size = math.sqrt(K0[i, i] * K0[j, j])
        t = math.acos(min(1.0, K0[i, j] / size))
        assert_mean(f[i] * f[j], S_W**2 * size * kernel(t) / (2 * math.pi) + S_B**2)


@pytest.mark.parametrize("width", [10, 50])
def test_kernel_is_arc_cosine(width: int) -> None:
    check_kernel(width)


def test_kernel_check_sees_another_kernel() -> None:
    with pytest.raises(AssertionError):
        check_kernel(10, lambda t: math.sin(t) + (math.pi / 2 - t) * math.cos(t), nets=50_000)


# ---- heavy tails ---------------------------------------------------------------------------------------------------


def hill(f: Tensor, top: int = 1000) -> float:
    """Tail index from the largest values; for a Pareto tail of index a, top * a / hill has a Gamma(top) law."""
    largest = f.abs().sort(descending=True).values[: top + 1]
    return 1 / float((largest[:-1] / largest[-1]).log().mean())


def check_tail(law: Law, width: int) -> None:
    """Index 1 < 2, so no Gaussian limit. The tail is that of a Pareto law up to 1e-4 where the largest 1 % lie."""
    index = hill(functions(width, 100_000, last=law)[0])
    between(1000 / index, stats.gamma(1000))
    assert index < 2


@pytest.mark.parametrize("width", [10, 50, 200])
def test_infinite_variance_stays_heavy(width: int) -> None:
    check_tail(Cauchy(0, squared), width)


def test_finite_variance_control() -> None:
    """Student-t weights with three degrees of freedom are heavy-tailed too, but their networks are not kept from the limit."""
    for width in (10, 50):
        assert hill(functions(width, 100_000, last=LIMITS["student"][0])[0]) > 2
    with pytest.raises(AssertionError):
        check_tail(LIMITS["student"][0], 50)


def test_limits() -> None:
    """By the exact laws, finite variance goes to N(0, S_W² k / 2), Cauchy weights to a Cauchy law and never to a normal."""
    x = np.sinh(np.linspace(0.01, 8, 500))
    normal = stats.norm(0, S_W * math.sqrt(K0[0, 0] / 2)).cdf(x)
    cauchy = stats.cauchy(0, S_W * math.sqrt(K0[0, 0] / (2 * math.pi))).cdf(x)

    def gap(name: str, width: int, limit: np.ndarray) -> float:
        _, term, rate = LIMITS[name]
        return float(np.abs(exact_cdf(term, S_W * width**-rate, width)(x) - limit).max())

    for name, limit in [("normal", normal), ("student", normal), ("cauchy", cauchy)]:
        gaps = [
            gap(name, width, limit) for width in (10, 100, 1000)
        ]  # a tail of index 3 brings about W^-½, the others W^-1
        assert gaps[0] > 2 * gaps[1] > 4 * gaps[2], (name, gaps)
    normals = [stats.norm(0, sd).cdf(x) for sd in np.geomspace(0.3, 10, 30)]
    own = min(
        float(np.abs(cauchy - other).max()) for other in normals
    )  # how far the Cauchy law is from all normal ones
    for width in (10, 100, 1000):
        assert min(gap("cauchy", width, other) for other in normals) > 0.9 * own, width
