"""Diagnostics equal the recorded tables and a slow implementation from the definitions, and never comfort without cause."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from arviz_stats.base import array_stats
from chance import within
from scipy import stats

import nescio.diagnose as d
import nescio.diagnose.columns as columns
from nescio.diagnose.beta import beta_quantile
from nescio.errors import InputError

# ---- the slow way, chain by chain from the definitions -------------------------------------------------------------------


def slow_split(x: np.ndarray) -> np.ndarray:
    half = x.shape[1] // 2
    return np.array([part for chain in x for part in (chain[:half], chain[len(chain) - half :])])


def slow_scores(x: np.ndarray) -> np.ndarray:
    flat = list(x.ravel())
    ranks = [sum(w < v for w in flat) + (sum(w == v for w in flat) + 1) / 2 for v in flat]
    return stats.norm.ppf((np.array(ranks) - 0.375) / (len(flat) + 0.25)).reshape(x.shape)


def slow_rhat(x: np.ndarray) -> float:
    n = x.shape[1]
    return math.sqrt((n - 1) / n + np.var([c.mean() for c in x], ddof=1) / np.mean([np.var(c, ddof=1) for c in x]))


def slow_rank_rhat(x: np.ndarray) -> float:
    fold = np.abs(x - np.median(x))
    return max(slow_rhat(slow_scores(slow_split(x))), slow_rhat(slow_scores(slow_split(fold))))


def slow_ess(x: np.ndarray) -> float:
    m, n = x.shape
    a = []
    for lag in range(n):
        a.append(sum(np.dot(c[: n - lag] - c.mean(), c[lag:] - c.mean()) / n for c in x) / m)
    within = a[0] * n / (n - 1)
    total = a[0] + (np.var([c.mean() for c in x], ddof=1) if m > 1 else 0.0)
    rho = [1.0] + [1 - (within - a[lag]) / total for lag in range(1, n)]
    pairs: list[float] = []
    lag = 0
    while lag < n - 4 and rho[lag] + rho[lag + 1] > 0:  # the end as in ArviZ and posterior: one pair is never kept
        pairs.append(min([rho[lag] + rho[lag + 1], *pairs]))
        lag += 2
    tau = -1 + 2 * sum(pairs) + max(rho[lag], 0.0)
    return m * n / max(tau, 1 / math.log10(m * n))


def slow_quantile(x: np.ndarray, q: float) -> float:
    ordered = np.sort(x.ravel())
    h = (len(ordered) - 1) * q
    low = math.floor(h)
    return ordered[low] + (h - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def slow_ess_quantile(x: np.ndarray, q: float) -> float:
    return slow_ess(slow_split((x <= slow_quantile(x, q)).astype(float)))


def slow_mcse_quantile(x: np.ndarray, q: float) -> float:
    e, size, ordered = slow_ess_quantile(x, q), x.size, np.sort(x.ravel())
    low, high = stats.beta.ppf([0.1586553, 0.8413447], e * q + 1, e * (1 - q) + 1)
    return (ordered[min(math.ceil(size * high), size) - 1] - ordered[max(math.floor(size * low), 1) - 1]) / 2


def slow_mcse_sd(x: np.ndarray) -> float:
    c = x - x.mean()
    e = slow_ess(slow_split(c**2))
    return math.sqrt((np.mean(c**4) - np.mean(c**2) ** 2) / (4 * np.mean(c**2) * e))


SLOW: dict[str, Callable[[np.ndarray], float]] = {
    "rhat_rank": slow_rank_rhat,
    "rhat_raw": slow_rhat,
    "ess_bulk": lambda x: slow_ess(slow_scores(slow_split(x))),
    "ess_tail": lambda x: min(slow_ess_quantile(x, 0.05), slow_ess_quantile(x, 0.95)),
    "ess_mean": lambda x: slow_ess(slow_split(x)),
    "ess_sd": lambda x: slow_ess(slow_split((x - x.mean()) ** 2)),
    "ess_median": lambda x: slow_ess_quantile(x, 0.5),
    "ess_raw": slow_ess,
    "ess_quantile10": lambda x: slow_ess_quantile(x, 0.1),
    "mcse_mean": lambda x: np.std(x, ddof=1) / math.sqrt(slow_ess(slow_split(x))),
    "mcse_sd": slow_mcse_sd,
    "mcse_median": lambda x: slow_mcse_quantile(x, 0.5),
    "mcse_quantile30": lambda x: slow_mcse_quantile(x, 0.3),
}


def named(name: str, x: Any) -> np.ndarray:
    """A statistic by the name of its column in the tables."""
    level = re.fullmatch(r"(\w+_quantile)(\d\d)", name)
    if level:
        return getattr(d, level[1])(x, int(level[2]) / 100)
    return getattr(d, "rhat" if name == "rhat_rank" else name)(x)


def autoregression(phi: float, *shape: int, seed: int = 0) -> np.ndarray:
    """Stationary, variance 1, along axis 1."""
    x = np.random.default_rng(seed).normal(size=shape)
    for t in range(1, shape[1]):
        x[:, t] = phi * x[:, t - 1] + math.sqrt(1 - phi**2) * x[:, t]
    return x


def hard() -> dict[str, np.ndarray]:
    """Small chains, each of which shows a different fault."""
    slow, wide = autoregression(0.8, 3, 60), autoregression(0.3, 4, 40, seed=1)
    return {
        "slow": slow,
        "antithetic": autoregression(-0.95, 2, 80, seed=2),
        "odd": autoregression(0.5, 3, 51, seed=3),
        "ties": np.round(autoregression(0.6, 2, 50, seed=4), 1),
        "one wide chain": wide * np.array([[1], [1], [1], [5]]),
        "one shifted chain": slow + np.array([[0], [0], [2]]),
        "drift": slow + np.linspace(0, 3, 60),
        "shortest": autoregression(0.2, 4, 8, seed=5),
        "seven draws": autoregression(0.2, 4, 7, seed=6),
    }


def check_slow(name: str) -> None:
    """As the slow way to 1e-10 relative, on every hard set."""
    for case, x in hard().items():
        value, wanted = float(named(name, x)), SLOW[name](x)
        assert abs(value - wanted) <= 1e-10 * abs(wanted), f"{name} of {case}: {value}, not {wanted}"


@pytest.mark.parametrize("name", SLOW)
def test_the_slow_way_agrees(name: str) -> None:
    check_slow(name)


# ---- recorded tables -----------------------------------------------------------------------------------------------------


def table(truth: Path, name: str) -> tuple[dict[str, Any], np.ndarray]:
    recorded = json.loads((truth / "diagnostics" / f"{name}.json").read_text())
    return recorded, np.load(truth / "diagnostics" / f"{name}.npz", allow_pickle=False)["draws"]


def changed(recipe: str, x: np.ndarray) -> np.ndarray:
    if recipe.startswith("moving average of 10"):
        return np.stack([x[:, t : t + 10].mean(1) for t in range(x.shape[1] - 9)], axis=1)
    if recipe.startswith("chain 0 shifted by +0.3"):
        x = x.copy()
        x[0] += 0.3 * x.std((0, 1), ddof=1)
        return x
    assert recipe.startswith("last draw of every chain removed")
    return x[:, :-1]


def assert_table(x: np.ndarray, names: list[str], values: list[Any], relative: float, absolute: float = 0.0) -> None:
    for name, wanted in zip(names, np.array(values).T, strict=True):
        np.testing.assert_allclose(named(name, x), wanted, rtol=relative, atol=absolute, err_msg=name)


def test_blocker(truth: Path) -> None:
    """48 quantities by 17 statistics of the R package posterior, to 1e-8 absolute."""
    given, x = table(truth, "blocker")
    assert x.shape[2] == 48
    assert len(given["columns"]) == 17
    assert_table(x, given["recorded"]["columns"], given["recorded"]["values"], 0.0, 1e-8)
    assert_table(x, given["columns"], given["statistics"], 0.0, 1e-8)


@pytest.mark.parametrize("name", ["bernoulli", "gp_regr"])
def test_other_sets(truth: Path, name: str) -> None:
    given, x = table(truth, name)
    assert_table(x, given["columns"], given["statistics"], 1e-9)
    for change in given["derived"]:
        assert_table(changed(change["recipe"], x), given["columns"], change["statistics"], 1e-9)
    assert len(given["derived"]) == 3


def test_published_values(truth: Path) -> None:
    """As the sources print them: Stan's tests round, and posteriordb's R-hat is of an older definition."""
    given, x = table(truth, "bernoulli")
    columns_, values = given["recorded"]["columns"], np.array(given["recorded"]["values"])
    assert_table(x, columns_[:2], values[:, :2].tolist(), 0.0, 1e-4)
    assert_table(x, columns_[2:], values[:, 2:].tolist(), 0.0, 1e-5)
    given, x = table(truth, "gp_regr")
    columns_, values = given["recorded"]["columns"], np.array(given["recorded"]["values"])
    assert_table(x, columns_[:2], values[:, :2].tolist(), 1e-9)
    assert_table(x, columns_[2:], values[:, 2:].tolist(), 0.0, 1e-4)


def harder() -> dict[str, np.ndarray]:
    """Chains on which implementations differ, if they do."""
    slow = autoregression(0.9, 4, 150, seed=3)
    return {
        **hard(),
        "no mean": np.random.default_rng(0).standard_cauchy((4, 101)),
        "heavy and slow": np.sinh(2 * slow) ** 3,
        "a constant chain": np.concatenate([autoregression(0.2, 3, 60, seed=7), np.full((1, 60), 0.3)]),
        "two values": np.sign(autoregression(0.5, 4, 99, seed=8)),
        "rejections": np.repeat(autoregression(0.3, 4, 40, seed=9), 3, axis=1),
        "odd and far": 1e4 + autoregression(0.5, 3, 333, seed=10),  # farther out the mean itself is known to 1e-8 only
    }


def by_arviz(name: str, x: np.ndarray) -> float:
    """The same statistic by arviz-stats. Its mcse_sd takes the ESS of x for that of (x - mean)², which R's posterior has mended."""
    own: Any = array_stats
    kind, _, method = name.partition("_")
    axes = {"chain_axis": 0, "draw_axis": 1}
    level = re.fullmatch(r"quantile(\d\d)", method)
    if kind == "rhat" or method == "raw":
        return float(getattr(own, kind)(x, method="identity" if method == "raw" else method, **axes))
    if level:
        return float(getattr(own, kind)(x, method="quantile", prob=int(level[1]) / 100, **axes))
    value = float(getattr(own, kind)(x, method=method, prob=(0.05, 0.95) if method == "tail" else None, **axes))
    if name == "mcse_sd":
        value *= math.sqrt(by_arviz("ess_mean", x) / by_arviz("ess_sd", x))
    return value


def check_arviz(name: str) -> None:
    for case, x in harder().items():
        value, wanted = float(named(name, x)), by_arviz(name, x)
        assert abs(value - wanted) <= 1e-8 * abs(wanted), f"{name} of {case}: {value}, not {wanted}"


@pytest.mark.parametrize("name", SLOW)
def test_arviz_agrees(name: str) -> None:
    check_arviz(name)


def check_arviz_ebfmi() -> None:
    for case, x in harder().items():
        moving = x[x.max(1) > x.min(1)]  # of a constant chain it is 0 / 0
        wanted = array_stats.bfmi(moving, chain_axis=0, draw_axis=1)
        np.testing.assert_allclose(d.ebfmi(moving), wanted, rtol=1e-8, err_msg=case)


def test_arviz_agrees_on_energies() -> None:
    check_arviz_ebfmi()


@pytest.mark.parametrize("x", [np.full((4, 50), 0.1), np.ones((4, 50)) * np.array([[0.1], [0.2], [0.3], [0.7]])])
def test_arviz_comforts_where_nothing_moves(x: np.ndarray) -> None:
    """The one place where we differ on purpose: of chains that stand still ArviZ reports an effective size, we say NaN."""
    for name in ("ess_bulk", "ess_tail", "ess_mean", "mcse_mean"):
        assert np.isfinite(by_arviz(name, x)) and np.isnan(named(name, x))


# ---- known answers -------------------------------------------------------------------------------------------------------


def check_autoregression() -> None:
    """ESS / S is (1 - phi) / (1 + phi) in the long run. The mean of S / ESS over 200 quantities, within 10%: Geyer's cut biases it by
    at most 5% at this length and its standard error is at most 1.1%, measured; false alarms below 1e-5 at a new seed."""
    for phi in (-0.5, 0.0, 0.8):
        x = autoregression(phi, 4, 1000, 200, seed=11)
        tau = (1 + phi) / (1 - phi)
        for ess in (d.ess_bulk(x), d.ess_mean(x)):
            assert abs(np.mean(4000 / ess) / tau - 1) < 0.1, f"phi = {phi}: tau {np.mean(4000 / ess)}, not {tau}"


def test_autoregression() -> None:
    check_autoregression()


def check_error_of_mean() -> None:
    """The mean of 4 x 500 draws over its own standard error has variance 1. Over 1000 quantities the mean square has a standard
    error of sqrt(2 / 1000): 30% are 6.7 of them, false alarms below 1e-9. Draws taken for independent would give (1.7 / 0.3)."""
    x = autoregression(0.7, 4, 500, 1000, seed=12)
    ratio = np.mean((x.mean((0, 1)) / d.mcse_mean(x)) ** 2)
    assert abs(ratio - 1) < 0.3, f"squared error over its estimate: {ratio}"


def test_error_of_mean() -> None:
    check_error_of_mean()


def test_beta_quantiles() -> None:
    rng = np.random.default_rng(0)
    a, b = (np.concatenate([1 + 10 ** rng.uniform(-6, 8, 500), edge]) for edge in ([1, 1, 1e8], [1, 1e8, 1]))
    for p in (0.1586553, 0.5, 0.8413447):
        x = beta_quantile(p, torch.from_numpy(a), torch.from_numpy(b)).numpy()
        np.testing.assert_allclose(x, stats.beta.ppf(p, a, b), rtol=1e-10, atol=1e-13)


def check_ebfmi() -> None:
    """Sum of squared changes over sum of squares about the mean; 2 (1 - phi) for an autoregression."""
    energy = np.array([[1.0, 2.0, 4.0, 1.0], [0.0, 1.0, 0.0, 1.0]])
    np.testing.assert_allclose(d.ebfmi(energy), [(1 + 4 + 9) / 6.0, 3.0], rtol=1e-14)
    long = d.ebfmi(autoregression(0.95, 8, 20000, seed=3))
    within((long / 0.1 - 1) / math.sqrt(2 * 19.5 / 20_000))
    assert np.isnan(d.ebfmi(np.array([[1.0, 1.0, 1.0, 1.0], [1.0, math.inf, 0.0, 1.0]]))).all()
    assert np.isnan(d.ebfmi(energy[:, :3])).all()
    with pytest.raises(InputError, match=r"energy must be \(chains, draws\); got shape"):
        d.ebfmi(np.zeros((2, 5, 1)))


def test_ebfmi() -> None:
    check_ebfmi()


# ---- what must not change ------------------------------------------------------------------------------------------------

PLAIN = [name for name in SLOW if "quantile" not in name]


def test_rank_statistics_ignore_monotone_maps() -> None:
    x = autoregression(0.6, 4, 101, 5, seed=5)
    for name in ("ess_bulk", "ess_tail", "ess_median", "ess_quantile10"):
        for map_ in (np.exp, lambda v: v**3, lambda v: 3 * v - 7, stats.norm.cdf):
            np.testing.assert_array_equal(named(name, map_(x)), named(name, x), err_msg=name)
    np.testing.assert_allclose(d.ess_bulk(-x), d.ess_bulk(x), rtol=1e-12)
    np.testing.assert_allclose(d.rhat(3 - 4 * x), d.rhat(x), rtol=1e-12)


@pytest.mark.parametrize("name", SLOW)
def test_order_of_chains_and_scale_do_not_matter(name: str) -> None:
    x = autoregression(0.6, 4, 64, 3, seed=6)
    power = 1 if name.startswith("mcse") else 0
    np.testing.assert_allclose(named(name, x[[2, 0, 3, 1]]), named(name, x), rtol=1e-11)
    for scale in (2.0**900, 2.0**-900):  # whose squares overflow and underflow
        np.testing.assert_allclose(named(name, x * scale), named(name, x) * scale**power, rtol=1e-13)


@pytest.mark.parametrize("name", SLOW)
def test_forms_of_input(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.float32(autoregression(0.4, 3, 40, 2, 3, seed=7))
    wanted = named(name, x.astype(np.float64))
    assert wanted.shape == (2, 3)
    assert wanted.dtype == np.float64
    assert named(name, x[:, :, 0, 0]).shape == ()
    x.setflags(write=False)
    grown = torch.tensor(x, requires_grad=True)
    for form in (x, grown, grown.double(), np.asfortranarray(x), x.astype(">f8")):
        np.testing.assert_array_equal(named(name, form), wanted)
    assert named(name, x[..., :0]).shape == (2, 0)
    monkeypatch.setattr(columns, "CELLS", 130)  # one quantity at a time
    np.testing.assert_allclose(named(name, x), wanted, rtol=1e-13)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", SLOW)
def test_cuda(name: str) -> None:
    x = torch.from_numpy(autoregression(0.4, 3, 41, 7, seed=7))
    np.testing.assert_allclose(named(name, x.cuda()), named(name, x), rtol=1e-10)


# ---- never a comforting number -------------------------------------------------------------------------------------------

GOOD = autoregression(0.0, 4, 500, 6, seed=8)


def spoilt(how: str) -> np.ndarray:
    """The good draws with quantity 2 spoilt."""
    x = GOOD.copy()
    if how == "constant":
        x[:, :, 2] = 0.1  # sums of tenths round: a variance would not be 0
    elif how == "constant chains":
        x[:, :, 2] = np.array([0.1, 0.2, 0.3, 0.7])[:, None]
    elif how == "constant halves":
        x[:, :250, 2], x[:, 250:, 2] = 0.1, 0.3
    else:
        x[1, 7, 2] = float(how)
    return x


def check_missing(how: str) -> None:
    x = spoilt(how)
    for name in SLOW:
        if how == "constant halves" and name in ("rhat_raw", "ess_raw"):
            continue  # whole chains do move
        value = named(name, x)
        assert np.isnan(value[2]), f"{name} of {how} draws: {value[2]}"
        np.testing.assert_array_equal(np.delete(value, 2), np.delete(named(name, GOOD), 2), err_msg=name)


REASONS = {
    "constant": r"quantities must vary; got a single value in 1 of 6 quantities, first at \(2,\); leave out",
    "constant chains": r"some chain must vary within its halves; got none that does in 1 of 6 quantities, first at \(2,\); run",
    "constant halves": r"some chain must vary within its halves; got none that does in 1 of 6 quantities, first at \(2,\); run",
    "nan": r"draws must be finite; got NaN or infinity in 1 of 6 quantities, first at \(2,\); use a smaller step",
    "inf": r"draws must be finite; got NaN or infinity in 1 of 6 quantities, first at \(2,\); use a smaller step",
    "-inf": r"draws must be finite; got NaN or infinity in 1 of 6 quantities, first at \(2,\); use a smaller step",
}


@pytest.mark.parametrize("how", REASONS)
def test_no_number_without_cause(how: str) -> None:
    check_missing(how)
    (reason,) = d.reasons(spoilt(how))
    assert re.match(REASONS[how], reason)
    result = d.diagnose(spoilt(how))
    assert result.problems == (reason,)
    assert not result.converged
    assert result.worst()["rhat"] is None


def test_short_chains() -> None:
    for name in SLOW:
        assert np.isnan(named(name, GOOD[:, :3])).all()
        assert named(name, GOOD[:, :3]).shape == (6,)
    assert d.reasons(GOOD[:, :3]) == ("chains must have 4 draws or more; got 3; run longer chains",)
    assert d.diagnose(GOOD[:, :0]).problems == ("chains must have 4 draws or more; got 0; run longer chains",)
    assert np.isfinite(d.rhat(GOOD[:, :4])).all()


def test_one_chain() -> None:
    assert np.isnan(d.rhat_raw(GOOD[:1])).all()
    assert np.isfinite(d.rhat(GOOD[:1])).all()  # of its halves
    assert np.isfinite(d.ess_raw(GOOD[:1])).all()
    assert "chains must be 2 or more to agree; got 1; run 4 from different starts" in d.diagnose(GOOD[:1]).problems


def test_two_values() -> None:
    """Draws of a sign: no scale beside the location, and no draw above the 95% quantile."""
    x = np.tile([1.0, -1.0, -1.0, 1.0], (4, 100))  # exactly half of each
    assert d.rhat(x) == pytest.approx(1, abs=0.01)
    assert d.ess_tail(x) == d.ess_quantile(x, 0.05)
    assert np.isnan(d.ess_quantile(x, 0.95))
    assert d.reasons(x) == ()
    rare = np.where(np.arange(400) % 40 == 0, 0.0, 1.0) * np.ones((4, 1))  # 5% and 95% quantile are the largest value
    assert np.isnan(d.ess_tail(rare))
    (reason,) = d.reasons(rare)
    assert reason.startswith("tail ESS needs draws above the 5% quantile; got none in the only quantity; run longer")
    other = x * np.array([[1.0], [1.0], [2.0], [2.0]])  # spreads differ, but never within a chain
    assert np.isnan(d.rhat(other))
    assert d.reasons(other)[0].startswith("distances from the median must vary within chains; got the same distance")


@pytest.mark.parametrize("q", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_levels(q: float) -> None:
    for statistic in (d.ess_quantile, d.mcse_quantile):
        with pytest.raises(InputError, match="a quantile's level must lie between 0 and 1; got q = "):
            statistic(GOOD, q)


def test_refusals() -> None:
    with pytest.raises(InputError, match="draws must be a tensor or an array; got list; pass np.asarray"):
        d.rhat([[1.0, 2.0]])  # type: ignore[arg-type]
    with pytest.raises(
        InputError, match=r"draws must be \(chains, draws, ...\) with a chain or more; got shape \(5,\)"
    ):
        d.ess_bulk(np.zeros(5))
    with pytest.raises(InputError, match=r"got shape \(0, 5\)"):
        d.ess_bulk(torch.zeros(0, 5))
    for x in (np.zeros((2, 5), dtype=complex), torch.zeros(2, 5, dtype=torch.complex64), np.full((2, 5), "a")):
        with pytest.raises(InputError, match="draws must be real numbers; got"):
            d.ess_bulk(x)
    with pytest.raises(InputError, match="there must be a quantity to diagnose"):
        d.diagnose(GOOD[..., :0])


# ---- the verdict ---------------------------------------------------------------------------------------------------------


def test_good_chains_have_no_problems() -> None:
    energy = GOOD[:, :, 0]
    result = d.diagnose(torch.from_numpy(GOOD), divergent=torch.zeros(4, 500, dtype=torch.bool), energy=energy)
    assert result.problems == ()
    assert result.converged
    assert result.divergences == 0
    for name in ("rhat", "ess_bulk", "ess_tail", "mcse_mean"):
        np.testing.assert_array_equal(getattr(result, name), getattr(d, name)(GOOD))
    np.testing.assert_array_equal(result.ebfmi, d.ebfmi(energy))


def check_stuck() -> None:
    """A chain that never moves is named, whether it stays far out or in the middle, in which case only the scale shows it."""
    for place in (5.0, 0.1):
        x = GOOD.copy()
        x[2] = place
        problems = d.diagnose(x).problems
        assert any(
            p.startswith("every chain must move; got one that stays where it is (chain 2) in 6 of 6") for p in problems
        )
        assert any(p.startswith("R-hat must be < 1.01; got up to") for p in problems)


def test_a_stuck_chain_is_flagged() -> None:
    check_stuck()


def check_thresholds() -> None:
    x = GOOD.copy()
    x[0, :, 4] += 1
    shifted = d.diagnose(x).problems
    assert any(
        re.match(r"R-hat must be < 1.01; got up to 1\.\d+, too high in 1 of 6 .*\(4,\); run longer", p) for p in shifted
    )
    slow = d.diagnose(autoregression(0.9, 4, 400, 2, 3, seed=1)).problems
    assert any(re.match(r"bulk ESS must be >= 400; got down to \d+, too low in 6 of 6.*\(0, 0\); run", p) for p in slow)
    assert any(re.match(r"tail ESS must be >= 400; got down to \d+", p) for p in slow)
    divergent = np.zeros((4, 500), dtype=bool)
    divergent[1, 3] = divergent[2, 8] = True
    wanted = (
        "divergences must be 0; got 2; take smaller steps (where they adapt, by a higher acceptance such as 0.95) or reparameterise",
    )
    assert d.diagnose(GOOD, divergent=divergent).problems == wanted
    assert d.diagnose(GOOD, divergent=2).problems == wanted
    energy = GOOD[:, :, 0].copy()
    energy[1] = np.cumsum(energy[1])
    (low,) = d.diagnose(GOOD, energy=energy).problems
    assert re.match(r"E-BFMI must be >= 0.3; got down to 0\.\d\d in chains \[1\]; reparameterise", low)
    energy[1] = 3.0
    (none,) = d.diagnose(GOOD, energy=energy).problems
    assert none.startswith("energies must be finite, vary and be 4 or more; got constant, infinite or too few")


def test_thresholds() -> None:
    check_thresholds()


@pytest.mark.parametrize("x", [GOOD, spoilt("nan"), spoilt("constant")[..., 2], GOOD.reshape(4, 500, 2, 3)])
def test_a_diagnosis_goes_through_json(x: np.ndarray) -> None:
    for energy in (None, GOOD[:, :, 0]):
        result = d.diagnose(x, energy=energy, divergent=1)
        again = d.Diagnosis.from_json(json.loads(json.dumps(result.to_json(), allow_nan=False)))
        for name, value in vars(result).items():
            np.testing.assert_array_equal(getattr(again, name), value, err_msg=name)
        json.dumps(result.worst(), allow_nan=False)
