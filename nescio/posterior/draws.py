"""A finite set of draws with equal weights: what samplers and ensembles of point estimates give.

p(W | D) ≈ (1/S) Σ δ[W_s]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn

from nescio.model import Model
from nescio.network import Params
from nescio.posterior.posterior import Ends, Posterior, evenly, spread_evenly

if TYPE_CHECKING:
    from xarray import DataTree


@final
class Draws(Posterior):
    """`theta`: values, (chains, draws, dim). `log_joint`: log p(θ, D) of each, up to a constant. `statistics`: one a chain.

    `trace`: what the sampler recorded at each draw, (chains, draws) each, empty where nothing was sampled:
      energy        H(u, p) where the trajectory that led to the draw began, its momentum just drawn: what E-BFMI needs. The u is that
                    of the state before; integration keeps H, so its value at the draw itself is the same but for the energy error
      acceptance    probability, or its mean over the trajectory
      divergent     whether a trajectory since the draw before diverged
      leapfrogs     gradients since the draw before
      depth, energy_error, flips   where the sampler has them
    Under thinning acceptance and flips are means over the steps since the draw before; energy, its error and depth are of the last.
    """

    def __init__(
        self,
        model: Model,
        theta: Tensor,
        log_joint: Tensor,
        statistics: Params,
        info: dict[str, Any],
        trace: Params | None = None,
    ) -> None:
        self.model, self.theta, self.log_joint, self.statistics, self.info = model, theta, log_joint, statistics, info
        self.trace = {} if trace is None else trace

    def __repr__(self) -> str:
        chains, draws, dim = self.theta.shape
        problems = self.info.get("mixing", {}).get("problems", [])
        warned = f"; {len(problems)} warnings in info['mixing']['problems']" if problems else ""
        return f"Draws({chains} chains x {draws} draws of {dim} numbers, by {self.info.get('method', 'hand')}{warned})"

    def count(self) -> int:
        return self.theta.shape[0] * self.theta.shape[1]

    def sample(self, n: int, seed: int = 0) -> Params:
        """Thinned evenly over chains; repeated evenly if n exceeds the number of draws. The seed has nothing to decide."""
        chains, draws, _ = self.theta.shape
        counts = spread_evenly(n, chains)
        chain = torch.repeat_interleave(torch.arange(chains), torch.tensor(counts))
        draw = torch.cat([evenly(draws, count) for count in counts])
        named = self.model.named(self.theta[chain, draw])
        return {**named, **{name: value[chain] for name, value in self.statistics.items()}}

    def chains(self, which: slice) -> Draws:
        """Some of the chains, as a posterior of their own; whether all have mixed says nothing of some."""
        statistics, trace = (
            {name: value[which] for name, value in each.items()} for each in (self.statistics, self.trace)
        )
        info = {name: x for name, x in self.info.items() if name != "mixing"}
        return Draws(self.model, self.theta[which], self.log_joint[which], statistics, info, trace)

    def point(self) -> Params:
        """The draw with the highest log density: means of weights mean nothing under symmetries."""
        chain, draw = divmod(int(self.log_joint.argmax()), self.theta.shape[1])
        named = self.model.named(self.theta[chain, draw][None])
        return {**{name: x[0] for name, x in named.items()}, **{name: x[chain] for name, x in self.statistics.items()}}

    def ends(self) -> Ends:
        return Ends(self.theta[:, -1], self.statistics)

    def compile(self, x: Any = None, factored: bool = False) -> nn.Module:
        """The networks of the draws one after the other, evenly chosen where there are more than 64: `predict(x, 64)` as a module."""
        from nescio.posterior.members import of_draws

        return of_draws(self, x)

    def to_arviz(self) -> DataTree:
        """For ArviZ: groups posterior, sample_stats and constant_data. Needs the extra `arviz`."""
        from nescio.posterior.arviz import to_arviz

        return to_arviz(self)

    def header(self) -> dict[str, Any]:
        return {"kind": "Draws", "info": self.info}

    def tensors(self) -> dict[str, Tensor]:
        own = self.model.network.statistics()  # a mask or a table that training left alone belongs to the network
        changed = {
            n: x for n, x in self.statistics.items() if n not in own or not all(torch.equal(row, own[n]) for row in x)
        }
        buffers = {f"statistics.{name}": value for name, value in changed.items()}
        recorded = {f"trace.{name}": value for name, value in self.trace.items()}
        return {"theta": self.theta, "log_joint": self.log_joint, **buffers, **recorded}

    @staticmethod
    def restore(model: Model, tensors: dict[str, Tensor], info: dict[str, Any]) -> Draws:
        chains = len(tensors["theta"])
        statistics = {name: torch.stack([b] * chains) for name, b in model.network.statistics().items()}
        statistics |= within("statistics.", tensors)
        return Draws(model, tensors["theta"], tensors["log_joint"], statistics, info, within("trace.", tensors))

    @staticmethod
    def join(parts: Sequence[Draws], info: dict[str, Any]) -> Draws:
        """Blocks of chains, one after the other."""
        statistics = {name: torch.cat([part.statistics[name] for part in parts]) for name in parts[0].statistics}
        theta, log_joint = torch.cat([part.theta for part in parts]), torch.cat([part.log_joint for part in parts])
        common = [name for name in parts[0].trace if all(name in part.trace for part in parts)]
        trace = {name: torch.cat([part.trace[name] for part in parts]) for name in common}
        return Draws(parts[0].model, theta, log_joint, statistics, info, trace)


def within(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those of a name that begins so, by the rest of it."""
    return {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}
