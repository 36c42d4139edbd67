"""No law at all: a weight that is fitted and never random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor
from torch.distributions import Distribution

from nescio.densities import Improper
from nescio.laws.law import Elementwise


@final
@dataclass(frozen=True, eq=False, repr=False)
class Fitted(Elementwise):
    """For weights that are no part of the model, such as an encoder's, which shape an approximation: they go where the bound is
    highest, and a variational family leaves them points. `Flat()`, by contrast, is a belief, and its weights are spread."""

    proper: ClassVar[bool] = False
    spread: ClassVar[bool] = False

    def distribution(self) -> Distribution:
        return Improper(0.0)

    def total(self, x: Tensor, numbers: dict[str, float]) -> Tensor:
        return x.new_zeros(())
