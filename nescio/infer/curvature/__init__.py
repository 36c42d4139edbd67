"""How much of the curvature of the log likelihood a Gaussian keeps."""

from nescio.infer.curvature.diag import Diagonal, diag
from nescio.infer.curvature.full import Full, full
from nescio.infer.curvature.kfac import KFAC, kfac
from nescio.infer.curvature.low_rank import Leading, low_rank
from nescio.infer.curvature.structure import Structure
from nescio.infer.curvature.sweep import Sweep

__all__ = ["KFAC", "Diagonal", "Full", "Leading", "Structure", "Sweep", "diag", "full", "kfac", "low_rank"]
