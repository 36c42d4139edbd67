"""Pictures side by side: reconstructions, samples, walks through a latent space, planes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nescio.errors import InputError
from nescio.report.figures.arrays import array
from nescio.report.style import Numbers, canvas, headed, styled
from nescio.report.theme import LIGHT, Theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAP = 1  # pixels between pictures
LEAST_WIDTH = 6.8  # inches, for the line below the title


def montage_data(pictures: Any, shape: tuple[int, int]) -> Numbers:
    """One large picture from a grid (rows, columns, height * width) of small ones, in [0, 1]; NaN in the gaps between them."""
    grid = array(pictures)
    height, width = shape
    if grid.ndim < 3 or grid[0, 0].size != height * width:
        must, got = f"pictures must be (rows, columns, {height} * {width})", str(grid.shape)
        raise InputError(must, got, "use pictures.unflatten(0, (rows, columns))")
    rows, columns = grid.shape[:2]
    grid = grid.reshape(rows, columns, height, width)
    whole = np.full((rows * (height + GAP) - GAP, columns * (width + GAP) - GAP), np.nan)
    for i in range(rows):
        for j in range(columns):
            top, left = i * (height + GAP), j * (width + GAP)
            whole[top : top + height, left : left + width] = grid[i, j]
    return {"picture": whole, "grid": np.array([rows, columns]), "shape": np.array(shape)}


def draw_montage(
    panels: Sequence[Numbers],
    titles: Sequence[str],
    title: str,
    text: str = "",
    *,
    ink: bool = True,
    theme: Theme = LIGHT,
) -> Figure:
    """Panels from left to right. `ink`: 1 is black, as in writing; else 1 is white, as in photographs."""
    widest = [p["picture"].shape[1] / p["picture"].shape[0] for p in panels]
    height = min(5.0, 10.0 / sum(widest))
    with styled(theme):
        figure, axes = canvas(
            1, len(panels), max(LEAST_WIDTH, sum(widest) * height + 0.4), height + 1.4, widths=tuple(widest)
        )
        headed(figure, title, text, theme)
        for one, numbers, name in zip(axes, panels, titles, strict=True):
            one.imshow(
                numbers["picture"], cmap="gray_r" if ink else "gray", vmin=0, vmax=1, interpolation="none"
            )  # its own pixels, not those of the page
            one.set_title(name, fontweight="normal")
            one.axis("off")
    return figure


def montage_values(panels: Sequence[Numbers], titles: Sequence[str]) -> dict[str, np.ndarray]:
    """What is kept beside the drawing: the mean of each small picture, row by row."""
    found = {}
    for numbers, title in zip(panels, titles, strict=True):
        (rows, columns), (height, width) = numbers["grid"].tolist(), numbers["shape"].tolist()
        step = (height + GAP, width + GAP)
        cut = [
            [numbers["picture"][i * step[0] :][:height, j * step[1] :][:, :width].mean() for j in range(columns)]
            for i in range(rows)
        ]
        found[f"mean ink, {title}"] = np.array(cut)
    return found
