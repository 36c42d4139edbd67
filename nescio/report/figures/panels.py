"""Five panels a scene: image, truth, prediction, and the aleatoric and epistemic uncertainty of every pixel (Kendall & Gal, 2017)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nescio.errors import InputError
from nescio.report.style import Numbers, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = ("image", "truth", "prediction", "aleatoric", "epistemic")


def draw_panels(numbers: Numbers, title: str, discrete: bool) -> Figure:
    """`image` (scenes, h, w, 3) or (scenes, h, w); the others (scenes, h, w). `discrete`: truth and prediction are classes.

    Truth and prediction share their scale, and so do all scenes of one kind of uncertainty.
    """
    missing = [name for name in PANELS if name not in numbers]
    shapes = {np.asarray(numbers[name]).shape[:3] for name in PANELS if name not in missing}
    if missing or len(shapes) != 1 or np.asarray(numbers["truth"]).ndim != 3:
        got = f"without {missing}" if missing else f"shapes {sorted(shapes)}"
        raise InputError("five panels need image, truth, prediction, aleatoric, epistemic of one size", got, "add them")
    scenes = len(numbers["image"])
    both = np.stack([numbers["truth"], numbers["prediction"]])
    limits = {name: (float(both.min()), float(both.max())) for name in ("truth", "prediction")}
    limits |= {name: (0.0, float(np.quantile(numbers[name], 0.99)) or 1.0) for name in ("aleatoric", "epistemic")}
    colours = {"truth": "tab20" if discrete else "viridis", "aleatoric": "cividis", "epistemic": "cividis"}
    colours["prediction"] = colours["truth"]
    with styled():
        figure, axes = canvas(scenes, len(PANELS), 10.0, 0.6 + 1.65 * scenes)
        figure.suptitle(title, x=0.008, ha="left")
        for scene in range(scenes):
            for column, name in enumerate(PANELS):
                axis = axes[scene * len(PANELS) + column]
                low, high = limits.get(name, (None, None))
                axis.imshow(
                    numbers[name][scene], cmap=colours.get(name, "gray"), vmin=low, vmax=high, interpolation="nearest"
                )
                axis.set(xticks=[], yticks=[])
                axis.spines[:].set_visible(False)
                if scene == 0:
                    axis.set_title(name)
    return figure
