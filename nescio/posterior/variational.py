"""A posterior with parameters of its own: an approximation q of the flat vector, fitted by `VI`."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor

from nescio.errors import FileError
from nescio.families.approximation import Approximation
from nescio.families.family import restored
from nescio.model import Model
from nescio.network import Params
from nescio.posterior.draws import Draws, within
from nescio.posterior.posterior import Ends, Posterior, spread_evenly


@final
class Variational(Posterior):
    """`statistics`: norm statistics as they are now, by name. While q is being trained, this is the posterior at that moment."""

    def __init__(self, model: Model, q: Approximation, statistics: Params, info: dict[str, Any]) -> None:
        self.model, self.q, self.statistics = model, q, statistics
        self.info = {**info, "family": {"name": type(q.family).__name__, **q.family.describe()}}

    def __repr__(self) -> str:
        return f"Variational({self.q.family!r} over {int(self.q.free.sum())} numbers)"

    def count(self) -> None:
        return None

    def sample(self, n: int, seed: int = 0) -> Params:
        """Coherent functions: one draw of all weights for all inputs."""
        spread_evenly(n, 1)
        with self.model.noise(seed, "sample").scope():
            named = self.model.named(self.q.draws(n))
        return {**named, **{name: x.expand(n, *x.shape) for name, x in self.statistics.items()}}

    def point(self) -> Params:
        """The mean of the weights; of a positive scale the median."""
        return {name: x[0] for name, x in self.at_mean().sample(1).items()}

    def at_mean(self) -> Draws:
        """One draw, at the mean: for the naive prediction by averaged weights, beside the Monte-Carlo one of `predict`."""
        ends = self.ends()
        return Draws(self.model, ends.theta[:, None], ends.theta.new_zeros(1, 1), ends.statistics, dict(self.info))

    def ends(self) -> Ends:
        return Ends(self.q.mean()[None], {name: x[None] for name, x in self.statistics.items()})

    def header(self) -> dict[str, Any]:
        return {"kind": "Variational", "info": self.info}

    def tensors(self) -> dict[str, Tensor]:
        own = {f"q.{name}": x.detach() for name, x in self.q.state_dict().items()}
        return {"theta": self.q.mean(), **own, **{f"statistics.{name}": x for name, x in self.statistics.items()}}

    @staticmethod
    def restore(model: Model, tensors: dict[str, Tensor], info: dict[str, Any]) -> Variational:
        described = info.get("family")
        described = dict(described) if isinstance(described, dict) else {}
        family = restored(described.pop("name", None), described)
        own = within("q.", tensors)
        free = own["free"]
        if free.shape != (model.dim,) or free.dtype != torch.bool:
            raise FileError(
                "a mask must be of the model's numbers", f"{tuple(free.shape)} {free.dtype}", "write it again"
            )
        q = Approximation(family, model.prior, free, tensors["theta"])
        try:
            q.load_state_dict(own)
        except RuntimeError as error:
            raise FileError(
                f"the file must hold what {family!r} has",
                str(error).splitlines()[-1].strip(),
                "write it again with nescio",
            ) from None
        return Variational(model, q, within("statistics.", tensors), info)
