"""Means and variances through a network in one pass: no draws."""

from nescio.moments.gaussian import Moments
from nescio.moments.propagation import Propagation

__all__ = ["Moments", "Propagation"]
