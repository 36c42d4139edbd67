r"""SWAG: the path of stochastic gradient descent at a constant learning rate as a Gaussian (Maddox et al., 2019).

    v ← m v + ∇L,   w ← w - lr v        L = minus log posterior / N on a batch; every so often w is collected
    q(w) = N(w̄, ½ diag(s²) + D Dᵀ / 2(K - 1))

w̄ and s² are mean and variance of all that was collected, D the last K differences from the mean as it was then. What q is depends on
the learning rate and the batch: it is no approximation of the posterior at a limit, but often a good one of its shape (Mandt et
al., 2017). Started at a mode: `MAP() >> SWAG()`; several of them, `5 * (MAP() >> SWAG())`, are MultiSWAG (Wilson & Izmailov, 2020).
Random are the weights of the network; noise and scales stay where they were. Norm statistics are taken anew at the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from nescio.batch import Batch
from nescio.data.source import Source
from nescio.errors import InputError
from nescio.infer.begin import from_network, minibatch
from nescio.infer.driver import join
from nescio.infer.iterative import Iterative
from nescio.infer.laplace import fixed
from nescio.infer.method import Start
from nescio.infer.optimise import movable, thinned
from nescio.laws.prior import Prior
from nescio.linalg import LowRank
from nescio.model import Model
from nescio.network import Params
from nescio.noise import Noise
from nescio.posterior.gaussian import GaussianPosterior
from nescio.posterior.places import places
from nescio.posterior.posterior import Ends, Posterior
from nescio.target import Target

LEAST = 1e-30  # of a variance: a weight that never moved has none
PASSES = 50  # batches at least, from which norm statistics are taken


class State(NamedTuple):
    u: Tensor  # (chains, dim)
    velocity: Tensor  # (chains, dim)
    statistics: Params
    step: Tensor  # (), so far
    count: Tensor  # (), collected so far
    mean: Tensor  # (chains, dim), of what was collected, in double precision
    scatter: Tensor  # (chains, dim), sum of squared distances from it
    last: Tensor  # (chains, rank, dim), differences from the mean at that time, the newest in place count - 1 mod rank


class Info(NamedTuple):
    loss: Tensor  # (chains,), minus log posterior per observation


@final
@dataclass(frozen=True)
class SWAG(Iterative):
    """`rank`: K. `every`: steps from one that is collected to the next; None: once an epoch. lr and momentum are those of plain SGD."""

    rank: int = 20
    epochs: int = 40
    lr: float = 1e-2
    momentum: float = 0.9
    every: int | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.rank < 2 or self.epochs < 1 or not self.lr > 0 or not 0 <= self.momentum < 1:
            got = f"rank={self.rank}, epochs={self.epochs}, lr={self.lr}, momentum={self.momentum}"
            raise InputError("a rank is at least 2, epochs and lr positive, momentum in [0, 1)", got, "use SWAG(20)")
        if self.every is not None and self.every < 1:
            raise InputError("every is a number of steps", str(self.every), "leave it out: once an epoch")

    def batch(self, source: Source) -> int:
        return minibatch(self.batch_size, source)

    def separable(self) -> bool:
        return True

    def view(self, target: Target, noise: Noise) -> Target:
        return replace(target, centred=True)

    def moves(self, prior: Prior, only: Tensor | None = None) -> Tensor:
        movable(prior, only, "SWAG")  # refuses what is discrete
        mask = torch.zeros(prior.dim, dtype=torch.bool)
        for place in places(prior, None, "SWAG").values():
            mask[place] = True
        return mask if only is None else mask & only

    def gradients(self) -> float:
        return 1.0

    def begin(self, model: Model, start: Start, noise: Noise) -> Ends:
        return from_network(model, start, noise)

    def steps(self, per_epoch: int) -> int:
        total = self.epochs * per_epoch
        collected = self.epochs if self.every is None else total // self.every
        if collected < 2:
            raise InputError("at least two points of the path must be collected", str(collected), "use more epochs")
        return total

    def init(self, target: Target, ends: Ends, noise: Noise) -> State:
        u = target.u(ends.theta).detach().clone()
        zero, none = torch.zeros_like(u, dtype=torch.float64), torch.zeros((), dtype=torch.long)
        last = u.new_zeros(len(u), self.rank, u.shape[1])
        return State(u, torch.zeros_like(u), ends.statistics, none, none, zero, zero, last)

    def step(self, target: Target, state: State, batch: Batch, noise: Noise) -> tuple[State, Info | None]:
        with noise.scope():  # the network's own dropout
            value, gradient, statistics = target.train(state.u, batch, state.statistics)
        velocity = self.momentum * state.velocity - gradient / target.size
        state = state._replace(
            u=state.u - self.lr * velocity, velocity=velocity, statistics=statistics, step=state.step + 1
        )
        due = batch.closes if self.every is None else int(state.step) % self.every == 0
        if due:
            state = collected(state)
        if not batch.closes:
            return state, None
        if not bool(state.u.isfinite().all()):
            got = f"weights that are not, after {batch.part:.0%} of the run"
            raise InputError("weights must stay finite", got, "lower lr, or standardise the inputs")
        return state, Info(-value / target.size)

    def keeps(self, step: int, total: int) -> bool:
        return step + 1 == total

    def keep(self, target: Target, state: State) -> State:
        return state

    def finished(self, state: State) -> bool:
        return False

    def posterior(self, target: Target, states: Sequence[State], infos: Sequence[Info]) -> Posterior:
        state, model = states[-1], target.model
        mean, loss = state.mean.to(state.u), torch.stack([info.loss for info in infos]).mean(1)
        statistics = settled(target, mean, state.statistics, self.batch(target.source))
        theta, log_joint = target.theta(mean), target.log_joint(target.theta(mean), statistics)
        every = torch.arange(model.dim, device=theta.device)
        slots, count = every if target.slots is None else target.slots, int(state.count)
        index = places(model.prior, target.only, "SWAG")
        parts = []
        for chain, own in enumerate(theta):
            info: dict[str, Any] = {"collected": count, "loss": thinned(loss), "fixed": fixed(model, index)}
            info["log_joint"] = float(log_joint[chain])
            buffers = {name: b[chain] for name, b in statistics.items()}
            parts.append(GaussianPosterior(model, own, slots, covariance(state, chain), buffers, info))
        return join(parts)


def collected(state: State) -> State:
    """With u among the collected ones (Welford's sums), its difference from the new mean kept in the place of the oldest."""
    count, u = state.count + 1, state.u.double()
    before = u - state.mean
    mean = state.mean + before / count
    last = state.last.clone()
    last[:, int(state.count) % last.shape[1]] = (u - mean).to(last)
    return state._replace(count=count, mean=mean, scatter=state.scatter + before * (u - mean), last=last)


def covariance(state: State, chain: int) -> LowRank:
    count = int(state.count)
    rank = min(count, state.last.shape[1])
    variance = (state.scatter[chain] / count).clamp_min(LEAST)
    weights = variance.new_full((rank,), 0.5 / (rank - 1))
    return LowRank(0.5 * variance, state.last[chain, :rank].mT.double().contiguous(), weights)


def settled(target: Target, u: Tensor, statistics: Params, batch: int) -> Params:
    """Norm statistics of the weights u: batches in training mode until what they were at first is forgotten."""
    if not statistics:
        return statistics
    noise, per_epoch = target.model.noise(0, "norms"), -(-target.size // batch)
    with torch.no_grad(), noise.scope():
        for i in range(max(PASSES, per_epoch)):
            epoch, position = divmod(i, per_epoch)
            order = noise.at("epoch", epoch).permutations(1, target.size)[0]
            rows = order[position * target.size // per_epoch : (position + 1) * target.size // per_epoch]
            _, after = target.log_posterior(u, target.batch(rows), statistics)
            statistics = {name: b.detach() for name, b in after.items()}
    return statistics
