"""Where outside reference data lie, if they are here at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from night import Night
from tally import Tally

ROOT = Path(__file__).resolve().parent.parent
TRUTH = Path(os.environ.get("NESCIO_TRUTH", ROOT.parent / "shared" / "truth"))
DATA = Path(os.environ.get("NESCIO_DATA", ROOT.parent / "shared" / "data"))

torch.set_num_threads(1)  # two workers share two cores


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep", metavar="FOLDER", help="where what the nightly tier found is written down")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Tally())
    if folder := config.getoption("--keep"):
        config.pluginmanager.register(Night(Path(folder)))


@pytest.fixture(autouse=True)
def _same_networks_whatever_ran_before() -> None:
    """Networks made in a test are initialised by torch's global generator: the same ones in any order of the tests."""
    torch.default_generator.manual_seed(0)


@pytest.fixture(scope="session")
def truth() -> Path:
    if not (TRUTH / "README.md").exists():
        pytest.skip("no reference posteriors here (set NESCIO_TRUTH)")
    return TRUTH


@pytest.fixture(scope="session")
def data_folder() -> Path:
    if not (DATA / "MANIFEST.csv").exists():
        pytest.skip("no data folder here (set NESCIO_DATA)")
    return DATA
