r"""Empirical Bayes: the numbers of prior and likelihood under which the data are most probable (MacKay, 1992; Immer et al., 2021).

    repeat:   w*, H ← method at the numbers s;      s ← argmax_s  log p(D | s) by Laplace's method, w* and the data's curvature held

One round is post hoc: the network stays what it is, and only numbers move. More rounds are interleaved with training: each starts
at the weights of the one before. Where nothing moves any more the slope of the evidence is zero at a mode, and so s is a stationary
point of the evidence itself (of its approximation, where the curvature depends on w*).
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nescio.data.source import source
from nescio.errors import InputError
from nescio.infer.curvature.prior import inside
from nescio.infer.method import Method, On, Progress, Repeat, Run, Start, Then
from nescio.laws.fingerprint import spelled
from nescio.laws.variable import Reading, Variable
from nescio.marginal.learned import RANGE, Numbers, freed, learned, named, of_likelihood, values_of
from nescio.marginal.mode import AtMode
from nescio.model import Model
from nescio.posterior.mixture import Mixture
from nescio.posterior.posterior import Ends, Posterior
from nescio.target import Target, check


def tune(
    model: Model,
    data: Any,
    method: Method,
    *,
    rounds: int = 10,
    tolerance: float = 1e-2,
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Posterior:
    """The posterior by a method that ends in Laplace, with every `Learned` number where the evidence is highest.

        model = Model(net, Normal(0, Learned(1.).per("layer")), Gaussian(Learned(.1)))
        posterior = tune(model, data, MAP(epochs=50) >> Laplace(kfac))
        posterior = tune(model, data, MAP(epochs=5) >> Laplace(kfac), rounds=40)   interleaved with training
        posterior = tune(model, data, Laplace(kfac), rounds=1)                     post hoc, a trained network as it is
        posterior.info["tuned"]

    It stops when moving the numbers raises the evidence by less than `tolerance`, or after so many `rounds`. Scales per layer, per
    input (relevance determination), noise, the temperature of classes: whatever is `Learned`, up to 1e4 times and down to 1e-4 of
    where it began. Training holds these numbers. The members of `n * method` share them, at the best mean evidence.
    """
    if not isinstance(method, Method) or rounds < 1:
        got = f"{method!r} and {rounds} rounds"
        raise InputError("tune takes a method and at least one round", got, "try MAP() >> Laplace()")
    began = time.perf_counter()
    if device is not None:
        model = copy.deepcopy(model).to(device)
    given = source(data).to(model.network.like.device)
    check(model, given)
    variables = learned(model.prior)
    if not variables:
        remedy = "write for instance Normal(0, Learned(1.))"
        raise InputError("something must be Learned to be tuned", "constants and laws only", remedy)
    names = {variable.name for variable in variables if of_likelihood(variable)}
    target = replace(Target(model, given), only=model.prior.mask(lambda v: v.name not in names))
    noise, start, once, trace = model.noise(seed, "tune"), Start(), method, []
    first: dict[str, Tensor] = {}
    while True:
        posterior = once.run(target, start, Run(noise.at("round", len(trace)), progress))
        modes = [AtMode(part, given) for part in (posterior.parts if isinstance(posterior, Mixture) else [posterior])]
        if not first:
            first = values_of(model.prior, modes[0].of.theta, variables)
            variables = matter(modes[0], variables)
        now = values_of(model.prior, modes[0].of.theta, variables)
        before, after, best = maximise(modes, now, first, variables)
        parts = [mode.posterior(best) for mode in modes]
        trace.append(round(before, 6))
        if after - before < tolerance or len(trace) == rounds:
            break
        start, once = Start(len(parts), joined([part.ends() for part in parts])), single(method)
    tuned = {name: value.tolist() if value.numel() > 1 else float(value) for name, value in best.items()}
    found = {"tuned": tuned, "evidence": [*trace, round(after, 6)], "settled": after - before < tolerance}
    result = Mixture(parts, {**posterior.info}) if isinstance(posterior, Mixture) else parts[0]
    result.info.update(found, method=spelled(method), seed=seed, temperature=1.0, rows=given.size)
    result.info.update(seconds=round(time.perf_counter() - began, 3), device=str(model.network.like.device))
    return result


def matter(mode: AtMode, variables: Sequence[Variable]) -> list[Variable]:
    """Those that the evidence depends on: the likelihood's, and what is in the law of a weight that is not held fixed."""
    prior = mode.of.model.prior
    free = [prior.variables[i] for i, _, _ in inside(prior, mode.of.slots)]
    read = {reading.variable for law in free for reading in law.readings.values() if isinstance(reading, Reading)}
    names = {prior.variables[i].name for i in read if i >= 0}
    found = [variable for variable in variables if of_likelihood(variable) or variable.name in names]
    if not found:
        got, remedy = f"none of {[v.name for v in variables]}", "free the weights whose law has it"
        raise InputError("the evidence must depend on a Learned number", got, remedy)
    return found


def maximise(
    modes: Sequence[AtMode], now: Numbers, first: Numbers, variables: Sequence[Variable]
) -> tuple[float, float, dict[str, Tensor]]:
    """The evidence before and after, and the numbers there: quasi-Newton in their logarithms, all modes at once."""
    ends = [freed({v.name: first[v.name].detach() * f for v in variables}, variables) for f in (1 / RANGE, RANGE)]
    low, high = torch.minimum(*ends), torch.maximum(*ends)
    for i, variable in enumerate(torch.cat([torch.full((v.size,), v.positive) for v in variables])):
        if not variable:  # a location has no scale of its own
            low[i], high[i] = -math.inf, math.inf
    u = freed(now, variables).clone().requires_grad_()
    method = torch.optim.LBFGS([u], 1.0, 40, None, 1e-6, 1e-9, 20, "strong_wolfe")

    def loss() -> Tensor:
        method.zero_grad()
        numbers = named(u.clamp(low, high), variables)
        each = torch.stack([mode.evidence(numbers) for mode in modes])
        value = math.log(len(each)) - each.logsumexp(0)
        value.backward()
        return value

    before = -float(method.step(loss).detach())  # type: ignore[arg-type]
    best = {name: value.detach() for name, value in named(u.detach().clamp(low, high), variables).items()}
    with torch.no_grad():
        after = torch.stack([mode.evidence(best) for mode in modes]).logsumexp(0) - math.log(len(modes))
    if float(after) < before:
        return before, before, {name: value.detach().clone() for name, value in now.items()}
    return before, float(after), best


def joined(ends: Sequence[Ends]) -> Ends:
    statistics = {name: torch.cat([e.statistics[name] for e in ends]) for name in ends[0].statistics}
    return Ends(torch.cat([e.theta for e in ends]), statistics)


def single(method: Method) -> Method:
    """The same without its replicas: there are as many starts as members."""
    if isinstance(method, Repeat):
        return single(method.method)
    if isinstance(method, Then):
        return Then(single(method.first), single(method.second))
    return On(single(method.method), method.pattern) if isinstance(method, On) else method
