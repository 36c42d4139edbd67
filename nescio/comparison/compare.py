"""Runs every method on every task and scores what it predicts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from torch import Tensor

from nescio.comparison.closeness import ceiling, near
from nescio.comparison.cost import passes, watched
from nescio.comparison.table import Comparison, Row
from nescio.comparison.task import Task
from nescio.errors import InputError, NescioError
from nescio.evaluation import auroc, max_probability, of_points, scores, total_variance
from nescio.infer.map import MAP
from nescio.infer.method import Method, fit
from nescio.model import Model
from nescio.posterior import Posterior
from nescio.predictive import Predictive

Fit = (
    Method | Callable[[Model, tuple[Tensor, Tensor], int], Posterior]
)  # a method, or a function (model, data, seed) -> Posterior
DRAWS = 200


def compare(
    model: Model,
    data: tuple[Tensor, Tensor],
    methods: Mapping[str, Fit],
    *,
    test: tuple[Tensor, Tensor],
    reference: Method | None = None,
    outside: Any = None,
    seeds: Sequence[int] = (0, 1, 2),
    budget: float | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Comparison:
    """Every method with every seed on the same model and data. `reference`: run once, and every method is compared with it;
    at least two chains, or it has no ceiling, and the table says so.

    `outside`: inputs unlike the data; AUROC says how well doubt tells them from `test`. `budget`: the most passes over the data that a
    method may plan, summed over its chains; one that plans more is refused.
    """
    tasks = [Task("data", model, data, test, outside=outside)]
    return compare_tasks(tasks, methods, reference=reference, seeds=seeds, budget=budget, progress=progress)


def compare_tasks(
    tasks: Sequence[Task],
    methods: Mapping[str, Fit],
    *,
    reference: Method | None = None,
    seeds: Sequence[int] = (0,),
    budget: float | None = None,
    seconds: float | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Comparison:
    """The same over several tasks. A method that cannot do a task has its reason in the table, and the others go on.

    `seconds`: when they are over no further split is begun; the first of every data set come first, and what has begun is finished for
    all methods, so that none is judged by other splits than the rest.
    """
    if not tasks or not methods or not seeds:
        got = f"{len(tasks)} tasks, {len(methods)} methods, {len(seeds)} seeds"
        raise InputError("a comparison needs tasks, methods and seeds", got, "give at least one of each")
    if seconds is not None and not seconds > 0:
        raise InputError("the seconds must be positive", f"{seconds:g}", "give 600 for ten minutes")
    warm_up(tasks[0])
    until = math.inf if seconds is None else time.monotonic() + seconds
    rows: list[Row] = []
    ceilings: dict[str, dict[str, float]] = {}
    without: dict[str, str] = {}
    total, done = len(tasks) * len(methods) * len(seeds), 0
    for task in tasks if seconds is None else sorted(tasks, key=lambda task: task.split):
        if rows and time.monotonic() >= until:
            break
        judge, limit = referee(task, reference)
        if isinstance(limit, str):
            without[f"{task.name} {task.split}"] = limit
        elif limit is not None:
            ceilings[f"{task.name} {task.split}"] = limit
        for seed in seeds:
            for name, method in methods.items():
                if progress is not None:
                    progress(f"{task.name}: {name}", done, total)
                rows.append(replace(scored(task, name, method, seed, judge, budget), reference=judge is not None))
                done += 1
    return Comparison(tuple(rows), None if reference is None else repr(reference), ceilings, total - done, without)


def warm_up(task: Task) -> None:
    """The first fit of a process pays for what all of them use; nobody's clock should run then."""
    few = min(8, len(task.data[1]))
    with suppress(NescioError):
        fit(task.model, (task.data[0][:few], task.data[1][:few]), MAP(epochs=1)).predict(task.test[0][:2])


def referee(task: Task, reference: Method | None) -> tuple[Predictive | None, dict[str, float] | str | None]:
    """What every method is compared with, and its ceiling or why it has none."""
    if reference is None:
        return None, None
    posterior = fit(task.model, task.data, reference, seed=0)
    x = task.test[0]
    try:
        limit: dict[str, float] | str = ceiling(posterior, x)
    except InputError as error:
        limit = str(error)
    return posterior.predict(x, draws=DRAWS), limit


def scored(task: Task, name: str, method: Fit, seed: int, judge: Predictive | None, budget: float | None) -> Row:
    began = time.perf_counter()
    device = task.model.network.like.device
    planned = passes(method, task.data, {}) if isinstance(method, Method) else None
    if budget is not None and (planned is None or planned > budget):
        reason = "an unknown number of passes" if planned is None else f"{planned:.0f} passes"
        return Row(name, task.name, task.split, seed, {}, f"over the budget of {budget:.0f} passes: {reason}")
    try:
        with watched(device) as peak:
            posterior = fitted(method, task, seed)
            seconds = time.perf_counter() - began
            predictive = posterior.predict(task.test[0], draws=DRAWS)
        values = {key: float(entry["value"]) for key, entry in scores(predictive, task.test[1]).items()}
        if judge is not None:
            values |= near(predictive, judge)
        if task.outside is not None:
            values["OOD AUROC"] = separated(predictive, posterior.predict(task.outside, draws=DRAWS))
    except NescioError as error:
        return Row(name, task.name, task.split, seed, {}, str(error))
    made = passes(method, task.data, posterior.info) if isinstance(method, Method) else None
    cost = {"seconds": seconds, "passes": made, "peak MB": None if peak.bytes is None else peak.bytes / 2**20}
    return Row(name, task.name, task.split, seed, values | {k: v for k, v in cost.items() if v is not None})


def fitted(method: Fit, task: Task, seed: int) -> Posterior:
    if isinstance(method, Method):
        return fit(task.model, task.data, method, seed=seed)
    return method(task.model, task.data, seed)


def separated(inside: Predictive, outside: Predictive) -> float:
    return auroc(doubt(inside), doubt(outside)).value


def doubt(predictive: Predictive) -> Tensor:
    return of_points(total_variance(predictive) if predictive.probabilities is None else max_probability(predictive))
