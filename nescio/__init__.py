"""nescio, Latin for "I do not know": Bayesian deep learning on PyTorch.

data -> Model(net, prior, likelihood) -> fit(model, data, method) -> Posterior -> predict(x) -> Predictive -> evaluate
"""

from nescio.errors import FileError, InputError, NescioError, UnsupportedError
from nescio.infer.method import fit
from nescio.model import Model
from nescio.posterior import Posterior, load
from nescio.predictive import Predictive
from nescio.version import __version__

__all__ = [
    "FileError",
    "InputError",
    "Model",
    "NescioError",
    "Posterior",
    "Predictive",
    "UnsupportedError",
    "__version__",
    "fit",
    "load",
]
