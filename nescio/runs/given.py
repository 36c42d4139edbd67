"""Data as they come: a table (CSV, TSV, Parquet), arrays (.npz) or a folder of images by class, as rows to learn from and rows held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from nescio.data import Encoding, Table, read_table
from nescio.data.image_folder import read_images
from nescio.data.records import plain
from nescio.data.streaming import stream_records
from nescio.errors import InputError
from nescio.noise import Noise
from nescio.runs.arrays import as_inputs, as_targets, read_arrays

TABLES = (".csv", ".tsv", ".parquet")
FEW = 10  # values that may be classes


@final
@dataclass(frozen=True, eq=False)
class Given:
    """x float32 (n, ...), y float32 (n, k) or labels (n,) int64 into `classes`; `test` is empty where nothing is held out."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    target: tuple[str, ...]
    columns: tuple[str, ...] = ()  # of a table, after encoding
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    encoding: Encoding | None = None

    @property
    def held_out(self) -> int:
        return len(self.test_y)

    @property
    def images(self) -> bool:
        return self.x.dim() == 4


def read_given(
    path: str | PathLike[str],
    target: Sequence[str] = (),
    *,
    test: float = 0.1,
    seed: int = 0,
    as_classes: bool = False,
    drop_missing_targets: bool = False,
    ignore: Sequence[str] = (),
) -> Given:
    """`test`: the part of the rows to hold out, 0 for none; it is the file's own where an .npz has x_test and y_test."""
    if not 0 <= test < 1:
        raise InputError("the held-out part must lie in [0, 1)", str(test), "0.1 holds a tenth out, 0 nothing")
    place = Path(path)
    if place.is_dir() or place.suffix.lower() == ".npz":
        if target:
            got = f"the target {', '.join(target)}"
            raise InputError("only tables have target columns", got, "leave --target out for arrays and images")
        given = from_images(place) if place.is_dir() else from_arrays(place)
        return given if given.held_out or not test else split(given, test, seed)
    if not target:
        columns = ", ".join(next(stream_records(path, 1)).names)
        known = f"the table {fspath(path)} and no target"
        raise InputError(
            "one column must be named that is to be predicted", known, f"add --target COLUMN, one of {columns}"
        )
    table = read_table(
        path, list(target), as_classes=as_classes, drop_missing_targets=drop_missing_targets, ignore=ignore
    )
    notes = (*table.notes, *looked(table))
    kept, held = table.split(seed=seed, test=test) if test else (table, None)
    if held is not None:  # what splitting says of the encoding stands for what reading said
        about = tuple(n for n in notes if "column" not in n or "dropped" in n or "repeat" in n or "--" in n)
        notes = (
            *about,
            *kept.notes[1:],
            *(f"held-out rows: {note}" for note in held.notes[1:] if "one-hot" not in note),
        )
        if same := twins(kept, held):
            notes = (*notes, f"{same} of the {len(held)} held-out rows repeat a training row: scores flatter by them")
    empty = (torch.empty(0, kept.x.shape[1]), kept.y[:0])
    test_x, test_y = (held.x, held.y) if held is not None else empty
    return Given(
        kept.x, kept.y, test_x, test_y, table.target, kept.columns, kept.classes, notes, kept.encoding
    )  # fmt: skip


def looked(table: Table) -> tuple[str, ...]:
    """What the owner of a table might not have meant."""
    rows, notes = len(table), []
    if len(table.classes) > FEW and 2 * len(table.classes) > rows:
        got = f"{len(table.classes)} of them in {rows} rows, such as {table.classes[0]!r}"
        raise InputError(
            "classes must come back in several rows", got, "write numbers plainly, like -1.5, or choose another target"
        )
    values = table.y.unique()
    if (
        not table.classes
        and table.y.shape[1] == 1
        and rows > 2 * FEW >= 2 * len(values)
        and bool((values % 1 == 0).all())
    ):
        notes.append(
            f"{plain(table.target[0])} takes only {len(values)} whole numbers: if they are classes, say so with --classes"
        )
    for column in table.inputs:
        many = len(set(column.values[~column.missing])) if column.is_text else 0
        if many > FEW and 2 * many > rows:
            notes.append(
                f"column {plain(column.name)} has {many} categories in {rows} rows: if it only names them, --ignore it"
            )
    return tuple(notes)


def twins(kept: Table, held: Table) -> int:
    """How many held-out rows are, inputs and target, among those to learn from."""

    def rows(table: Table) -> list[bytes]:
        whole = torch.cat([table.x.double(), table.y.reshape(len(table), -1).double()], 1)
        return [row.tobytes() for row in whole.numpy()]

    seen = set(rows(kept))
    return sum(row in seen for row in rows(held))


def split(given: Given, test: float, seed: int) -> Given:
    n, held = len(given.y), round(len(given.y) * test)
    if not 1 <= held <= n - 2:
        must = "the held-out part must leave at least 1 row to judge by and 2 to learn from"
        raise InputError(must, f"{test} of {n} rows", "add rows, or choose another share such as 0.2")
    order = Noise(seed).at("given", "split").permutations(1, n)[0]
    out, kept = order[:held].sort().values, order[held:].sort().values
    return replace(
        given, x=given.x[kept], y=given.y[kept], test_x=given.x[out], test_y=given.y[out]
    )  # fmt: skip


def from_images(folder: Path) -> Given:
    found = read_images(folder)
    x = as_inputs(found.pixels, fspath(folder))
    return Given(x, found.labels, x[:0], found.labels[:0], ("class",), (), found.classes, found.notes)


def from_arrays(path: Path) -> Given:
    """x and y, or x_train, y_train, x_test and y_test. Whole numbers in y are classes."""
    found = read_arrays(path)
    names = ("x_train", "y_train") if "x_train" in found else ("x", "y")
    if any(name not in found for name in names):
        got = ", ".join(sorted(found)[:10]) or "no arrays"
        raise InputError(
            f"{path} must hold x and y, or x_train and y_train", got, "save it as np.savez(path, x=x, y=y)"
        )
    x = as_inputs(found[names[0]], f"{path}: {names[0]}")
    labels, classes = as_targets(found[names[1]], f"{path}: {names[1]}", ())
    if len(x) != len(labels) or len(x) < 2:
        got = f"{len(x)} and {len(labels)}"
        raise InputError(f"{path}: x and y must have as many rows, 2 or more", got, "save matching arrays")
    test_x, test_y = x[:0], labels[:0]
    if "x_test" in found and "y_test" in found:
        test_x = as_inputs(found["x_test"], f"{path}: x_test")
        test_y, _ = as_targets(found["y_test"], f"{path}: y_test", classes)
        if len(test_x) != len(test_y) or test_x.shape[1:] != x.shape[1:]:
            got = f"{tuple(test_x.shape)} and {tuple(test_y.shape)}"
            raise InputError(
                f"{path}: x_test and y_test must match each other and x_train", got, "save matching arrays"
            )
    names = () if x.dim() != 2 else tuple(f"x{i}" for i in range(x.shape[1]))
    return Given(x, labels, test_x, test_y, ("y",), names, classes)
