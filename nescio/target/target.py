"""A model bound to data: the log density of one flat vector of latents. It knows N, so nobody scales a prior or a KL by hand.

    log p_T(u | D) = (log p(θ) + N/B Σ_batch log p(y|x, θ)) / T + log |dθ/du|,     θ = θ(u)

Chains are the leading axis everywhere: u is (chains, dim), densities are (chains,). Two views of the latents, centred or not
(laws/variable.py); `.free(slots, ...)` holds the other entries of the vector fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils._pytree import tree_map

from nescio.batch import Batch, Move, take
from nescio.compiled import Compiled
from nescio.data.source import Source
from nescio.errors import InputError
from nescio.laws.law import unvalidated
from nescio.model import Model
from nescio.network import Params
from nescio.target.bound import Bound, evaluate, plain, run, train

CHUNK = 4096  # rows at a time, where all data are summed over


@final
@dataclass(frozen=True, eq=False)
class Target:
    """`slots`: which entries of the vector are free (None: all). `rest`: where the others stay, (chains, dim)."""

    model: Model
    source: Source
    temperature: float = 1.0
    centred: bool = False
    slots: Tensor | None = None
    rest: Tensor | None = None
    only: Tensor | None = None  # what `.on(pattern)` allows to move, a mask over the whole vector
    held: Source | None = None  # kept out of the data, for early stopping
    most_rows: int | None = None  # a gradient over more rows than these is summed up in parts, to save memory
    code: dict[Any, Compiled] | None = None  # where gradients are to be machine code: what was compiled so far
    compiler: bool = True  # whether torch's may make it; else code is our own, and a GPU's kernels are only recorded

    @property
    def size(self) -> int:
        """N, the number of observations."""
        return self.source.size

    @property
    def dim(self) -> int:
        """How many entries are free."""
        return self.model.dim if self.slots is None else len(self.slots)

    def work(self, chains: int) -> float:
        """About how many multiplications a gradient takes: one for each row and weight, if none is used twice."""
        return float(chains) * self.size * self.dim

    def free(self, mask: Tensor, theta: Tensor) -> Target:
        """Only these entries move; the others stay where the values theta (chains, dim) put them."""
        if bool(mask.all()):
            return replace(self, slots=None, rest=None)
        slots = mask.nonzero()[:, 0].to(theta.device)
        return replace(self, slots=slots, rest=self._each(lambda t: self.model.prior.pack(t, self.centred), theta))

    def chains(self, index: slice | Tensor) -> Target:
        """The same for a block of the chains, or for those of a mask."""
        return self if self.rest is None else replace(self, rest=self.rest[index])

    def batch(self, index: Tensor | None) -> Batch:
        """All data for None; rows (B,) for all chains; or rows (chains, B), each chain its own."""
        x, y = self.source.rows(index)
        count = self.size if index is None else index.shape[-1]
        return Batch(x, y, self.size / count, index is not None and index.dim() == 2)

    # ---- between u and values ----------------------------------------------------------------------------------

    def u(self, theta: Tensor) -> Tensor:
        """Free latents of the values theta."""
        full = self._each(lambda t: self.model.prior.pack(t, self.centred), theta)
        return full if self.slots is None else full[:, self.slots]

    @cached_property
    def direct(self) -> bool:
        """Whether latents are values. Kept, for it is asked of every draw."""
        return all(variable.direct(self.centred) for variable in self.model.prior.variables)

    def theta(self, u: Tensor, copy: bool = True) -> Tensor:
        """All values, (chains, model.dim). Without `copy` they may be u itself."""
        if self.direct:
            return self.full(u).clone() if copy else self.full(u)
        with unvalidated():
            return self._each(lambda v: torch.cat(self.model.prior.unpack(v, self.centred).values), self.full(u))

    def full(self, u: Tensor) -> Tensor:
        """The whole vector, fixed entries included."""
        return u if self.slots is None or self.rest is None else self.rest.index_copy(1, self.slots, u)

    # ---- density -----------------------------------------------------------------------------------------------

    def log_density(self, u: Tensor, batch: Batch) -> Tensor:
        """Of the unconstrained vector: Jacobian included, the temperature exact. (chains,)"""
        return self.tempered(u, batch, {}, jacobian=True, training=False)[0]

    def value_and_grad(self, u: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """`log_density` and its gradient, (chains,) and (chains, dim)."""
        shards = self.shards(batch)
        if shards == 1:
            return run(self, evaluate, batch, True, [u], [])
        value, gradient = u.new_zeros(len(u), dtype=torch.float64), torch.zeros_like(u)
        single = replace(self, most_rows=None)
        for i in range(shards):  # as even as can be, and the prior counts once
            rows = slice(i * self.size // shards, (i + 1) * self.size // shards)
            x, y = tree_map(lambda t, rows=rows: t[rows], (batch.x, batch.y))
            part, slope = run(single, evaluate, batch._replace(x=x, y=y), i == 0, [u], [])
            value, gradient = value + part, gradient + slope
        return value, gradient

    def advance(
        self,
        move: Move,
        batch: Batch,
        chains: Sequence[Tensor],
        shared: Sequence[Tensor] = (),
        times: int | None = None,
        until: int | None = None,
    ) -> Any:
        """move(bound, *chains, *shared): a sampler's step as one piece of code, with bound(u) = (value, gradient) on this batch.

        `chains`: tensors with a leading axis of chains; so has each of the results. `times`: so many steps, each with the results of
        the one before in the place of its first arguments. `until`: a result that is true of chains that go on; there may be fewer
        steps where few do.
        """
        if self.code is None or self.shards(batch) > 1:
            return plain(move, Bound(self, batch, True), [*chains, *shared], times, until)
        return run(self, move, batch, True, chains, shared, times, until)

    def shards(self, batch: Batch) -> int:
        """In how many parts the rows of a gradient are summed up."""
        return 1 if batch.own or self.most_rows is None else -(-self.size // self.most_rows)

    def log_posterior(self, u: Tensor, batch: Batch, statistics: Params) -> tuple[Tensor, Params]:
        """Of the values, in weight space: no Jacobian; the network in training mode. Also the statistics (buffers) after it."""
        return self.tempered(u, batch, statistics, jacobian=False, training=True)

    def train(self, u: Tensor, batch: Batch, statistics: Params) -> tuple[Tensor, Tensor, Params]:
        """`log_posterior`, its gradient, and the statistics after it."""
        value, gradient, *after = run(self, train, batch, True, [u, *statistics.values()], [])
        return value, gradient, dict(zip(statistics, after, strict=True))

    def log_joint(self, theta: Tensor, statistics: Params) -> Tensor:
        """log p(θ) + Σ log p(y|x, θ) over all data, in evaluation mode and in chunks; untempered. (chains,)"""

        def log_prior(row: Tensor) -> Tensor:
            point = self.model.prior.unpack(self.model.prior.pack(row, centred=True), centred=True)
            return torch.as_tensor(point.log_density - point.log_jacobian)

        with torch.no_grad():
            return self._each(log_prior, theta) + self.log_likelihood(theta, statistics, self.source)

    def log_likelihood(self, theta: Tensor, statistics: Params, source: Source) -> Tensor:
        """Of some data in evaluation mode, chunk by chunk. (chains,)"""
        params = {**self.model.named(theta), **statistics}
        total = torch.zeros(len(theta), dtype=torch.float64)
        for start in range(0, source.size, CHUNK):
            x, y = source.rows(torch.arange(start, min(start + CHUNK, source.size)))
            total += self.model.log_prob(params, x, y).double().sum(1).cpu()
        return total.to(theta)

    def tempered(
        self, u: Tensor, batch: Batch, statistics: Params, jacobian: bool, training: bool, prior: bool = True
    ) -> tuple[Tensor, Params]:
        """What the others are made of: log p_T(u | D), or log p_T(θ | D) without the Jacobian; and the buffers after it."""
        model, temperature = self.model, self.temperature

        def one(v: Tensor, x: Any, y: Any, buffers: Params) -> tuple[Tensor, Params]:
            buffers = {name: b.clone() for name, b in buffers.items()}  # training writes into them
            if prior and self.centred and not jacobian:
                named, log_prior = model.prior.trained(v)
                likelihood = batch.weight * model.log_likelihood({**named, **buffers}, x, y, training)
                return (log_prior + likelihood) / temperature, buffers
            point = model.prior.unpack(v, self.centred)
            params = {**model.prior.params(point.values), **buffers}
            likelihood = batch.weight * model.log_likelihood(params, x, y, training)
            if not prior:
                return likelihood / temperature, buffers
            if not jacobian:
                return (point.log_density - point.log_jacobian + likelihood) / temperature, buffers
            joint = (point.log_density + likelihood) / temperature
            return joint + (1 - 1 / temperature) * point.log_jacobian, buffers  # the Jacobian is not tempered

        full, own = self.full(u), 0 if batch.own else None
        with unvalidated():
            if len(u) > 1:
                axes = (0, own, own, 0 if statistics else None)
                return vmap(one, in_dims=axes, randomness="different")(full, batch.x, batch.y, statistics)
            first = {name: b[0] for name, b in statistics.items()}
            x, y = (take(batch.x), take(batch.y)) if batch.own else (batch.x, batch.y)
            value, buffers = one(full.reshape(-1), x, y, first)  # not full[0], whose way back fills a tensor with zeros
        return value[None], {name: b[None] for name, b in buffers.items()}

    def _each(self, function: Callable[[Tensor], Tensor], stacked: Tensor) -> Tensor:
        with unvalidated():
            return vmap(function)(stacked) if len(stacked) > 1 else function(stacked[0])[None]


def check(model: Model, source: Source) -> None:
    """Refuse data that do not fit the network or the likelihood, before any work is done. Reads every row once."""
    x, _ = source.rows(torch.arange(min(2, source.size)))
    f = model.network.probe(x)
    whole = hasattr(source, "y")  # in memory
    for start in range(0, source.size, source.size if whole else CHUNK):
        index = None if whole else torch.arange(start, min(start + CHUNK, source.size))
        model.likelihood.check(f, source.rows(index)[1])
    two = {name: torch.stack([value] * 2) for name, value in model.point(model.noise(0, "check")).items()}
    shape = getattr(model.observed(two, x), "batch_shape", None)
    if shape and tuple(shape[:2]) != (2, min(2, source.size)):
        must = "a likelihood must keep the axes of draws and points"
        raise InputError(
            must,
            f"batch shape {tuple(shape)} for 2 draws of {len(f)} points",
            "use negative axes, and numbers as they come",
        )
