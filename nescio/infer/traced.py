"""What the Infos of a sampler's steps say of each draw, under thinning too, as a trace of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

TRACED = {  # the fields of an Info that go into the trace, and how; energies are sums of many terms and differ by little
    "energy": torch.float64,
    "acceptance": torch.float32,
    "divergent": torch.bool,
    "energy_error": torch.float32,
    "depth": torch.int16,
    "leapfrogs": torch.int32,
    "flips": torch.float32,
}
# under thinning these are over the steps since the draw before; all others are of the last of them
SUMS = {"divergent", "leapfrogs", "gradients"}
MEANS = {"acceptance", "flips"}


def merged(before: Any, info: Any, count: int) -> Any:
    """What `count` steps and one more have to say of the draw that they lead to."""
    kept = {name: getattr(before, name) + getattr(info, name) for name in SUMS & set(info._fields)}
    for name in MEANS & set(info._fields):
        x = getattr(before, name)
        kept[name] = x + (getattr(info, name) - x) / (count + 1)
    return info._replace(**kept)


def counting(info: Any) -> Any:
    return info._replace(divergent=info.divergent.long()) if hasattr(info, "divergent") else info


def traced(infos: Sequence[Any], chains: int, device: torch.device) -> dict[str, Tensor]:
    """What the infos say of each draw, (chains, draws): see `Draws`."""
    trace: dict[str, Tensor] = {}
    for name in [name for name in TRACED if infos and hasattr(infos[0], name)]:
        each = [getattr(i, name) for i in infos]
        # (chains, draws); a plain number is that of every chain
        x = torch.stack(each, 1) if isinstance(each[0], Tensor) else torch.tensor(each).expand(chains, -1)
        if name != "flips" or not bool(x.isnan().any()):  # of which there are none where nothing is discrete
            trace[name] = x.to(device, TRACED[name]).contiguous()
    return trace
