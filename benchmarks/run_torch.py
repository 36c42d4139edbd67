"""The measuring process of the torch peers, run in their own environment: Pyro, chain after chain, and posteriors, vectorised by vmap."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from child import Ran, Run, Spec, measure, read
from problem import Problem
from torch import Tensor
from torch.distributions import Normal
from torch.nn.functional import linear

Params = dict[str, Tensor]


def named(w: np.ndarray, inputs: int, hidden: int) -> Params:
    """The flat vector as the four tensors that a user of torch would have."""
    first, bias, second, last = np.split(w, np.cumsum([inputs * hidden, hidden, hidden]))
    shaped = {"a": first.reshape(hidden, inputs), "b": bias, "c": second.reshape(1, hidden), "d": last}
    return {name: torch.tensor(value) for name, value in shaped.items()}


def by_pyro(spec: Spec, density: Any, starts: list[Params]) -> tuple[Run, dict[str, str]]:
    import pyro
    from pyro.infer.mcmc import HMC, MCMC

    pyro.enable_validation(False)

    def potential(params: Params) -> Tensor:
        return -density(params)

    def run(draws: int) -> Ran:
        pyro.set_rng_seed(spec.seed)
        for start in starts[: spec.chains]:
            kernel = HMC(
                potential_fn=potential,
                step_size=spec.step_size,
                num_steps=spec.leapfrogs,
                adapt_step_size=False,
                adapt_mass_matrix=False,
            )
            MCMC(kernel, num_samples=draws, warmup_steps=0, initial_params=start, disable_progbar=True).run()
        return Ran(draws * spec.leapfrogs, compiled=False)

    return run, {"pyro-ppl": pyro.__version__}


def by_posteriors(spec: Spec, density: Any, starts: list[Params]) -> tuple[Run, dict[str, str]]:
    from importlib.metadata import version

    import posteriors

    def log_posterior(params: Params, batch: None) -> tuple[Tensor, Tensor]:
        return density(params), torch.tensor([])

    sgmcmc = posteriors.sgmcmc
    build = {"sgld": sgmcmc.sgld.build, "sghmc": sgmcmc.sghmc.build, "baoa": sgmcmc.baoa.build}[spec.sampler]
    # sgld is a leapfrog of size √(2 lr), for the others lr is the step of time
    transform = build(log_posterior, lr=spec.step_size**2 / 2 if spec.sampler == "sgld" else spec.step_size)

    def update(state: Any) -> Any:
        return transform.update(state, None)[0]

    def run(draws: int) -> Ran:
        torch.manual_seed(spec.seed)
        if spec.chains > 1:
            stacked = {name: torch.stack([start[name] for start in starts[: spec.chains]]) for name in starts[0]}
            state = torch.vmap(transform.init, randomness="different")(stacked)
            step = torch.vmap(update, randomness="different")
        else:
            state, step = transform.init(starts[0]), update
        kept = []
        for _ in range(draws):
            state = step(state)
            kept.append(state.params)
        return Ran(len(kept), compiled=False)

    return run, {"posteriors": version("posteriors")}


def main() -> None:
    warnings.simplefilter("ignore")
    spec = read()
    torch.set_num_threads(spec.threads)
    problem = Problem.load(spec.problem)
    x, y = torch.from_numpy(problem.x), torch.from_numpy(problem.y)
    prior = Normal(0.0, 1.0, validate_args=False)

    def density(params: Params) -> Tensor:
        f = linear(torch.tanh(linear(x, params["a"], params["b"])), params["c"], params["d"])
        likelihood = Normal(f, spec.noise, validate_args=False).log_prob(y).sum()
        return likelihood + sum(prior.log_prob(w).sum() for w in params.values())

    starts = [named(w, x.shape[1], spec.hidden) for w in problem.starts]
    run, versions = (by_pyro if spec.library == "pyro" else by_posteriors)(spec, density, starts)
    probes = [named(w, x.shape[1], spec.hidden) for w in problem.probes]
    measure(spec, run, lambda: [float(density(w)) for w in probes], {"torch": torch.__version__, **versions})


if __name__ == "__main__":
    main()
