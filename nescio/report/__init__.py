"""Figures: house style, and one pure function of numbers for each picture. Needs the extra `report` (matplotlib).

numbers = intervals_data(predictive, y)            # arrays, nothing drawn
figure = draw_intervals(numbers, "Yacht", "kN")    # a matplotlib Figure
save(figure, "yacht.svg", alt="...", values=numbers, seed=0)
"""

from nescio.report.figures import bands_data, draw_bands, draw_intervals, intervals_data
from nescio.report.style import save

__all__ = ["bands_data", "draw_bands", "draw_intervals", "intervals_data", "save"]
