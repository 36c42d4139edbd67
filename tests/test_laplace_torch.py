"""laplace-torch as an oracle: where both define the same thing they agree to 1e-5. It has an environment of its own (`make peers-laplace`,
or NESCIO_LAPLACE_TORCH names its python); without it these tests are skipped."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nescio import Model, evidence, fit
from nescio.infer import Laplace
from nescio.infer.curvature import Structure, diag, full, kfac
from nescio.laws import Normal
from nescio.likelihoods import Categorical, Gaussian
from nescio.links import Bridge, probit
from nescio.noise import Noise
from nescio.posterior import GaussianPosterior

ROOT = Path(__file__).resolve().parent.parent
PYTHON = Path(os.environ.get("NESCIO_LAPLACE_TORCH", ROOT / ".peers-laplace" / "bin" / "python"))
DOUBLE = torch.float64
ROWS, NOISE, SCALE = 12, 0.6, 0.8
STRUCTURES: dict[str, Structure] = {"full": full, "diag": diag, "kron": kfac}

MLP = [["linear", 8, 5, 1], ["tanh"], ["linear", 5, 3, 1]]
BARE = [
    ["linear", 8, 5, 0],
    ["tanh"],
    ["linear", 5, 3, 0],
]  # its Kronecker factors leave biases apart from their weights
CONV = [["conv", 2, 3, 2, 0], ["tanh"], ["flatten"], ["linear", 3, 3, 0]]
# layers, kind, its subset of weights and our pattern, structure, backend
CASES: dict[str, tuple[list[Any], str, str, str | None, str, str]] = {
    "full, regression": (MLP, "regression", "all", None, "full", "curvlinops"),
    "full, classes": (MLP, "classification", "all", None, "full", "curvlinops"),
    "diag, classes": (MLP, "classification", "all", None, "diag", "backpack"),
    "diag, regression": (MLP, "regression", "all", None, "diag", "backpack"),
    "KFAC, classes": (BARE, "classification", "all", None, "kron", "curvlinops"),
    "KFAC, regression": (BARE, "regression", "all", None, "kron", "curvlinops"),
    "KFAC, convolutions": (CONV, "classification", "all", None, "kron", "curvlinops"),
    "last layer, full": (MLP, "classification", "last_layer", "2.*", "full", "curvlinops"),
    "last layer, KFAC": (BARE, "regression", "last_layer", "2.*", "kron", "curvlinops"),
}


def network(layers: list[Any]) -> nn.Module:
    torch.default_generator.manual_seed(1)
    made: dict[str, Any] = {
        "linear": lambda a, b, bias: nn.Linear(a, b, bias=bool(bias)),
        "conv": lambda a, b, k, bias: nn.Conv2d(a, b, k, bias=bool(bias)),
        "tanh": nn.Tanh,
        "flatten": nn.Flatten,
    }
    return nn.Sequential(*(made[kind](*sizes) for kind, *sizes in layers)).double()


def data(layers: list[Any], kind: str) -> tuple[Tensor, Tensor]:
    x = Noise(3, ("x",), dtype=DOUBLE).normal(ROWS, 8)
    x = x.view(ROWS, 2, 2, 2) if layers is CONV else x
    return x, torch.arange(ROWS) % 3 if kind == "classification" else Noise(3, ("y",), dtype=DOUBLE).normal(ROWS, 3)


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    if not PYTHON.exists():
        pytest.skip("no laplace-torch: make peers-laplace")
    cases = {}
    for name, (layers, kind, subset, _, structure, backend) in CASES.items():
        x, y = data(layers, kind)
        cases[name] = {
            "layers": layers,
            "kind": kind,
            "subset": subset,
            "structure": structure,
            "backend": backend,
            "x": x.tolist(),
            "y": y.tolist(),
            "noise": NOISE,
            "precision": SCALE**-2,
            "batch": ROWS,
            "weights": [p.tolist() for p in network(layers).parameters()],
        }
    command = [str(PYTHON), str(ROOT / "benchmarks" / "laplace_peer.py"), json.dumps({"job": "agree", "cases": cases})]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.parametrize("name", CASES)
def test_agreement(name: str, theirs: dict[str, Any]) -> None:
    layers, kind, _, pattern, structure, _ = CASES[name]
    x, y = data(layers, kind)
    likelihood = Categorical() if kind == "classification" else Gaussian(NOISE)
    method = Laplace(STRUCTURES[structure])
    posterior = fit(
        Model(network(layers), Normal(0, SCALE), likelihood), (x, y), method.on(pattern) if pattern else method
    )
    assert isinstance(posterior, GaussianPosterior)
    found, outputs = theirs[name], posterior.linearize().outputs(x)

    def close(mine: Tensor, key: str) -> None:
        torch.testing.assert_close(mine, torch.tensor(found[key], dtype=DOUBLE).view(mine.shape), rtol=1e-5, atol=1e-7)

    close(posterior.covariance.inverse().dense(), "precision")
    close(outputs.mean, "mean")
    close(outputs.covariance, "variance")
    close(evidence(posterior), "evidence")
    if kind == "classification":
        close(posterior.linearize(probit).predict(x).mean, "probit")
        close(posterior.linearize(Bridge(normalised=False)).predict(x).mean, "bridge")
