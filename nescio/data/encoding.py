"""How the columns of a table become inputs, with what was learnt from the training rows: means and categories.

Numbers stay as they are, and an empty cell gets the training mean, with a further column that marks it. Text is one-hot
over the categories of the training rows; an empty cell is all zero and marked, and a category that training never saw
is all zero and said in the notes. Columns that do not vary in the training rows are left out, and the notes say so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import final

import numpy as np
import torch
from torch import Tensor

from nescio.data.columns import Column, Kind, check_float32, typed
from nescio.data.files import read_records
from nescio.data.inputs import Categories, Numbers, spec_of, texts
from nescio.data.records import Records, check_names, listed, plain, shown
from nescio.errors import InputError

MOST_CATEGORIES = 64
Cell = str | float | int | bool | None


@final
@dataclass(frozen=True)
class Encoding:
    """The inputs, in order, the columns left out, the target, and its classes (none for a numeric target)."""

    inputs: tuple[Numbers | Categories, ...]
    left_out: tuple[str, ...]
    target: tuple[str, ...]
    classes: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(title for spec in self.inputs for title in spec.titles())

    @staticmethod
    def fit(
        columns: Sequence[Column], target: tuple[str, ...], classes: tuple[str, ...], file: str
    ) -> tuple[Encoding, list[str]]:
        """Learns from these (training) rows of the input columns; also what to say about it."""
        inputs: list[Numbers | Categories] = []
        left: dict[str, str] = {}
        for column in columns:
            known, marked = column.values[~column.missing], bool(column.missing.any())
            if not known.size:
                left[column.name] = "empty"
            elif (known == known[0]).all() and not marked:
                left[column.name] = f"constant, {shown(str(known[0]))}"
            elif not column.is_text:
                varies = bool((known != known[0]).any())
                if varies:
                    check_float32(column, file)
                inputs.append(Numbers(column.name, float(known.mean()), varies, marked))
            elif len(values := tuple(sorted(set(known)))) > MOST_CATEGORIES:
                must = f"{file}: text column {plain(column.name)} must have at most {MOST_CATEGORIES} categories"
                raise InputError(
                    must, str(len(values)), "leave the column out (ignore=, --ignore), or merge categories"
                )
            else:
                inputs.append(Categories(column.name, values, marked))
        if not inputs:
            got = f"{len(left)} input columns, all empty or constant"
            raise InputError(f"{file}: at least one input column must vary", got, "add inputs or rows")
        notes = [f"column {plain(name)}: left out, {why} in the training rows" for name, why in left.items()]
        return Encoding(tuple(inputs), tuple(left), target, classes), notes

    def apply(self, columns: Sequence[Column]) -> tuple[Tensor, list[str]]:
        """Inputs (n, d) float32 of typed columns, by name, and what to say about it."""
        by_name = {column.name: column for column in columns}
        parts, notes = [], []
        for spec in self.inputs:
            arrays, said = spec.encode(by_name[spec.name])
            parts, notes = parts + arrays, notes + said
        return torch.from_numpy(np.stack(parts, axis=1).astype(np.float32)), notes

    def typed(self, records: Records) -> tuple[tuple[Column, ...], list[str]]:
        """The input columns of new records, with the kinds that they had in training."""
        if absent := tuple(spec.name for spec in self.inputs if spec.name not in records.names):
            got = f"no {listed(absent)} among {listed(records.names)}"
            raise InputError(f"{records.file}: the columns of training must be there", got, "add or rename them")
        known = {spec.name for spec in self.inputs}.union(self.left_out, self.target)
        notes = [f"column {plain(n)}: left out, not varying in training" for n in self.left_out if n in records.names]
        notes += [f"column {plain(n)}: left out, not in training" for n in records.names if n not in known]
        kinds = {spec.name: Kind.NUMBERS if isinstance(spec, Numbers) else Kind.TEXT for spec in self.inputs}
        return tuple(typed(records, name, kind) for name, kind in kinds.items()), notes

    def encode(self, source: str | PathLike[str] | Sequence[Mapping[str, Cell]]) -> tuple[Tensor, tuple[str, ...]]:
        """Inputs (n, d) float32 of a file or of rows by column name, and the notes; a target column is ignored."""
        records = read_records(source) if isinstance(source, str | PathLike) else as_records(source)
        if not records.count:
            raise InputError(f"{records.file}: there must be a row to encode", "none", "add rows")
        columns, notes = self.typed(records)
        x, said = self.apply(columns)
        return x, (*records.notes, *notes, *said)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Encoding:
        try:
            state = json.loads(text)
            inputs = tuple(spec_of(entry) for entry in state["inputs"])
            return Encoding(inputs, *(texts(state[key]) for key in ("left_out", "target", "classes")))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError("the text must come from Encoding.to_json", repr(text[:40]), "save it again") from error


def as_records(rows: Sequence[Mapping[str, Cell]]) -> Records:
    """Rows by column name, as the file that they could have been read from."""
    names = tuple(rows[0]) if rows else ()
    check_names("rows", names)
    for number, row in enumerate(rows, start=1):
        if set(row) != set(names):
            raise InputError(
                f"rows:{number}: every row must have the columns {listed(names)}",
                listed(tuple(row)),
                "use None for a missing value",
            )
    text = {True: "true", False: "false", None: ""}  # as a Parquet file is read
    cells = tuple(
        tuple(text[v] if v is None or isinstance(v, bool) else str(v).strip(" \t") for v in (row[name] for row in rows))
        for name in names
    )
    return Records("rows", names, cells, 1)
