"""numpyro's side of benchmarks/posterior_time.py, run in the peers' environment: NUTS as it comes.

Chains in parallel, which is numpyro's default and here about three times as fast as vectorised ones: none waits for another's tree.
"""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import log_density
from problem import LEAST, Problem, outputs
from time_spec import answer, read


def main() -> None:
    spec = read()
    numpyro.set_host_device_count(spec.chains)  # devices share the cores that the process is held to
    problem = Problem.load(spec.problem)
    x, y = jnp.asarray(problem.x), jnp.asarray(problem.y)
    dim = problem.probes.shape[1]

    def model() -> None:
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([dim]).to_event(1))
        f = outputs(w, x, spec.widths, jax.nn.relu)
        scale = LEAST + jax.nn.softplus(f[:, 1:])
        numpyro.sample("y", dist.Normal(f[:, :1], scale).to_event(2), obs=y)

    start = None
    if spec.start is not None:
        with np.load(spec.start, allow_pickle=False) as file:
            start = {"w": jnp.asarray(file["theta"])}
    mcmc = MCMC(
        NUTS(model),
        num_warmup=spec.warmup,
        num_samples=spec.draws,
        thinning=spec.thin,
        num_chains=spec.chains,
        chain_method="parallel",
        progress_bar=False,
    )
    mcmc.run(jax.random.PRNGKey(spec.seed), init_params=start, extra_fields=("num_steps", "diverging"))
    draws = jax.block_until_ready(mcmc.get_samples(group_by_chain=True)["w"])
    fitted = time.time()
    np.savez(spec.out, theta=np.asarray(draws))
    extra = mcmc.get_extra_fields()
    facts = {
        "divergences": int(extra["diverging"].sum()),
        "gradients": float(extra["num_steps"].sum()) / spec.chains,
        "step_size": float(jnp.mean(mcmc.last_state.adapt_state.step_size)),
        "versions": {"jax": jax.__version__, "numpyro": numpyro.__version__},
    }
    density = [float(log_density(model, (), {}, {"w": w})[0]) for w in jnp.asarray(problem.probes)]
    answer(spec, fitted, density, facts)


if __name__ == "__main__":
    main()
