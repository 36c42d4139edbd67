"""One column of a table as inputs of a network, with what was learnt from its training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from nescio.data.columns import Column
from nescio.data.records import listed, plain


@final
@dataclass(frozen=True)
class Numbers:
    """A column of numbers: kept if it varies, filled with the mean, marked where training had empty cells."""

    name: str
    mean: float
    varies: bool
    marked: bool

    def titles(self) -> tuple[str, ...]:
        return (self.name,) * self.varies + (f"{self.name} is missing",) * self.marked

    def encode(self, column: Column) -> tuple[list[np.ndarray], list[str]]:
        missing, notes = column.missing, []
        if missing.any():
            mark = "marked in a further column" if self.marked else "not marked, as training had none"
            notes = [f"column {plain(self.name)}: {missing.sum()} empty cells = training mean {self.mean:.6g}, {mark}"]
        filled = np.where(missing, self.mean, column.values)
        return [filled] * self.varies + [missing.astype(np.float64)] * self.marked, notes


@final
@dataclass(frozen=True)
class Categories:
    """A column of text: one input for each category, and a mark where training had empty cells."""

    name: str
    values: tuple[str, ...]
    marked: bool

    def titles(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={value}" for value in self.values) + (f"{self.name} is missing",) * self.marked

    def encode(self, column: Column) -> tuple[list[np.ndarray], list[str]]:
        missing, name = column.missing, plain(self.name)
        hot = [column.values == value for value in self.values]
        notes = [f"column {name}: text, one-hot over {len(self.values)} categories"]
        if missing.any():
            notes += [f"column {name}: {missing.sum()} empty cells all zero, {'' if self.marked else 'not '}marked"]
        unseen = ~missing & ~np.any(hot, axis=0)
        if unseen.any():
            new = listed(tuple(sorted(set(column.values[unseen]))))
            notes += [f"column {name}: {unseen.sum()} cells all zero, their category not in training: {new}"]
        return [h.astype(np.float64) for h in hot] + [missing.astype(np.float64)] * self.marked, notes


def texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise TypeError
    return tuple(value)


def spec_of(entry: dict[str, object]) -> Numbers | Categories:
    name, marked = entry["name"], entry["marked"]
    if not isinstance(name, str) or not isinstance(marked, bool):
        raise TypeError
    if "values" in entry:
        return Categories(name, texts(entry["values"]), marked)
    mean, varies = entry["mean"], entry["varies"]
    if not isinstance(mean, float) or not np.isfinite(mean) or not isinstance(varies, bool):
        raise TypeError
    return Numbers(name, mean, varies, marked)
