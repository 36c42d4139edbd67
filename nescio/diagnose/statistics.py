"""The statistics of one quantity each, for all quantities at once: x is (chains, draws, ...), the answer has the shape (...).

Definitions are those of the R package posterior and of ArviZ. NaN means that the statistic does not exist: too few draws, draws
that are not finite, or no chain that moves (`reasons` says which).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nescio.diagnose import kernel
from nescio.diagnose.beta import beta_quantile
from nescio.diagnose.columns import Columns, normal_scores, over, shape_of
from nescio.diagnose.kernel import split
from nescio.errors import InputError

Array = Tensor | np.ndarray
TAILS = (0.05, 0.95)
ONE_SD = (0.1586553, 0.8413447)  # a central interval of plus and minus one standard error


def rhat(x: Array) -> np.ndarray:
    """Rank-normalised split R-hat, the larger of location (bulk) and scale (folded). Below 1.01 the chains agree."""
    return over(x, of_rank)[0]


def rhat_raw(x: Array) -> np.ndarray:
    """The classical R-hat of the chains as they are; NaN for a single one."""
    return over(x, lambda c: kernel.rhat(c.x))[0]


def ess_raw(x: Array) -> np.ndarray:
    """Of the mean, chains not split."""
    return over(x, lambda c: kernel.ess(c.x))[0]


def ess_mean(x: Array) -> np.ndarray:
    return over(x, of_mean)[0]


def ess_bulk(x: Array) -> np.ndarray:
    """Of the rank-normalised draws: how well the middle of the distribution is known, even without moments."""
    return over(x, of_bulk)[0]


def ess_tail(x: Array) -> np.ndarray:
    """The smaller of those of the 5% and the 95% quantile; of one of them where the other is the largest value there is."""
    return over(x, of_tail)[0]


def ess_sd(x: Array) -> np.ndarray:
    return over(x, of_sd)[0]


def ess_median(x: Array) -> np.ndarray:
    return ess_quantile(x, 0.5)


def ess_quantile(x: Array, q: float) -> np.ndarray:
    """NaN also where no draw lies above the quantile."""
    checked(q)
    return over(x, lambda c: of_quantile(c, q))[0]


def mcse_mean(x: Array) -> np.ndarray:
    """Standard error of the mean over all draws."""
    return over(x, error_of_mean)[0]


def mcse_sd(x: Array) -> np.ndarray:
    return over(x, error_of_sd)[0]


def mcse_median(x: Array) -> np.ndarray:
    return mcse_quantile(x, 0.5)


def mcse_quantile(x: Array, q: float) -> np.ndarray:
    """Half the distance of the order statistics that bound the quantile at one standard error."""
    checked(q)
    return over(x, lambda c: error_of_quantile(c, q))[0]


def ebfmi(energy: Array) -> np.ndarray:
    """Energy's fraction of missing information of each chain: mean squared change over variance; energy is (chains, draws)."""
    if len(shape_of(energy)) != 2:
        raise InputError(
            "energy must be (chains, draws)", f"shape {tuple(energy.shape)}", "pass one energy for each draw"
        )
    return over(energy.T[None], of_energy)[0]  # chains as quantities


def checked(q: float) -> None:
    if not 0 < q < 1:
        raise InputError("a quantile's level must lie between 0 and 1", f"q = {q}", "pass for example q=0.95")


# ---- of a chunk of quantities ------------------------------------------------------------------------------------------


def folded(c: Columns) -> Tensor:
    """Halves of the distances from the median: chains that differ in spread differ here in location."""
    return split((c.x - c.median[:, None, None]).abs())


def of_rank(c: Columns) -> Tensor:
    bulk, spread = kernel.rhat(c.scores), folded(c)
    flat = spread.flatten(1)
    two_values = (flat.amax(-1) == flat.amin(-1)) & ~c.constant  # half of each: no scale beside the location
    return torch.where(two_values, bulk, torch.maximum(bulk, kernel.rhat(normal_scores(spread))))


def of_bulk(c: Columns) -> Tensor:
    return kernel.ess(c.scores)


def of_mean(c: Columns) -> Tensor:
    return kernel.ess(c.halves)


def of_sd(c: Columns) -> Tensor:
    return kernel.ess(split(squares(c)))


def of_quantile(c: Columns, q: float) -> Tensor:
    return kernel.ess((c.halves <= c.quantile(q)[:, None, None]).to(c.x))


def of_tail(c: Columns) -> Tensor:
    return torch.fmin(*(of_quantile(c, q) for q in TAILS))  # not minimum: NaN only if both are


def squares(c: Columns) -> Tensor:
    return (c.x - c.x.mean((-1, -2), keepdim=True)).square()


def error_of_mean(c: Columns) -> Tensor:
    return c.scale * c.x.flatten(1).std(-1) / of_mean(c).sqrt()


def error_of_sd(c: Columns) -> Tensor:
    """Delta method: the error of the variance over twice the standard deviation."""
    square = squares(c).flatten(1)
    return c.scale * (square.var(-1, correction=0) / (4 * square.mean(-1) * of_sd(c))).sqrt()


def error_of_quantile(c: Columns, q: float) -> Tensor:
    values, size = c.ordered[0], c.ordered[0].shape[-1]
    e = of_quantile(c, q)
    known = torch.where(e.isnan(), 1.0, e)
    low, high = (beta_quantile(p, known * q + 1, known * (1 - q) + 1) for p in ONE_SD)
    below = (size * low).floor().clamp(1, size).long() - 1
    above = (size * high).ceil().clamp(1, size).long() - 1
    width = values.gather(-1, above[:, None]) - values.gather(-1, below[:, None])
    return torch.where(e.isnan(), e, c.scale * width.squeeze(-1) / 2)


def of_energy(c: Columns) -> Tensor:
    ratio = c.x.diff(dim=-1).square().mean((-1, -2)) / c.x.flatten(1).var(-1)
    return torch.where(c.constant, torch.nan, ratio)
