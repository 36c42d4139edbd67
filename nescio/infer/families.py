"""The families of `VI` under the name of the room that uses them; they live in nescio/families, below the posterior that keeps them."""

from nescio.families import Approximation, Block, Factor, Family, FullRank, Gaussian, MeanField, Point

__all__ = ["Approximation", "Block", "Factor", "Family", "FullRank", "Gaussian", "MeanField", "Point"]
