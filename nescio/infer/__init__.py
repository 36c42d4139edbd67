"""Methods: from a target to a posterior."""

from nescio.infer.adjusted import AdjustedMCLMC
from nescio.infer.default import default
from nescio.infer.hmc import HMC
from nescio.infer.iterative import Iterative
from nescio.infer.ivon import IVON
from nescio.infer.langevin import MALA, ULA
from nescio.infer.laplace import Laplace
from nescio.infer.map import MAP
from nescio.infer.mclmc import MCLMC
from nescio.infer.method import Method, Progress, fit
from nescio.infer.metropolis import Metropolis
from nescio.infer.neural_linear import NeuralLinear
from nescio.infer.nuts import NUTS
from nescio.infer.schedule import Constant, Cosine, Cycles, RMSprop, Steps
from nescio.infer.sghmc import SGHMC
from nescio.infer.sgld import SGLD
from nescio.infer.subnetwork import Subnetwork
from nescio.infer.swag import SWAG
from nescio.infer.vi import VI

__all__ = [
    "HMC",
    "IVON",
    "MALA",
    "MAP",
    "MCLMC",
    "NUTS",
    "SGHMC",
    "SGLD",
    "SWAG",
    "ULA",
    "VI",
    "AdjustedMCLMC",
    "Constant",
    "Cosine",
    "Cycles",
    "Iterative",
    "Laplace",
    "Method",
    "Metropolis",
    "NeuralLinear",
    "Progress",
    "RMSprop",
    "Steps",
    "Subnetwork",
    "default",
    "fit",
]
