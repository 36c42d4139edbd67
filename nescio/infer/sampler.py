"""What all Markov chain samplers share: where chains start, what they move, which states are draws, how draws become a posterior.

    p(W | D) ≈ (1/S) Σ δ[W_s]

Samplers work on the unconstrained, non-centred vector, Jacobian included. Adaptation happens in the warm-up only and is pooled over the
chains of a block; after it nothing adapts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from nescio.diagnose.problems import sentence
from nescio.errors import InputError, UnsupportedError
from nescio.infer.begin import from_network
from nescio.infer.iterative import Iterative
from nescio.infer.limits import FLAG, LIMITS, Limit
from nescio.infer.memory import expect_room
from nescio.infer.method import Run, Start
from nescio.infer.optimise import continuous
from nescio.infer.resume import Kept
from nescio.infer.traced import counting, merged, traced
from nescio.laws.law import Law
from nescio.laws.prior import Prior
from nescio.model import Model
from nescio.noise import Noise
from nescio.posterior.draws import Draws
from nescio.posterior.posterior import Ends, Posterior
from nescio.target import Target

STATES = 20  # about as many vectors as draws does a chain take while it runs


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

    def suits(self, model: Model, only: Tensor | None = None) -> None:
        super().suits(model, only)
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

    def moves(self, prior: Prior, only: Tensor | None = None) -> Tensor:
        mask = prior.mask(lambda variable: variable.random)
        mask = mask if only is None else mask & only
        return continuous(prior, mask, type(self).__name__) if self.needs_gradients else mask

    def begin(self, model: Model, start: Start, noise: Noise) -> Ends:
        """A draw from the prior for each chain; at the network's own weights where the prior is improper."""
        if any(isinstance(v.law, Law) and not v.law.proper for v in model.prior.variables):
            return from_network(model, start, noise)
        theta = torch.stack([model.prior.draw(noise.at("start", chain)) for chain in range(start.chains)])
        statistics = {name: torch.stack([b] * start.chains) for name, b in model.network.statistics().items()}
        return Ends(theta, statistics)

    def run(self, target: Target, start: Start, run: Run) -> Posterior:
        chains = start.chains if start.ends is None else len(start.ends.theta)
        draws = 2 * self.draws + STATES  # one by one, and joined
        expect_room(chains * draws * target.model.dim, target.model.network.like)
        posterior = super().run(target, start, run)
        learned = [variable.name for variable in target.model.prior.variables if not variable.random]
        if learned and start.ends is None:
            must = "a sampler does not move what is Learned, so it must be right before"
            remedy = f"write MAP() >> {type(self).__name__}(...), or give it a law"
            first = posterior.info.get("blocks", [posterior.info])[0]
            first["problems"].append(sentence(must, f"{', '.join(learned)} where the network has it", remedy))
        return posterior

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

    def sound(self, state: Any, step: int) -> None:
        """No chain comes back from NaN; and where none has a finite density and slope, none would ever move."""
        u, log_density = self.point(state)
        name, fine = type(self).__name__, u.isfinite().all(1)
        if not bool(fine.all()):
            got = f"NaN or infinity in {len(fine) - int(fine.sum())} of {len(fine)} after {step} steps of {name}"
            raise InputError(
                "chains must stay finite", got, f"take smaller steps, or begin at a mode: MAP() >> {name}(...)"
            )
        fine &= log_density.isfinite()
        if (gradient := getattr(state, "gradient", None)) is not None:
            fine &= gradient.isfinite().all(1)
        if not bool(fine.any()):
            must = "the density and its gradient must be finite where chains are"
            got = f"log densities {log_density[:4].tolist()} of {len(fine)} chains after {step} steps"
            raise InputError(must, got, f"begin at a mode: MAP() >> {name}(...), or widen the likelihood")

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
        info["fixed"] = held(target)
        lost = (~log_density.isfinite().all(1)).nonzero()[:, 0].tolist()
        if lost:
            got, remedy = f"chains {lost[:8]} that did not", f"begin at a mode: MAP() >> {type(self).__name__}(...)"
            info["problems"].append(sentence("chains must come where the density is finite", got, remedy))
        return Draws(target.model, theta, log_density, states[-1].statistics, info, trace)


def held(target: Target) -> list[str]:
    """What does not move: learned numbers, which a sampler leaves where they are, and what `.on(...)` leaves out."""
    variables, moving = target.model.prior.variables, torch.ones(target.model.dim, dtype=torch.bool)
    if target.slots is not None:
        moving = torch.zeros_like(moving).index_fill(0, target.slots.cpu(), True)
    counts = [int(own.sum()) for own in moving.split([variable.size for variable in variables])]
    pairs = [(v, count) for v, count in zip(variables, counts, strict=True) if count < v.size]
    return [v.name if not count else f"{v.name} (in part)" for v, count in pairs]
