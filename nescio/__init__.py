"""nescio, Latin for "I do not know": Bayesian deep learning on PyTorch.

data -> Model(net, prior, likelihood) -> fit(model, data, method) -> Posterior -> predict(x) -> Predictive -> evaluate

Names are imported when they are first used, so that `nescio --help` does not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from nescio.version import __version__

if TYPE_CHECKING:
    from nescio.comparison import compare
    from nescio.compression import compress
    from nescio.errors import FileError, InputError, NescioError, UnsupportedError
    from nescio.evaluation import evaluate
    from nescio.infer.method import fit
    from nescio.marginal import anneal, evidence, tune
    from nescio.model import Model
    from nescio.posterior import Posterior, load
    from nescio.predictive import Predictive

_HOMES = {
    "compress": "nescio.compression",
    "Model": "nescio.model",
    "fit": "nescio.infer.method",
    "Posterior": "nescio.posterior",
    "load": "nescio.posterior",
    "Predictive": "nescio.predictive",
    "evaluate": "nescio.evaluation",
    "compare": "nescio.comparison",
    "evidence": "nescio.marginal",
    "tune": "nescio.marginal",
    "anneal": "nescio.marginal",
    "NescioError": "nescio.errors",
    "InputError": "nescio.errors",
    "FileError": "nescio.errors",
    "UnsupportedError": "nescio.errors",
}

__all__ = [
    "FileError",
    "InputError",
    "Model",
    "NescioError",
    "Posterior",
    "Predictive",
    "UnsupportedError",
    "__version__",
    "anneal",
    "compare",
    "compress",
    "evaluate",
    "evidence",
    "fit",
    "load",
    "tune",
]


_ROOMS = (
    *("active", "comparison", "compression", "data", "decisions", "diagnose", "evaluation", "families", "generative"),
    *("infer", "laws", "likelihoods", "linalg", "marginal", "nets", "posterior", "report", "runs", "sklearn"),
)  # `import nescio; nescio.evaluation.nll`


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return import_module(f"nescio.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'nescio' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
