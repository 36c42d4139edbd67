r"""The evidence lower bound of a batch, as a loss with the parameters of q.

    ELBO = N/B Σ_batch E_q log p(y | x, w) - KL(q, p)  <=  log p(D)

An unbiased estimate: N is that of the data, the divergence is a sum over weights. Only its expectation is a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from nescio.densities import log_density
from nescio.errors import UnsupportedError
from nescio.families.approximation import Approximation
from nescio.families.point import Point
from nescio.laws.law import unvalidated
from nescio.model import sort
from nescio.network import Params
from nescio.noise import Noise
from nescio.posterior.variational import Variational
from nescio.target import CHUNK, Target
from nescio.weights import Action, RandomWeight, per_example


@final
class NegativeELBO(nn.Module):
    """`loss(x, y)` on a batch, per observation; `loss.parameters()` are those of q. Noise is torch's own.

    The network is called in training mode, and its norm statistics, `loss.statistics`, go along. The gradient is taken inside the
    call, so it is there for one `backward`, and checkpointed networks get theirs right.
    """

    def __init__(self, target: Target, q: Approximation, statistics: Params, samples: int = 1) -> None:
        super().__init__()
        self.target, self.q, self.statistics, self.samples = target, q, statistics, samples  # a target is no module
        self.acting = acting(target, q, statistics)
        moved = [factor for factor in q.parts() if not isinstance(factor, Point)]
        acts = all(isinstance(factor, Action) for factor in moved)
        weights = {block.name for factor in moved for block in factor.blocks}
        self.alone = acts and self.acting >= weights and not statistics  # whether examples share nothing random

    def forward(self, x: Any, y: Any) -> Tensor:
        parameters = list(self.q.parameters())
        before = [p.grad for p in parameters]
        try:
            for p in parameters:
                p.grad = None
            loss = (-self.estimate(x, y) / self.target.size).to(self.q.rest.dtype)
            gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        finally:
            for p, gradient in zip(parameters, before, strict=True):
                p.grad = gradient
        return Known.apply(loss, gradients, *parameters)

    def snapshot(self) -> dict[str, Params]:
        """All that training changes, with a leading axis of one chain."""
        own = {name: x.detach()[None].clone() for name, x in self.q.state_dict().items()}
        return {"q": own, "statistics": {name: b[None].clone() for name, b in self.statistics.items()}}

    def put_back(self, kept: dict[str, Params]) -> None:
        self.q.load_state_dict({name: x[0] for name, x in kept["q"].items()})
        for name, b in kept["statistics"].items():
            self.statistics[name].copy_(b[0])

    def estimate(
        self, x: Any, y: Any, part: float | Tensor = 1.0, follow: Callable[[Tensor], Any] = Tensor.backward
    ) -> Tensor:
        """Of the ELBO on these rows, (); where gradients are on, those of the loss are added to the parameters' own.

        `part`: how much of the divergence the loss sees. `follow`: what is done with the parts that the loss is a sum of.
        """
        if self.samples > 1 and self.alone:  # each example has noise of its own: as many copies are as many samples
            x, y = tree_map(lambda t: t.repeat_interleave(self.samples, 0), (x, y))
        calls = 1 if self.alone else self.samples
        total = torch.zeros((), dtype=torch.float64, device=self.q.rest.device)
        for _ in range(calls):
            total = total + self.once(x, y, part, calls, follow) / calls
        return total

    def once(self, x: Any, y: Any, part: float | Tensor, calls: int, follow: Callable[[Tensor], Any]) -> Tensor:
        target, model = self.target, self.target.model
        weight = target.size / len(tree_flatten(y)[0][0])
        call = self.q.call()
        divergence = call.divergence(target.temperature)
        own, numbers = sort(call.params(self.acting), model.likelihood)

        def finish(f: Any) -> Tensor:
            check_uses(own)
            fit = log_density(model.likelihood.observe(f, **numbers), y, lead=1).sum(dtype=torch.float64)
            fit = weight * fit / target.temperature
            if torch.is_grad_enabled():
                follow((part * divergence - fit) / (target.size * calls))
            return (fit - divergence).detach()

        with unvalidated(), plainly(model.network.net):
            return model.network.within({**own, **self.statistics}, x, finish)


def plainly(net: nn.Module) -> AbstractContextManager[Any]:
    """A network that is, or has, a `torch.compile(module)` runs as that module: its compiler cannot see random weights act."""
    compiled = any(hasattr(module, "_orig_mod") for module in net.modules())
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()


def bounds(loss: NegativeELBO, draws: int) -> Tensor:
    """The ELBO over all data in evaluation mode, by coherent draws: one unbiased estimate each, (draws,)."""
    fit, divergence = lengths(loss, draws)
    return fit - divergence


def lengths(loss: NegativeELBO, draws: int) -> tuple[Tensor, Tensor]:
    """Its two parts, log likelihood and divergence, (draws,) each: minus L^E, the error, and L^C, the complexity, in nats."""
    target, statistics = loss.target, {name: b.expand(draws, *b.shape) for name, b in loss.statistics.items()}
    with torch.no_grad():
        pairs = []
        for _ in range(draws):  # one after the other: a factor remembers what it drew in the call that began last
            call = loss.q.call()
            pairs.append((call.theta(), call.divergence(target.temperature)))
        theta, divergence = (torch.stack(each) for each in zip(*pairs, strict=True))
    if loss.q.family.of_weights:
        return target.log_likelihood(theta, statistics, target.source).double() / target.temperature, divergence
    posterior, total = Variational(target.model, loss.q, loss.statistics, {}), torch.zeros_like(divergence)
    for start in range(0, target.size, CHUNK):  # draws are more than weights
        x, y = target.source.rows(torch.arange(start, min(start + CHUNK, target.size)))
        total += by_functions(posterior, x, y, draws).sum(1) / target.temperature
    return total, divergence


def by_functions(posterior: Variational, x: Any, y: Any, draws: int) -> Tensor:
    """Log densities under coherent functions, always the same ones, (draws, points): for families whose draws are more than weights."""
    with unvalidated():
        return log_density(posterior.model.observe(*posterior.functions(x, draws, seed=0)), y, lead=2).double()


@final
class Known(torch.autograd.Function):
    """A loss whose gradient is known already."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradients: list[Tensor], *parameters: Tensor) -> Tensor:  # type: ignore[override]
        ctx.gradients = gradients
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        return None, None, *(slope * gradient for gradient in ctx.gradients)


def acting(target: Target, q: Approximation, statistics: Params) -> frozenset[str]:
    """The weights that have noise of their own for each example: tried out on a few rows."""
    model, names = target.model, {block.name for block in q.layout.blocks if block.site is not None}
    with torch.no_grad():
        own = sort(q.call(at_mean=True).params(), model.likelihood)[0]

    def call(rows: int, weights: Params) -> None:
        x, _ = target.source.rows(torch.arange(rows) % target.size)
        buffers = {name: b.clone() for name, b in statistics.items()}
        model.network.within({**own, **buffers, **weights}, x, lambda f: None)

    with Noise(device=q.rest.device).scope(), plainly(model.network.net):
        return per_example(call, {name: x for name, x in own.items() if name in names})


def check_uses(params: Params) -> None:
    """A network may not use a weight more often than in the dry run."""
    twice = [name for name, weight in params.items() if isinstance(weight, RandomWeight) and weight.uses > 1]
    if twice:
        raise UnsupportedError(
            "a weight must be used as often in every batch",
            f"{twice[0]} more often than on the first rows",
            "use it always so",
        )
