"""Where batches come from: tensors in memory, or a map-style dataset. The shuffling is the driver's, by index.

`fit` takes (x, y) tensors, a Table, a Dataset, a DataLoader (its dataset, batch size and collate function are used; a sampler
that leaves rows out is refused) or any other iterable of (x, y) batches, which is read once into memory: a run that is resumed
needs it again. x may be a tensor, a tuple or a dictionary of tensors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
    default_convert,
)

from nescio.data.tables import Table
from nescio.errors import InputError


@dataclass(frozen=True, eq=False)
class Source(ABC):
    """N observations that can be fetched by index. `batch_size`: what the user's loader asked for."""

    batch_size: int | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def size(self) -> int: ...

    @abstractmethod
    def rows(self, index: Tensor | None) -> tuple[Any, Any]:
        """(x, y) at these indices; all of them for None."""

    def span(self, first: int, end: int) -> tuple[Any, Any]:
        """(x, y) of these rows, one after the other."""
        return self.rows(torch.arange(first, end))

    @abstractmethod
    def subset(self, index: Tensor) -> Source: ...

    @abstractmethod
    def to(self, device: torch.device) -> Source: ...


@final
@dataclass(frozen=True, eq=False)
class Tensors(Source):
    """Everything in memory."""

    x: Any
    y: Any

    @cached_property
    def size(self) -> int:  # asked for several times in every step
        return len(leaves(self.y)[0])

    def rows(self, index: Tensor | None) -> tuple[Any, Any]:
        return (self.x, self.y) if index is None else tree_map(lambda t: t[index.to(t.device)], (self.x, self.y))

    def span(self, first: int, end: int) -> tuple[Any, Any]:
        return tree_map(lambda t: t[first:end], (self.x, self.y))  # no copy

    def subset(self, index: Tensor) -> Source:
        x, y = self.rows(index)
        return replace(self, x=x, y=y)

    def to(self, device: torch.device) -> Source:
        x, y = tree_map(lambda t: t.to(device), (self.x, self.y))
        return replace(self, x=x, y=y)


@final
@dataclass(frozen=True, eq=False)
class Items(Source):
    """A map-style dataset, fetched item by item; nothing is kept."""

    items: Dataset
    index: Tensor
    collate: Callable[[list[Any]], Any] = default_collate
    device: torch.device = torch.device("cpu")

    @property
    def size(self) -> int:
        return len(self.index)

    def rows(self, index: Tensor | None) -> tuple[Any, Any]:
        wanted = self.index if index is None else self.index[index.cpu()]
        flat = self.collate([self.items[i] for i in wanted.reshape(-1).tolist()])
        x, y = pair(flat)
        check_finite(x, "x", wanted.reshape(-1))
        check_finite(y, "y", wanted.reshape(-1))
        shape = wanted.shape
        return tree_map(lambda t: t.to(self.device).reshape(*shape, *t.shape[1:]), (x, y))

    def subset(self, index: Tensor) -> Source:
        return replace(self, index=self.index[index.cpu()])

    def to(self, device: torch.device) -> Source:
        return replace(self, device=device)


def source(data: Any) -> Source:
    """Whatever the user handed over, as a Source."""
    if isinstance(data, Source):
        return data
    if isinstance(data, DataLoader):
        if isinstance(data.dataset, IterableDataset):
            return replace(gathered(data), batch_size=data.batch_size)
        every_row = isinstance(data.sampler, (SequentialSampler, RandomSampler))
        if not every_row or type(data.batch_sampler) not in (BatchSampler, type(None)):
            got = f"{type(data.sampler).__name__} in {type(data.batch_sampler).__name__}, which would be ignored"
            raise InputError(
                "a loader's sampler must take every row once", got, "hand over Subset(dataset, rows) instead"
            )
        usual = data.collate_fn in (default_collate, default_convert)  # the latter where the loader does not batch
        if usual and isinstance(data.dataset, TensorDataset):
            return replace(source(data.dataset), batch_size=data.batch_size)
        return items(data.dataset, default_collate if usual else data.collate_fn, data.batch_size)
    if isinstance(data, TensorDataset):
        return tensors(*pair(data.tensors))
    if isinstance(data, Table):
        return tensors(data.x, data.y)
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        return items(data, default_collate, None)
    if isinstance(data, (tuple, list)) and len(data) == 2 and not all(isinstance(part, (tuple, list)) for part in data):
        return tensors(*pair(data))  # else two batches
    if isinstance(data, Iterable) and not isinstance(data, (Tensor, dict, str)):
        return gathered(data)
    raise InputError(
        "data must be (x, y), a Dataset, a DataLoader or batches", type(data).__name__, "pass a pair of tensors"
    )


def gathered(batches: Iterable[Any]) -> Tensors:
    """Batches of unknown number, read once into memory: the size of the data must be known to weigh prior against likelihood."""
    pairs = [pair(batch) for batch in batches]
    if not pairs:
        raise InputError("data must hold at least one batch", "none", "a generator can be read only once: make it anew")
    for x, y in pairs:
        expect_tensors(x, y)
    try:
        x, y = tree_map(lambda *parts: torch.cat(parts), *pairs)
    except (RuntimeError, TypeError, ValueError) as error:
        first = str(error).splitlines()[0]
        remedy = "batch single items by a DataLoader"
        raise InputError("batches must be alike but for their rows", first, remedy) from error
    return tensors(x, y)


def items(data: Any, collate: Callable[[list[Any]], Any], batch_size: int | None) -> Items:
    """Anything with a length and an item for every index."""
    try:
        size = len(data)
    except TypeError as error:
        raise InputError("a dataset must have a length", type(data).__name__, "give it __len__") from error
    if not size:
        raise InputError("data must hold at least one row", "none", "check the dataset")
    return Items(data, torch.arange(size), collate, batch_size=batch_size)


def pair(batch: Any) -> tuple[Any, Any]:
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise InputError(
            "an item must be a pair (x, y)",
            f"{type(batch).__name__}" + (f" of length {len(batch)}" if isinstance(batch, (tuple, list)) else ""),
            "pass tensors (x, y); put several inputs into a tuple or a dictionary x",
        )
    x = batch[0]
    return tuple(x) if isinstance(x, list) else x, batch[1]  # torch's collate turns tuples into lists


def leaves(tree: Any) -> list[Tensor]:
    """The tensors of a tree; empty if anything in it is not one."""
    flat, _ = tree_flatten(tree)
    return flat if all(isinstance(leaf, Tensor) for leaf in flat) else []


def tensors(x: Any, y: Any) -> Tensors:
    expect_tensors(x, y)
    check_finite(x, "x")
    check_finite(y, "y")
    sizes = {len(leaf) if leaf.dim() else 0 for leaf in leaves(x) + leaves(y)}
    if len(sizes) != 1 or not max(sizes):
        raise InputError(
            "x and y must have the same number of rows, at least one", f"{sorted(sizes)} rows", "check the first axis"
        )
    return Tensors(x, y)


def expect_tensors(x: Any, y: Any) -> None:
    for what, tree in {"x": x, "y": y}.items():
        if not leaves(tree):
            kinds = sorted({type(leaf).__name__ for leaf in tree_flatten(tree)[0]})
            raise InputError(f"{what} must be tensors", ", ".join(kinds) or "nothing", remedy(tree, what))


def remedy(tree: Any, what: str) -> str:
    """How this becomes a tensor."""
    first = next(iter(tree_flatten(tree)[0]), None)
    if isinstance(first, str) or getattr(getattr(first, "dtype", None), "kind", "f") in "OSUT":  # text
        return "number the classes from 0, or use nescio.sklearn.BayesianClassifier, which does"
    if hasattr(first, "to_numpy"):  # a table or a column of one
        return f"use torch.as_tensor({what}.to_numpy())"
    return f"use torch.as_tensor({what})"


def check_finite(tree: Any, what: str, numbers: Tensor | None = None) -> None:
    """`numbers`: which rows of the data these are."""
    for leaf in leaves(tree):
        if leaf.is_floating_point() and not bool(leaf.sum().isfinite()) and not bool(leaf.isfinite().all()):
            bad = (~leaf.isfinite()).nonzero()
            if numbers is not None:
                bad[:, 0] = numbers[bad[:, 0]]
            where = ", ".join(str(tuple(cell)) for cell in bad[:5].tolist())
            got = f"{len(bad)} NaN or infinite cells, first at {where}"
            raise InputError(f"{what} must be finite", got, "drop or impute these rows first")
