"""Draws as ArviZ knows them: a tree of named arrays, (chain, draw, ...), with the sampler's statistics under the names ArviZ gives them.

posterior        every random or learned number by name, in the precision of the model
sample_stats     lp (the log density that was sampled, Jacobian included), energy, acceptance_rate, diverging, tree_depth, n_steps
constant_data    numbers that the model fixes, such as a known noise

arviz-base is imported here, and only when asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from nescio.errors import UnsupportedError
from nescio.version import __version__

if TYPE_CHECKING:
    from xarray import DataTree

    from nescio.posterior.draws import Draws

NAMES = {
    "acceptance": "acceptance_rate",
    "divergent": "diverging",
    "depth": "tree_depth",
    "leapfrogs": "n_steps",
    "seconds": "sampling_time",
}
TOLD = ("method", "seed", "temperature", "rows", "seconds")  # of the info


def to_arviz(posterior: Draws) -> DataTree:
    """The groups as a tree; `arviz_stats.summary(tree)` and ArviZ's plots take it."""
    try:
        from arviz_base import from_dict
    except ImportError:
        got, remedy = "an installation without it", "pip install 'nescio[arviz]'"
        raise UnsupportedError("this export needs arviz-base", got, remedy) from None
    named = by_name(posterior)
    still = (name for name in posterior.info.get("fixed", ()) if name in named)  # learned: each chain may have its own
    fixed = fixed_names(posterior) | {name for name in still if (named[name] == named[name][0, 0]).all()}
    groups: dict[str, dict[str, np.ndarray]] = {
        "posterior": {name: x for name, x in named.items() if name not in fixed},
        "sample_stats": {
            "lp": plain(posterior.log_joint),
            **{NAMES.get(name, name): plain(x) for name, x in posterior.trace.items()},
        },
    }
    constant = {name: x[0, 0] for name, x in named.items() if name in fixed}
    if constant:
        groups["constant_data"] = constant
    own: dict[str, Any] = {"inference_library": "nescio", "inference_library_version": __version__}
    own |= {NAMES.get(name, name): posterior.info[name] for name in TOLD if name in posterior.info}
    own |= {"problems": "\n".join(posterior.info.get("mixing", {}).get("problems", []))}  # empty if there are none
    # our axes are known: no warning where chains outnumber draws, as in ensembles
    return from_dict(groups, check_conventions=False, attrs=dict.fromkeys(("posterior", "sample_stats"), own))


def by_name(posterior: Draws) -> dict[str, np.ndarray]:
    """(chains, draws, ...) of every named number, made chain by chain: no more than one chain is held twice."""
    chains, draws, _ = posterior.theta.shape
    whole: dict[str, np.ndarray] = {}
    for chain in range(chains):
        for name, x in posterior.model.named(posterior.theta[chain]).items():
            values = plain(x)
            whole.setdefault(name, np.empty((chains, draws, *values.shape[1:]), values.dtype))[chain] = values
    return whole


def fixed_names(posterior: Draws) -> set[str]:
    """What the model holds constant."""
    prior = posterior.model.prior
    pairs = zip(prior.outputs, prior.groups, strict=True)
    return {site.name for output, group in pairs if output.constant is not None for site in group.sites}


def plain(x: Tensor) -> np.ndarray:
    x = x.detach().cpu()
    return x.float().numpy() if x.element_size() == 2 and x.is_floating_point() else x.numpy()  # numpy has no bfloat16
