"""Energies of Hamiltonian chains (Betancourt, 2016): how they are spread, and how far one step changes them.

A new momentum changes the energy H by as much as the kinetic energy varies. Where the energies themselves vary much more, under heavy
tails and in funnels, chains creep from level to level: E-BFMI, the mean squared change over the variance, is then small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nescio.diagnose import ebfmi
from nescio.diagnose.problems import EBFMI
from nescio.errors import InputError
from nescio.report.figures.arrays import array, expect_names
from nescio.report.style import Numbers, canvas, headed, styled
from nescio.report.theme import LIGHT, Theme

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 256


def energy_data(*energies: Any) -> Numbers:
    """Of one run or several, each (chains, draws): densities of energies about their chain's mean and of their changes; E-BFMI."""
    runs = [array(energy) for energy in energies]
    for energy in runs:
        if energy.ndim != 2 or energy.shape[1] < 4 or not np.isfinite(energy).all():
            got = f"shape {energy.shape}, " + ("finite" if np.isfinite(energy).all() else "some not finite")
            raise InputError(
                "energies must be (chains, draws), finite, 4 draws or more", got, 'pass posterior.trace["energy"]'
            )
    most = max((len(energy) for energy in runs), default=0)
    if not most:
        raise InputError("there must be energies to draw", "none", 'pass posterior.trace["energy"]')
    numbers: dict[str, list[np.ndarray]] = {"grid": [], "marginal": [], "change": [], "ebfmi": []}
    for energy in runs:
        level = (energy - energy.mean(1, keepdims=True)).ravel()  # chains apart, as in E-BFMI
        change = np.diff(energy, axis=1).ravel()
        reach = 1.15 * np.quantile(np.abs(np.concatenate([level, change])), 0.998)
        grid = np.linspace(-reach, reach, POINTS) if reach else np.linspace(-1, 1, POINTS)
        numbers["grid"].append(grid)
        numbers["marginal"].append(density(level, grid))
        numbers["change"].append(density(change, grid))
        numbers["ebfmi"].append(np.pad(ebfmi(energy), (0, most - len(energy)), constant_values=np.nan))
    return {name: np.stack(rows) for name, rows in numbers.items()}


def density(x: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """A Gaussian kernel estimate, its width by Silverman's rule."""
    low, high = np.quantile(x, [0.25, 0.75])
    spread = min(x.std(), (high - low) / 1.349) or x.std()
    width = 0.9 * spread * len(x) ** -0.2
    if not width:  # constant: nothing to draw
        return np.zeros_like(grid)
    total = np.zeros_like(grid)
    for part in np.array_split(x, -(-len(x) // 4096)):
        total += np.exp(-0.5 * ((grid[:, None] - part) / width) ** 2).sum(1)
    return total / (len(x) * width * np.sqrt(2 * np.pi))


def draw_energy(numbers: Numbers, names: Sequence[str], title: str, theme: Theme = LIGHT) -> Figure:
    rows = len(numbers["grid"])
    expect_names(names, rows, "run")
    with styled(theme):
        figure, axes = canvas(rows, 2, 8.6, 2.15 * rows + 1.35, widths=(2.4, 1.0))
        good = (
            "Good: one step changes the energy about as widely as energies are spread, and every chain's E-BFMI is above "
            f"{EBFMI}.\nBad: a narrow orange curve in a wide blue one. Give the prior lighter tails, or reparameterise."
        )
        headed(figure, title, good, theme)
        end = 1.35 * max(1.0, float(np.nanmax(numbers["ebfmi"], initial=0.0)))
        for i in range(rows):
            draw_curves(axes[2 * i], {name: x[i] for name, x in numbers.items()}, names[i], theme)
            draw_fractions(axes[2 * i + 1], numbers["ebfmi"][i], theme)
            axes[2 * i + 1].set_xlim(0, end)
        axes[0].legend(loc="upper right")
        axes[-2].set_xlabel("energy, the mean of its chain taken off; change of energy")
        axes[-1].set_xlabel("E-BFMI")
    return figure


def draw_curves(axes: Axes, run: Numbers, name: str, theme: Theme) -> None:
    for key, colour, label in (
        ("marginal", theme.blue, "energies of the draws"),
        ("change", theme.orange, "changes from one draw to the next"),
    ):
        axes.fill_between(run["grid"], run[key], color=colour, alpha=0.28, linewidth=0)
        axes.plot(run["grid"], run[key], color=colour, label=label)
    axes.set_title(name)
    axes.set(yticks=[], ylim=(0, 1.12 * max(float(run["marginal"].max()), float(run["change"].max()), 1e-300)))
    axes.set_ylabel("density")
    axes.margins(x=0)


def draw_fractions(axes: Axes, fractions: np.ndarray, theme: Theme) -> None:
    """One mark a chain, on what is too low."""
    known = np.flatnonzero(~np.isnan(fractions))
    low = fractions < EBFMI
    axes.axvspan(0, EBFMI, color=theme.miss, alpha=0.14, linewidth=0)
    axes.axvline(EBFMI, color=theme.miss, linewidth=0.9, linestyle=(0, (3, 2)))
    axes.hlines(known, 0, fractions[known], color=theme.pale, linewidth=1.2)
    for mask, colour in ((~low, theme.ink), (low, theme.miss)):
        shown = known[mask[known]]
        axes.plot(fractions[shown], shown, "o", color=colour, markersize=5)
        for c in shown if len(known) <= 12 else ():
            place = {"transform": axes.get_yaxis_transform(), "ha": "right", "va": "center", "fontsize": 8.5}
            axes.text(1.0, c, f"{fractions[c]:.2f}", color=colour, **place)
    axes.set_ylim(len(fractions) - 0.4, -0.6)
    axes.set_yticks(known if len(known) <= 12 else [], [f"chain {c + 1}" for c in known] if len(known) <= 12 else [])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
