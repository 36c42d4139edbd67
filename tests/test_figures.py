"""Every figure shows what it claims: the claim is checked on the numbers that are drawn, then the drawing on the file it leaves."""

from __future__ import annotations

import csv
import importlib.util
import math
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from chance import ALPHA, M, assert_probability, likely
from scipy import integrate, special, stats
from torch.distributions import Normal as TorchNormal
from torch.distributions.relaxed_bernoulli import RelaxedBernoulli

from nescio.errors import FileError, InputError, UnsupportedError
from nescio.laws import Exponential, InverseGamma
from nescio.noise import Noise
from nescio.predictive import Drawn
from nescio.report import bands_data, draw_bands, draw_intervals, figures, intervals_data, save
from nescio.report.figures import blocks, concrete, functions, laplace, priors
from nescio.report.figures.arrays import half_width
from nescio.report.style import table

SCRIPT = Path(__file__).resolve().parent.parent / "reproduce" / "figures.py"
spec = importlib.util.spec_from_file_location("reproduce_figures", SCRIPT)
assert spec is not None
assert spec.loader is not None
reproduce = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = reproduce  # dataclasses look their module up
spec.loader.exec_module(reproduce)


# ---- what each figure claims -----------------------------------------------------------------------------------


def test_weights_are_a_mode_with_its_curvature() -> None:
    """000-1: the points are a maximum, each density has mean and sd of the edge, and no edge is left without one."""
    numbers = figures.weights_data(epochs=200)
    assert np.abs(numbers["slope"]).max() < 1e-6
    assert np.linalg.eigvalsh(numbers["precision"]).min() > 0
    np.testing.assert_allclose(numbers["sd"] ** 2, np.diag(np.linalg.inv(numbers["precision"])), rtol=1e-10)
    grid, density = numbers["grid"], numbers["density"]
    assert density.shape == (10, len(grid))
    for mean, sd, curve in zip(numbers["point"], numbers["sd"], density, strict=True):
        np.testing.assert_allclose(curve, stats.norm.pdf(grid, mean, sd), rtol=1e-8)


def p_value(numbers: dict[str, np.ndarray], name: str) -> float:
    """Of the estimated entry that is farthest from theory, by Bonferroni."""
    z = np.abs(numbers[name] - numbers[f"{name}_theory"]) / numbers[f"{name}_error"]
    return float(2 * stats.norm.sf(z.max()) * z.size)


def test_covariance_blocks_match_theory() -> None:
    """002-3, 002-12: each matrix is one comparison; a prior of another kind is far outside."""
    numbers = figures.blocks_data(draws=1500)
    for name in blocks.TITLES:
        likely(p_value(numbers, name), name)
    for right, wrong in (("layer", "weight"), ("joint", "layer"), ("weight", "joint")):
        assert p_value({**numbers, f"{right}_theory": numbers[f"{wrong}_theory"]}, right) < ALPHA / M
    alone = {**numbers, "filter_theory": np.eye(24)}  # as if the filters had no common scale
    assert p_value(alone, "filter") < ALPHA / M


def test_group_scales_leave_the_weights_uncorrelated_yet_dependent() -> None:
    """Moments of log |w| by quadrature, so that the 2/3 of the figure does not rest on its own formula."""
    v = np.linspace(-60, 60, 400_001)
    half_cauchy, half_normal = stats.halfcauchy.pdf(np.exp(v)) * np.exp(v), stats.halfnorm.pdf(np.exp(v)) * np.exp(v)
    moments = []
    for density in (half_cauchy, half_normal):
        mean = np.trapezoid(v * density, v)
        moments.append((mean, np.trapezoid((v - mean) ** 2 * density, v)))
    (mean_s, scale), (mean_z, normal) = moments
    inside = blocks.theory("filter").numpy()
    assert inside[0, 1] == pytest.approx(scale / (scale + normal))
    assert inside[0, 6] == 0
    assert mean_s == pytest.approx(0, abs=1e-9)
    assert mean_z == pytest.approx((math.log(0.5) - blocks.EULER) / 2)


def test_mean_field_is_too_narrow() -> None:
    """002-24: variance 1 / Λ_ii, less than the marginal one; the full family finds p itself."""
    numbers = figures.ellipses_data()
    p, q = numbers["p_covariance"], numbers["factorised_covariance"]
    np.testing.assert_allclose(np.diag(q), 1 / np.diag(np.linalg.inv(p)), rtol=1e-6)
    assert q[0, 1] == 0
    assert np.all(np.diag(q) < np.diag(p))
    np.testing.assert_allclose(numbers["full_covariance"], p, rtol=1e-6)
    for name in ("p", "factorised", "full"):  # every outline holds 90%
        edge = np.linalg.solve(numbers[f"{name}_covariance"], numbers[f"{name}_outline"])
        radius = (edge * numbers[f"{name}_outline"]).sum(0)
        np.testing.assert_allclose(stats.chi2.cdf(radius, 2), 0.9, rtol=1e-10)


def test_laplace_matches_the_curvature_and_counts_the_prior_once() -> None:
    """002-27: against the closed form 1/s² + Σ x² p (1 - p), and against a second difference of the drawn curve."""
    numbers = figures.laplace_data(points=1701)
    mode, x = float(numbers["mode"]), np.array(laplace.X)
    p = special.expit(mode * x)
    data = (x**2 * p * (1 - p)).sum()
    assert numbers["curvature"] == pytest.approx(1 / laplace.SCALE**2 + data, rel=1e-8)
    assert numbers["curvature"] != pytest.approx(len(x) / laplace.SCALE**2 + data, rel=1e-2)  # the prior N times
    assert (x * (np.array(laplace.Y) - p)).sum() - mode / laplace.SCALE**2 == pytest.approx(0, abs=1e-8)
    near = int(np.abs(numbers["w"] - mode).argmin())
    step = numbers["w"][1] - numbers["w"][0]
    for name, tolerance in (("log_posterior", 0.02), ("parabola", 1e-6), ("log_normal", 1e-6)):
        second = np.diff(numbers[name][near - 1 : near + 2], 2)[0] / step**2
        assert -second == pytest.approx(float(numbers["curvature"]), rel=tolerance), name
    assert np.trapezoid(np.exp(numbers["log_posterior"]), numbers["w"]) == pytest.approx(1)
    assert np.all(np.diff(numbers["path_height"]) >= -1e-12)
    assert numbers["mean"] > mode + 0.3  # skewed: otherwise there would be nothing to see


def test_concrete_density() -> None:
    """003-14: closed form of the law of the sampler, total mass 1, P(z > 1/2) = keep, mass to {0, 1} as t falls."""
    numbers = figures.concrete_data(points=4001)
    keep, logit, z = float(numbers["keep"]), numbers["logit"], numbers["z"]
    np.testing.assert_allclose(numbers["above_half"], keep, rtol=1e-12)
    wide = np.linspace(-600, 600, 120_001)
    slope = np.exp(-np.logaddexp(0, wide) - np.logaddexp(0, -wide))
    for t, density in zip(numbers["temperature"], numbers["density"], strict=True):
        whole = np.exp(concrete.concrete_log_density(wide, keep, t)) * slope
        assert np.trapezoid(whole, wide) == pytest.approx(1, abs=1e-6)
        assert integrate.simpson(whole[60_000:], x=wide[60_000:]) == pytest.approx(keep, abs=1e-6)  # from z = 1/2 up
        law = RelaxedBernoulli(torch.tensor(t), probs=torch.tensor(keep, dtype=torch.float64))
        inner = np.abs(logit) < 10
        np.testing.assert_allclose(density[inner], law.log_prob(torch.tensor(z[inner])).exp().numpy(), rtol=1e-5)
        u = Noise(0, ("concrete",), dtype=torch.float64).uniform(20_000).numpy()
        draws = special.expit((special.logit(keep) + special.logit(u)) / t)
        for edge in (concrete.EDGE, 0.5, 1 - concrete.EDGE):
            below = int((draws < edge).sum())
            assert_probability(below, len(draws), concrete.concrete_below(edge, keep, t))
        with pytest.raises(AssertionError):  # planted: drop where keep belongs
            assert_probability(int((draws < 0.5).sum()), len(draws), concrete.concrete_below(0.5, 1 - keep, t))
    ends = numbers["near_zero"] + numbers["near_one"]
    assert np.all(np.diff(numbers["temperature"]) < 0)
    assert np.all(np.diff(ends) > 0)


def test_priors_spike_tails_and_pull() -> None:
    """000-32 ... 000-35, 002-8, 002-9."""
    numbers = figures.priors_data()
    w = numbers["w"]
    known = w < 30  # beyond, the closed form overflows
    half = 0.5 * w[known] ** 2
    closed = np.exp(half) * special.exp1(half) / np.sqrt(2 * np.pi**3)
    np.testing.assert_allclose(numbers["horseshoe"][known], closed, rtol=1e-6)
    at = {x: int(np.abs(w - x).argmin()) for x in (1e-6, 1e-3, 5.0, 50.0)}
    for name in ("horseshoe", "log_uniform"):  # rises without bound towards zero
        assert numbers[name][at[1e-6]] > 1.5 * numbers[name][at[1e-3]]
    for name in ("normal", "laplace", "student", "spike_slab"):
        assert numbers[name][at[1e-6]] == pytest.approx(numbers[name][at[1e-3]], rel=2e-3)
    far = [numbers[name][at[50.0]] for name in ("log_uniform", "horseshoe", "student", "laplace", "normal")]
    assert all(a > 10 * b for a, b in pairwise(far))  # heaviest first
    score = {name: numbers[f"{name}_score"] for name in priors.NAMES}
    np.testing.assert_allclose(score["normal"], w, rtol=1e-9)  # unbounded
    np.testing.assert_allclose(score["laplace"], 1, rtol=1e-9)  # constant
    np.testing.assert_allclose(score["log_uniform"], 1 / w, rtol=1e-9)
    assert score["student"].max() <= 4 / (2 * math.sqrt(3)) * (1 + 1e-9)  # (df + 1) / (2 sqrt df), at sqrt df
    assert score["student"][-1] < 0.05
    assert score["horseshoe"][-1] < 0.05
    assert score["spike_slab"][at[5.0]] == pytest.approx(w[at[5.0]])  # the slab: it is a normal prior out there


def test_scale_mixtures_are_the_laws_they_are_said_to_be() -> None:
    """002-8: τ² ~ IG(a, b) gives Student-t with df 2a and scale sqrt(b / a). 000-34: z² ~ Exponential gives Laplace."""
    w = torch.linspace(0.01, 30, 200, dtype=torch.float64)
    student = priors.mixed(InverseGamma(), root=True, concentration=1.5, scale=2.0)(w).numpy()
    np.testing.assert_allclose(student, stats.t.logpdf(w, 3, scale=math.sqrt(2 / 1.5)), rtol=1e-8)
    laplace_law = priors.mixed(Exponential(), root=True, rate=0.5)(w).numpy()
    np.testing.assert_allclose(laplace_law, stats.laplace.logpdf(w), rtol=1e-8)
    # planted: the mixture over τ instead of τ² is another law
    wrong = priors.mixed(InverseGamma(), root=False, concentration=1.5, scale=2.0)(w).numpy()
    assert np.abs(wrong - student).max() > 0.1


def test_jumps_stay_under_infinite_variance() -> None:
    """002-5, 002-10: the part of Σ v² that one unit has.

    Normal, H = 1000: the part of one unit is Beta(1/2, 999/2), so one of 40 x 1000 is above 5% with probability 3e-8. Cauchy:
    E[Σ v² / max v²] -> 2 (v² has tail index 1/2), so by Markov at least 90% of the draws lie above 5%: binomial.
    """
    numbers = figures.widths_data(widths=(10, 1000), points=11)
    assert numbers["normal_share"][1].max() < 0.05
    likely(stats.binom.cdf((numbers["cauchy_share"][1] > 0.05).sum(), 40, 0.9))
    assert np.median(numbers["normal_share"][1]) < 0.1 * np.median(numbers["normal_share"][0])


def test_a_draw_is_one_function() -> None:
    """003-5: one mask over the whole grid gives smooth functions, a mask at each point does not; dropping is masking columns."""
    numbers = figures.functions_data(draws=6, epochs=100)
    assert functions.roughness(numbers["pointwise"]).min() > 2 * functions.roughness(numbers["dropout"]).max()
    steps = {name: np.abs(np.diff(numbers[name], axis=1)).mean() for name in ("prior", "dropout", "pointwise")}
    assert steps["pointwise"] > 3 * max(steps["prior"], steps["dropout"])
    assert numbers["dropout"].std(0).min() > 0


def test_masked_columns_are_dropped_inputs() -> None:
    model, params, x, _ = functions.trained(epochs=2, seed=0)
    noise = Noise(5)
    stacked = functions.masked(params, 3, noise)
    got = model.observed(stacked, x).mean[..., 0]
    keep = 1 - functions.DROP
    for i in range(3):
        h = torch.tanh(x @ params["0.weight"].mT + params["0.bias"])
        for name in ("3", "6"):
            z = (noise.at(f"{name}.weight").uniform(3, 1, functions.HIDDEN) < keep)[i, 0] / keep
            h = (h * z) @ params[f"{name}.weight"].mT + params[f"{name}.bias"]
            h = torch.tanh(h) if name == "3" else h
        torch.testing.assert_close(got[i], h[:, 0], rtol=1e-4, atol=1e-5)


# ---- predictions -----------------------------------------------------------------------------------------------


def predictive(points: int = 30, draws: int = 8) -> Drawn:
    means = Noise(0).normal(draws, points, 1)
    return Drawn(TorchNormal(means, torch.full_like(means, 0.5)))


def test_intervals() -> None:
    p = predictive(250)
    y = p.sample(1, seed=1)[0]
    numbers = intervals_data(p, y, level=0.8)
    assert len(numbers["mean"]) == 100
    assert np.all(np.diff(numbers["mean"]) >= 0)
    low, high = (t[:, 0] for t in p.interval(0.8))
    inside = ((y[:, 0] >= low) & (y[:, 0] <= high)).double().mean()
    assert numbers["coverage"] == pytest.approx(float(inside))
    outside = (numbers["truth"] < numbers["low"]) | (numbers["truth"] > numbers["high"])
    assert np.array_equal(outside, numbers["missed"])
    order = p.mean[:, 0].argsort()
    kept = order[np.linspace(0, 249, 100).round().astype(int)]
    share = (p.epistemic / p.variance)[:, 0][kept]
    np.testing.assert_allclose(numbers["epistemic_share"], share, rtol=1e-5)
    np.testing.assert_allclose(numbers["sd"], p.std[:, 0][kept], rtol=1e-5)


def test_bands() -> None:
    p, x = predictive(), torch.linspace(2, -2, 30)[:, None]
    numbers = bands_data(x, p, level=0.9)
    assert np.all(np.diff(numbers["x"]) > 0)
    z = stats.norm.isf(0.05)
    assert half_width(0.9) == pytest.approx(z)
    mean = p.mean[:, 0].flip(0).numpy()
    np.testing.assert_allclose(numbers["mean"], mean, rtol=1e-6)
    np.testing.assert_allclose(numbers["high"] - mean, z * p.std[:, 0].flip(0), rtol=1e-5)
    np.testing.assert_allclose(mean - numbers["epistemic_low"], z * p.epistemic[:, 0].flip(0).sqrt(), rtol=1e-5)
    assert np.all(numbers["epistemic_high"] < numbers["high"])
    np.testing.assert_allclose(numbers["functions"], p.draws.mean[..., 0].flip(1).numpy())


def test_predictions_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(InputError, match="one number a point"):
        bands_data(torch.zeros(30, 2), predictive())
    with pytest.raises(InputError, match="one row for each prediction"):
        intervals_data(predictive(), torch.zeros(29))
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        bands_data(torch.zeros(30), predictive(), level=90)


# ---- files -----------------------------------------------------------------------------------------------------


def check_files(path: Path, alt: str) -> None:
    root = ET.parse(path).getroot()
    space = "{http://www.w3.org/2000/svg}"
    description, title = root.find(f"{space}desc"), root.find(f"{space}title")
    assert description is not None
    assert title is not None
    assert description.text == alt
    assert title.text
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert path.stat().st_size < 300_000
    rows = list(csv.reader(path.with_suffix(".csv").read_text().splitlines()))
    assert len(rows) > 1
    assert all(len(row) == len(rows[0]) for row in rows)


@pytest.mark.parametrize("name", list(reproduce.FIGURES))
def test_figure_is_written_the_same_twice(name: str, tmp_path: Path) -> None:
    entry = reproduce.FIGURES[name]
    contents = []
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        path = reproduce.draw(name, tmp_path / folder, quick=True)
        check_files(path, entry.alt)
        contents.append((path.read_bytes(), path.with_suffix(".csv").read_bytes()))
    assert contents[0] == contents[1]


@pytest.mark.parametrize("name", list(reproduce.FIGURES))
def test_committed_figure_is_whole(name: str) -> None:
    check_files(SCRIPT.parent.parent / "docs" / "figures" / f"{name}.svg", reproduce.FIGURES[name].alt)


def test_prediction_figures_are_written(tmp_path: Path) -> None:
    p, x = predictive(), torch.linspace(-2, 2, 30)[:, None]
    y = p.sample(1)[0]
    table_numbers, curve_numbers = intervals_data(p, y), bands_data(x, p)
    for name, drawn, numbers in (
        ("intervals", draw_intervals(table_numbers, "Title <1>", "kN"), table_numbers),
        ("bands", draw_bands(curve_numbers, x, y, "Title & more"), curve_numbers),
    ):
        path = tmp_path / f"{name}.svg"
        save(drawn, path, alt='says "a < b"', values=numbers, interval="90% central interval", seed=3)
        first = path.read_bytes()
        check_files(path, 'says "a < b"')
        save(drawn, path, alt='says "a < b"', values=numbers, interval="90% central interval", seed=3)
        assert path.read_bytes() == first  # the footer is not drawn twice
        save(drawn, path, alt='says "a < b"', values=numbers, interval="90% central interval", seed=4)
        assert path.read_bytes() != first  # the seed is in the footer


def test_values_are_written_in_columns() -> None:
    text = table({"a": np.array([1.0, 2.5]), "b": np.array(3), "c": np.array([[1.0], [1 / 3]])})
    assert text == "a,b,c.0,c.1\n1,3,1,0.333333\n2.5,,,\n"


def test_save_refuses(tmp_path: Path) -> None:
    drawn = figures.draw_ellipses(figures.ellipses_data())
    with pytest.raises(InputError, match=r"saved as \.svg"):
        save(drawn, tmp_path / "a.png", alt="x", values={})
    with pytest.raises(InputError, match="alt text"):
        save(drawn, tmp_path / "a.svg", alt=" ", values={})
    with pytest.raises(FileError, match="create the folder"):
        save(drawn, tmp_path / "no" / "a.svg", alt="x", values={})


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = figures.ellipses_data()  # numbers need no matplotlib
    for name in [n for n in sys.modules if n.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UnsupportedError, match=r"nescio\[report\]"):
        figures.draw_ellipses(numbers)
