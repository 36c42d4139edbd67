"""The target of a table: numbers, or labels of classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nescio.data.columns import Column, check_float32
from nescio.data.encoding import Encoding
from nescio.data.records import Records, listed, plain, shown
from nescio.errors import InputError

MOST_CLASSES = 1024


def target_columns(records: Records, target: str | Sequence[str], encoding: Encoding | None) -> tuple[str, ...]:
    """The names of the target columns, which the records have."""
    names = (target,) if isinstance(target, str) else tuple(target)
    if not names or len(set(names)) < len(names):
        raise InputError("target must name columns, each once", repr(list(names)), f"choose of {listed(records.names)}")
    if absent := tuple(name for name in names if name not in records.names):
        hint = f"choose of {listed(records.names)}"
        if len(records.names) == 1 and any(mark in records.names[0] for mark in ";\t|"):
            hint = "separate the cells by commas (.csv) or tabs (.tsv)"
        raise InputError(f"{records.file}:1: the target must be a column", f"no {listed(absent)}", hint)
    if encoding and names != encoding.target:
        raise InputError("target must be that of the encoding", listed(names), f"ask for {listed(encoding.target)}")
    return names


def labels(
    records: Records, targets: tuple[Column, ...], known: tuple[str, ...], as_classes: bool
) -> tuple[np.ndarray, tuple[str, ...]]:
    """y (n, k) float32 and no classes, or labels (n,) int64 and the classes; rows without a target hold anything."""
    if not (known or as_classes or any(column.is_text for column in targets)):
        return np.stack([column.values for column in targets], axis=1).astype(np.float32), ()
    if len(targets) > 1:
        got = f"{len(targets)} targets, {listed(tuple(c.name for c in targets))}"
        raise InputError("classes must be one target column", got, "choose one, or only numbers")
    column = targets[0]
    values = column.values if column.is_text else _whole(records, column)
    present = {str(value) for value in values[~column.missing]}
    classes = known or tuple(sorted(present) if column.is_text else sorted(present, key=int))
    if len(classes) > MOST_CLASSES:
        must = f"{records.file}: the text target {plain(column.name)} must have at most {MOST_CLASSES} classes"
        raise InputError(must, str(len(classes)), "choose another target")
    number = {name: i for i, name in enumerate(classes)}
    for i, value in enumerate(values):
        if value not in number and not column.missing[i]:
            must = f"{records.at(i, column.name)}: a class must be one of training, {listed(classes)}"
            raise InputError(must, shown(str(value)), "correct the cell, or train with it")
    return np.array([number.get(value, -1) for value in values], dtype=np.int64), classes


def check_varies(records: Records, names: tuple[str, ...], y: np.ndarray, targets: tuple[Column, ...]) -> None:
    """A target that is the same in every row, in the file or in float32, teaches nothing."""
    columns = y.reshape(len(y), -1)  # (n, k)
    for column, name, target in zip(columns.T, names, targets, strict=True):
        if (column == column[0]).all() and (target.values == target.values[0]).all():
            must = f"{records.file}: the target {plain(name)} must vary"
            raise InputError(must, f"{shown(str(target.values[0]))} in all {len(y)} rows", "choose another target")
        if y.dtype == np.float32:
            check_float32(target, records.file)


def _whole(records: Records, column: Column) -> np.ndarray:
    """Whole numbers as the names of classes."""
    values = column.values
    wrong = np.flatnonzero(~column.missing & ((values != np.round(values)) | (np.abs(values) >= 2**53)))
    if wrong.size:
        must = f"{records.at(int(wrong[0]), column.name)}: a class must be text or a whole number"
        raise InputError(must, str(values[wrong[0]]), "leave as_classes (--classes) out for a numeric target")
    return np.array(["" if np.isnan(value) else str(int(value)) for value in values], dtype=object)
