"""The figures of chains: bands that hold what they say, marks on what is wrong, and the same numbers on white and on dark paper."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from chance import likely
from scipy import stats
from test_diagnose import autoregression
from test_figures import check_files

import nescio.diagnose as d
from nescio.errors import InputError
from nescio.report import (
    DARK,
    LIGHT,
    Theme,
    draw_energy,
    draw_ranks,
    draw_trace,
    energy_data,
    ranks_data,
    save,
    trace_data,
)
from nescio.report.figures.energy import density
from nescio.report.figures.ranks import outside, unclear
from nescio.report.figures.uniformity import bound, even

RATE = 0.01


def false_alarms(values: np.ndarray, most: float = RATE) -> None:
    """Of chains that agree no more quantities leave the band than chance allows, at the rate of a scalar comparison."""
    out = outside(ranks_data(values, rate=RATE)).any((1, 2))
    likely(stats.binom.sf(out.sum() - 1, len(out), most), f"{out.sum()} of {len(out)} outside")


def check_independent() -> None:
    """Independent draws: the bound is proven, 1% or less. A band for one bar alone would be left by nearly every quantity."""
    false_alarms(autoregression(0.0, 4, 100, 300, seed=1))


def check_thinned() -> None:
    """Correlated draws, thinned by an estimate: allowed is twice the rate. Unthinned, three quarters of the quantities leave the band."""
    false_alarms(autoregression(0.9, 4, 1000, 150, seed=2), 2 * RATE)


def check_ties() -> None:
    """Three values, many ties: chains agree, and nothing may say otherwise."""
    false_alarms(np.floor(3 * stats.norm.cdf(autoregression(0.0, 4, 200, 300, seed=3))))


@pytest.mark.parametrize("check", [check_independent, check_thinned, check_ties])
def test_the_band_holds_chains_that_agree(check: object) -> None:
    check()  # type: ignore[operator]


def test_bounds_are_those_of_the_hypergeometric_law() -> None:
    for total, size, draws in ((400, 20, 100), (4000, 200, 1000), (60, 30, 30), (36, 6, 9)):
        for tail in (1e-5, 1e-3, 0.02):
            low, high = bound(total, size, draws, tail)
            law = stats.hypergeom(total, size, draws)
            assert law.cdf(low - 1) <= tail < law.cdf(low)
            assert law.sf(high) <= tail < law.sf(high - 1)


def test_bins_are_equal() -> None:
    for chains in (2, 3, 4, 7):
        for draws in range(20, 300, 7):
            kept, n = even(chains, draws, max(2, min(20, draws // 10)))
            assert chains * kept % n == 0 and 0 <= draws - kept < n
    numbers = ranks_data(autoregression(0.0, 3, 101, 2, seed=1))
    for q, n in enumerate(numbers["bins"].astype(int)):
        held = numbers["counts"][q].sum(0)
        assert (held[:n] == held[0]).all() and np.isnan(held[n:]).all()  # every bin as many ranks


def planted() -> np.ndarray:
    """Chains that agree; one that is shifted; one that is too narrow; one that is stuck."""
    x = autoregression(0.3, 4, 600, 4, seed=5)
    x[1, :, 1] += 1.0
    x[2, :, 2] *= 0.4
    x[3, :, 3] = 0.7
    return x


def check_planted() -> None:
    numbers = trace_data(planted())
    out = outside(numbers).any(2)  # (quantities, chains)
    assert not out[0].any()
    assert out[1, 1] and out[2, 2] and out[3, 3]
    half, n = int(numbers["bins"][1]) // 2, int(numbers["bins"][1])
    low, high = numbers["counts"][1, 1, :half].sum(), numbers["counts"][1, 1, n - half : n].sum()
    assert low < half * numbers["expected"][1, 0] < high  # shifted upwards: high ranks
    np.testing.assert_array_equal(numbers["rhat"], d.rhat(planted()))
    np.testing.assert_array_equal(numbers["ess_bulk"], d.ess_bulk(planted()))


def test_chains_that_differ_leave_the_band() -> None:
    check_planted()


def test_slow_chains_are_not_comforting() -> None:
    """Where next to nothing is independent, the figure says that it cannot tell."""
    numbers = trace_data(np.cumsum(autoregression(0.0, 4, 300, 1, seed=6), axis=1))
    assert unclear(numbers).all()
    texts = [text.get_text() for axes in draw_trace(numbers, ["w"], "Slow").axes for text in axes.texts]
    assert "too few independent draws to tell" in texts


def test_lines_are_the_draws_and_no_divergence_is_lost() -> None:
    x, divergent = autoregression(0.5, 3, 1234, 2, seed=7), np.zeros((3, 1234), dtype=bool)
    divergent[1, 701] = divergent[2, 1233] = True
    numbers = trace_data(x, divergent)
    at = numbers["draw"].astype(int)
    assert len(at) <= 400 and at[0] == 0
    for q in range(2):
        np.testing.assert_array_equal(numbers["line"][q], x[:, at, q])
    assert numbers["divergent"].sum(1).tolist() == [0, 1, 1]
    assert "2 divergent" in " ".join(
        t.get_text() for axes in draw_trace(numbers, ["a", "b"], "T").axes for t in axes.texts
    )
    assert "divergent" not in " ".join(
        t.get_text() for axes in draw_trace(trace_data(x), ["a", "b"], "T").axes for t in axes.texts
    )


def check_energies() -> None:
    """Densities have mass 1 and the spread of what they show; changes are taken within chains; E-BFMI is that of the diagnosis."""
    energy = autoregression(0.8, 4, 500, seed=8) + 100.0 * np.arange(4)[:, None]
    numbers = energy_data(energy, energy[:3])
    grid = numbers["grid"][0]
    for name, x in (("marginal", energy - energy.mean(1, keepdims=True)), ("change", np.diff(energy, axis=1))):
        curve = numbers[name][0]
        assert np.trapezoid(curve, grid) == pytest.approx(1, abs=0.01)
        assert np.sqrt(np.trapezoid(curve * grid**2, grid)) == pytest.approx(x.std(), rel=0.1)  # the kernel widens it
    np.testing.assert_array_equal(numbers["ebfmi"][0], d.ebfmi(energy))
    np.testing.assert_array_equal(numbers["ebfmi"][1, :3], d.ebfmi(energy[:3]))
    assert np.isnan(numbers["ebfmi"][1, 3])
    still = energy_data(np.ones((2, 10)))
    assert not still["marginal"].any() and np.isnan(still["ebfmi"]).all()
    draw_energy(still, ["still"], "Nothing moves").draw_without_rendering()


def test_energies() -> None:
    check_energies()


def test_the_kernel_estimate_is_that_of_scipy() -> None:
    x, grid = autoregression(0.0, 1, 5000, seed=9)[0], np.linspace(-4, 4, 101)
    spread = min(x.std(), np.subtract(*np.quantile(x, [0.75, 0.25])) / 1.349)
    kernel = stats.gaussian_kde(x, bw_method=0.9 * spread * len(x) ** -0.2 / x.std(ddof=1))
    np.testing.assert_allclose(density(x, grid), kernel(grid), rtol=1e-8, atol=1e-12)


NAMES = ["a < b", "shifted", "narrow", "stuck"]


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_figures_are_written_on_either_paper(theme: Theme, tmp_path: Path) -> None:
    trace, ranks, energy = trace_data(planted()), ranks_data(planted()), energy_data(autoregression(0.9, 12, 50))
    for name, figure, numbers in (
        ("trace", draw_trace(trace, NAMES, "Title <1>", theme), trace),
        ("ranks", draw_ranks(ranks, NAMES, "Title & more", theme), ranks),
        ("energy", draw_energy(energy, ["run"], "Title", theme), energy),
    ):
        path = tmp_path / f"{name}.svg"
        save(figure, path, alt='says "a < b"', values=numbers, seed=3)
        check_files(path, 'says "a < b"')
        text, other = path.read_text(), LIGHT if theme is DARK else DARK
        assert theme.paper in text and theme.grey in text and theme.miss in text
        assert not any(colour in text for colour in (other.ink, other.grey, other.miss))


def contrast(a: str, b: str) -> float:
    """As the accessibility guidelines (WCAG 2) define it."""

    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05

    return max(light(a), light(b)) / min(light(a), light(b))


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_what_is_read_can_be_read(theme: Theme) -> None:
    assert contrast(theme.ink, theme.paper) > 7
    assert contrast(theme.grey, theme.paper) > 4.5
    assert all(contrast(colour, theme.paper) > 2 for colour in (*theme.cycle, theme.blue, theme.orange, theme.miss))
    assert len(set(theme.cycle)) == len(theme.cycle) and theme.miss not in theme.cycle


def test_many_chains() -> None:
    x = autoregression(0.0, 20, 100, 1, seed=4)
    x[13] += 2
    figure = draw_ranks(ranks_data(x), ["f"], "Twenty chains")
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert len(titles) == 8 and "chain 14" in titles
    draw_trace(trace_data(x), ["f"], "Twenty chains").draw_without_rendering()


def test_what_cannot_be_drawn_is_refused() -> None:
    x = autoregression(0.0, 3, 50, 2)
    for wrong, message in (
        (lambda: ranks_data(x[:1]), "ranks compare chains, 2 or more; got 1; run 4"),
        (lambda: ranks_data(x, rate=1.0), "0 < rate < 1"),
        (lambda: ranks_data(x[:, :3]), "4 draws or more; got shape"),
        (lambda: trace_data(np.where(x > 2, np.nan, x)), "values must be finite"),
        (lambda: trace_data(x, np.zeros((50, 3))), r"divergent must be \(chains, draws\)"),
        (lambda: energy_data(x), "energies must be"),
        (lambda: energy_data(np.full((2, 9), np.inf)), "some not finite"),
        (energy_data, "there must be energies to draw"),
    ):
        with pytest.raises(InputError, match=message):
            wrong()
