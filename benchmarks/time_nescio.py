"""nescio's side of benchmarks/posterior_time.py: chains * (MAP >> MCLMC), or without draws wanted the MAP alone."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from problem import Problem
from time_score import network
from time_spec import answer, read

import nescio
from nescio import fit
from nescio.data.source import source
from nescio.infer import MAP, MCLMC, Method
from nescio.infer.method import Run, Start
from nescio.posterior import Draws
from nescio.posterior.posterior import Posterior
from nescio.target import Target


@final
@dataclass(frozen=True)
class Stay(Method):
    """Stays where it starts: `MAP() >> Stay()` ends exactly where `MAP() >> MCLMC()` starts to sample."""

    def run(self, target: Target, start: Start, run: Run) -> Posterior:
        assert start.ends is not None
        theta = start.ends.theta[:, None]
        return Draws(target.model, theta, torch.zeros(theta.shape[:2]), start.ends.statistics, {})


def main() -> None:
    spec = read()
    torch.set_num_threads(spec.threads)
    problem = Problem.load(spec.problem)
    x, y = torch.from_numpy(problem.x), torch.from_numpy(problem.y)
    torch.manual_seed(spec.seed)  # of the module's own initialisation
    model = network(spec.widths)
    after = (
        Stay()
        if not spec.draws
        else MCLMC(energy_variance=spec.energy_variance, warmup=spec.warmup, draws=spec.draws, thin=spec.thin)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the compiler's own parts
        posterior = fit(model, (x, y), spec.chains * (MAP(epochs=spec.epochs) >> after), seed=spec.seed)
    fitted = time.time()
    assert isinstance(posterior, Draws)
    np.savez(spec.out, theta=posterior.theta.numpy() if spec.draws else posterior.theta[:, 0].numpy())
    target = Target(model, source((x, y)))
    density = target.log_density(torch.from_numpy(problem.probes), target.batch(None)).tolist()
    info = posterior.info
    facts = {name: info.get(name) for name in ("divergences", "gradients", "step_size", "length", "compiled")}
    facts |= {"fit_s": info["seconds"], "versions": {"nescio": nescio.__version__, "torch": torch.__version__}}
    answer(spec, fitted, density, facts)


if __name__ == "__main__":
    main()
