"""Figures: house style, and one pure function of numbers for each picture. Needs the extra `report` (matplotlib).

numbers = intervals_data(predictive, y)            # arrays, nothing drawn
figure = draw_intervals(numbers, "Yacht", "kN")    # a matplotlib Figure
save(figure, "yacht.svg", alt="...", values=numbers, seed=0)
"""

from nescio.report.figures import (
    bands_data,
    draw_bands,
    draw_energy,
    draw_intervals,
    draw_ranks,
    draw_trace,
    energy_data,
    intervals_data,
    ranks_data,
    trace_data,
)
from nescio.report.style import save
from nescio.report.theme import DARK, LIGHT, Theme

__all__ = [
    "DARK",
    "LIGHT",
    "Theme",
    "bands_data",
    "draw_bands",
    "draw_energy",
    "draw_intervals",
    "draw_ranks",
    "draw_trace",
    "energy_data",
    "intervals_data",
    "ranks_data",
    "save",
    "trace_data",
]
