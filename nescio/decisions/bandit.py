"""A contextual bandit played by a posterior: learn what pays by acting, with exploration where it is not known.

Thompson sampling (Thompson, 1933; Blundell et al., 2015): draw the weights once for each decision and take the action that would pay most
if they were true. So an action is tried as often as it is believed to be the best. The network maps a context, the action appended
one-hot, to the mean reward; it is trained again on all that was seen, every so many decisions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from nescio.errors import InputError
from nescio.infer.method import Method, fit
from nescio.model import Model
from nescio.noise import Noise
from nescio.posterior.posterior import Posterior

Reward = Callable[[Tensor, Tensor, Noise], Tensor]  # rows, actions and chance to rewards


@final
@dataclass(frozen=True, eq=False)
class Bandit:
    """`contexts` (rows, features); `reward(rows, actions, noise)`: what actions pay; `expected` (rows, actions): on average, for regret."""

    contexts: Tensor
    reward: Reward
    expected: Tensor

    @property
    def actions(self) -> int:
        return self.expected.shape[1]

    def inputs(self, rows: Tensor, actions: Tensor) -> Tensor:
        return torch.cat([self.contexts[rows], one_hot(actions, self.actions).to(self.contexts)], -1)


class Play(NamedTuple):
    rows: Tensor  # (decisions,), whose contexts came
    actions: Tensor  # (decisions,), what was done
    rewards: Tensor  # (decisions,), what it paid
    regret: Tensor  # (decisions,), cumulated: what the best action would have paid on average, less what the chosen one would


class Policy(ABC):
    """How a posterior chooses."""

    @abstractmethod
    def choose(self, posterior: Posterior, bandit: Bandit, rows: Tensor, noise: Noise) -> Tensor: ...


@final
@dataclass(frozen=True)
class Thompson(Policy):
    def choose(self, posterior: Posterior, bandit: Bandit, rows: Tensor, noise: Noise) -> Tensor:
        """A draw of the weights for each decision; stored draws by lot."""
        n = len(rows)
        f = values(posterior, bandit, rows, n, noise)  # (draws, decisions, actions)
        which = noise.at("draw").integers(0, len(f), n)
        return f[which, torch.arange(n)].argmax(-1).cpu()


@final
@dataclass(frozen=True)
class Greedy(Policy):
    """The action with the best mean, but by lot with probability `explore`."""

    explore: float = 0.0
    draws: int = 20

    def choose(self, posterior: Posterior, bandit: Bandit, rows: Tensor, noise: Noise) -> Tensor:
        best = values(posterior, bandit, rows, self.draws, noise).mean(0).argmax(-1).cpu()
        try_out = noise.at("explore").uniform(len(rows)) < self.explore
        return torch.where(try_out, noise.at("any").integers(0, bandit.actions, len(rows)), best)


def values(posterior: Posterior, bandit: Bandit, rows: Tensor, draws: int, noise: Noise) -> Tensor:
    """The mean reward of every action under every draw, (draws, decisions, actions)."""
    actions = torch.arange(bandit.actions)
    x = torch.stack([bandit.inputs(rows, actions[a].expand(len(rows))) for a in actions], 1).flatten(0, 1)
    count = posterior.count()
    f, _ = posterior.functions(x, draws if count is None else min(draws, count), noise.at("weights").number())
    return f.reshape(len(f), len(rows), bandit.actions)


def play(
    model: Model,
    bandit: Bandit,
    method: Method | Callable[[int], Method],
    policy: Policy,
    *,
    decisions: int,
    every: int = 64,
    seed: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> Play:
    """`decisions` contexts by lot; the first `every` actions are by lot, too, then the network is trained every so many decisions.

    `method` may depend on the number of rewards seen. `progress` is told decisions and regret.
    """
    if decisions < 1 or every < 1:
        raise InputError("decisions and every are at least 1", f"{decisions} and {every}", "try 5000 and 64")
    if bandit.expected.dim() != 2 or len(bandit.expected) != len(bandit.contexts) or bandit.actions < 2:
        got = f"{tuple(bandit.expected.shape)} for {len(bandit.contexts)} contexts"
        raise InputError("expected must be (rows, actions) with two actions or more", got, "one row a context")
    noise, by_size = Noise(seed).at("bandit"), (lambda n: method) if isinstance(method, Method) else method
    rows = noise.at("contexts").integers(0, len(bandit.contexts), decisions)
    actions, rewards = torch.empty(0, dtype=torch.long), torch.empty(0, dtype=bandit.contexts.dtype)
    for start in range(0, decisions, every):
        now, key = rows[start : start + every], noise.at("part", start)
        if start == 0:
            chosen = key.at("any").integers(0, bandit.actions, len(now))
        else:
            seen = bandit.inputs(rows[:start], actions), rewards[:, None]
            posterior = fit(model, seen, by_size(start), seed=key.at("fit").number())
            chosen = policy.choose(posterior, bandit, now, key.at("policy"))
        actions = torch.cat([actions, chosen])
        rewards = torch.cat([rewards, bandit.reward(now, chosen, key.at("reward")).to(rewards)])
        if progress is not None:
            progress(len(actions), float(regret(bandit, rows[: len(actions)], actions)[-1]))
    return Play(rows, actions, rewards, regret(bandit, rows, actions))


def regret(bandit: Bandit, rows: Tensor, actions: Tensor) -> Tensor:
    expected = bandit.expected[rows]
    return (expected.amax(-1) - expected.gather(-1, actions[:, None])[:, 0]).cumsum(0)
