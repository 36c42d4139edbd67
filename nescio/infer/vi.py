r"""Variational inference: the approximation q of the posterior that maximises the evidence lower bound.

    q* = argmax_q  E_q Σ_n log p(y_n | x_n, w) - KL(q, p)  =  argmin_q KL(q, p(w | D))

by stochastic gradients of reparameterised draws (Graves, 2011; Blundell et al., 2015; Kingma & Welling, 2014). N is that of the data
and the divergence a sum, so nothing is scaled by hand; at a temperature T the target is p(w | D)^(1/T). Which q: nescio/families.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor
from torch.optim import Optimizer

from nescio.batch import Batch, take
from nescio.data.source import Source, source
from nescio.errors import InputError
from nescio.families.approximation import Approximation
from nescio.families.family import Family
from nescio.families.mean_field import MeanField
from nescio.infer.begin import from_network, minibatch
from nescio.infer.elbo import NegativeELBO, by_functions, lengths
from nescio.infer.elbo_code import CompiledELBO
from nescio.infer.elbo_graph import RecordedELBO
from nescio.infer.iterative import Iterative
from nescio.infer.ivon import IVON
from nescio.infer.method import Start
from nescio.infer.optimise import Best, check_part, movable, set_aside, thinned
from nescio.infer.schedule import Cosine
from nescio.laws.prior import Prior
from nescio.model import Model
from nescio.noise import Noise
from nescio.posterior.posterior import Ends, Posterior
from nescio.posterior.variational import Variational
from nescio.target import CHUNK, Target, check

JUDGES = 10  # draws by which held-out rows are predicted, and the final bound is estimated


class State(NamedTuple):
    loss: NegativeELBO  # q, updated in place, and the norm statistics
    optimizer: Optimizer
    best: Best
    epoch: Tensor  # (3,): number, mean and summed squared deviations of this epoch's estimates of the ELBO


class Info(NamedTuple):
    elbo: Tensor  # (), mean over the batches of an epoch
    se: Tensor  # (), its standard error; NaN for one batch
    held_out: Tensor  # (1,), mean log predictive density of the held-out rows; NaN without them


@final
@dataclass(frozen=True)
class VI(Iterative):
    """`samples`: draws a step, the family's own number where none is given. `kl_warmup`: the part of the run over which the divergence
    is faded in, [0, 1].

    `optimizer`: any torch optimiser class, or IVON; `schedule`: part of the run -> factor on lr. `hold_out`: this part of the rows is
    kept aside, q returns to where they were predicted best, and stops when that has not improved for `patience` epochs.
    """

    family: Family = MeanField()
    epochs: int = 100
    lr: float = 1e-2
    samples: int | None = None
    kl_warmup: float = 0.0
    batch_size: int | None = None  # the loader's own, else a sixteenth of the rows between 16 and 128
    optimizer: Callable[..., Optimizer] = partial(torch.optim.Adam, fused=True)
    schedule: Callable[[float], float] = Cosine()
    hold_out: float = 0.0
    patience: int = 20

    def __post_init__(self) -> None:
        if not isinstance(self.family, Family):
            raise InputError("family must be a Family", repr(self.family), "write for instance VI(MeanField())")
        if self.epochs < 1 or (self.samples is not None and self.samples < 1) or not self.lr > 0:
            got = f"epochs={self.epochs}, samples={self.samples}, lr={self.lr}"
            raise InputError("epochs, samples and lr must be positive", got, "try 100, 1 and 0.01")
        if not 0 <= self.kl_warmup <= 1:
            raise InputError("kl_warmup is a part of the run in [0, 1]", str(self.kl_warmup), "0.2 is a fifth of it")
        kind = self.optimizer.func if isinstance(self.optimizer, partial) else self.optimizer
        if kind is IVON and not isinstance(self.family, MeanField):
            raise InputError("IVON is for independent Gaussians", repr(self.family), "use Adam, or VI(MeanField())")
        check_part(self.hold_out)

    def objective(
        self, model: Model, data: Any, seed: int = 0, temperature: float = 1.0
    ) -> tuple[Variational, NegativeELBO]:
        """(posterior, loss) for an own training loop: `loss(x, y)` is minus the ELBO per observation, on a batch of the data.

            posterior, loss = VI(MeanField()).objective(model, data)
            optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3)

        The posterior is that of the moment. `samples` holds; epochs, optimiser and the rest are the loop's own.
        """
        given = source(data).to(model.network.like.device)
        check(model, given)
        target = Target(model, given, float(temperature), centred=True)
        ends = from_network(model, Start(), model.noise(seed, "fit"))
        loss = self.bound(target.free(self.moves(model.prior), ends.theta), ends)
        return Variational(model, loss.q, loss.statistics, {}), loss

    def bound(self, target: Target, ends: Ends) -> NegativeELBO:
        """The loss, with q at the start."""
        free = torch.ones(target.model.dim, dtype=torch.bool, device=ends.theta.device)
        if target.slots is not None:
            free = torch.zeros_like(free).index_fill(0, target.slots, True)
        samples = self.family.samples if self.samples is None else self.samples
        q = Approximation(self.family, target.model.prior, free, ends.theta[0])
        return NegativeELBO(target, q, {name: b[0].clone() for name, b in ends.statistics.items()}, samples)

    # ---- what the driver asks ----------------------------------------------------------------------------------

    def batch(self, source: Source) -> int:
        return minibatch(self.batch_size, source)

    def separable(self) -> bool:
        return False  # each replica has a q of its own

    def view(self, target: Target, noise: Noise) -> Target:
        return set_aside(replace(target, centred=True), self.hold_out, noise)

    def moves(self, prior: Prior, only: Tensor | None = None) -> Tensor:
        return movable(prior, only, "VI")

    def gradients(self) -> float:
        return 1.0

    def begin(self, model: Model, start: Start, noise: Noise) -> Ends:
        return from_network(model, start, noise)

    def steps(self, per_epoch: int) -> int:
        return self.epochs * per_epoch

    def init(self, target: Target, ends: Ends, noise: Noise) -> State:
        loss = self.bound(target, ends)
        best = Best.first(loss.snapshot(), 1, loss.q.rest)
        epoch = torch.zeros(3, dtype=torch.float64)
        optimizer = self.optimizer(list(loss.q.named_parameters()), lr=self.lr)
        for group in optimizer.param_groups:
            group["observations"] = target.size  # which the loss is divided by: natural gradients need to know
        return State(loss, optimizer, best, epoch)

    def freeze(self, state: State) -> Any:
        return state._replace(loss=state.loss.snapshot(), optimizer=state.optimizer.state_dict())  # type: ignore[arg-type]

    def thaw(self, tree: Any, state: State) -> State:
        state.loss.put_back(tree.loss)
        state.optimizer.load_state_dict(tree.optimizer)
        return tree._replace(loss=state.loss, optimizer=state.optimizer)

    def step(self, target: Target, state: State, batch: Batch, noise: Noise) -> tuple[State, Info | None]:
        for group in state.optimizer.param_groups:
            group["lr"] = self.lr * self.schedule(batch.part)
        state.optimizer.zero_grad()
        x, y = (take(batch.x), take(batch.y)) if batch.own else (batch.x, batch.y)
        part = min(1.0, batch.part / self.kl_warmup) if self.kl_warmup else 1.0
        with noise.scope():  # a random weight draws inside the network, as does the network's own dropout
            if target.code is None:
                elbo = state.loss.estimate(x, y, part)
            else:
                code, loss = cast("dict[Any, CompiledELBO | RecordedELBO]", target.code), state.loss
                if "elbo" not in code:
                    on_gpu = loss.q.rest.is_cuda
                    code["elbo"] = RecordedELBO(loss) if on_gpu else CompiledELBO(loss, target.compiler)
                elbo = code["elbo"].estimate(x, y, part)
        state.optimizer.step()
        number, mean, squares = state.epoch.to(elbo.device)  # stays there until the epoch ends: a GPU is not waited for
        after = mean + (elbo - mean) / (number + 1)
        epoch = torch.stack([number + 1, after, squares + (elbo - mean) * (elbo - after)])
        if not batch.closes:
            return state._replace(epoch=epoch), None
        epoch = epoch.cpu()
        if not bool(epoch.isfinite().all()):
            got = f"{float(elbo)} after {batch.part:.0%} of the run"
            raise InputError("the ELBO must stay finite", got, "lower lr, or standardise the inputs")
        score = torch.full((1,), math.nan, dtype=torch.float64)
        best = state.best
        if target.held is not None:
            score = predicted(target, state.loss, replace(noise, key=("held out",)))
            best = best.seen(state.loss.snapshot(), score.to(best.score), self.patience)
        se = (epoch[2] / (epoch[0] - 1) / epoch[0]).sqrt()
        return state._replace(epoch=torch.zeros_like(epoch), best=best), Info(epoch[1], se, score)

    def keeps(self, step: int, total: int) -> bool:
        return step + 1 == total

    def keep(self, target: Target, state: State) -> State:
        return state

    def finished(self, state: State) -> bool:
        return bool(self.hold_out) and state.best.over(self.patience)

    def posterior(self, target: Target, states: Sequence[State], infos: Sequence[Info]) -> Posterior:
        loss = states[-1].loss
        if target.held is not None:
            loss.put_back(states[-1].best.kept)
        with target.model.noise(0, "elbo").scope():
            fit, divergence = lengths(loss, JUDGES)
        elbo = fit - divergence
        se = torch.stack([info.se for info in infos])
        info: dict[str, Any] = {
            "epochs": len(infos),
            "elbo": float(elbo.mean()),
            "elbo_se": float(elbo.std() / math.sqrt(len(elbo))),
            "description": described(-fit, divergence),
            "elbo_trace": thinned(torch.stack([info.elbo for info in infos])),
            "elbo_trace_se": None if bool(se.isnan().any()) else thinned(se),
        }
        if target.held is not None:
            info["held_out"] = thinned(torch.cat([info.held_out for info in infos]))
        return Variational(target.model, loss.q, loss.statistics, info)


def described(error: Tensor, complexity: Tensor) -> dict[str, float]:
    """The description length of the data, L = L^E + L^C = -ELBO: bits for the errors and bits for the model, bits-back."""
    e, c = float(error.mean()), float(complexity.mean())
    bits = {"error_bits": e / math.log(2), "complexity_bits": c / math.log(2), "bits": (e + c) / math.log(2)}
    return {"error_nats": e, "complexity_nats": c, "nats": e + c, **bits}


def predicted(target: Target, loss: NegativeELBO, noise: Noise) -> Tensor:
    """Mean log predictive density of the held-out rows, by the same few draws at every epoch. (1,)"""
    model, held, params = target.model, target.held, {}
    assert held is not None
    posterior = Variational(model, loss.q, loss.statistics, {})
    if loss.q.family.of_weights:
        with noise.scope():
            params = model.named(loss.q.draws(JUDGES))
        params |= {name: b.expand(JUDGES, *b.shape) for name, b in loss.statistics.items()}
    total = torch.zeros(1, dtype=torch.float64)
    for start in range(0, held.size, CHUNK):
        x, y = held.rows(torch.arange(start, min(start + CHUNK, held.size)))
        each = model.log_prob(params, x, y) if params else by_functions(posterior, x, y, JUDGES)  # (draws, points)
        total += (each.double().logsumexp(0) - math.log(JUDGES)).sum().cpu()
    return total / held.size
