"""From the network's output to the distribution of an observation."""

from nescio.likelihoods.classes import Bernoulli, Categorical
from nescio.likelihoods.flowing import Flowing
from nescio.likelihoods.gaussian import Gaussian, Heteroscedastic
from nescio.likelihoods.latent import Latent
from nescio.likelihoods.likelihood import Likelihood
from nescio.likelihoods.masked import Masked
from nescio.likelihoods.multitask import MultiTask
from nescio.likelihoods.partly import PartlyLabelled
from nescio.likelihoods.pixels import ContinuousBernoulli

__all__ = [
    "Bernoulli",
    "Categorical",
    "ContinuousBernoulli",
    "Flowing",
    "Gaussian",
    "Heteroscedastic",
    "Latent",
    "Likelihood",
    "Masked",
    "MultiTask",
    "PartlyLabelled",
]
