"""House style: colours that the colour-blind can tell apart, sizes, and `save`, which writes SVG, alt text and values together.

matplotlib is imported here and in the drawing functions, only when one of them is called; pyplot and its global state never are.
The same numbers give the same bytes.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from nescio.errors import InputError, UnsupportedError
from nescio.report.theme import DARK, LIGHT, Theme
from nescio.store.atomic import file_name, replace_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Numbers = dict[str, np.ndarray]

# Okabe & Ito (2008). In every figure blue is what more data would teach and orange is noise; vermilion is a miss.
INK, GREY, PALE = "#222222", "#767676", "#d9d9d9"
BLUE, ORANGE, VERMILION, GREEN, SKY, PURPLE = "#0072b2", "#e69f00", "#d55e00", "#009e73", "#56b4e9", "#aa4499"
EPISTEMIC, ALEATORIC, MISS = BLUE, ORANGE, VERMILION
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION)

FOOTER = 0.3  # inches at the foot of every figure
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that text has the same outlines everywhere
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "figure.titlesize": 12.0,
    "figure.titleweight": "bold",
    "svg.fonttype": "path",
    "svg.hashsalt": "nescio",
}


@contextmanager
def styled(theme: Theme = LIGHT) -> Iterator[None]:
    """Inside, matplotlib follows the house style; outside it is left as the user set it."""
    try:
        import matplotlib
    except ImportError:
        raise UnsupportedError(
            "figures need matplotlib", "an installation without it", "pip install 'nescio[report]'"
        ) from None
    defaults = {key: value for key, value in matplotlib.rcParamsDefault.items() if not key.startswith("backend")}
    with matplotlib.rc_context(defaults | STYLE | theme.settings()):
        yield


def canvas(
    rows: int,
    columns: int,
    width: float,
    height: float,
    heights: tuple[float, ...] | None = None,
    share_x: bool = False,
    share_y: bool = False,
    widths: tuple[float, ...] | None = None,
) -> tuple[Figure, list[Axes]]:
    """An empty figure, in inches, with a strip at its foot for `save`, and its axes row by row. Call it inside `styled()`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    figure.get_layout_engine().set(rect=(0, FOOTER / height, 1, 1 - FOOTER / height))  # type: ignore[union-attr]
    ratios = {"height_ratios": heights, "width_ratios": widths}
    axes = figure.subplots(rows, columns, sharex=share_x, sharey=share_y, squeeze=False, **ratios)
    return figure, list(axes.reshape(-1))


def headed(figure: Figure, title: str, text: str, theme: Theme) -> None:
    """A title, and below it what good looks like, in one line or a few; the axes keep clear of both."""
    height = figure.get_figheight()
    head = 0.42 + 0.16 * (1 + text.count("\n"))  # inches
    rect = (0, FOOTER / height, 1, 1 - (FOOTER + head) / height)
    figure.get_layout_engine().set(rect=rect)  # type: ignore[union-attr]
    figure.suptitle(title, x=0.012, y=1 - 0.1 / height, ha="left", va="top").set_in_layout(False)
    below = figure.text(0.012, 1 - 0.36 / height, text, fontsize=8, color=theme.grey, va="top", linespacing=1.4)
    below.set_in_layout(False)


def save(
    figure: Figure,
    path: str | os.PathLike[str],
    *,
    alt: str,
    values: Mapping[str, np.ndarray],
    interval: str = "",
    source: str = "",
    seed: int | None = None,
) -> None:
    """`path` (.svg) with the alt text inside, and beside it the values as .csv.

    The footer names the interval that is drawn ("90% central interval"), the source of the idea, and the seed.
    """
    name = file_name(path)
    stem, extension = os.path.splitext(name)
    if extension != ".svg":
        raise InputError("a figure is saved as .svg", repr(extension or name), "write for instance 'figure.svg'")
    if not alt.strip():
        raise InputError(
            "a figure needs alt text", "none", "say in one sentence what is seen, for those who cannot see it"
        )
    parts = [interval, source, "" if seed is None else f"seed {seed}"]
    with styled():
        grey = DARK.grey if sum(figure.get_facecolor()[:3]) < 1.5 else GREY  # type: ignore[arg-type]
        foot = figure.text(0.008, 0.01, "  ·  ".join(p for p in parts if p), fontsize=7, color=grey, va="bottom")
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once: a second layout would start from the first and differ
        text = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))  # no date, no version: the same bytes every time
        figure.savefig(text, format="svg", metadata=nothing)
        foot.remove()
    title = figure.get_suptitle() or os.path.basename(stem)
    write(name, labelled(text.getvalue(), title, alt, os.path.basename(stem)))
    write(f"{stem}.csv", table(values))


def labelled(svg: str, title: str, alt: str, key: str) -> str:
    """The SVG with <title> and <desc>, named so that a screen reader finds them."""
    start = svg.index("<svg ")
    end = svg.index(">", start)
    label = quoteattr(f"{key}-title {key}-desc")
    title = " ".join(title.split())
    inside = f"\n <title id={quoteattr(key + '-title')}>{escape(title)}</title>"
    inside += f"\n <desc id={quoteattr(key + '-desc')}>{escape(alt)}</desc>"
    return f'{svg[:end]} role="img" aria-labelledby={label}>{inside}{svg[end + 1 :]}'


def table(values: Mapping[str, np.ndarray]) -> str:
    """One column for each array, for a stack of them one for each row of it (name.0, name.1, ...); short ones end in blanks."""
    columns: dict[str, np.ndarray] = {}
    for name, array in values.items():
        stack = np.asarray(array)
        rows = stack.reshape(-1, stack.shape[-1]) if stack.ndim else stack.reshape(1, 1)
        single = stack.ndim < 2
        columns.update({name if single else f"{name}.{i}": row for i, row in enumerate(rows)})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for i in range(max((len(c) for c in columns.values()), default=0)):
        writer.writerow([f"{c[i]:.6g}" if i < len(c) else "" for c in columns.values()])
    return out.getvalue()


def write(name: str, text: str) -> None:
    content = memoryview(text.encode())
    replace_file(name, [content], len(content), verify=os.stat)
