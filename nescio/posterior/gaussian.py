"""A Gaussian over the weights with a covariance that is an operator: what Laplace and weight averaging give.

p(w | D) ≈ N(mean, Σ)   for some of the numbers of the model; the others have a value
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from nescio.errors import FileError
from nescio.laws.law import Law
from nescio.linalg import Operator, described, restored
from nescio.links import Link
from nescio.model import Model, sort
from nescio.network import Params
from nescio.posterior.compiled import of_gaussian
from nescio.posterior.draws import within
from nescio.posterior.linearized import Linearized
from nescio.posterior.memory import remembered
from nescio.posterior.places import places, ranked
from nescio.posterior.posterior import Ends, Posterior, spread_evenly

WEIGHTS = 2**26  # numbers: what the draws of one piece may have


@final
class GaussianPosterior(Posterior):
    """`theta` (dim,): the mean, and the values of what is fixed. `slots`: which entries are random. `statistics`: norm buffers.

    `curvature`: of the data alone, at the mode, where there is one: what the marginal likelihood needs beside the prior.
    """

    def __init__(
        self,
        model: Model,
        theta: Tensor,
        slots: Tensor,
        covariance: Operator,
        statistics: Params,
        info: dict[str, Any],
        curvature: Operator | None = None,
    ) -> None:
        self.model, self.theta, self.slots, self.covariance = model, theta, slots, covariance
        self.statistics, self.info, self.curvature = statistics, info, curvature

    def __repr__(self) -> str:
        return f"GaussianPosterior({self.covariance.kind} over {len(self.slots)} numbers)"

    def count(self) -> None:
        return None

    def sample(self, n: int, seed: int = 0) -> Params:
        """Coherent functions: one draw of all weights for all inputs."""
        parts = list(self.pieces(n, seed))
        return parts[0] if len(parts) == 1 else {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def pieces(self, n: int, seed: int) -> Iterator[Params]:
        """n draws, so many at a time as fit the memory, each time with noise of its own."""
        spread_evenly(n, 1)
        many, noise = max(1, WEIGHTS // self.model.dim), self.model.noise(seed, "sample")
        for i in range(0, n, many):
            few = min(many, n - i)
            steps = self.covariance.sample(few, noise.at("piece", i) if i else noise).to(self.theta)
            theta = self.theta.expand(few, -1).index_add(1, self.slots, steps)
            own = {name: x.expand(few, *x.shape) for name, x in self.statistics.items()}
            yield {**self.model.named(theta), **own}

    def functions(self, x: Any, n: int, seed: int) -> tuple[Any, Params]:
        """Those of `sample(n, seed)`, piece by piece."""
        given = []
        for piece in self.pieces(n, seed):
            own, numbers = sort(piece, self.model.likelihood)
            with torch.no_grad():
                given.append((self.model.network.outputs(own, x), numbers))
        return given[0] if len(given) == 1 else tree_map(lambda *tensors: torch.cat(tensors), *given)

    def point(self) -> Params:
        """The mean."""
        return {**{name: x[0] for name, x in self.model.named(self.theta[None]).items()}, **self.statistics}

    def ends(self) -> Ends:
        return Ends(self.theta[None], {name: x[None] for name, x in self.statistics.items()})

    def variances(self) -> Params:
        """Of each weight by itself, by name: those that are random, in part or as a whole; 0 where a number is fixed."""
        free = torch.zeros(self.model.dim, dtype=torch.bool)
        free[self.slots.cpu()] = True
        index = places(self.model.prior, free, "a variance")
        ranks, diagonal = ranked(index, self.model.dim, self.slots.device)[1], self.covariance.diagonal()
        shapes = {name: w.shape for name, w in self.model.network.weights().items()}
        return {
            name: torch.where(place >= 0, diagonal[place.clamp_min(0)], 0.0).view(shapes[name])
            for name, place in ranks.items()
        }

    def linearize(self, link: Link | None = None) -> Linearized:
        """The same weights through the network's first-order expansion: exact Gaussian functions. `link`: for classes, how."""
        return Linearized(self, link)

    def compile(self, x: Any = None, factored: bool = False) -> nn.Module:
        return of_gaussian(self, x, factored, exact=False)

    def as_prior(self) -> dict[str, Law]:
        """For continual learning: N(mean, Σ) as the law of the weights that are random here; the others keep theirs."""
        return remembered(self.model, self.theta, self.slots, self.covariance)

    def header(self) -> dict[str, Any]:
        kinds = {"covariance": described(self.covariance)}
        if self.curvature is not None:
            kinds["curvature"] = described(self.curvature)
        return {"kind": "GaussianPosterior", "info": {**self.info, "operators": kinds}}

    def tensors(self) -> dict[str, Tensor]:
        stored = {"theta": self.theta, "slots": self.slots}
        stored |= {f"covariance.{name}": x for name, x in self.covariance.tensors().items()}
        if self.curvature is not None:
            stored |= {f"curvature.{name}": x for name, x in self.curvature.tensors().items()}
        return {**stored, **{f"statistics.{name}": x for name, x in self.statistics.items()}}

    @staticmethod
    def restore(model: Model, tensors: dict[str, Tensor], info: dict[str, Any]) -> GaussianPosterior:
        kinds = info.get("operators")
        kinds = kinds if isinstance(kinds, dict) else {}
        info = {name: x for name, x in info.items() if name != "operators"}
        theta, slots = tensors["theta"], tensors["slots"]
        if theta.dim() != 1 or slots.dtype != torch.long or slots.dim() != 1 or not inside(slots, model.dim):
            got = f"{tuple(theta.shape)} and {tuple(slots.shape)} {slots.dtype}"
            raise FileError("a mean and its random entries must be of the model's numbers", got, "write it again")
        covariance = restored(kinds.get("covariance"), within("covariance.", tensors))
        curvature = None
        if "curvature" in kinds:
            curvature = restored(kinds["curvature"], within("curvature.", tensors))
        if covariance.size != len(slots):
            got = f"{covariance.size} for {len(slots)}"
            raise FileError("a covariance must be of the random entries", got, "write it again")
        return GaussianPosterior(model, theta, slots, covariance, within("statistics.", tensors), info, curvature)


def inside(slots: Tensor, dim: int) -> bool:
    return bool(len(slots)) and int(slots.min()) >= 0 and int(slots.max()) < dim and len(slots.unique()) == len(slots)
