"""What all Markov chain samplers share: where chains start, what they move, which states are draws, how draws become a posterior.

    p(W | D) ≈ (1/S) Σ δ[W_s]

Samplers work on the unconstrained, non-centred vector, Jacobian included. Adaptation happens in the warm-up only and is pooled over the
chains of a block; after it nothing adapts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from nescio.errors import InputError, UnsupportedError
from nescio.infer.iterative import Iterative, from_network
from nescio.infer.method import Start
from nescio.infer.resume import Kept
from nescio.laws.law import Law
from nescio.laws.prior import Prior
from nescio.model import Model
from nescio.noise import Noise
from nescio.posterior.draws import Draws
from nescio.posterior.posterior import Ends, Posterior
from nescio.target import Target

TRACED = {  # the fields of an Info that go into the trace, and how; energies are sums of many terms and differ by little
    "energy": torch.float64,
    "acceptance": torch.float32,
    "divergent": torch.bool,
    "energy_error": torch.float32,
    "depth": torch.int16,
    "leapfrogs": torch.int32,
    "flips": torch.float32,
}


@dataclass(frozen=True)
class Sampler(Iterative):
    """`warmup` steps are thrown away; then every `thin`-th state is a draw, until there are `draws` of them."""

    draws: int = field(default=1000, kw_only=True)
    warmup: int = field(default=500, kw_only=True)
    thin: int = field(default=1, kw_only=True)

    needs_gradients: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.draws < 1 or self.warmup < 0 or self.thin < 1:
            got = f"draws={self.draws}, warmup={self.warmup}, thin={self.thin}"
            raise InputError("draws and thin must be at least 1, warmup at least 0", got, "try draws=1000, warmup=500")

    def point(self, state: Any) -> tuple[Tensor, Tensor]:
        """(u, log density) of a state."""
        return state.u, state.log_density

    @abstractmethod
    def summary(self, infos: Sequence[Any]) -> dict[str, Any]:
        """What the infos of the kept steps say, as JSON: acceptance, divergences, step size."""

    def separable(self) -> bool:
        return True

    def view(self, target: Target, noise: Noise) -> Target:
        if target.model.likelihood.estimated:
            must, got = "a sampler compares densities", f"{target.model.likelihood!r}, a noisy estimate of a bound"
            raise UnsupportedError(must, got, "use MAP, n * MAP() or VI; MAP() >> VI(MeanField()).on('decoder.*')")
        for name, module in target.model.network.training_net.named_modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:
                raise UnsupportedError(
                    "the density of one network must not depend on its batch",
                    f"{type(module).__name__} at {name!r} in training mode",
                    "freeze its statistics (net.eval() before Model), or use nets.FilterResponseNorm",
                )
        return target

    def moves(self, prior: Prior) -> Tensor:
        discrete = [variable.name for variable in prior.variables if variable.discrete]
        if discrete and self.needs_gradients:
            raise UnsupportedError(
                f"{type(self).__name__} follows gradients",
                f"discrete latents {discrete}",
                "use Metropolis, or a continuous prior",
            )
        return prior.mask(lambda variable: variable.random)

    def begin(self, model: Model, start: Start, noise: Noise) -> Ends:
        """A draw from the prior for each chain; at the network's own weights where the prior is improper."""
        if any(isinstance(v.law, Law) and not v.law.proper for v in model.prior.variables):
            return from_network(model, start, noise)
        theta = torch.stack([model.prior.draw(noise.at("start", chain)) for chain in range(start.chains)])
        statistics = {name: torch.stack([b] * start.chains) for name, b in model.network.statistics().items()}
        return Ends(theta, statistics)

    def steps(self, per_epoch: int) -> int:
        return self.warmup + self.draws * self.thin

    def keeps(self, step: int, total: int) -> bool:
        return step >= self.warmup and (step - self.warmup + 1) % self.thin == 0

    def keep(self, target: Target, state: Any) -> Kept:
        u, log_density = self.point(state)
        theta = target.theta(u, copy=self.thin > 1)  # a State may be a view of many, of which all are kept or few
        return Kept(theta, log_density, state.statistics)

    def finished(self, state: Any) -> bool:
        return False

    def posterior(self, target: Target, states: Sequence[Kept], infos: Sequence[Any]) -> Posterior:
        theta = torch.stack([kept.theta for kept in states], 1)  # (chains, draws, dim)
        log_density = torch.stack([kept.log_density for kept in states], 1)
        made = infos[self.warmup :]
        info, trace = self.summary(made), traced(made, self.thin, len(theta), theta.device)
        return Draws(target.model, theta, log_density, states[-1].statistics, info, trace)


def traced(infos: Sequence[Any], thin: int, chains: int, device: torch.device) -> dict[str, Tensor]:
    """What the infos of the kept steps say of each draw, (chains, draws): see `Draws`."""
    trace: dict[str, Tensor] = {}
    for name in [name for name in TRACED if infos and hasattr(infos[0], name)]:
        each = [getattr(i, name) for i in (infos if name == "divergent" else infos[thin - 1 :: thin])]
        # (chains, steps); a plain number is that of every chain
        x = torch.stack(each, 1) if isinstance(each[0], Tensor) else torch.tensor(each).expand(chains, -1)
        x = x.unflatten(1, (-1, thin)).any(2) if name == "divergent" else x
        if name != "flips" or not bool(x.isnan().any()):  # of which there are none where nothing is discrete
            trace[name] = x.to(device, TRACED[name]).contiguous()
    return trace
