r"""Maximum a posteriori: the mode of the posterior in weight space, by any torch optimiser.

    θ* = argmax_θ  log p(θ) + Σ_n log p(y_n | x_n, θ)

No Jacobian: the mode is that of the weights and scales themselves. Under a Normal prior of scale s this is weight decay 1 / (N s²)
on the mean loss (torch's `weight_decay`). `Learned` numbers of the likelihood are fitted along; those of the prior are not: their
mode is unbounded, they need the marginal likelihood. Deep ensembles (Lakshminarayanan et al., 2017) are `5 * MAP()`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.optim import Optimizer

from nescio.batch import Batch
from nescio.data.source import Source
from nescio.errors import InputError
from nescio.infer.begin import from_network, minibatch
from nescio.infer.iterative import Iterative
from nescio.infer.method import Start
from nescio.infer.optimise import Best, check_part, movable, set_aside, thinned
from nescio.infer.schedule import Cosine
from nescio.laws.prior import Prior
from nescio.model import Model
from nescio.network import Params
from nescio.noise import Noise
from nescio.posterior.draws import Draws
from nescio.posterior.posterior import Ends, Posterior
from nescio.target import Target

ELEMENTWISE = (
    *(
        torch.optim.SGD,
        torch.optim.ASGD,
        torch.optim.Rprop,
        torch.optim.RMSprop,
        torch.optim.Adagrad,
        torch.optim.Adadelta,
    ),
    *(torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax),
)


class State(NamedTuple):
    u: Tensor  # (chains, dim), the optimiser's parameter: it is updated in place
    optimizer: Optimizer
    statistics: Params
    best: Best  # of u and statistics
    epoch: Tensor  # (chains, 2): the losses of this epoch's batches so far, summed, and how many


class Info(NamedTuple):
    loss: Tensor  # (chains,), minus log posterior per observation, mean over the batches of an epoch
    held_out: Tensor  # (chains,), mean log density of the held-out rows; NaN without them


@final
@dataclass(frozen=True)
class MAP(Iterative):
    """`optimizer`: any torch optimiser class (bind its options with functools.partial); `schedule`: part of the run -> factor on lr.

    `hold_out`: this part of the rows is kept aside, and each chain returns to where their log density was highest; it stops when
    that has not risen for `patience` epochs.
    """

    epochs: int = 100
    lr: float = 1e-2
    batch_size: int | None = None  # the loader's own, else a sixteenth of the rows between 16 and 128
    optimizer: Callable[..., Optimizer] = torch.optim.Adam
    schedule: Callable[[float], float] = Cosine()
    hold_out: float = 0.0
    patience: int = 20

    def __post_init__(self) -> None:
        if self.epochs < 1 or not self.lr > 0:
            raise InputError(
                "epochs and lr must be positive", f"epochs={self.epochs}, lr={self.lr}", "try 100 and 0.01"
            )
        check_part(self.hold_out)

    def batch(self, source: Source) -> int:
        return minibatch(self.batch_size, source)

    def separable(self) -> bool:
        """Elementwise optimisers treat stacked chains as separate ones; a line search would tie them together."""
        kind = self.optimizer.func if isinstance(self.optimizer, partial) else self.optimizer
        return kind in ELEMENTWISE

    def view(self, target: Target, noise: Noise) -> Target:
        return set_aside(replace(target, centred=True), self.hold_out, noise)

    def moves(self, prior: Prior, only: Tensor | None = None) -> Tensor:
        return movable(prior, only, "MAP")

    def gradients(self) -> float:
        return 1.0

    def begin(self, model: Model, start: Start, noise: Noise) -> Ends:
        return from_network(model, start, noise)

    def steps(self, per_epoch: int) -> int:
        return self.epochs * per_epoch

    def init(self, target: Target, ends: Ends, noise: Noise) -> State:
        u = target.u(ends.theta).detach().clone().requires_grad_()
        best = Best.first((u.detach().clone(), ends.statistics), len(u), u)
        epoch = torch.zeros(len(u), 2, dtype=torch.float64, device=u.device)
        return State(u, self.optimizer([u], lr=self.lr), ends.statistics, best, epoch)

    def freeze(self, state: State) -> Any:
        return state._replace(optimizer=state.optimizer.state_dict())  # type: ignore[arg-type]

    def thaw(self, tree: Any, state: State) -> State:
        with torch.no_grad():
            state.u.copy_(tree.u)
        state.optimizer.load_state_dict(tree.optimizer)
        return tree._replace(u=state.u, optimizer=state.optimizer)

    def step(self, target: Target, state: State, batch: Batch, noise: Noise) -> tuple[State, Info | None]:
        u, optimizer = state.u, state.optimizer
        for group in optimizer.param_groups:
            group["lr"] = self.lr * self.schedule(batch.part)
        statistics, loss = state.statistics, torch.empty(0)

        def closure() -> Tensor:
            nonlocal statistics, loss
            with noise.scope():  # the network's own dropout
                value, gradient, statistics = target.train(u.detach(), batch, state.statistics)
            u.grad, loss = gradient.mul_(-1 / target.size), -value / target.size  # each chain has its own
            return loss.sum()

        optimizer.step(closure)  # type: ignore[arg-type]
        epoch = state.epoch + torch.stack([loss, torch.ones_like(loss)], 1)
        if not batch.closes:
            return state._replace(statistics=statistics, epoch=epoch), None
        state, loss = state._replace(statistics=statistics, epoch=torch.zeros_like(epoch)), epoch[:, 0] / epoch[:, 1]
        if not bool(loss.isfinite().all()):
            got = f"{loss.tolist()} after {batch.part:.0%} of the run"
            raise InputError("the loss must stay finite", got, "lower lr, or standardise the inputs")
        return self.watch(target, state, loss)

    def watch(self, target: Target, state: State, loss: Tensor) -> tuple[State, Info]:
        """At the end of an epoch: is this the best that the held-out rows have seen?"""
        if target.held is None:
            return state, Info(loss, torch.full_like(loss, math.nan))
        u = state.u.detach()
        score = target.log_likelihood(target.theta(u), state.statistics, target.held) / target.held.size
        best = state.best.seen((u, state.statistics), score, self.patience)
        return state._replace(best=best), Info(loss, score)

    def keeps(self, step: int, total: int) -> bool:
        return step + 1 == total

    def keep(self, target: Target, state: State) -> State:
        return state

    def finished(self, state: State) -> bool:
        return bool(self.hold_out) and state.best.over(self.patience)

    def posterior(self, target: Target, states: Sequence[State], infos: Sequence[Info]) -> Posterior:
        last = states[-1]
        stopped = target.held is not None
        u, statistics = last.best.kept if stopped else (last.u.detach(), last.statistics)
        theta = target.theta(u)
        log_joint = target.log_joint(theta, statistics)
        trace = torch.stack([info.loss for info in infos]).mean(1)
        info: dict[str, Any] = {"epochs": len(infos), "loss": thinned(trace), "log_joint": float(log_joint.max())}
        if stopped:
            info["held_out"] = thinned(torch.stack([i.held_out for i in infos]).mean(1))
        return Draws(target.model, theta[:, None], log_joint[:, None], statistics, info)
