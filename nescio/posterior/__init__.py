"""What is known of the weights after the data."""

from nescio.posterior.draws import Draws
from nescio.posterior.files import load
from nescio.posterior.mixture import Mixture
from nescio.posterior.posterior import Posterior
from nescio.posterior.variational import Variational

__all__ = ["Draws", "Mixture", "Posterior", "Variational", "load"]
