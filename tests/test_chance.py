"""Statistical assertions fail beyond their threshold and on what is no number; all are counted, and a run says how many there were."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import chance
import numpy as np
import pytest
import tally
import torch
from chance import (
    ALPHA,
    M,
    Z,
    assert_gaussian_variance,
    assert_law,
    assert_mean,
    assert_probability,
    between,
    likely,
    within,
)
from scipy import stats

HERE = Path(__file__).resolve().parent
rng = np.random.default_rng(0)
NORMAL = rng.standard_normal((1000, 3))


@pytest.fixture(autouse=True)
def _nothing_is_left_to_chance() -> Iterator[None]:
    yield
    chance.made.clear()


def test_the_threshold_is_that_of_the_budget() -> None:
    assert 2 * stats.norm.sf(Z) * M == pytest.approx(ALPHA)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_z(sign: float) -> None:
    for shape in (float, lambda z: np.array([0.0, z]), lambda z: torch.tensor([[0.0], [z]], dtype=torch.float64)):
        within(shape(sign * (Z - 1e-6)))  # type: ignore[operator]
        for wrong in (Z + 1e-6, np.inf, np.nan):
            with pytest.raises(AssertionError, match="shift"):
                within(shape(sign * wrong), "shift")  # type: ignore[operator]


def test_the_message_says_where() -> None:
    with pytest.raises(AssertionError, match=r"mean off by \|z\| = 9\.00 > \d\.\d\d at \[1, 0\]"):
        within(torch.tensor([[1.0, 2.0], [-9.0, 3.0]]), "mean")


def test_tails_of_a_law() -> None:
    """Of a normal one they are those of z."""
    law = stats.norm(3.0, 2.0)
    between([3 - 2 * (Z - 1e-6), 3 + 2 * (Z - 1e-6)], law)
    with pytest.raises(AssertionError, match="too large"):
        between(3 + 2 * (Z + 1e-6), law)
    with pytest.raises(AssertionError, match="too small"):
        between([3.0, 3 - 2 * (Z + 1e-6)], law)
    with pytest.raises(AssertionError):
        between(np.nan, law)


def test_p_values() -> None:
    likely([1.0, 1.01 * ALPHA / M])
    for wrong in (0.99 * ALPHA / M, 0.0, np.nan):
        with pytest.raises(AssertionError, match="off"):
            likely([1.0, wrong])


COUNTS: list[tuple[Callable[[], None], int]] = [
    (lambda: within(1.0), 1),
    (lambda: within(torch.zeros(2, 3)), 6),
    (lambda: between(np.ones(4), stats.chi2(1)), 4),
    (lambda: likely(np.ones((2, 2))), 4),
    (lambda: assert_mean(NORMAL, 0.0), 3),
    (lambda: assert_gaussian_variance(NORMAL, 0.0, 1.0), 3),
    (lambda: assert_law(NORMAL[:, 0], stats.norm.cdf), 1),
    (lambda: assert_probability(500, 1000, 0.5), 1),
]


@pytest.mark.parametrize(("assertion", "count"), COUNTS)
def test_counts(assertion: Callable[[], None], count: int) -> None:
    before = sum(chance.made)
    assertion()
    assert sum(chance.made) == before + count


def test_a_failure_counts() -> None:
    before = sum(chance.made)
    with pytest.raises(AssertionError):
        within([0.0, 9.0])
    assert sum(chance.made) == before + 2


def test_a_run_beyond_the_budget_says_so() -> None:
    assert tally.said(M) == (
        f"chance: {M} statistical comparisons of at most {M}, each |z| <= {Z:.2f} or the same tail of its law: "
        "a false alarm in 1,000,000 runs with fresh seeds"
    )
    assert "more than" in tally.said(
        M + 1
    ) and "in 250,000 runs with fresh seeds (4.0e-06 a run, not 1e-06)" in tally.said(4 * M)


TESTS = """
import pytest
from chance import within

@pytest.fixture
def given():
    within([0.0, 0.0])
    yield
    within(0.0)

def test_one(given): within([0.0] * 10)
def test_other(): within([0.0, 100.0])
def test_none(): pass
"""
CONFTEST = """
from tally import Tally

def pytest_configure(config):
    config.pluginmanager.register(Tally())
"""


@pytest.mark.parametrize("workers", [["-n", "2"], ["-n", "0"], ["-p", "no:xdist"]], ids=" ".join)
def test_a_run_says_its_count(workers: list[str], tmp_path: Path) -> None:
    """Those of a fixture and of a failing test, too, and of every worker."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*command, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
    )
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert f"chance: 15 statistical comparisons of at most {M}" in done.stdout


def test_a_run_that_compares_nothing_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text("def test_none(): pass\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(
        command, check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(HERE)}, capture_output=True, text=True
    )
    assert "chance" not in done.stdout
