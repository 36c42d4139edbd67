"""The pool: rows without labels, those that were bought, and where to begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from nescio.errors import InputError
from nescio.network import rows
from nescio.noise import Noise

Oracle = Callable[[Tensor], Tensor]  # row numbers to labels


def balanced(y: Tensor, each: int, seed: int = 0) -> Tensor:
    """Rows to begin with: `each` of every class of 0 ... max(y), by lot."""
    if each < 1:
        raise InputError("a balanced start takes at least one row a class", str(each), "use balanced(y, 2)")
    counts = torch.bincount(y.long())
    short = (counts < each).nonzero()[:, 0].tolist()
    if short:
        got = f"{[int(counts[c]) for c in short]} rows of class {short}"
        raise InputError(f"a balanced start needs {each} rows of every class", got, "take fewer, or give the rows")
    lot = Noise(seed).at("balanced").permutations(1, len(y))[0]
    return torch.cat([lot[y.cpu()[lot] == c][:each] for c in range(len(counts))])


@final
@dataclass(frozen=True, eq=False)
class Pool:
    """`x`: all inputs, rows first. `chosen`: the rows whose labels are known, in the order in which they were asked for."""

    x: Any
    oracle: Oracle
    chosen: Tensor
    y: Tensor  # their labels

    @staticmethod
    def begin(x: Any, labels: Tensor | Oracle, start: Tensor | int, noise: Noise) -> Pool:
        size = rows(x)
        if isinstance(labels, Tensor) and len(labels) != size:
            got = f"{len(labels)} labels and {size} rows"
            raise InputError("every row of the pool has a label to be asked for", got, "give as many")
        if isinstance(start, int):
            start = noise.at("start").to(torch.device("cpu"), torch.float32).permutations(1, size)[0][:start]
        first = start.cpu().long()
        if not len(first) or len(first.unique()) != len(first) or int(first.min()) < 0 or int(first.max()) >= size:
            got = f"{len(first)} rows, {len(first.unique())} of them different"
            raise InputError(f"a start is at least one row of 0 ... {size - 1}, none twice", got, "use balanced(y, 2)")
        oracle = (lambda which: labels[which.to(labels.device)]) if isinstance(labels, Tensor) else labels
        return Pool(x, oracle, first, asked(oracle, first))

    def left(self) -> Tensor:
        """Rows whose labels are not known."""
        free = torch.ones(rows(self.x), dtype=torch.bool)
        free[self.chosen] = False
        return free.nonzero()[:, 0]

    def data(self) -> tuple[Any, Tensor]:
        return self.at(self.chosen), self.y

    def at(self, which: Tensor) -> Any:
        return tree_map(lambda t: t[which.to(t.device)], self.x)

    def bought(self, which: Tensor) -> Pool:
        return Pool(
            self.x, self.oracle, torch.cat([self.chosen, which]), torch.cat([self.y, asked(self.oracle, which)])
        )


def asked(oracle: Oracle, which: Tensor) -> Tensor:
    labels = oracle(which)
    if not isinstance(labels, Tensor) or len(labels) != len(which):
        got = f"{len(labels)} labels" if isinstance(labels, Tensor) else type(labels).__name__
        raise InputError(f"{len(which)} labels were asked for", got, "return a tensor with one a row, in their order")
    return labels
