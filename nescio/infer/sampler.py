"""What all Markov chain samplers share: where chains start, what they move, which states are draws, how draws become a posterior.

    p(W | D) ≈ (1/S) Σ δ[W_s]

Samplers work on the unconstrained, non-centred vector, Jacobian included. Adaptation happens in the warm-up only and is pooled over the
chains of a block; after it nothing adapts.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from nescio.errors import InputError, UnsupportedError
from nescio.infer.begin import from_network
from nescio.infer.iterative import Iterative
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
# under thinning these are over the steps since the draw before; all others are of the last of them
SUMS = {"divergent", "leapfrogs", "gradients"}
MEANS = {"acceptance", "flips"}


class Limit(NamedTuple):
    """What a setting must be: in words, its kind, and the rest as a test."""

    said: str
    kind: type
    holds: Callable[[Any], bool]


COUNT = Limit("a whole number of at least 1", Integral, lambda x: x >= 1)
FLAG = Limit("True or False", bool, lambda x: True)
POSITIVE = Limit("a positive number", Real, lambda x: 0 < x < math.inf)
LIMITS = {  # by the name of a setting, which means the same in every sampler
    **dict.fromkeys(("draws", "thin", "leapfrog", "most_steps", "batch_size"), COUNT),
    **dict.fromkeys(("dense", "precondition"), FLAG),
    "max_depth": Limit("a whole number from 1 to 20", Integral, lambda x: 1 <= x <= 20),
    **dict.fromkeys(("step_size", "scale", "length", "energy_variance"), POSITIVE),
    "warmup": Limit("a whole number of at least 0", Integral, lambda x: x >= 0),
    "acceptance": Limit("a number between 0 and 1", Real, lambda x: 0 < x < 1),
    "friction": Limit("a number above 0 and at most 1", Real, lambda x: 0 < x <= 1),
}


@dataclass(frozen=True, kw_only=True)
class Sampler(Iterative):
    """`warmup` steps are thrown away; then every `thin`-th state is a draw, until there are `draws` of them."""

    draws: int = 1000
    warmup: int = 500
    thin: int = 1

    needs_gradients: ClassVar[bool] = True
    limits: ClassVar[dict[str, Limit]] = LIMITS

    def __post_init__(self) -> None:
        for setting in fields(self):
            value, limit = getattr(self, setting.name), self.limits.get(setting.name)
            if limit is None or (value is None and setting.default is None):
                continue
            fits = isinstance(value, limit.kind) and (limit is FLAG or not isinstance(value, bool))
            if not (fits and limit.holds(value)):
                remedy = "leave it out" if setting.default is None else f"leave it at {setting.default!r}"
                raise InputError(f"{setting.name} must be {limit.said}", repr(value), remedy)

    def point(self, state: Any) -> tuple[Tensor, Tensor]:
        """(u, log density) of a state."""
        return state.u, state.log_density

    @abstractmethod
    def summary(self, infos: Sequence[Any]) -> dict[str, Any]:
        """What the infos of the draws say, as JSON: acceptance, divergences, step size; `problems`, in sentences, where there are some."""

    def separable(self) -> bool:
        return True

    def suits(self, model: Model) -> None:
        super().suits(model)
        if model.likelihood.estimated:
            must, got = "a sampler compares densities", f"{model.likelihood!r}, a noisy estimate of a bound"
            raise UnsupportedError(must, got, "use MAP, n * MAP() or VI; MAP() >> VI(MeanField()).on('decoder.*')")
        for name, module in model.network.training_net.named_modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:
                must = "the density of one network must not depend on its batch"
                got = f"{type(module).__name__} at {name!r} in training mode"
                remedy = "use nets.FilterResponseNorm, or train it and freeze its statistics: "
                remedy += (
                    "net.load_state_dict(fit(model, data, MAP()).point(), strict=False), net.eval(), Model(net, ...)"
                )
                raise UnsupportedError(must, got, remedy)

    def view(self, target: Target, noise: Noise) -> Target:
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

    def remember(self, infos: list[Any], step: int, info: Any) -> None:
        """One a draw, however many steps it takes, so that long runs take no more memory; of the warm-up the last one only."""
        if step <= self.warmup:
            infos.clear()
        done = (step - self.warmup) % self.thin  # of the steps to a draw
        if step > self.warmup and done:
            infos[-1] = merged(infos[-1], info, done)
        else:
            infos.append(info if self.thin == 1 else counting(info))

    def posterior(self, target: Target, states: Sequence[Kept], infos: Sequence[Any]) -> Posterior:
        theta = torch.stack([kept.theta for kept in states], 1)  # (chains, draws, dim)
        log_density = torch.stack([kept.log_density for kept in states], 1)
        info, trace = {"problems": [], **self.summary(infos)}, traced(infos, len(theta), theta.device)
        return Draws(target.model, theta, log_density, states[-1].statistics, info, trace)


def merged(before: Any, info: Any, count: int) -> Any:
    """What `count` steps and one more have to say of the draw that they lead to."""
    kept = {name: getattr(before, name) + getattr(info, name) for name in SUMS & set(info._fields)}
    for name in MEANS & set(info._fields):
        x = getattr(before, name)
        kept[name] = x + (getattr(info, name) - x) / (count + 1)
    return info._replace(**kept)


def counting(info: Any) -> Any:
    return info._replace(divergent=info.divergent.long()) if hasattr(info, "divergent") else info


def traced(infos: Sequence[Any], chains: int, device: torch.device) -> dict[str, Tensor]:
    """What the infos say of each draw, (chains, draws): see `Draws`."""
    trace: dict[str, Tensor] = {}
    for name in [name for name in TRACED if infos and hasattr(infos[0], name)]:
        each = [getattr(i, name) for i in infos]
        # (chains, draws); a plain number is that of every chain
        x = torch.stack(each, 1) if isinstance(each[0], Tensor) else torch.tensor(each).expand(chains, -1)
        if name != "flips" or not bool(x.isnan().any()):  # of which there are none where nothing is discrete
            trace[name] = x.to(device, TRACED[name]).contiguous()
    return trace
