"""What is known of the weights after the data."""

from nescio.posterior.draws import Draws
from nescio.posterior.files import load
from nescio.posterior.mixture import Mixture
from nescio.posterior.posterior import Posterior

__all__ = ["Draws", "Mixture", "Posterior", "load"]
