"""Arrays of an .npz file as inputs and targets of a network."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nescio.errors import FileError, InputError


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Every array of an .npz file; nothing in it is ever executed."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except OSError as error:
        got = error.strerror or str(error)
        raise FileError(f"{path}: the file must be there and readable", got, "check the path") from error
    except (ValueError, EOFError, zipfile.BadZipFile, KeyError, NotImplementedError) as error:
        got = str(error).split("\n")[0][:100]
        raise FileError(f"{path} must be an .npz file of plain arrays", got, "save it with np.savez") from error


def as_inputs(x: np.ndarray, what: str) -> Tensor:
    """Rows of numbers (n, d), or images (n, channels, h, w) in [0, 1] from bytes; grey ones (n, h, w) get a channel."""
    if x.dtype.kind not in "fiub" or x.ndim not in (2, 3, 4) or not x.size:
        got = f"{x.dtype} {x.shape}"
        raise InputError(f"{what} must be numbers (n, d) or images (n, h, w[, channels])", got, "reshape it")
    pixels = x.astype(np.float32) / (255.0 if x.dtype == np.uint8 and x.ndim > 2 else 1.0)
    if not np.isfinite(pixels).all():
        raise InputError(f"{what} must be finite", "NaN or infinity", "drop or impute these rows first")
    if x.ndim == 3:
        pixels = pixels[:, None]
    elif x.ndim == 4 and x.shape[-1] in (1, 3, 4) and x.shape[1] not in (1, 3, 4):
        pixels = pixels.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(pixels, dtype=np.float32))


def as_targets(y: np.ndarray, what: str, known: tuple[str, ...]) -> tuple[Tensor, tuple[str, ...]]:
    if y.ndim == 1 and y.dtype.kind in "iuU":
        names = [str(v) for v in y.tolist()]
        own = sorted(set(names), key=(lambda v: (int(v), v)) if y.dtype.kind != "U" else None)
        classes = known or tuple(own)
        number = {name: i for i, name in enumerate(classes)}
        if len(classes) < 2 or any(name not in number for name in names):
            got = "one" if len(classes) < 2 else f"new ones: {', '.join(sorted(set(names) - set(number))[:5])}"
            raise InputError(f"{what}: classes must be two or more, those of training", got, "check the labels")
        return torch.tensor([number[name] for name in names]), classes
    if known or y.dtype.kind != "f" or y.ndim not in (1, 2) or not np.isfinite(y).all():
        got = f"{y.dtype} {y.shape}"
        raise InputError(
            f"{what} must be whole numbers (n,) for classes, or finite reals (n,) or (n, k)", got, "convert it"
        )
    return torch.from_numpy(y.reshape(len(y), -1).astype(np.float32)), ()
