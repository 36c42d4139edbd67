"""The package as it is installed: versions, what must not be there, what is shipped."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import sysconfig
from pathlib import Path

import pytest

import nescio

ROOT = Path(__file__).resolve().parent.parent


def test_version_is_one() -> None:
    assert nescio.__version__ == importlib.metadata.version("nescio")


def test_every_public_name_exists() -> None:
    assert all(getattr(nescio, name) is not None for name in nescio.__all__)
    with pytest.raises(AttributeError, match="frobnicate"):
        nescio.frobnicate  # noqa: B018


def test_torchvision_and_cuda_builds_are_absent() -> None:
    """torchvision beside a CPU build of torch breaks on import, and a CUDA build would be pulled by accident."""
    names = {(d.metadata["Name"] or "").lower() for d in importlib.metadata.distributions()}
    assert "torchvision" not in names
    assert not [name for name in names if name.startswith(("nvidia-", "triton"))]


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the pins are those of Python 3.11")
def test_everything_installed_is_pinned() -> None:
    """What `pip install -c constraints.txt -e .[dev]` brings is written down, so that two machines get the same."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    normal = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins.items()}
    own = [
        sysconfig.get_paths()[kind] for kind in ("purelib", "platlib")
    ]  # others may have put their vendored ones on the path
    for distribution in importlib.metadata.distributions(path=own):
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
        if name in ("pip", "setuptools", "wheel", "nescio"):
            continue
        assert name in normal, f"{name} is not pinned"
        assert distribution.version.split("+")[0] == normal[name]


def test_no_stray_words() -> None:
    """No machine paths and no secrets of a workplace in what is shipped."""
    for path in [*ROOT.glob("nescio/**/*.py"), *ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "Makefile"]:
        text = path.read_text()
        assert not re.search(r"/(home|root|work|tmp)/", text), path


def test_bundled_data_are_in_the_package() -> None:
    folder = Path(nescio.__file__).parent / "data" / "bundled"
    assert {"concrete.csv", "energy.csv", "wine.csv", "yacht.csv", "SOURCES.md"} <= {p.name for p in folder.iterdir()}
    assert (Path(nescio.__file__).parent / "py.typed").exists()
