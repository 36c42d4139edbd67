"""How data choose a threshold: by a promise about accuracy, or by the evidence.

Both try a ladder of thresholds from none removed to nearly all, each with the network as it would be stored.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

from torch import Tensor

from nescio.diagnose.binomial import clopper_pearson
from nescio.errors import InputError


class Trial(NamedTuple):
    """A rung of the ladder."""

    least: float  # lowest score that is kept
    kept: int
    log_prob: Callable[[Any, Any], Tensor]  # (x, y) -> log density of each row
    right: Callable[[Any, Any], Tensor] | None  # (x, y) -> whether the class is right, for classes
    nats: Callable[[], float]  # of the weights that are kept
    total: int  # weights that could be removed


class Choice(ABC):
    """Picks one of several trials, which remove more and more."""

    @abstractmethod
    def pick(self, whole: Trial, trials: Sequence[Trial]) -> Trial:
        """`whole`: with all weights, not rounded."""

    def holds(self, whole: Trial, after: Trial) -> bool:
        """Whether what was asked for is true of the network that came out."""
        return True


@final
@dataclass(frozen=True, eq=False)
class Promised(Choice):
    """The smallest network that loses at most `loss` of accuracy on these held-out rows (nats a row, where y is no class).

    The loss is against the posterior's mean before anything is removed or rounded. Half of it is for what is removed, half for rounding,
    which is made finer until the whole is kept.

    `confidence`: the loss on new rows is at most that with this probability. One rung after the other is tested and the first that fails
    ends it, so the promise holds for the one that is picked (fixed-sequence testing); for classes, by the exact binomial bound on
    rows that were right and are wrong. What is stored, rounded, must meet the bound on the same rows once more: a check, for what
    rounding does to other rows no test stands. Without: the loss on these rows.
    """

    x: Any = field(repr=False)
    y: Tensor = field(repr=False)
    loss: float = 0.005
    confidence: float | None = None

    def __post_init__(self) -> None:
        if not self.loss >= 0:
            raise InputError("loss must not be negative", str(self.loss), "0.005 is half a per cent")
        if self.confidence is not None and not 0.5 <= self.confidence < 1:
            raise InputError("confidence must be in [0.5, 1)", str(self.confidence), "0.95 is usual")

    def pick(self, whole: Trial, trials: Sequence[Trial]) -> Trial:
        if self.confidence is not None and whole.right is None:
            raise InputError("confidence needs classes", "another likelihood", "leave it out")
        before, best = self.score(whole), trials[0]
        if self.confidence is not None and self.lost(before, before) > self.loss / 2:  # if no row at all were lost
            need = math.ceil(math.log(1 - self.confidence) / math.log1p(-self.loss / 2)) if self.loss else math.inf
            must = f"a loss of {self.loss:g} with a confidence of {self.confidence:g} needs at least {need} rows"
            raise InputError(must, str(len(before)), "give more rows, a larger loss, or no confidence")
        for trial in trials[1:]:
            if self.lost(before, self.score(trial)) <= self.loss / 2:
                best = trial
            elif self.confidence is not None:
                break
        return best

    def holds(self, whole: Trial, after: Trial) -> bool:
        return self.lost(self.score(whole), self.score(after)) <= self.loss

    def lost(self, before: Tensor, after: Tensor) -> float:
        """On these rows, or with confidence on others."""
        if self.confidence is None:
            return float((before - after).mean())
        lost = before.bool() & ~after.bool()
        return clopper_pearson(int(lost.sum()), len(lost), 1 - self.confidence)

    def score(self, trial: Trial) -> Tensor:
        rows = trial.log_prob(self.x, self.y) if trial.right is None else trial.right(self.x, self.y)
        return rows.double()


@final
@dataclass(frozen=True, eq=False)
class ByEvidence(Choice):
    """The shortest description of these training rows: bits of their errors, of the weights that are kept, and of which those are.

        L = Σ -log p(y | x, kept) + Σ_kept KL + log C(n, kept)

    A bound on the evidence of a model in which any set of weights may be zero, all sets of one size being as likely.
    """

    x: Any = field(repr=False)
    y: Tensor = field(repr=False)

    def pick(self, whole: Trial, trials: Sequence[Trial]) -> Trial:
        return min(trials, key=self.length)

    def length(self, trial: Trial) -> float:
        """In nats."""
        error = -float(trial.log_prob(self.x, self.y).double().sum())
        n, k = trial.total, trial.kept
        which = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        return error + trial.nats() + which
