"""A finite set of draws with equal weights: what samplers and ensembles of point estimates give.

p(W | D) ≈ (1/S) Σ δ[W_s]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor

from nescio.model import Model
from nescio.network import Params
from nescio.posterior.posterior import Ends, Posterior, evenly, spread_evenly


@final
class Draws(Posterior):
    """`theta`: values, (chains, draws, dim). `log_joint`: log p(θ, D) of each, up to a constant. `statistics`: one a chain."""

    def __init__(
        self, model: Model, theta: Tensor, log_joint: Tensor, statistics: Params, info: dict[str, Any]
    ) -> None:
        self.model, self.theta, self.log_joint, self.statistics, self.info = model, theta, log_joint, statistics, info

    def __repr__(self) -> str:
        chains, draws, dim = self.theta.shape
        return f"Draws({chains} chains x {draws} draws of {dim} numbers, by {self.info.get('method', 'hand')})"

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
        """Some of the chains, as a posterior of their own."""
        statistics = {name: value[which] for name, value in self.statistics.items()}
        return Draws(self.model, self.theta[which], self.log_joint[which], statistics, dict(self.info))

    def point(self) -> Params:
        """The draw with the highest log density: means of weights mean nothing under symmetries."""
        chain, draw = divmod(int(self.log_joint.argmax()), self.theta.shape[1])
        named = self.model.named(self.theta[chain, draw][None])
        return {**{name: x[0] for name, x in named.items()}, **{name: x[chain] for name, x in self.statistics.items()}}

    def ends(self) -> Ends:
        return Ends(self.theta[:, -1], self.statistics)

    def header(self) -> dict[str, Any]:
        return {"kind": "Draws", "info": self.info}

    def tensors(self) -> dict[str, Tensor]:
        own = self.model.network.statistics()  # a mask or a table that training left alone belongs to the network
        changed = {
            n: x for n, x in self.statistics.items() if n not in own or not all(torch.equal(row, own[n]) for row in x)
        }
        buffers = {f"statistics.{name}": value for name, value in changed.items()}
        return {"theta": self.theta, "log_joint": self.log_joint, **buffers}

    @staticmethod
    def restore(model: Model, tensors: dict[str, Tensor], info: dict[str, Any]) -> Draws:
        prefix = "statistics."
        chains = len(tensors["theta"])
        statistics = {name: torch.stack([b] * chains) for name, b in model.network.statistics().items()}
        statistics |= {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}
        return Draws(model, tensors["theta"], tensors["log_joint"], statistics, info)

    @staticmethod
    def join(parts: Sequence[Draws], info: dict[str, Any]) -> Draws:
        """Blocks of chains, one after the other."""
        statistics = {name: torch.cat([part.statistics[name] for part in parts]) for name in parts[0].statistics}
        theta, log_joint = torch.cat([part.theta for part in parts]), torch.cat([part.log_joint for part in parts])
        return Draws(parts[0].model, theta, log_joint, statistics, info)
