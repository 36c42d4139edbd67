"""Families of approximations: which laws a variational posterior may have."""

from nescio.families.approximation import Approximation
from nescio.families.family import Block, Factor, Family
from nescio.families.full_rank import FullRank
from nescio.families.mean_field import Gaussian, MeanField
from nescio.families.point import Point

__all__ = ["Approximation", "Block", "Factor", "Family", "FullRank", "Gaussian", "MeanField", "Point"]
