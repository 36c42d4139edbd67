"""Active learning: which labels to ask for, and a loop that asks for them.

history = learn(model, x, y, method, BALD(), start=balanced(y, 2), batch=10, rounds=100, test=(x_test, y_test))
"""

from nescio.active.acquisition import BALD, Acquisition, MaxEntropy, MeanStd, Random, VariationRatios
from nescio.active.batch_bald import BatchBALD
from nescio.active.loop import Learning, Round, learn
from nescio.active.pool import balanced

__all__ = [
    "BALD",
    "Acquisition",
    "BatchBALD",
    "Learning",
    "MaxEntropy",
    "MeanStd",
    "Random",
    "Round",
    "VariationRatios",
    "balanced",
    "learn",
]
