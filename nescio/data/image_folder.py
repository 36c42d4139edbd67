"""A folder of images, one folder below it for each class. Only here is Pillow imported."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nescio.errors import FileError, InputError, UnsupportedError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
MOST_PIXELS = 1 << 22  # of one image


class Images(NamedTuple):
    pixels: np.ndarray  # (n, h, w) or (n, h, w, 3) uint8
    labels: Tensor  # (n,) int64
    classes: tuple[str, ...]
    files: tuple[str, ...]
    notes: tuple[str, ...]


def read_images(folder: str | PathLike[str]) -> Images:
    """folder/class/image.png: classes in the order of their names, images of one size; grey if all are grey, else colours."""
    place = Path(folder)
    classes = tuple(
        sorted(child.name for child in place.iterdir() if child.is_dir() and not child.name.startswith("."))
    )
    files = [file for name in classes for file in found(place / name)]
    if len(classes) < 2 or len(files) < 2:
        got = f"{len(classes)} folders with {len(files)} images"
        raise InputError(
            f"{place} must hold a folder for each class, with images", got, "sort images as folder/class/image.png"
        )
    pixels, grey = load(files)
    labels = torch.tensor([classes.index(file.parent.name) for file in files])
    counts = torch.bincount(labels, minlength=len(classes)).tolist()
    if 0 in counts:
        must, got = f"every class folder of {place} must hold an image", f"none in {classes[counts.index(0)]}"
        raise InputError(must, got, "add images, or remove the folder")
    notes = (f"{len(files)} {'grey' if grey else 'colour'} images of {pixels.shape[2]} x {pixels.shape[1]} pixels",)
    return Images(pixels, labels, classes, tuple(str(f.relative_to(place)) for f in files), notes)


def found(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES)


def load(files: list[Path]) -> tuple[np.ndarray, bool]:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise UnsupportedError("image files need Pillow", "no Pillow", "pip install 'nescio[images]'") from error
    arrays: list[np.ndarray] = []
    for file in files:
        try:
            with Image.open(file) as image:
                if image.width * image.height > MOST_PIXELS:
                    got = f"{image.width} x {image.height}"
                    raise InputError(f"{file} must have at most {MOST_PIXELS} pixels", got, "make it smaller")
                arrays.append(np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB")))
        except (OSError, UnidentifiedImageError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            if isinstance(error, InputError):
                raise
            raise FileError(f"{file} must be an image", str(error).split("\n")[0][:80], "save it again") from error
        if arrays[-1].shape[:2] != arrays[0].shape[:2]:
            got = f"{arrays[-1].shape[1]} x {arrays[-1].shape[0]} in {file}"
            must = f"all images must be {arrays[0].shape[1]} x {arrays[0].shape[0]} pixels, as {files[0].name}"
            raise InputError(must, got, "resize them to one size")
    grey = all(array.ndim == 2 for array in arrays)
    if not grey:
        arrays = [np.repeat(a[..., None], 3, -1) if a.ndim == 2 else a for a in arrays]
    return np.stack(arrays), grey
