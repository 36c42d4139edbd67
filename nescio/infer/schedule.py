"""Step sizes over a run: functions of the part of the run that is done, t in [0, 1), that multiply a base step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Constant:
    """1 throughout."""

    def __call__(self, t: float) -> float:
        return 1.0


@final
@dataclass(frozen=True)
class Cosine:
    """From 1 down to `least` along half a cosine (Loshchilov & Hutter, 2017)."""

    least: float = 0.0

    def __call__(self, t: float) -> float:
        return self.least + (1 - self.least) * 0.5 * (1 + math.cos(math.pi * t))


@final
@dataclass(frozen=True)
class Steps:
    """Multiplied by `factor` at each of the given parts of the run: `Steps(.5)` drops tenfold at half time."""

    at: float | tuple[float, ...] = 0.5
    factor: float = 0.1

    def __call__(self, t: float) -> float:
        at = self.at if isinstance(self.at, tuple) else (self.at,)
        return self.factor ** sum(t >= a for a in at)
