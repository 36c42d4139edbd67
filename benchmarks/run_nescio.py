"""The measuring process of nescio: every run goes through the public `fit`."""

from __future__ import annotations

import inspect
import math
import warnings
from typing import Any

import torch
from child import Ran, Spec, measure, read
from problem import Problem
from torch import nn

import nescio
from nescio import Model, fit
from nescio.data.source import source
from nescio.infer import HMC, MCLMC, NUTS, SGHMC, SGLD, Method
from nescio.laws import Normal
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.target import Target


def method(spec: Spec, dim: int, rows: int, draws: int) -> Method:
    """No warm-up, fixed step size. HMC draws its path length from 1 ... leapfrog: 2 L - 1 has the mean L."""
    if spec.sampler == "HMC":
        one: Method = HMC(leapfrog=2 * spec.leapfrogs - 1, step_size=spec.step_size, warmup=0, draws=draws)
    elif spec.sampler == "NUTS":
        one = NUTS(step_size=spec.step_size, max_depth=spec.depth, warmup=0, draws=draws)
    elif spec.sampler == "sgld":  # all rows at a time, as posteriors is given them
        one = SGLD(step_size=spec.step_size**2 / 2, batch_size=rows, warmup=0, draws=draws)
    elif spec.sampler == "sghmc":
        one = SGHMC(step_size=spec.step_size**2, batch_size=rows, warmup=0, draws=draws)
    else:
        root = math.sqrt(dim)
        one = MCLMC(step_size=spec.step_size * root, length=root, warmup=0, draws=draws)
    return spec.chains * one


def gradients(info: dict[str, Any]) -> float:
    """Of a chain; blocks of chains are averaged."""
    blocks = info.get("blocks", [info])
    return sum(float(block["gradients"]) for block in blocks) / len(blocks)


def main() -> None:
    spec = read()
    torch.set_num_threads(spec.threads)
    problem = Problem.load(spec.problem)
    x, y = torch.from_numpy(problem.x), torch.from_numpy(problem.y)
    model = Model(mlp(x.shape[1], spec.hidden, 1, activation=nn.Tanh), Normal(0.0, 1.0), Gaussian(spec.noise))
    known = "compile" in inspect.signature(fit).parameters
    force: dict[str, Any] = {"compile": spec.compile} if known and spec.job != "short" else {}

    def run(draws: int) -> Ran:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the compiler's own parts
            info = fit(model, (x, y), method(spec, model.dim, len(x), draws), seed=spec.seed, **force).info
        return Ran(gradients(info), info.get("acceptance"), info.get("compiled", False))

    def density() -> list[float]:
        target = Target(model, source((x, y)))
        return target.log_density(torch.from_numpy(problem.probes), target.batch(None)).tolist()

    measure(spec, run, density, {"nescio": nescio.__version__, "torch": torch.__version__})


if __name__ == "__main__":
    main()
