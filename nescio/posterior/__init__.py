"""What is known of the weights after the data."""

from nescio.posterior.draws import Draws
from nescio.posterior.files import load
from nescio.posterior.gaussian import GaussianPosterior
from nescio.posterior.linearized import Linearized
from nescio.posterior.mixture import Mixture
from nescio.posterior.posterior import Posterior
from nescio.posterior.variational import Variational

__all__ = ["Draws", "GaussianPosterior", "Linearized", "Mixture", "Posterior", "Variational", "load"]
