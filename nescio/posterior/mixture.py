"""Several posteriors with equal weights: ensembles of Laplace approximations, of Gaussians, of variational families."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from nescio.errors import UnsupportedError
from nescio.network import Params
from nescio.noise import Noise
from nescio.posterior.gaussian import GaussianPosterior
from nescio.posterior.posterior import Ends, Posterior, spread_evenly


@final
class Mixture(Posterior):
    """An equal-weight mixture of posteriors of the same model."""

    def __init__(self, parts: Sequence[Posterior], info: dict[str, Any]) -> None:
        self.parts, self.info, self.model = tuple(parts), info, parts[0].model

    def count(self) -> int | None:
        counts = [part.count() for part in self.parts]
        return None if None in counts else sum(c for c in counts if c is not None)

    def sample(self, n: int, seed: int = 0) -> Params:
        """n split evenly over the parts, the remainder to the first ones."""
        shares = [(i, share) for i, share in enumerate(spread_evenly(n, len(self.parts))) if share]
        drawn = [self.parts[i].sample(share, Noise(seed, ("part", i)).number()) for i, share in shares]
        return {name: torch.cat([part[name] for part in drawn]) for name in drawn[0]}

    def functions(self, x: Any, n: int, seed: int) -> tuple[Any, Params]:
        shares = [(i, share) for i, share in enumerate(spread_evenly(n, len(self.parts))) if share]
        given = [self.parts[i].functions(x, share, Noise(seed, ("part", i)).number()) for i, share in shares]
        return tree_map(lambda *tensors: torch.cat(tensors), *given)

    def point(self) -> Params:
        """The point of the part that has the highest evidence or log density in its info; else of the first."""
        infos = [part.info for part in self.parts]
        best = max(range(len(infos)), key=lambda i: infos[i].get("elbo", infos[i].get("log_joint", 0.0)))
        return self.parts[best].point()

    def ends(self) -> Ends:
        ends = [part.ends() for part in self.parts]
        statistics = {name: torch.cat([end.statistics[name] for end in ends]) for name in ends[0].statistics}
        return Ends(torch.cat([end.theta for end in ends]), statistics)

    def linearize(self) -> Mixture:
        """Each part through its own first-order expansion."""
        parts = [part for part in self.parts if isinstance(part, GaussianPosterior)]
        if len(parts) < len(self.parts):
            got = sorted({type(part).__name__ for part in self.parts})
            raise UnsupportedError("what is linearised is Gaussian", str(got), "end the members with Laplace")
        return Mixture([part.linearize() for part in parts], self.info)

    def header(self) -> dict[str, Any]:
        return {"kind": "Mixture", "info": self.info, "parts": [part.header() for part in self.parts]}

    def tensors(self) -> dict[str, Tensor]:
        return {f"{i}.{name}": x for i, part in enumerate(self.parts) for name, x in part.tensors().items()}
