"""The last layer of a network, if it is a linear one, and what comes into it: the basis on which a head is a linear model."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from nescio.errors import InputError, UnsupportedError
from nescio.laws.prior import Prior
from nescio.network import Network, Params, few, rows
from nescio.posterior.places import places

BUDGET = 256 * 2**20  # bytes of activations of one part


class Head(NamedTuple):
    """`name`: of the module. `table` (outputs, inputs): where its numbers are in the flat vector, the bias as the last input."""

    name: str
    table: Tensor
    biased: bool


def find_head(network: Network, params: Params, x: Any) -> str:
    """The name of the `nn.Linear` whose output is that of the network."""
    seen: list[tuple[str, Any]] = []
    hooks = [
        module.register_forward_hook(lambda _m, _a, output, name=name: seen.append((name, output)))
        for name, module in network.net.named_modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        with torch.no_grad():
            f = network.call(params, few(x, 2))
    finally:
        for hook in hooks:
            hook.remove()
    last = [name for name, output in seen if output is f]
    if len(last) != 1 or [name for name, _ in seen].count(last[0]) != 1 or f.dim() != 2:
        got = (
            f"the linear layers {[name for name, _ in seen]}, none of them last" if not last else f"{last[0]!r}, reused"
        )
        raise UnsupportedError(
            "a network must end in one linear layer, (points, features) to (points, outputs)", got, "use Laplace"
        )
    return last[0]


def head_of(network: Network, prior: Prior, params: Params, x: Any, only: Tensor | None, who: str) -> Head:
    """The last layer with its places, all of which `only` must leave free."""
    name = find_head(network, params, x)
    module = network.net.get_submodule(name)
    assert isinstance(module, nn.Linear)
    prefix, found = f"{name}." if name else "", places(prior, only, who)
    wanted = [f"{prefix}weight", *([f"{prefix}bias"] if module.bias is not None else [])]
    absent = [site for site in wanted if site not in found or bool((found[site] < 0).any())]
    if absent:
        got, remedy = f"{absent} fixed", "let them be trainable, and let .on(...) match them"
        raise UnsupportedError(f"{who} needs the whole last layer to be random", got, remedy)
    parts = [found[site].view(module.out_features, -1) for site in wanted]
    return Head(name, torch.cat(parts, 1), module.bias is not None)


def features(network: Network, params: Params, x: Any, head: Head) -> Tensor:
    """What goes into the last layer, (points, inputs), a one for the bias last; no gradients."""
    if not rows(x):
        raise InputError("inputs must hold at least one point", "none", "leave out what has no rows")
    module, x = network.net.get_submodule(head.name), network.here(x)
    caught: list[Tensor] = []
    hook = module.register_forward_pre_hook(lambda _m, given: caught.append(given[0].detach()))
    step = max(1, BUDGET // network.bytes_per_point(x))
    try:
        with torch.no_grad():
            for start in range(0, rows(x), step):
                network.call(params, tree_map(lambda t, s=start: t[s : s + step], x))
    finally:
        hook.remove()
    phi = torch.cat(caught)
    return torch.cat([phi, phi.new_ones(len(phi), 1)], 1) if head.biased else phi
