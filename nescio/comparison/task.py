"""One problem of a comparison: a model and rows to learn from, rows to be judged by, and rows that are unlike them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from torch import Tensor

from nescio.model import Model


@final
@dataclass(frozen=True, eq=False)
class Task:
    """`name`: of the data set; `split` and `seed` tell runs on it apart. `outside`: inputs that should be doubted, if there are any."""

    name: str
    model: Model
    data: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    split: int = 0
    outside: Any = None
