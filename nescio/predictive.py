"""What is predicted at a set of points: an equal-weight mixture of observation distributions, one for each draw of the weights.

Every number that is reported is a function of it. For real outcomes uncertainty is variance,
    total Var[y] = aleatoric E_w Var[y|w] + epistemic Var_w E[y|w],
for discrete ones entropy,
    total H[E_w p] = aleatoric E_w H[p] + epistemic I(y; w).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution

from nescio.answers import Answers
from nescio.densities import Joint, log_density
from nescio.errors import InputError, UnsupportedError
from nescio.noise import Noise


class Predictive(ABC):
    """The face that every predictive has. Shapes are those of the observations, points first."""

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """E[y], (points, ...); for classes the probabilities, (points, ..., classes)."""

    @property
    @abstractmethod
    def variance(self) -> Tensor:
        """Var[y], elementwise."""

    @property
    @abstractmethod
    def aleatoric(self) -> Tensor:
        """The part that more data would not remove: a variance, or for discrete outcomes an entropy in nats."""

    @property
    @abstractmethod
    def epistemic(self) -> Tensor:
        """The part that comes from not knowing the weights: a variance, or a mutual information in nats."""

    @abstractmethod
    def log_prob(self, y: Any) -> Tensor:
        """Log density of each observation under the whole predictive, (points,)."""

    @abstractmethod
    def quantile(self, q: float) -> Tensor:
        """The value below which y lies with probability q."""

    @abstractmethod
    def sample(self, n: int, seed: int = 0) -> Any:
        """n draws of observations, (n, points, ...)."""

    @property
    def std(self) -> Tensor:
        return self.variance.sqrt()

    @property
    def total(self) -> Tensor:
        return self.aleatoric + self.epistemic

    @property
    def probabilities(self) -> Tensor | None:
        """(points, ..., classes), no and yes as two classes; None if outcomes are real numbers."""
        return None

    def cdf(self, y: Tensor) -> Tensor:
        """P(outcome <= y), elementwise; from samples where there is no closed form."""
        return (self.sample(10_000) <= y).to(y).mean(0)

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """The central interval that holds y with probability `level`."""
        if not 0 < level < 1:
            raise InputError("a level lies strictly between 0 and 1", str(level), "use 0.9 for a 90% interval")
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def abstain(self, risk: float = 0.05, within: float | None = None) -> Answers:
        """An answer where it is wrong with probability at most `risk`, by the predictive's own word, and "I do not know" elsewhere.

        Classes: the most probable one. Real outcomes: the median, wrong if y is further from it than `within`. A promise that
        does not rest on the model's word is made by `nescio.evaluation.promise`.
        """
        if not 0 <= risk < 1:
            raise InputError("a risk is a probability below 1", str(risk), "use 0.05 for one wrong answer in twenty")
        found = self.probabilities
        if found is not None:
            best = found.max(-1)
            return Answers(best.indices, 1 - best.values <= risk, 1 - best.values)
        if within is None or not within > 0:
            must = "a real answer is right within a tolerance"
            raise InputError(must, f"within={within}", "give it in the units of y, as in abstain(risk=.05, within=.3)")
        median = self.quantile(0.5)
        miss = 1 - (self.cdf(median + within) - self.cdf(median - within))
        return Answers(median, miss <= risk, miss)


@final
@dataclass(frozen=True, eq=False)
class Drawn(Predictive):
    """A mixture over draws: `draws` is a distribution with batch shape (draws, points, ...)."""

    draws: Distribution

    def __getitem__(self, task: str) -> Drawn:
        """The predictive of one task."""
        parts = self.draws.parts if isinstance(self.draws, Joint) else {}
        if task not in parts:
            raise InputError("a task must be one of the model's", repr(task), f"the tasks are {list(parts)}")
        return Drawn(parts[task])

    @property
    def discrete(self) -> bool:
        return isinstance(self.draws, (Bernoulli, Categorical))

    @property
    def probabilities(self) -> Tensor | None:
        if not isinstance(self._single(), (Bernoulli, Categorical)):
            return None
        return self.mean if isinstance(self.draws, Categorical) else torch.stack([1 - self.mean, self.mean], -1)

    def cdf(self, y: Tensor) -> Tensor:
        try:
            return self._single().cdf(y).mean(0)
        except NotImplementedError:  # such as Student's t
            return Predictive.cdf(self, y)

    @property
    def mean(self) -> Tensor:
        return self._means().mean(0)

    @property
    def variance(self) -> Tensor:
        if self.discrete:
            return self.mean * (1 - self.mean)
        return self.aleatoric + self.epistemic

    @property
    def aleatoric(self) -> Tensor:
        return (self._single().entropy() if self.discrete else self._single().variance).mean(0)

    @property
    def epistemic(self) -> Tensor:
        if not self.discrete:
            return self._means().var(0, correction=0)  # of the mixture itself: no Bessel correction
        kind = Categorical if isinstance(self.draws, Categorical) else Bernoulli
        mixture = kind(probs=self.mean, validate_args=False)
        return (mixture.entropy() - self.aleatoric).clamp_min(0.0)

    def log_prob(self, y: Any) -> Tensor:
        each = log_density(self.draws, y, lead=2)  # (draws, points)
        return each.logsumexp(0) - math.log(each.shape[0])

    def quantile(self, q: float) -> Tensor:
        """By bisection on the mixture's distribution function, between the least and the greatest quantile of its parts."""
        draws = self._single()
        if not 0 < q < 1:
            raise InputError("a quantile's level lies strictly between 0 and 1", str(q), "use 0.5 for the median")
        if self.discrete:
            raise UnsupportedError(
                "quantiles need an ordered outcome", type(draws).__name__, "use mean: it holds the probabilities"
            )
        level = torch.full((), q, dtype=self.mean.dtype, device=self.mean.device)
        try:
            parts = draws.icdf(level.expand(draws.batch_shape))
        except NotImplementedError:  # no closed form, such as Student's t: Monte Carlo
            return self.sample(10_000).quantile(q, dim=0)
        low, high = parts.amin(0), parts.amax(0)
        for _ in range(60):
            middle = (low + high) / 2
            below = draws.cdf(middle).mean(0) < q
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2

    def sample(self, n: int, seed: int = 0) -> Any:
        """Each draw of the weights serves n / draws samples, the remainder by lot; one sample is coherent over all points."""
        if n < 1:
            raise InputError("at least one sample must be asked for", str(n), "use for instance sample(100)")
        return self._sample(n, Noise(seed).at("predictive"), ())

    def _sample(self, n: int, noise: Noise, tasks: tuple[str, ...]) -> Any:
        """Tasks have their own noise, but share the lot, so that a sample is one draw of the weights in all of them."""
        if isinstance(self.draws, Joint):
            return {task: self[task]._sample(n, noise, (*tasks, task)) for task in self.draws.parts}
        size = self.draws.batch_shape[0]
        rounds = -(-n // size)
        with noise.at("sample", *tasks).to(self.mean.device, self.mean.dtype).scope():
            drawn = self.draws.sample((rounds,))  # (rounds, draws, points, ...)
        last = noise.at("lot").permutations(1, size)[0][: n - (rounds - 1) * size].to(drawn.device)
        return torch.cat([drawn[:-1].flatten(0, 1), drawn[-1, last]])

    def _single(self) -> Distribution:
        if isinstance(self.draws, Joint):
            tasks = list(self.draws.parts)
            raise UnsupportedError(
                "several tasks have no common mean or quantile", f"the tasks {tasks}", f"use predictive[{tasks[0]!r}]"
            )
        return self.draws

    def _means(self) -> Tensor:
        draws = self._single()
        try:
            return draws.probs if isinstance(draws, Categorical) else draws.mean
        except NotImplementedError:
            must = "a mean needs a distribution that knows its own"
            raise UnsupportedError(must, type(draws).__name__, "use log_prob(y)") from None
