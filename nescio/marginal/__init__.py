"""The marginal likelihood: which prior, which noise, which network?"""

from nescio.marginal.annealing import Annealed, anneal
from nescio.marginal.mode import evidence
from nescio.marginal.tuning import tune

__all__ = ["Annealed", "anneal", "evidence", "tune"]
