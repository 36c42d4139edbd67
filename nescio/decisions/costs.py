"""Choose what costs least on average: the action a with the smallest Σ_y p(y | x, D) cost(y, a).

Should I give the drug? With p(ill) = 0.2, a drug that costs 1 and an illness left alone that costs 10, yes; by the most probable class, no.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from nescio.errors import InputError, UnsupportedError
from nescio.evaluation.doubt import drawn
from nescio.predictive import Predictive

Cost = Tensor | Callable[[Tensor], Tensor]


class Decisions(NamedTuple):
    action: Tensor  # (points,), the best
    cost: Tensor  # (points,), what it is expected to cost
    every: Tensor  # (points, actions), what each would
    perfect: Tensor  # (points,), what it would cost to know the outcome first: cost - perfect is the most that a test is worth


def decide(predictive: Predictive, cost: Cost, samples: int = 1000, seed: int = 0) -> Decisions:
    """`cost`: for classes a table (classes, actions), yes and no as two classes; for real outcomes a function of samples
    (samples, points, ...) that gives (samples, points, actions). A utility is a cost with its sign turned.

        decide(predictive, torch.tensor([[0., 1.], [10., 1.]]))          # rows: healthy, ill; columns: wait, treat
        decide(predictive, lambda y: torch.cat([(y - 1).abs(), (y - 2).abs()], -1))
    """
    p = predictive.probabilities
    if isinstance(cost, Tensor):
        table = costs(p, cost)
        assert p is not None
        p = p[:, 0] if p.dim() == 3 and p.shape[1] == 1 else p  # one yes or no a point
        every, perfect = p @ table, (p * table.amin(-1)).sum(-1)
    else:
        each = cost(predictive.sample(samples, seed))
        if each.dim() != 3 or each.shape[:2] != (samples, len(predictive.mean)):
            must = (
                f"a cost function must give (samples, points, actions), here ({samples}, {len(predictive.mean)}, ...)"
            )
            raise InputError(must, str(tuple(each.shape)), "put the actions last, for instance by torch.stack(..., -1)")
        every, perfect = each.mean(0), each.amin(-1).mean(0)
    if not bool(every.isfinite().all()):
        raise InputError("expected costs must be finite", "NaN or infinity", "give every action a finite cost")
    best = every.min(-1)
    return Decisions(best.indices, best.values, every, perfect)


def worth(predictive: Predictive, cost: Tensor) -> Tensor:
    """What it would be worth, at each point, to know the weights: min_a E_w cost - E_w min_a cost, of expected costs given w.

    The part of the price of not knowing that more training data could save, at most.
    """
    each = drawn(predictive)  # (draws, points, classes)
    each = each[:, :, 0] if each.dim() == 4 and each.shape[2] == 1 else each  # one yes or no a point
    paid = each @ costs(each, cost)  # (draws, points, actions)
    return paid.mean(0).amin(-1) - paid.amin(-1).mean(0)


def costs(p: Tensor | None, cost: Tensor) -> Tensor:
    if p is None:
        remedy = "give a function of samples of y"
        raise UnsupportedError("a table of costs is for classes", "real outcomes", remedy)
    if cost.dim() != 2 or cost.shape[0] != p.shape[-1] or not cost.numel():
        must = f"a table of costs has a row for each of the {p.shape[-1]} classes and a column for each action"
        raise InputError(must, f"shape {tuple(cost.shape)}", "turn it round, or add the missing class")
    return cost.to(p)
