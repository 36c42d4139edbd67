"""Rank histograms (Vehtari et al., 2021): where the draws of each chain lie among those of all.

If chains agree, the ranks of each are spread evenly. A chain that sits too high has tall bars on the right, one that is too narrow has
them in the middle, one that is stuck has a single one. How many ranks of a bin belong to a chain is then hypergeometric, which
gives the band: all bars of a quantity stay inside with probability 1 - `rate` or more, if draws are independent. So that they are,
nearly, draws are thinned by the autocorrelation within chains. Ties are broken at random.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nescio.diagnose import rhat
from nescio.errors import InputError
from nescio.noise import Noise
from nescio.report.figures.arrays import array, expect_names
from nescio.report.figures.uniformity import bound, even, ranks, stride
from nescio.report.style import Numbers, canvas, headed, styled
from nescio.report.theme import LIGHT, Theme

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PER_BIN = 10  # draws of a chain that a bin should hold, at least: so many that an empty one is a miss
FEWEST = 5  # bins: fewer say nothing
MOST_CHAINS = 8  # that are drawn; of more, the ones that are farthest out


def ranks_data(values: Any, bins: int = 20, rate: float = 0.01, seed: int = 0) -> Numbers:
    """Of values (chains, draws, quantities): `counts` (quantities, chains, bins), and what bounds them, `low` and `high`.

    A quantity that is left with few draws has fewer bins (`bins`); NaN stands beyond its last.
    """
    x = quantities(values)
    chains, count = len(x), x.shape[2]
    if chains < 2:
        raise InputError(
            "ranks compare chains, 2 or more", "1", "run 4 * method, or pass the halves of the chain as two"
        )
    if not 0 < rate < 1 or bins < 2:
        raise InputError("0 < rate < 1 and bins >= 2", f"rate={rate}, bins={bins}", "leave them out")
    counts = np.full((count, chains, bins), np.nan)
    low, high, expected = (np.full((count, bins), np.nan) for _ in range(3))
    used, steps = np.zeros(count), np.zeros(count)
    for q in range(count):
        steps[q] = step = stride(x[:, :, q])
        kept = x[:, step - 1 :: step, q]
        draws, n = even(chains, kept.shape[1], max(2, min(bins, kept.shape[1] // PER_BIN)))
        kept = kept[:, kept.shape[1] - draws :]
        size = kept.size // n  # ranks in a bin, the same for all
        counts[q, :, :n] = [np.bincount(row, minlength=n) for row in ranks(kept, Noise(seed, ("ties", q))) // size]
        tail = rate / (2 * n * chains)  # Bonferroni over the bars of a quantity, and two sides
        low[q, :n], high[q, :n] = bound(kept.size, size, draws, tail)
        expected[q, :n], used[q] = size / chains, n
    numbers = {"counts": counts, "low": low, "high": high, "expected": expected, "bins": used, "stride": steps}
    return {**numbers, "rhat": rhat(x), "rate": np.array(rate)}


def quantities(values: Any) -> np.ndarray:
    """(chains, draws, quantities) in float64, finite."""
    x = array(values)
    x = x[..., None] if x.ndim == 2 else x
    if x.ndim != 3 or x.shape[1] < 4 or not x.shape[2]:
        raise InputError(
            "values must be (chains, draws, quantities), 4 draws or more", f"shape {x.shape}", "stack them so"
        )
    if not np.isfinite(x).all():
        raise InputError("values must be finite", "NaN or infinity", "use a smaller step size")
    return x


def outside(numbers: Numbers) -> np.ndarray:
    """Which bars leave the band, (quantities, chains, bins)."""
    return (numbers["counts"] < numbers["low"][:, None]) | (numbers["counts"] > numbers["high"][:, None])


def draw_ranks(numbers: Numbers, names: Sequence[str], title: str, theme: Theme = LIGHT) -> Figure:
    counts, out = numbers["counts"], outside(numbers)
    chosen = np.sort(np.argsort(-out.sum((0, 2)), kind="stable")[:MOST_CHAINS])
    rows, columns, chains = len(counts), len(chosen), counts.shape[1]
    expect_names(names, rows, "quantity")
    with styled(theme):
        figure, axes = canvas(rows, columns, max(1.7 * columns + 1.7, 6.4), 1.25 * rows + 1.5)
        headed(figure, title, advice(numbers), theme)
        for i, panel in enumerate(axes):
            q, c = divmod(i, columns)
            colour = theme.cycle[chosen[c] % len(theme.cycle)]
            draw_bars(panel, numbers, q, int(chosen[c]), colour, theme)
            top = max(np.nanmax(counts[q, chosen]), np.nanmax(numbers["high"][q]))
            panel.set(xlim=(0, 1), ylim=(0, 1.1 * top), xticks=[], yticks=[])
            panel.spines["left"].set_visible(False)
            if q == 0:
                panel.set_title(f"chain {chosen[c] + 1}", color=colour)
            if c == 0:
                label = f"{names[q]}\n{told(numbers['rhat'][q])}" + (
                    "\ntoo few draws to tell" if unclear(numbers)[q] else ""
                )
                colour = theme.miss if unclear(numbers)[q] or out[q].any() else theme.ink
                panel.set_ylabel(label, rotation=0, ha="right", va="center", labelpad=8, color=colour)
            if q == rows - 1:
                panel.set_xlabel("low  ←  rank  →  high", fontsize=7.5, color=theme.grey)
        if columns < chains:
            axes[-1].annotate(
                f"{columns} of {chains} chains, the farthest out", (1, -0.45), xycoords="axes fraction", ha="right"
            )
    return figure


def draw_band(axes: Axes, numbers: Numbers, quantity: int, theme: Theme) -> np.ndarray:
    """Where bars should end; the edges of the bins, from 0 to 1."""
    n = int(numbers["bins"][quantity])
    low, high, expected = (numbers[name][quantity, :n] for name in ("low", "high", "expected"))
    edges = np.linspace(0, 1, n + 1)
    axes.stairs(high, edges, baseline=low, fill=True, color=theme.pale, alpha=0.6, linewidth=0)
    axes.stairs(expected, edges, baseline=None, color=theme.grey, linewidth=0.9, linestyle=(0, (3, 2)), zorder=3)
    return edges


def draw_bars(axes: Axes, numbers: Numbers, quantity: int, chain: int, colour: str, theme: Theme) -> None:
    """The histogram of one chain on its band; bars that leave it stand out."""
    edges = draw_band(axes, numbers, quantity, theme)
    n, middle = len(edges) - 1, (edges[1:] + edges[:-1]) / 2
    counts, wrong = numbers["counts"][quantity, chain, :n], outside(numbers)[quantity, chain, :n]
    axes.bar(middle[~wrong], counts[~wrong], 0.86 / n, color=colour, alpha=0.8, linewidth=0)
    if wrong.any():
        axes.bar(middle[wrong], counts[wrong], 0.86 / n, color=theme.miss, linewidth=0)
        empty = middle[wrong & (counts < 1)]
        axes.plot(
            empty, np.full(len(empty), 0.05), "x", color=theme.miss, markersize=4, transform=axes.get_xaxis_transform()
        )


def advice(numbers: Numbers) -> str:
    wrong, bars = outside(numbers).sum(), np.isfinite(numbers["counts"]).sum()
    return (
        f"Good: bars end in the grey band. It holds all bars of a quantity with probability {1 - float(numbers['rate']):g} if chains agree."
        f"\nHere {wrong} of {bars} leave it. Draws are thinned to be about independent ({strides(numbers)})."
    )


def strides(numbers: Numbers) -> str:
    low, high = int(numbers["stride"].min()), int(numbers["stride"].max())
    if high == 1:
        return "none is left out"
    return f"1 in {low}" if low == high else f"{'all' if low == 1 else f'1 in {low}'} to 1 in {high}"


def told(value: float) -> str:
    return "no R-hat: it stands still" if np.isnan(value) else f"R-hat {value:.3f}"


def unclear(numbers: Numbers) -> np.ndarray:
    """Quantities with too few independent draws to say that chains agree; that they differ may show even so."""
    return (numbers["bins"] < FEWEST) & ~outside(numbers).any((1, 2))
