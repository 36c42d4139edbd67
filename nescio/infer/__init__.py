"""Methods: from a target to a posterior."""

from nescio.infer.iterative import Iterative
from nescio.infer.map import MAP
from nescio.infer.method import Method, Progress, fit
from nescio.infer.schedule import Constant, Cosine, Steps

__all__ = ["MAP", "Constant", "Cosine", "Iterative", "Method", "Progress", "Steps", "fit"]
