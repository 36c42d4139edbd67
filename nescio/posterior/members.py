"""Draws as a plain module, x -> (mean, epistemic, aleatoric): their networks one after the other, and the mixture of what they say.

As exact as `predict`, at the cost of a pass for each member; for `torch.export` and ONNX, where an ensemble is to run without nescio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn

from nescio.errors import UnsupportedError
from nescio.model import Model, sort
from nescio.network import Params
from nescio.posterior.compiled import trained
from nescio.posterior.observed import Told
from nescio.predictive import Drawn

if TYPE_CHECKING:
    from nescio.posterior.draws import Draws

MOST = 64  # members: each is a copy of the network in the exported graph


@final
class Members(nn.Module):
    """`numbers`: the likelihood's own in each member, (members, ...)."""

    def __init__(self, model: Model, members: list[nn.Module], numbers: Params) -> None:
        super().__init__()
        self.members, self.observe, self.named = nn.ModuleList(members), model.observe, tuple(numbers)
        for i, name in enumerate(self.named):
            self.register_buffer(f"number_{i}", numbers[name])
        self.requires_grad_(False)
        self.eval()

    def forward(self, x: Any) -> Told:
        args, named = ((), x) if isinstance(x, dict) else (x if isinstance(x, tuple) else (x,), {})
        f = torch.stack([member(*args, **named) for member in self.members])  # (members, points, ...)
        numbers = {name: getattr(self, f"number_{i}") for i, name in enumerate(self.named)}
        predicted = Drawn(self.observe(f, numbers))
        return predicted.mean, predicted.epistemic, predicted.aleatoric


def of_draws(draws: Draws, x: Any) -> Members:
    model = draws.model
    own, numbers = sort(draws.sample(min(draws.count(), MOST)), model.likelihood)
    if x is not None and not isinstance(f := model.network.probe(x), Tensor):
        raise UnsupportedError("a compiled posterior has one output", type(f).__name__, "use predict")
    members = [trained(model.network, {k: v[i] for k, v in own.items()}) for i in range(len(next(iter(own.values()))))]
    return Members(model, members, {name: value.clone() for name, value in numbers.items()})
