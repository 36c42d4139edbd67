"""`compress(posterior, x)`: remove, shrink, round, code."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nescio.compression.choice import Choice
from nescio.compression.compressed import Compressed
from nescio.compression.content import SPREAD, Content, encode
from nescio.compression.judge import Judge
from nescio.compression.ladder import applied
from nescio.compression.moments import Moments, moments
from nescio.compression.precision import Levels, Precision, Steps
from nescio.compression.rules import Rule, SignalToNoise
from nescio.compression.shrinking import Shrunk, shrink
from nescio.errors import InputError, UnsupportedError
from nescio.network import Params
from nescio.posterior.posterior import Posterior

FINER = 5  # times that rounding may be made finer to keep a promise


def compress(
    posterior: Posterior,
    x: Any = None,
    rule: Rule | Sequence[Rule] = SignalToNoise(),
    precision: Precision = Steps(),
    spread: bool = False,
    strict: bool = True,
) -> Compressed:
    """A small plain network from a posterior with one mode.

    `x`: two rows of the input, or None where the first layer says its shape. `rule`: which weights go, or several in turn. `precision`: how
    the others are rounded. `spread`: keep their standard deviations, so that what is stored is a posterior. `strict`: a node of the network
    through which nothing can be removed is an error, if there is something to remove.

        small = compress(posterior, x[:2], LogAlpha(3.0))
        small.net(x); small.save("net.nscz"); small.rate
    """
    given = moments(posterior)
    x = example(posterior) if x is None else x
    rules = [rule] if isinstance(rule, Rule) else list(rule)
    judge = Judge(posterior, given)
    alive = {name: torch.ones_like(m, dtype=torch.bool) for name, m in given.mean.items()}
    thresholds = []
    for one in rules:
        alive, least = applied(one, posterior, given, alive, judge)
        thresholds.append(least)
    for _ in range(FINER):
        small = stored(posterior, given, x, alive, precision, spread, strict)
        if all(judge.holds(one.threshold, small.net) for one in rules if isinstance(one.threshold, Choice)):
            break
        precision = precision.finer()
    else:
        must, got = "a promise must hold for the network as it is stored", f"{rules} broken by rounding, however fine"
        raise InputError(must, got, "allow a larger loss")
    small.info = {"rule": repr(rule), "precision": repr(precision), "least_scores": thresholds}
    return small


def stored(
    posterior: Posterior,
    given: Moments,
    x: Any,
    alive: dict[str, Tensor],
    precision: Precision,
    spread: bool,
    strict: bool,
) -> Compressed:
    """What would be rounded to zero is removed before the network is shrunk."""
    left = dict(alive)
    for name, keep in alive.items():
        if keep.dim() > 1:
            left[name] = keep & (precision.levels(given.mean[name] * keep, given.sd[name]).level != 0).to(keep.device)
    shrunk = shrink(with_weights(posterior, given, masked(given.mean, left)), x, strict)
    content = content_of(shrunk, given, left, precision, spread, tied(posterior.model.network.net))
    return Compressed(posterior.model, encode(posterior.model, content), {})


def tied(net: nn.Module) -> dict[str, str]:
    """The other names of weights that have several, and the name that a posterior knows them by."""
    first = {id(p): name for name, p in net.named_parameters()}
    every = net.named_parameters(remove_duplicate=False)
    return {name: first[id(p)] for name, p in every if name != first[id(p)]}


def content_of(
    small: Shrunk,
    given: Moments,
    alive: dict[str, Tensor],
    precision: Precision,
    spread: bool,
    others: dict[str, str],
) -> Content:
    """`others`: names of tied weights, which shrink each by itself."""
    if spread and any(name in given.mean for name in others.values()):
        must, got = "spreads can be kept of weights that are used once", f"{next(iter(others))} tied to another"
        raise UnsupportedError(must, got, "leave spread out")
    tensors: dict[str, Levels | Tensor] = {}
    spreads: dict[str, Tensor] = {}
    for name, p in small.net.named_parameters():
        own = others.get(name, name)
        if name in small.added:
            tensors[name] = Steps().levels(p.detach(), torch.zeros_like(p))
        elif own not in given.mean:
            tensors[name] = p.detach()
        else:
            sd = small.cut(name, given.sd[own] * alive[own])
            tensors[name] = precision.levels(p.detach(), sd)
            if spread:
                spreads[name] = (SPREAD * sd.double().clamp_min(2.0**-100).log2()).round().long().cpu()
    hidden = {f"{path}.pick" for path in small.picks}
    tensors |= {name: b.detach() for name, b in small.net.named_buffers() if name not in hidden}
    picks = {path: (pick.cpu(), incoming(small, path)) for path, pick in small.picks.items()}
    return Content(tensors, picks, spreads, given.numbers)


def incoming(small: Shrunk, path: str) -> int:
    """Up to the last input that is read; nobody needs to know how many there are."""
    return int(small.picks[path].max()) + 1


def with_weights(posterior: Posterior, given: Moments, weights: Params) -> nn.Module:
    """A copy of the network at these weights, in evaluation mode."""
    net = copy.deepcopy(posterior.model.network.net).eval()
    named = dict(net.named_parameters()) | dict(net.named_buffers())
    with torch.no_grad():
        for name, value in {**weights, **given.statistics}.items():
            named[name].copy_(value)
    return net


def masked(mean: Params, alive: dict[str, Tensor]) -> Params:
    return {name: m * alive[name] for name, m in mean.items()}


def example(posterior: Posterior) -> Tensor:
    """Two rows of zeros of a shape that the network takes: by its first layer, and for images the usual sizes."""
    net, like = posterior.model.network.net, posterior.model.network.like
    shapes: list[tuple[int, ...]] = []
    for module in net.modules():
        if isinstance(module, nn.Linear):
            shapes = [(2, module.in_features)]
            break
        if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            sides = [28, 32, 64, 96, 128, 224, 8, 16]
            shapes = [(2, module.in_channels, *[side] * len(module.kernel_size)) for side in sides]
            break
    for shape in shapes:
        try:
            with torch.no_grad():
                net(torch.zeros(shape, dtype=like.dtype, device=like.device))
        except (RuntimeError, TypeError, ValueError):
            continue
        return torch.zeros(shape, dtype=like.dtype, device=like.device)
    raise InputError("compress needs an example of the input", "a network that does not tell", "pass x[:2]")
