"""What is wrong with a set of chains, in sentences: what must hold; what was got; what would work."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from torch import Tensor

from nescio.diagnose.columns import SHORTEST, Columns
from nescio.diagnose.kernel import moves

RHAT = 1.01
ESS = 400
EBFMI = 0.3


class Motion(NamedTuple):
    """Which quantities move, as numbers of the shape of the quantities: 1 for yes, NaN where draws are not finite."""

    constant: np.ndarray
    frozen: np.ndarray  # no half of a chain moves
    still: np.ndarray  # how many chains do not move
    first: np.ndarray  # and the first of them


MOTION: tuple[Callable[[Columns], Tensor], ...] = (
    lambda c: c.constant,
    lambda c: ~moves(c.halves).any(-1),
    lambda c: (~c.moving).sum(-1),
    lambda c: (~c.moving).byte().argmax(-1),
)


def sentence(must: str, got: str, remedy: str) -> str:
    return f"{must}; got {got}; {remedy}"


def among(mask: np.ndarray) -> str:
    """How many quantities, and where the first is."""
    if mask.ndim == 0:
        return "the only quantity"
    first = tuple(int(i) for i in np.argwhere(mask)[0])
    return f"{np.count_nonzero(mask)} of {mask.size} quantities, first at {first}"


def missing(draws: int, motion: Motion, rhat: np.ndarray, tail: np.ndarray) -> list[str]:
    """Why numbers are NaN, and chains that stay where they are."""
    if draws < SHORTEST:
        return [sentence(f"chains must have {SHORTEST} draws or more", str(draws), "run longer chains")]
    infinite, constant, frozen = np.isnan(motion.constant), motion.constant == 1, motion.frozen == 1
    still = (motion.still > 0) & ~constant & ~frozen
    odd = np.isnan(rhat) & ~infinite & ~frozen
    short = np.isnan(tail) & ~infinite & ~frozen
    found: list[str] = []
    if infinite.any():
        got = f"NaN or infinity in {among(infinite)}"
        found.append(sentence("draws must be finite", got, "use a smaller step size or a proper prior"))
    if constant.any():
        got = f"a single value in {among(constant)}"
        found.append(
            sentence(
                "quantities must vary", got, "leave out what is fixed, run longer chains, or use a smaller step size"
            )
        )
    if (frozen & ~constant).any():
        got = f"none that does in {among(frozen & ~constant)}"
        found.append(sentence("some chain must vary within its halves", got, "run longer chains"))
    if still.any():
        got = f"one that stays where it is (chain {int(motion.first[still][0])}) in {among(still)}"
        found.append(
            sentence("every chain must move", got, "start it elsewhere, run longer chains, or use a smaller step size")
        )
    if odd.any():
        got = f"the same distance throughout in {among(odd)}"
        found.append(sentence("distances from the median must vary within chains", got, "run longer chains"))
    if short.any():
        got = f"none in {among(short)}"
        must = "tail ESS needs draws above the 5% quantile"
        found.append(sentence(must, got, "run longer chains, or diagnose a quantity with more values"))
    return found


def outside(rhat: np.ndarray, bulk: np.ndarray, tail: np.ndarray) -> list[str]:
    """The thresholds; NaN is explained by `missing`."""
    found: list[str] = []
    high = rhat >= RHAT
    if high.any():
        got = f"up to {np.nanmax(rhat):.3f}, too high in {among(high)}"
        found.append(sentence(f"R-hat must be < {RHAT}", got, "run longer chains or reparameterise"))
    for name, ess in (("bulk", bulk), ("tail", tail)):
        low = ess < ESS
        if low.any():
            got = f"down to {np.nanmin(ess):.0f}, too low in {among(low)}"
            remedy = "run longer or more chains, or reparameterise"
            found.append(sentence(f"{name} ESS must be >= {ESS}", got, remedy))
    return found


def restless(fraction: np.ndarray) -> list[str]:
    """Energies that change too slowly, or cannot be judged."""
    found: list[str] = []
    unknown, low = np.isnan(fraction), fraction < EBFMI
    if unknown.any():
        got = f"constant, infinite or too few energies in chains {np.flatnonzero(unknown).tolist()}"
        found.append(sentence("energies must be finite, vary and be 4 or more", got, "use a smaller step size"))
    if low.any():
        got = f"down to {np.nanmin(fraction):.2f} in chains {np.flatnonzero(low).tolist()}"
        found.append(sentence(f"E-BFMI must be >= {EBFMI}", got, "reparameterise, or use lighter-tailed priors"))
    return found
