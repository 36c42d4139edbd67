"""Tables from CSV, TSV and Parquet files: numbers for a network, and notes on everything that was done to get there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import final

import numpy as np
import torch
from torch import Tensor

from nescio.data.columns import Column, Kind, duplicates, typed
from nescio.data.encoding import Encoding
from nescio.data.files import read_records
from nescio.data.records import listed
from nescio.data.targets import check_varies, labels, target_columns
from nescio.errors import FileError, InputError
from nescio.noise import Noise


@final
@dataclass(frozen=True, eq=False)
class Table:
    """Encoded inputs x (n, d) float32; y (n, k) float32, or labels (n,) int64 into `classes`."""

    x: Tensor
    y: Tensor
    classes: tuple[str, ...]
    columns: tuple[str, ...]
    target: tuple[str, ...]
    notes: tuple[str, ...]
    encoding: Encoding
    file: str
    fixed: bool = False  # the encoding comes from other rows, and `split` must not learn it anew
    inputs: tuple[Column, ...] = field(default=(), repr=False)  # the columns before encoding

    def __len__(self) -> int:
        return len(self.x)

    def rows(self, index: Tensor | np.ndarray | Sequence[int]) -> Table:
        """These rows, in this order (or where a mask is true), encoded as they are; the notes stay."""
        at = np.asarray(index)
        if at.ndim == 1 and at.dtype == bool and len(at) == len(self):
            at = np.flatnonzero(at)
        if at.ndim != 1 or at.size == 0 or at.dtype.kind not in "iu" or at.min() < 0 or at.max() >= len(self):
            must = f"index must be numbers from 0 to {len(self) - 1}, or a mask of length {len(self)}"
            raise InputError(must, f"{at.dtype} of shape {at.shape}", "pass at least one row, none negative")
        chosen = torch.from_numpy(at.astype(np.int64))
        return replace(self, x=self.x[chosen], y=self.y[chosen], inputs=tuple(c.take(at) for c in self.inputs))

    def split(self, seed: int = 0, test: float = 0.1) -> tuple[Table, Table]:
        """Training and test rows, each in the order of the table. The encoding is learnt anew from the training rows,
        so no mean or category of a test row leaks; only the classes of the target are those of the whole table."""
        n, held = len(self), round(len(self) * test) if 0 < test < 1 else 0
        if not 1 <= held <= n - 2:
            must = "test must be a share that leaves at least 1 test row and 2 training rows"
            raise InputError(must, f"{test} of {n} rows", "add rows, or choose another share such as 0.2")
        order = Noise(seed).at("table", "split").permutations(1, n)[0]
        out = np.zeros(n, dtype=bool)
        out[order[:held].numpy()] = True
        return self._part(~out, out), self._part(~out, out, second=True)

    def _part(self, train: np.ndarray, test: np.ndarray, second: bool = False) -> Table:
        part = self.rows(test if second else train)
        encoding, notes = self.encoding, []
        if not self.fixed:
            known = self.rows(train).inputs
            encoding, notes = Encoding.fit(known, self.target, self.classes, self.file)
        x, said = encoding.apply(part.inputs)
        notes = (f"{len(part)} of {len(self)} rows of {self.file}", *notes, *said)
        fixed = self.fixed or second
        return replace(part, x=x, columns=encoding.columns, encoding=encoding, notes=notes, fixed=fixed)


def read_table(
    path: str | PathLike[str],
    target: str | Sequence[str],
    *,
    encoding: Encoding | None = None,
    drop_missing_targets: bool = False,
    as_classes: bool = False,
    ignore: Sequence[str] = (),
) -> Table:
    """Reads a table; every column but the target is an input. A text target, or one of whole numbers `as_classes`,
    gives labels. Columns to `ignore` are neither. With the `encoding` of a training table, new rows are read as that one was."""
    records = read_records(path)
    names = target_columns(records, target, encoding)
    if unknown := [name for name in ignore if name not in records.names or name in names]:
        must = f"{records.file}:1: what is ignored must be a column, not the target"
        raise InputError(must, ", ".join(unknown), f"choose of {listed(records.names)}")
    least = 1 if encoding else 2
    if records.count < least:
        got = f"{records.count} below the header" if records.first == 2 else str(records.count)
        raise InputError(f"{records.file}: a table must have at least {least} rows", got, "add rows")
    if encoding:
        inputs, notes = encoding.typed(records)
        kind = Kind.ANY if encoding.classes else Kind.NUMBERS
    else:
        inputs, notes, kind = (
            tuple(typed(records, n) for n in records.names if n not in (*names, *ignore)),
            [],
            Kind.ANY,
        )
    targets = tuple(typed(records, name, kind) for name in names)
    if same := duplicates((*inputs, *targets)):
        notes.append(f"{same} rows repeat an earlier one; all are kept")
    y, classes = labels(records, targets, encoding.classes if encoding else (), as_classes)
    missing = np.any([c.missing for c in targets], axis=0)
    if missing.any():
        where = np.flatnonzero(missing)
        rows = ", ".join(str(records.first + i) for i in where[:5]) + (", ..." if len(where) > 5 else "")
        if not drop_missing_targets:
            must = f"{records.at(int(where[0]), names[0])}: every row must have its target"
            raise InputError(
                must,
                f"{len(where)} without (rows {rows})",
                "fill them in, or drop_missing_targets=True (--drop-missing)",
            )
        notes.append(f"{len(where)} rows without a target dropped (rows {rows})")
        if len(where) > records.count - least:
            got = f"{records.count - len(where)}"
            raise InputError(f"{records.file}: at least {least} rows must have a target", got, "add rows")
    inputs, y = tuple(c.take(~missing) for c in inputs), y[~missing]
    if not encoding:
        check_varies(records, names, y, tuple(c.take(~missing) for c in targets))
    learnt, said = (encoding, []) if encoding else Encoding.fit(inputs, names, classes, records.file)
    x, more = learnt.apply(inputs)
    if len(x) + int(missing.sum()) != records.count:
        raise FileError(f"{records.file}: no row may be lost", f"{len(x)} of {records.count}", "report this as a fault")
    said = (*records.notes, *notes, *said, *more)
    y = torch.from_numpy(y)
    return Table(x, y, classes, learnt.columns, names, said, learnt, records.file, encoding is not None, inputs)
