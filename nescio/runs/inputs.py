"""How raw rows become what the network saw in training: encoding, units, classes. JSON, so that predicting needs no training data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from nescio.data import Encoding, Scaling
from nescio.errors import FileError, InputError
from nescio.runs.given import Given

NAME = "inputs.json"


@final
@dataclass(frozen=True, eq=False)
class Inputs:
    """`scaling` of the inputs of a table, none for images; `units` of a real target."""

    shape: tuple[int, ...]
    target: tuple[str, ...]
    columns: tuple[str, ...]
    classes: tuple[str, ...]
    encoding: Encoding | None
    scaling: Scaling | None
    units: Scaling | None
    rows: int

    @staticmethod
    def of(given: Given) -> Inputs:
        scaling = Scaling.of(given.x) if given.x.dim() == 2 else None
        units = None if given.classes else Scaling.of(given.y)
        shape = tuple(given.x.shape[1:])
        return Inputs(
            shape, given.target, given.columns, given.classes, given.encoding, scaling, units, len(given.y)
        )  # fmt: skip

    def to_json(self) -> str:
        def text(part: Encoding | Scaling | None) -> Any:
            return None if part is None else json.loads(part.to_json())

        state = {
            "shape": self.shape,
            "target": self.target,
            "columns": self.columns,
            "classes": self.classes,
            "encoding": text(self.encoding),
            "scaling": text(self.scaling),
            "units": text(self.units),
            "rows": self.rows,
        }
        return json.dumps(state, indent=1, ensure_ascii=False) + "\n"

    def labels(self, y: Tensor, binary: bool) -> Tensor:
        """Labels as the likelihood wants them: two classes of a Bernoulli are a column of zeros and ones."""
        return y[:, None].float() if binary and self.classes else y


def read_inputs(folder: Path) -> Inputs:
    path = folder / NAME
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        texts = {key: strings(state[key]) for key in ("target", "columns", "classes")}
        encoding = None if state["encoding"] is None else Encoding.from_json(json.dumps(state["encoding"]))
        scaling, units = (
            None if state[key] is None else Scaling.from_json(json.dumps(state[key])) for key in ("scaling", "units")
        )
        shape = tuple(int(n) for n in state["shape"])
        rows = int(state["rows"])
        if not shape or min(shape) < 1 or (scaling is not None and scaling.loc.shape != torch.Size(shape)):
            raise ValueError("shapes that do not match")
    except OSError as error:
        raise FileError(f"{path} must be there", error.strerror or str(error), "run `nescio fit` again") from error
    except (ValueError, KeyError, TypeError, RecursionError, InputError) as error:
        raise FileError(f"{path} must be whole", str(error).split("\n")[0][:80], "run `nescio fit` again") from error
    return Inputs(
        shape, texts["target"], texts["columns"], texts["classes"], encoding, scaling, units, rows
    )  # fmt: skip


def strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise TypeError("names that are not text")
    return tuple(value)
