"""Derivatives of any network by its weights, example by example."""

from nescio.jacobian.jacobian import Jacobian, Pass
from nescio.jacobian.lookup import Lookup
from nescio.jacobian.pieces import Outer, Piece, Plain

__all__ = ["Jacobian", "Lookup", "Outer", "Pass", "Piece", "Plain"]
