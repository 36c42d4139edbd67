"""What optimisers of points and of approximations share: what they can move, and when to stop."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from nescio.errors import InputError, UnsupportedError
from nescio.laws.prior import Prior
from nescio.noise import Noise
from nescio.target import Target


class Best(NamedTuple):
    """What the held-out rows have liked best so far."""

    kept: Any  # a tree of tensors, (chains, ...)
    score: Tensor  # (chains,), mean log density of the held-out rows
    waited: Tensor  # (chains,), epochs since

    @staticmethod
    def first(kept: Any, chains: int, like: Tensor) -> Best:
        nothing = torch.full((chains,), -math.inf, dtype=like.dtype, device=like.device)
        return Best(kept, nothing, torch.zeros(chains, dtype=torch.long, device=like.device))

    def seen(self, now: Any, score: Tensor, patience: int) -> Best:
        """After another epoch. A chain that has waited too long stays where it was best."""
        better = (score > self.score) & (self.waited <= patience)

        def choose(new: Tensor, old: Tensor) -> Tensor:
            return torch.where(better.view(-1, *[1] * (new.dim() - 1)), new, old)

        waited = torch.where(better, 0, self.waited + 1)
        return Best(tree_map(choose, now, self.kept), choose(score, self.score), waited)

    def over(self, patience: int) -> bool:
        return bool((self.waited > patience).all())


def check_part(hold_out: float) -> None:
    if not 0 <= hold_out < 1:
        raise InputError("hold_out is a part of the data in [0, 1)", str(hold_out), "0.1 keeps a tenth aside")


def set_aside(target: Target, hold_out: float, noise: Noise) -> Target:
    """The target without this part of its rows, which it holds for a judge."""
    if not hold_out:
        return target
    aside = max(1, round(hold_out * target.size))
    if aside >= target.size:
        raise InputError("some rows must remain to learn from", f"{target.size} rows", "set hold_out=0")
    order = noise.at("held out").permutations(1, target.size)[0]
    kept, held = (target.source.subset(rows.sort().values) for rows in (order[aside:], order[:aside]))
    return replace(target, source=kept, held=held)


def movable(prior: Prior, only: Tensor | None, who: str) -> Tensor:
    """What is random, and the likelihood's learned numbers: one inside the law of its noise is a prior's, and stays."""
    fitted = "likelihood."
    mask = prior.mask(lambda variable: variable.random or (variable.name.startswith(fitted) and not variable.nested))
    return continuous(prior, mask if only is None else mask & only, who)


def continuous(prior: Prior, mask: Tensor, who: str) -> Tensor:
    """What is to move, unless some of it has no gradient."""
    parts = zip(prior.variables, mask.split([variable.size for variable in prior.variables]), strict=True)
    discrete = [variable.name for variable, own in parts if variable.discrete and bool(own.any())]
    if discrete:
        remedy = "give SpikeSlab a spike of positive width, use Metropolis, or hold them where they are by .on(...)"
        raise UnsupportedError(f"{who} follows gradients", f"discrete latents {discrete}", remedy)
    return mask


def thinned(trace: Tensor, most: int = 200) -> list[float]:
    """At most so many points of a trace, first and last included."""
    index = torch.linspace(0, len(trace) - 1, min(most, len(trace))).round().long()
    return [round(float(x), 6) for x in trace[index.to(trace.device)]]
