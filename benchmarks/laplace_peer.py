"""laplace-torch's side of benchmarks/laplace.py: runs in its own environment, is given one JSON argument, prints one JSON line.

`job` "time": fit and linearised variances of a network. `job` "agree": precisions, evidence and variances of small networks in double
precision, which tests/test_laplace_torch.py holds against nescio's.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.append(sys.path.pop(0))  # `laplace` is theirs, not laplace.py of this folder
from laplace import Laplace
from laplace.curvature.backpack import BackPackGGN
from laplace.curvature.curvlinops import CurvlinopsGGN
from laplace_case import data, measure, network, spec

VERSIONS = {
    name: version(name) for name in ("laplace-torch", "curvlinops-for-pytorch", "backpack-for-pytorch", "torch")
}
BACKENDS = {"curvlinops": CurvlinopsGGN, "backpack": BackPackGGN}
SCALE = 0.7  # of the prior


def variances(la: Any, x: Tensor) -> Tensor:
    """Of the outputs, by the linearised network."""
    return la._glm_predictive_distribution(x)[1].detach()


def time(given: dict[str, Any]) -> None:
    torch.set_num_threads(given["threads"])
    x, y = data(given["net"], given["points"])
    net = network(given["net"])

    def fit(points: int) -> Any:
        loader = DataLoader(TensorDataset(x[:points], y[:points]), batch_size=256)
        kind = {"kfac": "kron", "diag": "diag"}[given["structure"]]
        la = Laplace(net, "classification", "all", kind, prior_precision=1.0, backend=BACKENDS[given["backend"]])
        la.fit(loader)
        return la

    measure(fit, variances, x, given, VERSIONS)


def agree(given: dict[str, Any]) -> None:
    torch.set_default_dtype(torch.float64)
    out: dict[str, Any] = {"versions": VERSIONS}
    for name, case in given["cases"].items():
        net = nn.Sequential(*(layer(*row) for row in case["layers"]))
        with torch.no_grad():
            for weight, values in zip(net.parameters(), case["weights"], strict=True):
                weight.copy_(torch.tensor(values).view(weight.shape))
        x, y = torch.tensor(case["x"]), torch.tensor(case["y"])
        backend = BACKENDS[case["backend"]]
        la = Laplace(
            *(net, case["kind"], case["subset"], case["structure"]),
            **({"sigma_noise": case["noise"]} if case["kind"] == "regression" else {}),
            prior_precision=case["precision"],
            backend=backend,
        )
        la.fit(DataLoader(TensorDataset(x, y), batch_size=case["batch"]))
        precision = la.posterior_precision
        dense = precision if isinstance(precision, Tensor) else precision.to_matrix()
        dense = torch.diag(dense) if dense.dim() == 1 else dense
        mean, variance = la._glm_predictive_distribution(x)
        found = {"precision": dense, "mean": mean, "variance": variance, "evidence": la.log_marginal_likelihood()}
        if case["kind"] == "classification":
            found["probit"] = la(x, pred_type="glm", link_approx="probit")
            found["bridge"] = la(x, pred_type="glm", link_approx="bridge")
        out[name] = {key: value.detach().tolist() for key, value in found.items()}
    print(json.dumps(out), flush=True)


def layer(kind: str, *sizes: int) -> nn.Module:
    if kind == "linear":
        return nn.Linear(sizes[0], sizes[1], bias=bool(sizes[2]))
    if kind == "conv":
        return nn.Conv2d(sizes[0], sizes[1], sizes[2], bias=bool(sizes[3]))
    return {"tanh": nn.Tanh(), "flatten": nn.Flatten()}[kind]


if __name__ == "__main__":
    arguments = spec()
    {"time": time, "agree": agree}[arguments["job"]](arguments)
