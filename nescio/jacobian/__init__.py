"""Derivatives of any network by its weights, example by example."""

from nescio.jacobian.jacobian import Jacobian, Pass
from nescio.jacobian.pieces import Outer, Piece, Plain

__all__ = ["Jacobian", "Outer", "Pass", "Piece", "Plain"]
