"""Covariances and precisions as operators: `Diag`, `Dense`, `Kron` (and its sums, `Spectral`), `LowRank`, `Blocks`."""

from nescio.linalg.blocks import Blocks
from nescio.linalg.kron import Kron, Spectral
from nescio.linalg.low_rank import LowRank
from nescio.linalg.operator import Dense, Diag, Operator
from nescio.linalg.stored import described, restored

__all__ = ["Blocks", "Dense", "Diag", "Kron", "LowRank", "Operator", "Spectral", "described", "restored"]
