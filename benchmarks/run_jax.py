"""The measuring process of the JAX peers, run in their own environment: numpyro and blackjax.

Chains are vectorised in both; numpyro also runs them in parallel, each on a device of its own, which share the same cores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from child import Ran, Run, Spec, measure, read
from jax.scipy.stats import norm
from numpyro.infer import HMC, MCMC, NUTS
from numpyro.infer.util import log_density as numpyro_density
from problem import Problem, outputs

PARALLEL = "numpyro-parallel"
Density = Callable[[Any], Any]


def by_numpyro(spec: Spec, problem: Problem) -> tuple[Run, Density]:
    widths, x, y = (problem.x.shape[1], spec.hidden, 1), jnp.asarray(problem.x), jnp.asarray(problem.y)
    dim = problem.starts.shape[1]

    def model() -> None:
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([dim]).to_event(1))
        numpyro.sample("y", dist.Normal(outputs(w, x, widths, jnp.tanh), spec.noise).to_event(2), obs=y)

    fixed = {"step_size": spec.step_size, "adapt_step_size": False, "adapt_mass_matrix": False}
    starts = jnp.asarray(problem.starts[: spec.chains])
    start = {"w": starts[0] if spec.chains == 1 else starts}
    samplers: dict[int, MCMC] = {}  # what a sampler has compiled it keeps

    def sampler(draws: int) -> MCMC:
        if spec.sampler == "HMC":
            kernel = HMC(model, num_steps=spec.leapfrogs, trajectory_length=None, **fixed)
        else:
            kernel = NUTS(model, max_tree_depth=spec.depth, **fixed)
        chains = "parallel" if spec.library == PARALLEL else "vectorized"
        many = {"num_samples": draws, "num_chains": spec.chains, "chain_method": chains}
        return MCMC(kernel, num_warmup=0, progress_bar=False, **many)

    def run(draws: int) -> Ran:
        if draws not in samplers:
            samplers[draws] = sampler(draws)
        mcmc, fields = samplers[draws], ("num_steps", "accept_prob")
        mcmc.run(jax.random.PRNGKey(spec.seed), init_params=start, extra_fields=fields)
        jax.block_until_ready(mcmc.get_samples()["w"])
        extra = mcmc.get_extra_fields()
        return Ran(float(extra["num_steps"].sum()) / spec.chains, float(extra["accept_prob"].mean()))

    return run, lambda w: numpyro_density(model, (), {}, {"w": w})[0]


def by_blackjax(spec: Spec, problem: Problem) -> tuple[Run, Density]:
    widths, x, y = (problem.x.shape[1], spec.hidden, 1), jnp.asarray(problem.x), jnp.asarray(problem.y)

    def density(w: Any) -> Any:
        return norm.logpdf(w).sum() + norm.logpdf(y, outputs(w, x, widths, jnp.tanh), spec.noise).sum()

    starts = jnp.asarray(problem.starts[: spec.chains])
    mass = jnp.ones(starts.shape[1])
    if spec.sampler == "HMC":
        kernel = blackjax.hmc(density, spec.step_size, mass, spec.leapfrogs)
    elif spec.sampler == "NUTS":
        kernel = blackjax.nuts(density, spec.step_size, mass, max_num_doublings=spec.depth)
    else:
        root = math.sqrt(starts.shape[1])
        kernel = blackjax.mclmc(density, L=root, step_size=spec.step_size * root)

    def sample(key: Any, positions: Any, draws: int) -> Any:
        def step(states: Any, key: Any) -> Any:
            states, info = jax.vmap(kernel.step)(jax.random.split(key, spec.chains), states)
            made = 2 * jnp.ones(spec.chains) if spec.sampler == "MCLMC" else info.num_integration_steps
            accepted = jnp.ones(spec.chains) if spec.sampler == "MCLMC" else info.acceptance_rate
            return states, (states.position, made, accepted)

        first, rest = jax.random.split(key)
        init = jax.vmap(kernel.init)
        states = init(positions, jax.random.split(first, spec.chains))
        return jax.lax.scan(step, states, jax.random.split(rest, draws))[1]

    compiled = jax.jit(sample, static_argnums=2)

    def run(draws: int) -> Ran:
        _, made, accepted = jax.block_until_ready(compiled(jax.random.PRNGKey(spec.seed), starts, draws))
        acceptance = None if spec.sampler == "MCLMC" else float(accepted.mean())
        return Ran(float(made.sum()) / spec.chains, acceptance)

    return run, density


def main() -> None:
    spec = read()
    if spec.library == PARALLEL:
        numpyro.set_host_device_count(spec.chains)
    problem = Problem.load(spec.problem)
    run, density = (by_blackjax if spec.library == "blackjax" else by_numpyro)(spec, problem)
    versions = {"jax": jax.__version__, "numpyro": numpyro.__version__, "blackjax": blackjax.__version__}
    measure(spec, run, lambda: [float(density(w)) for w in jnp.asarray(problem.probes)], versions)


if __name__ == "__main__":
    main()
