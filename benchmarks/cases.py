"""What benchmarks/mcmc.py measures: which library has which sampler, with which settings, on which data, for how long."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from problem import Problem, pose, standardised

from nescio.data import load_uci
from nescio.errors import FileError

WIDTHS, NOISE, SHORT = (13, 50, 1), 0.5, 200
FIXED = {"leapfrogs": 10, "step_size": 0.005, "depth": 6, "noise": NOISE, "hidden": WIDTHS[1]}
SCRIPTS = {
    "nescio": "run_nescio.py",
    "numpyro": "run_jax.py",
    "numpyro-parallel": "run_jax.py",
    "blackjax": "run_jax.py",
    "pyro": "run_torch.py",
    "posteriors": "run_torch.py",
}
SAMPLERS = {  # what a library has, and about how many gradients a draw takes
    "nescio": {"HMC": 10, "NUTS": 63, "MCLMC": 2, "sgld": 1, "sghmc": 1},
    "numpyro": {"HMC": 10, "NUTS": 63},
    "numpyro-parallel": {"HMC": 10, "NUTS": 63},
    "blackjax": {"HMC": 10, "NUTS": 63, "MCLMC": 2},
    "pyro": {"HMC": 10},
    "posteriors": {"sgld": 1, "sghmc": 1, "baoa": 1},
}
EXPECTED = {"pyro": 1000.0, "posteriors": 300.0}  # us per gradient, else 60: for the lengths of runs, nothing else
PARALLEL = (4, 16)  # chains, each on a device of its own; a single one is no different, more take minutes to start
Case = tuple[str, str, int]  # library, sampler, chains


def data(chains: int) -> Problem:
    try:
        x, y, _, _ = (t.numpy() for t in load_uci("boston", 0))
        origin = "boston, training part of split 0"
    except FileError:
        random = np.random.default_rng(1)
        x = random.standard_normal((455, WIDTHS[0]))
        y = np.sin(x[:, :1] + x[:, 1:2]) + 0.3 * random.standard_normal((455, 1))
        origin = "random rows of the shape of boston"
    return pose(standardised(x, x), standardised(y, y), origin, WIDTHS, chains)


def cases(libraries: Sequence[str], chains: Sequence[int]) -> list[Case]:
    """Those that are compared stand next to each other."""
    every = [
        (name, s, c) for c in chains for s in ("HMC", "NUTS", "MCLMC") for name in libraries if s in SAMPLERS[name]
    ]
    every = [case for case in every if case[0] != "numpyro-parallel" or case[2] in PARALLEL]
    both = [(n, s) for s in SAMPLERS["posteriors"] for n in ("nescio", "posteriors") if s in SAMPLERS[n]]
    return every + [(n, s, c) for c in chains for n, s in both if n in libraries]


def lengths(case: Case, seconds: float) -> tuple[int, int]:
    """Draws a chain of the shorter and the longer run: the longer takes about so many seconds."""
    library, sampler, chains = case
    longer = seconds * 1e6 / (EXPECTED.get(library, 60.0) * chains * SAMPLERS[library][sampler])
    longer = max(math.ceil(longer), 8)
    return longer // 5, longer
