"""What is known of the weights after the data."""

from nescio.posterior.draws import Draws
from nescio.posterior.files import load
from nescio.posterior.gaussian import GaussianPosterior
from nescio.posterior.linear_head import LinearHead
from nescio.posterior.linearized import Linearized
from nescio.posterior.mixture import Mixture
from nescio.posterior.posterior import Posterior
from nescio.posterior.variational import Variational

__all__ = ["Draws", "GaussianPosterior", "LinearHead", "Linearized", "Mixture", "Posterior", "Variational", "load"]
