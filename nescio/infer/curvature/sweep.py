"""All data once, in parts that fit into memory: for each part the pieces of the Jacobian, weighed by the likelihood's curvature.

    Σ_n J_nᵀ Λ_n J_n = Σ (rows)ᵀ (rows),    rows = s_knᵀ J_n  with  Λ_n = Σ_k s_kn s_knᵀ

This is the generalised Gauss-Newton matrix, for these likelihoods the Fisher information: a sum over the data, not a mean. It is
differentiable in the likelihood's numbers where these are handed over with a graph; all of it is then held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from nescio.data.source import Source
from nescio.densities import log_density
from nescio.errors import InputError
from nescio.infer.curvature.columns import columns, sampled
from nescio.jacobian import Jacobian, Pass, Piece
from nescio.laws.law import unvalidated
from nescio.model import Model, sort
from nescio.network import Params, rows
from nescio.noise import Noise

BUDGET = 32 * 2**20  # bytes of a part: more make it little faster
ON_A_GPU = 16  # times as much
LARGEST = 4 * 2**30  # bytes of two examples, which is the least that is looked at
MOST_ROWS = 1024
MOST_COLUMNS = 64


class Part(NamedTuple):
    pieces: list[Piece]
    rows: int
    fresh: bool  # the first columns of its examples: what is the same for all of them counts here

    def take(self) -> Iterator[Piece]:
        """Each piece once, and none is held any more when the next part is made."""
        while self.pieces:
            yield self.pieces.pop(0)


@final
class Sweep:
    """`index`: places of each weight in the vector of `size` numbers. `samples`: of the likelihood, None for exact columns."""

    def __init__(
        self, model: Model, params: Params, index: dict[str, Tensor], source: Source, samples: int | None, noise: Noise
    ) -> None:
        self.model, self.source, self.samples, self.noise = model, source, samples, noise
        self.size = sum(int((place >= 0).sum()) for place in index.values())
        self.log_likelihood = torch.zeros((), dtype=torch.float64)  # of all data, after a sweep
        own, self.numbers = sort(params, model.likelihood)
        self.graph = any(number.requires_grad for number in self.numbers.values())
        self.jacobian = Jacobian(model.network, own, index, source.rows(torch.arange(min(3, source.size)))[0])

    def __iter__(self) -> Iterator[Part]:
        return self.parts(self.step(multiplied=False))

    def multiplied(self) -> Iterator[Part]:
        """In parts so small that their rows can be multiplied out."""
        return self.parts(self.step(multiplied=True))

    def parts(self, step: int) -> Iterator[Part]:
        self.log_likelihood = torch.zeros((), dtype=torch.float64)
        for start in range(0, self.source.size, step):
            x, y = self.source.span(start, min(start + step, self.source.size))
            forward = self.jacobian.forward(x)
            with unvalidated():
                f = tree_map(lambda t: t.detach(), forward.f)
                density = log_density(self.observe(f), y, lead=1).sum(dtype=torch.float64)
            self.log_likelihood = self.log_likelihood + density.cpu()
            yield from self.pulled(forward, y, self.noise.at("rows", start))
            del forward  # before the next one is made

    def pulled(self, forward: Pass, y: Any, noise: Noise) -> Iterator[Part]:
        found = self.columns(forward, y, noise)
        for first in range(0, len(found[0]), MOST_COLUMNS):
            few = [column[first : first + MOST_COLUMNS] for column in found]
            yield Part(forward.pieces(few), rows(forward.x), first == 0)

    def columns(self, forward: Pass, y: Any, noise: Noise) -> list[Tensor]:
        if self.samples is None:
            return columns(self.observe, forward.f, y, self.graph)
        return sampled(self.observe, forward.f, self.samples, noise, y)

    def observe(self, f: Any) -> Any:
        return self.model.likelihood.observe(f, **self.numbers)

    def step(self, multiplied: bool) -> int:
        held, rows_held = self.cost
        per_row = held + (rows_held if multiplied else 0)
        more = 1 if self.model.network.like.device.type == "cpu" else ON_A_GPU
        return int(max(1, min(more * MOST_ROWS, more * BUDGET // max(per_row, 1), self.source.size)))

    @cached_property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of the weights that are used together: see `Pass.shapes`."""
        return self.jacobian.forward(self.source.rows(torch.arange(2) % self.source.size)[0]).shapes()

    @cached_property
    def cost(self) -> tuple[int, int]:
        """Bytes of one example: pieces and activations, and its rows multiplied out. Counted on two examples."""
        x, y = self.source.rows(torch.arange(2) % self.source.size)
        forward = self.jacobian.forward(x)
        found = self.columns(forward, y, self.noise.at("cost"))
        few = [column[:MOST_COLUMNS] for column in found]
        most = 16 * len(few[0]) * sum(shape[0] for shape in forward.shapes() if len(shape) == 1)  # not as products
        if most > LARGEST:
            got, remedy = f"{most / 2**30:.1f} GB", "use Laplace(..., samples=1), or .on(...) other weights"
            raise InputError(f"the derivatives of two examples must fit into {LARGEST / 2**30:.0f} GB", got, remedy)
        held = sum(piece.cost() for piece in forward.pieces(few)) + 4 * sum(column.nbytes for column in found)
        activations = self.model.network.bytes_per_point(x) * (2 + len(few[0]))
        return held // 2 + activations, len(few[0]) * self.size * 16
