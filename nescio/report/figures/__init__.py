"""One file a figure: a pure `*_data` function that returns numbers, and a `draw_*` function that takes them."""

from nescio.report.figures.bands import bands_data, draw_bands
from nescio.report.figures.blocks import blocks_data, draw_blocks
from nescio.report.figures.codes import codes_data, draw_codes
from nescio.report.figures.concrete import concrete_data, draw_concrete
from nescio.report.figures.ellipses import draw_ellipses, ellipses_data
from nescio.report.figures.energy import draw_energy, energy_data
from nescio.report.figures.functions import draw_functions, functions_data
from nescio.report.figures.intervals import draw_intervals, intervals_data
from nescio.report.figures.kinds import draw_kinds, kinds_data
from nescio.report.figures.laplace import draw_laplace, laplace_data
from nescio.report.figures.montage import draw_montage, montage_data, montage_values
from nescio.report.figures.panels import draw_panels
from nescio.report.figures.priors import draw_priors, priors_data
from nescio.report.figures.ranks import draw_ranks, ranks_data
from nescio.report.figures.trace import draw_trace, trace_data
from nescio.report.figures.weights import draw_weights, weights_data
from nescio.report.figures.widths import draw_widths, widths_data

__all__ = [
    "bands_data",
    "blocks_data",
    "codes_data",
    "concrete_data",
    "draw_bands",
    "draw_blocks",
    "draw_codes",
    "draw_concrete",
    "draw_ellipses",
    "draw_energy",
    "draw_functions",
    "draw_intervals",
    "draw_kinds",
    "draw_laplace",
    "draw_montage",
    "draw_panels",
    "draw_priors",
    "draw_ranks",
    "draw_trace",
    "draw_weights",
    "draw_widths",
    "ellipses_data",
    "energy_data",
    "functions_data",
    "intervals_data",
    "kinds_data",
    "laplace_data",
    "montage_data",
    "montage_values",
    "priors_data",
    "ranks_data",
    "trace_data",
    "weights_data",
    "widths_data",
]
