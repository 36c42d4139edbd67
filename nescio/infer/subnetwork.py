"""A few weights to be uncertain about: those of the largest marginal variance (Daxberger et al., 2021, "subnetwork inference").

    Laplace(full).on(Subnetwork(500))        the covariance of 500 weights, whole; all others stay at the mode

The variance of each weight by itself, 1 / (diagonal of the Gauss-Newton matrix + the prior's), says which weights the data leave open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from nescio.errors import InputError
from nescio.infer.begin import from_network
from nescio.infer.curvature.diag import diag
from nescio.infer.driver import join
from nescio.infer.laplace import Laplace
from nescio.infer.method import Method, Run, Selection, Start
from nescio.posterior.gaussian import GaussianPosterior
from nescio.posterior.posterior import Ends, Posterior
from nescio.target import Target


@final
@dataclass(frozen=True)
class Subnetwork(Selection):
    """The `size` weights of the largest variance among those that `pattern` matches; each member of an ensemble has its own."""

    size: int
    pattern: str = "*"

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError("a subnetwork has at least one weight", str(self.size), "use for instance Subnetwork(500)")

    def run(self, method: Method, target: Target, start: Start, run: Run) -> Posterior:
        ends = from_network(target.model, start, run.noise) if start.ends is None else start.ends
        parts = []
        for chain in range(len(ends.theta)):
            own = Ends(ends.theta[chain : chain + 1], {n: b[chain : chain + 1] for n, b in ends.statistics.items()})
            only = self.mask(target, own, run.at("selection", chain))
            parts.append(method.run(replace(target, only=only), Start(1, own), run.at("chain", chain)))
        return join(parts)

    def mask(self, target: Target, ends: Ends, run: Run) -> Tensor:
        """Over the whole vector."""
        every = Laplace(diag).on(self.pattern).run(replace(target, temperature=1.0), Start(1, ends), run)
        assert isinstance(every, GaussianPosterior)
        variances = every.covariance.diagonal()
        if self.size > len(variances):
            got = f"{self.size} of {len(variances)}"
            raise InputError("a subnetwork is a part of the weights", got, "use Laplace without it")
        largest = variances.topk(self.size).indices
        mask = torch.zeros(target.model.dim, dtype=torch.bool)
        mask[every.slots[largest].cpu()] = True
        return mask
