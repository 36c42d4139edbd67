"""Reference posteriors as models: the regression of each file as a network, its data, and what is known of the answer.

One linear layer without bias on the file's columns; columns whose priors are of one family lie together in a parameter of their own, so
that each has its law by name: `runs.0.weight`, `runs.1.weight`, ... Everything is in double precision.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from nescio import Model
from nescio.data.source import source
from nescio.laws import Flat, HalfCauchy, HalfFlat, HalfNormal, HalfStudentT, Law, Normal, StudentT
from nescio.likelihoods import Bernoulli, Gaussian
from nescio.target import Target

FOLDERS = ("linear", "informative", "logistic")
WEIGHTS: dict[str, Callable[..., Law]] = {"flat": Flat, "normal": Normal, "student_t": StudentT}
NOISE: dict[str, Callable[..., Law]] = {
    "flat": HalfFlat,
    "half_cauchy": HalfCauchy,
    "half_normal": HalfNormal,
    "half_student_t": HalfStudentT,
}


class Problem(NamedTuple):
    name: str
    model: Model
    data: tuple[Tensor, Tensor]
    mean: np.ndarray  # of the weights in column order, then of the noise
    sd: np.ndarray
    error: np.ndarray  # standard errors of the reference's own means
    check: dict[str, Any] | None  # the log density at a stated point

    def vector(self, named: dict[str, Tensor]) -> np.ndarray:
        """(draws, parameters), in the order of the reference."""
        names = [name for name in named if name.startswith("runs.") or name == "likelihood.noise"]
        return torch.cat([named[name].reshape(len(named[name]), -1) for name in names], 1).cpu().numpy()

    def density_error(self) -> float | None:
        """Is it the same model? Its log density at the stated point, relative to the reference's."""
        if self.check is None:
            return None
        theta = torch.tensor([[*self.check["w"], self.check["sigma"]]], dtype=torch.float64)
        ours = float(Target(self.model, source(self.data)).log_joint(theta, {})[0])
        return abs(ours - self.check["log_joint"]) / abs(self.check["log_joint"])


class Columns(nn.Module):
    """A linear layer on runs of columns, one parameter each."""

    def __init__(self, sizes: list[int], weights: Tensor) -> None:
        super().__init__()
        self.sizes = sizes
        self.runs = nn.ModuleList([nn.Linear(size, 1, bias=False, dtype=torch.float64) for size in sizes])
        with torch.no_grad():
            for run, own in zip(self.runs, weights.split(sizes, -1), strict=True):
                run.weight.copy_(own)  # type: ignore[union-attr]

    def forward(self, x: Tensor) -> Tensor:
        parts = zip(self.runs, x.split(self.sizes, -1), strict=True)
        return reduce(torch.add, [run(part) for run, part in parts])


def law(known: dict[str, Callable[..., Law]], priors: list[dict[str, Any]]) -> Law:
    """One law for priors of one family; numbers that differ go in as a tensor, one for each column."""
    keys = [key for key in priors[0] if key != "family"]
    columns = {key: torch.tensor([[prior[key] for prior in priors]], dtype=torch.float64) for key in keys}
    return known[priors[0]["family"]](**{k: float(c[0, 0]) if len(c[0]) == 1 else c for k, c in columns.items()})


def network(x: Tensor, y: Tensor, priors: list[dict[str, Any]]) -> tuple[nn.Module, dict[str, Law]]:
    """The layer at least squares, and its laws by name."""
    runs = [list(run) for _, run in groupby(priors, key=lambda prior: prior["family"])]
    laws = {f"runs.{i}.*": law(WEIGHTS, run) for i, run in enumerate(runs)}
    return Columns([len(run) for run in runs], torch.linalg.lstsq(x, y).solution.mT), laws


def linear(path: Path) -> Problem:
    d, arrays = load(path)
    x, y = torch.tensor(arrays["X"]), torch.tensor(arrays["y"])[:, None]
    given = d["model"]["weight_prior"]
    net, laws = network(x, y, [given] * x.shape[1] if isinstance(given, dict) else given)
    model = Model(net, laws, Gaussian(law(NOISE, [d["model"]["noise_prior"]])))
    mean, sd = np.array(d["truth"]["mean"]), np.array(d["truth"]["sd"])
    return Problem(path.stem, model, (x, y), mean, sd, np.zeros_like(mean), d["density_check"])


def logistic(path: Path) -> Problem:
    """Standardised columns (divisor n) and a column of ones."""
    d, arrays = load(path)
    raw = arrays["X_raw"].astype(np.float64)
    x = torch.tensor(np.column_stack([(raw - raw.mean(0)) / raw.std(0), np.ones(len(raw))]))
    y = torch.tensor(arrays["y"].astype(np.float64))[:, None]
    net, laws = network(x, y, [d["model"]["weight_prior"]] * x.shape[1])
    truth = {key: np.array(d["truth"][key]) for key in ("mean", "sd", "mean_se")}
    return Problem(path.stem, Model(net, laws, Bernoulli()), (x, y), truth["mean"], truth["sd"], truth["mean_se"], None)


def load(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """`path`: the .json file; its arrays lie beside it."""
    with np.load(path.with_name(path.stem + ".npz"), allow_pickle=False) as file:
        return json.loads(path.read_text()), {name: file[name] for name in file.files}


def problem(path: Path) -> Problem:
    return (logistic if path.parent.name == "logistic" else linear)(path)


def files(folder: Path) -> list[Path]:
    """All references, the smallest first, so that a time limit loses little."""
    found = [path for name in FOLDERS for path in sorted((folder / name).glob("*.json"))]
    return sorted(found, key=lambda path: path.with_name(path.stem + ".npz").stat().st_size)
