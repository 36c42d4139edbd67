"""A posterior with parameters of its own: an approximation q of the flat vector, fitted by `VI`."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from nescio.errors import FileError, UnsupportedError
from nescio.families.approximation import Approximation
from nescio.families.family import Family, restored
from nescio.families.independent import Gaussian
from nescio.families.net_dropout import NetDropout, draw_masks, with_masks
from nescio.families.point import Point
from nescio.families.variational_dropout import Proportional
from nescio.laws.law import Law
from nescio.linalg import Diag
from nescio.model import Model, sort
from nescio.network import Network, Params, few
from nescio.posterior.draws import Draws, within
from nescio.posterior.gaussian import WEIGHTS, GaussianPosterior
from nescio.posterior.posterior import Ends, Posterior, spread_evenly


@final
class Variational(Posterior):
    """`statistics`: norm statistics as they are now, by name. While q is being trained, this is the posterior at that moment."""

    def __init__(self, model: Model, q: Approximation, statistics: Params, info: dict[str, Any]) -> None:
        self.model, self.q, self.statistics = model, q, statistics
        self.info = {**info, "family": {"name": type(q.family).__name__, **q.family.describe()}}

    def __repr__(self) -> str:
        told, keys = self.info.get("description"), ("bits", "error_bits", "complexity_bits")
        own = f"Variational({self.q.family!r} over {int(self.q.free.sum())} numbers"
        if not isinstance(told, dict) or not all(isinstance(told.get(key), float) for key in keys):
            return f"{own})"
        total, error, model = (f"{told[key]:.0f}" for key in keys)
        return f"{own}; {total} bits = {error} for errors + {model} for the weights)"

    def count(self) -> None:
        return None

    def sample(self, n: int, seed: int = 0) -> Params:
        """Coherent functions: one draw of all weights for all inputs. What no draw moves is one tensor, seen n times."""
        spread_evenly(n, 1)
        if not self.q.family.of_weights:
            self.q.draws(n)  # says why not
        with self.model.noise(seed, "sample").scope():
            return self.named(n)

    def named(self, n: int) -> Params:
        return {**self.q.named(n), **{name: x.expand(n, *x.shape) for name, x in self.statistics.items()}}

    def functions(self, x: Any, n: int, seed: int) -> tuple[Any, Params]:
        """Those of `sample(n, seed)`, in chunks of draws that fit the memory; with NetDropout, under its masks."""
        spread_evenly(n, 1)
        network, masks = self.model.network, {}
        if isinstance(self.q.family, NetDropout):
            network = Network(with_masks(network.net))
            noise = self.model.noise(seed, "masks")
            masks = draw_masks(network.net, lambda rows: network.probe(few(x, rows)), n, noise)
        moved = sum(len(b.start) for f in self.q.parts() if not isinstance(f, Point) for b in f.blocks)
        many = max(1, WEIGHTS // (1 + moved))
        given: list[tuple[Any, Params]] = []
        with torch.no_grad(), self.model.noise(seed, "sample").scope():
            for i in range(0, n, many):
                own, numbers = sort(self.named(min(many, n - i)), self.model.likelihood)
                own |= {name: mask[i : i + many] for name, mask in masks.items()}
                given.append((network.outputs(own, x), numbers))
        return given[0] if len(given) == 1 else tree_map(lambda *tensors: torch.cat(tensors), *given)

    @staticmethod
    def around(family: Family, model: Model, ends: Ends | None = None) -> Variational:
        """The family where it starts, without training: at the network's own weights, or where another posterior ended."""
        if ends is None:
            theta = model.prior.at(model.network.weights(), model.noise(0, "start"))
            statistics = model.network.statistics()
        else:
            theta, statistics = ends.theta[0], {name: x[0].clone() for name, x in ends.statistics.items()}
        q = Approximation(family, model.prior, torch.ones(model.dim, dtype=torch.bool, device=theta.device), theta)
        return Variational(model, q, statistics, {})

    def point(self) -> Params:
        """The mean of the weights; of a positive scale the median."""
        return {name: x[0] for name, x in self.at_mean().sample(1).items()}

    def at_mean(self) -> Draws:
        """One draw, at the mean: for the naive prediction by averaged weights, beside the Monte-Carlo one of `predict`."""
        ends = self.ends()
        return Draws(self.model, ends.theta[:, None], ends.theta.new_zeros(1, 1), ends.statistics, dict(self.info))

    def ends(self) -> Ends:
        return Ends(self.q.mean()[None], {name: x[None] for name, x in self.statistics.items()})

    def gaussian(self) -> GaussianPosterior:
        """Independent Gaussians of the network's weights, for a prior or for moments; other numbers at their means."""
        found: list[tuple[Tensor, Tensor]] = []
        for factor in self.q.parts():
            if isinstance(factor, Point) or all(block.site is None for block in factor.blocks):
                continue
            law = factor.law if isinstance(factor, Proportional) else factor
            if not isinstance(law, Gaussian):
                got = f"{type(factor).__name__} of {[block.name for block in factor.blocks]}"
                raise UnsupportedError("weights must be Gaussian, each by itself", got, "use MeanField(scaled=False)")
            variable, where = self.q.layout.place[factor.blocks[0].name]
            first = self.q.layout.bounds[variable].start
            every = torch.arange(first, first + self.model.prior.sizes[variable], device=self.q.rest.device)
            found.append((every[where], F.softplus(law.rho.detach()).square().reshape(-1).double()))
        if not found:
            raise UnsupportedError("some weight must be Gaussian", repr(self.q.family), "use MeanField()")
        slots, order = torch.cat([place for place, _ in found]).sort()
        spread = Diag(torch.cat([variance for _, variance in found])[order])
        return GaussianPosterior(self.model, self.q.mean(), slots, spread, self.statistics, dict(self.info))

    def compile(self, x: Any = None, factored: bool = False) -> nn.Module:
        return self.gaussian().compile(x, factored)

    def as_prior(self) -> dict[str, Law]:
        """Variational continual learning (Nguyen et al., 2018)."""
        return self.gaussian().as_prior()

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
