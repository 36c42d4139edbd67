"""A model bound to data, and the steps that are taken on it."""

from nescio.target.bound import Bound
from nescio.target.target import CHUNK, Target, check

__all__ = ["CHUNK", "Bound", "Target", "check"]
