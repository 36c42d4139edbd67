"""nescio's side of benchmarks/laplace.py: one JSON argument, one JSON line."""

from __future__ import annotations

from typing import Any

import torch
from laplace_case import data, measure, network, spec
from torch import Tensor

import nescio
from nescio import Model, fit
from nescio.infer import Laplace
from nescio.infer.curvature import diag, kfac
from nescio.laws import Normal
from nescio.likelihoods import Categorical
from nescio.posterior import GaussianPosterior


def main(given: dict[str, Any]) -> None:
    torch.set_num_threads(given["threads"])
    x, y = data(given["net"], given["points"])
    model = Model(network(given["net"]), Normal(0, 1), Categorical())
    structure = {"kfac": kfac, "diag": diag}[given["structure"]]

    def fitted(points: int) -> Any:
        posterior = fit(model, (x[:points], y[:points]), Laplace(structure))
        assert isinstance(posterior, GaussianPosterior)
        return posterior.linearize()

    def predict(posterior: Any, points: Tensor) -> Tensor:
        return posterior.outputs(points).covariance

    versions = {"nescio": nescio.__version__, "torch": torch.__version__}
    measure(fitted, predict, x, given, versions)


if __name__ == "__main__":
    main(spec())
