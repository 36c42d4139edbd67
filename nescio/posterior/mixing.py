"""Have the chains mixed? In function space first, because weights have symmetries: predictions at data points, then weights.

A chain that swaps two hidden units has moved in weight space and stood still as a function; a chain stuck in one mode of a symmetric
posterior may be wrong in its weights and right in its predictions. What is wrong travels with the posterior, in
`info["mixing"]["problems"]`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Categorical

from nescio.densities import Joint
from nescio.diagnose import Diagnosis, diagnose
from nescio.posterior.draws import Draws

MOST_WEIGHTS = 2000  # coordinates that are looked at; evenly spaced where there are more


def functions(posterior: Draws, x: Any, most: int | None = None) -> Tensor:
    """What each draw predicts at x, (chains, draws, points x outputs): means, or class probabilities.

    Of longer chains `most` draws, evenly spaced.
    """
    chains, draws, _ = posterior.theta.shape
    theta = posterior.theta
    if most is not None and draws > most:
        theta, draws = theta[:, torch.linspace(0, draws - 1, most).round().long().to(theta.device)], most
    each = []
    for chain in range(chains):
        statistics = {name: b[chain].expand(draws, *b[chain].shape) for name, b in posterior.statistics.items()}
        observed = posterior.model.observed({**posterior.model.named(theta[chain]), **statistics}, x)
        tasks = observed.parts.values() if isinstance(observed, Joint) else [observed]
        means = [d.probs if isinstance(d, Categorical) else d.mean for d in tasks]
        each.append(torch.cat([mean.flatten(1) for mean in means], 1))
    return torch.stack(each)


def in_functions(posterior: Draws, x: Any, most: int | None = None) -> Diagnosis:
    """R-hat, ESS and the rest of the predictions at x, and what the sampler recorded: divergences, E-BFMI."""
    return judged(posterior, functions(posterior, x, most))


def in_weights(posterior: Draws) -> Diagnosis:
    """The same of the values themselves: weights, scales, noise."""
    moved = posterior.theta.flatten(0, 1).std(0) > 0  # what `.on` left fixed has nothing to say
    index = moved.nonzero()[:, 0]
    if len(index) > MOST_WEIGHTS:
        index = index[torch.linspace(0, len(index) - 1, MOST_WEIGHTS).round().long()]
    return judged(posterior, posterior.theta[:, :, index])


def judged(posterior: Draws, quantities: Tensor) -> Diagnosis:
    trace = {name: x.cpu() for name, x in posterior.trace.items()}  # thousands of small operations: no work for a GPU
    return diagnose(
        quantities.cpu(),
        divergent=trace.get("divergent", posterior.info.get("divergences")),
        energy=trace.get("energy"),
    )
