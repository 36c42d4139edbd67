"""The verdict on a set of chains: the numbers, and in sentences what is wrong and what would help."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from nescio.diagnose.columns import over, shape_of
from nescio.diagnose.problems import MOTION, Motion, missing, outside, restless, sentence
from nescio.diagnose.statistics import Array, ebfmi, error_of_mean, of_bulk, of_rank, of_tail
from nescio.errors import InputError

ARRAYS = ("rhat", "ess_bulk", "ess_tail", "mcse_mean", "ebfmi")


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Statistics of every quantity (arrays of one shape), and `problems`, empty if there are none."""

    chains: int
    draws: int
    rhat: np.ndarray
    ess_bulk: np.ndarray
    ess_tail: np.ndarray
    mcse_mean: np.ndarray
    divergences: int | None = None
    ebfmi: np.ndarray | None = None  # (chains,)
    problems: tuple[str, ...] = ()

    @property
    def converged(self) -> bool:
        return not self.problems

    def worst(self) -> dict[str, Any]:
        """A few JSON values for a header or a page: the worst of each statistic, None if any is NaN or it was not given."""
        worst = {"rhat": self.rhat.max(), "ess_bulk": self.ess_bulk.min(), "ess_tail": self.ess_tail.min()}
        worst["ebfmi"] = math.nan if self.ebfmi is None else self.ebfmi.min()
        return {
            "chains": self.chains,
            "draws": self.draws,
            **{name: plain(np.asarray(value)) for name, value in worst.items()},
            "divergences": self.divergences,
            "problems": list(self.problems),
        }

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values: arrays as nested lists, None for NaN."""
        values: dict[str, Any] = {**vars(self), "problems": list(self.problems)}
        for name in ARRAYS:
            values[name] = None if values[name] is None else plain(values[name])
        return values

    @staticmethod
    def from_json(values: dict[str, Any]) -> Diagnosis:
        # None is the NaN of a single quantity, but a missing E-BFMI
        array = {name: np.array(values[name], dtype=np.float64) for name in ARRAYS}
        return Diagnosis(
            values["chains"],
            values["draws"],
            array["rhat"],
            array["ess_bulk"],
            array["ess_tail"],
            array["mcse_mean"],
            values["divergences"],
            None if values["ebfmi"] is None else array["ebfmi"],
            tuple(values["problems"]),
        )


def plain(value: np.ndarray) -> Any:
    if value.ndim:
        return [plain(part) for part in value]
    return None if np.isnan(value) else float(value)


def diagnose(x: Array, *, divergent: Array | int | None = None, energy: Array | None = None) -> Diagnosis:
    """Diagnose draws (chains, draws, ...): weights, or better predictions at data points, which have no symmetries.

    `divergent` marks the draws whose trajectory diverged, or is their number; `energy` is (chains, draws).
    """
    chains, draws, *rest = shape_of(x)
    if math.prod(rest) == 0:
        raise InputError(
            "there must be a quantity to diagnose", f"shape {tuple(x.shape)}", "pass draws of at least one"
        )
    rhat, bulk, tail, error, *motion = over(x, of_rank, of_bulk, of_tail, error_of_mean, *MOTION)
    count = (
        None if divergent is None else int(divergent.sum() if isinstance(divergent, Tensor | np.ndarray) else divergent)
    )
    fraction = None if energy is None else ebfmi(energy)
    problems = [*missing(draws, Motion(*motion), rhat, tail), *outside(rhat, bulk, tail)]
    if chains < 2:
        problems.append(sentence("chains must be 2 or more to agree", "1", "run 4 from different starts"))
    if count:
        remedy = "take smaller steps (where they adapt, by a higher acceptance such as 0.95) or reparameterise"
        problems.append(sentence("divergences must be 0", str(count), remedy))
    if fraction is not None:
        problems += restless(fraction)
    return Diagnosis(chains, draws, rhat, bulk, tail, error, count, fraction, tuple(problems))


def reasons(x: Array) -> tuple[str, ...]:
    """Why statistics are NaN, and which chains stay where they are; empty if every statistic exists and every chain moves."""
    rhat, tail, *motion = over(x, of_rank, of_tail, *MOTION)
    return tuple(missing(x.shape[1], Motion(*motion), rhat, tail)) if rhat.size else ()
