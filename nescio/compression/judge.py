"""Networks with fewer weights, and how well they do: what a `Choice` chooses from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution

from nescio.compression.choice import Choice, Trial
from nescio.compression.moments import Moments, nats
from nescio.densities import log_density
from nescio.errors import InputError
from nescio.network import BUDGET, Params
from nescio.posterior.posterior import Posterior
from nescio.posterior.variational import Variational


@final
class Judge:
    """Makes trials of one posterior."""

    def __init__(self, posterior: Posterior, given: Moments) -> None:
        self.posterior, self.given = posterior, given
        self.costs: Params | None = None

    def trial(self, choice: Choice, left: dict[str, Tensor], least: float, names: Sequence[str]) -> Trial:
        """The means of the weights that are left."""

        def observed(x: Any) -> Distribution:
            return self.observed({name: m * left[name] for name, m in self.given.mean.items()}, x)

        kept = sum(int(left[name].sum()) for name in names)
        total = sum(left[name].numel() for name in names)
        return self.made(choice, observed, least, kept, total, lambda: self.nats(left))

    def whole(self, choice: Choice) -> Trial:
        left = {name: torch.ones_like(m, dtype=torch.bool) for name, m in self.given.mean.items()}
        return self.trial(choice, left, -math.inf, [])

    def holds(self, choice: Choice, net: nn.Module) -> bool:
        """Of a network that is stored."""
        numbers = {name: v[None] for name, v in self.given.numbers.items()}

        def observed(x: Any) -> Distribution:
            step = max(1, BUDGET // self.posterior.model.network.bytes_per_point(x))  # the small network takes no more
            with torch.no_grad():
                f = torch.cat([net(x[i : i + step]) for i in range(0, len(x), step)])
                return self.posterior.model.observe(f[None], numbers)

        return choice.holds(self.whole(choice), self.made(choice, observed, 0.0, 0, 0, lambda: 0.0))

    def made(
        self,
        choice: Choice,
        observed: Callable[[Any], Distribution],
        least: float,
        kept: int,
        total: int,
        cost: Callable[[], float],
    ) -> Trial:
        def log_prob(x: Any, y: Any) -> Tensor:
            with torch.no_grad():
                return log_density(observed(x), y, lead=2)[0]

        def right(x: Any, y: Any) -> Tensor:
            found = observed(x)
            assert isinstance(found, Categorical)
            return found.logits[0].argmax(-1) == y  # type: ignore[union-attr]

        return Trial(least, kept, log_prob, right if self.classes(choice) else None, cost, total)

    def observed(self, weights: Params, x: Any) -> Distribution:
        numbers = {f"likelihood.{name}": v for name, v in self.given.numbers.items()}
        own = {**weights, **self.given.statistics, **numbers}
        return self.posterior.model.observed({name: value[None] for name, value in own.items()}, x)

    def classes(self, choice: Choice) -> bool:
        x = getattr(choice, "x", None)
        return isinstance(x, Tensor) and isinstance(self.observed(self.given.mean, x[:1]), Categorical)

    def nats(self, left: dict[str, Tensor]) -> float:
        if not isinstance(self.posterior, Variational):
            raise InputError("ByEvidence needs a variational posterior", type(self.posterior).__name__, "use Promised")
        if self.costs is None:
            self.costs = nats(self.posterior)
        return float(sum((n * left[name]).sum(dtype=torch.float64) for name, n in self.costs.items()))
